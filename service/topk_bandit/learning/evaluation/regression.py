"""Rows of the regression of rewards: which slates show which item where, in which context, and what a policy shows.

Coefficients are one vector: effects theta (k, n, C) of an item at a position in a context, then those that all items
share. The latter are C of the context alone, and where a policy is weighed k for items that it would show. Rows are
sparse, so that a shop of any size has a regression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.learning.evaluation.slate_log import ShownSlates, SlateLog
    from topk_bandit.learning.evaluation.targets import Target
    from topk_bandit.learning.rankings import Rankings

__all__ = [
    "RegressionRows",
    "Shape",
    "columns_of_target",
    "place_items",
    "standardised",
    "target_columns",
    "target_row",
    "values_of_target",
]

FloatArray = NDArray[np.float64]

_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Shape:
    """How many positions k, items n and numbers of a context C, with its one, the effects are of."""

    size: int
    n_items: int
    dim: int

    @property
    def n_effects(self) -> int:
        """K n C."""
        return self.size * self.n_items * self.dim

    def effects(self, coefficients: FloatArray) -> FloatArray:
        """Return the effects of coefficients (P, m), shape (k, n, C, m)."""
        return coefficients[: self.n_effects].reshape(self.size, self.n_items, self.dim, -1)


@dataclass(frozen=True, eq=False)
class RegressionRows:
    """The rows of A slates: contexts (A, C), which item each position shows (A, k n), the shared columns (A, E)."""

    shape: Shape
    contexts: FloatArray
    shown: csr_array
    shared: FloatArray

    @classmethod
    def of(cls, n_items: int, contexts: FloatArray, slates: Rankings) -> RegressionRows:
        """Return the rows of slates (A, k) to requests with contexts as `standardised` gives them."""
        shape = Shape(slates.shape[1], n_items, contexts.shape[1])
        return cls(shape, contexts, place_items(n_items, slates), contexts)

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def n_coefficients(self) -> int:
        """P = k n C + E."""
        return self.shape.n_effects + int(self.shared.shape[1])

    def part(self, rows: slice | NDArray[np.intp]) -> RegressionRows:
        """Return some of the rows."""
        return replace(self, contexts=self.contexts[rows], shown=self.shown[rows], shared=self.shared[rows])

    def with_rows(self, others: RegressionRows) -> RegressionRows:
        """Return these rows, and then others."""
        shown = vstack([self.shown, others.shown], format="csr")
        contexts = np.concatenate([self.contexts, others.contexts])
        return replace(self, contexts=contexts, shown=shown, shared=np.concatenate([self.shared, others.shared]))

    def with_columns(self, columns: FloatArray) -> RegressionRows:
        """Return the rows with more shared columns (A, e)."""
        return replace(self, shared=np.column_stack([self.shared, columns]))

    def apply(self, coefficients: FloatArray) -> FloatArray:
        """Return what coefficients (P, m) give to each slate, shape (A, m)."""
        effects, count = self.shape.effects(coefficients), coefficients.shape[1]
        by_column = np.ascontiguousarray(effects.reshape(-1, self.shape.dim, count).swapaxes(1, 2))
        of_items = (self.shown @ by_column.reshape(len(by_column), -1)).reshape(len(self), count, -1)
        total = np.einsum("ac,amc->am", self.contexts, of_items)
        return np.asarray(total + self.shared @ coefficients[self.shape.n_effects :])

    def gather(self, values: FloatArray) -> FloatArray:
        """Return the sums over slates of rows times values (A, m), shape (P, m): the transpose of `apply`."""
        count = values.shape[1]
        of_each = (self.contexts[:, None, :] * values[:, :, None]).reshape(len(self), -1)
        effects = (self.shown.T @ of_each).reshape(-1, count, self.shape.dim).swapaxes(1, 2)
        return np.asarray(np.concatenate([effects.reshape(-1, count), self.shared.T @ values]))


def place_items(n_items: int, slates: Rankings) -> csr_array:
    """Return which of n items each position of the slates (A, k) shows, shape (A, k n)."""
    count, size = slates.shape
    places = (np.arange(size) * n_items + slates).ravel()
    return csr_array(
        (np.ones(count * size), places, np.arange(0, count * size + 1, size)), shape=(count, size * n_items)
    )


def standardised(log: ShownSlates, contexts: FloatArray) -> FloatArray:
    """Return contexts (A, C) with a one, and the log's with mean 0 and spread 1 in what varies there."""
    spread = log.contexts.std(axis=0)
    varying = spread > _SAME * np.abs(log.contexts).max(axis=0, initial=1.0)
    standard = (contexts[:, varying] - log.contexts[:, varying].mean(axis=0)) / spread[varying]
    return np.column_stack([np.ones(len(contexts)), standard])


def target_columns(target: Target, slates: Rankings, doubt: FloatArray) -> FloatArray:
    """Return how likely a policy lists what each position shows, at whichever position, times doubts (N, k)."""
    total = np.zeros(slates.shape)
    for listed, probabilities in target.lists():
        total += probabilities[:, None] * (slates[:, :, None] == listed[:, None, :]).any(axis=2)
    return total * doubt


def target_row(log: SlateLog, rows: RegressionRows, target: Target) -> FloatArray:
    """Return the mean row over requests and a policy's slates, shape (P,).

    What coefficients give to it is what they give to the policy.
    """
    shape, contexts = rows.shape, rows.contexts
    effects = np.zeros((shape.size * shape.n_items, shape.dim))
    for slates, probabilities in target.lists():
        effects += place_items(log.n_items, slates).T @ (contexts * probabilities[:, None])
    of_each_item = log.policy.eligible * (target.uniform_share / target.n_eligible)[:, None]
    effects += np.tile(of_each_item.T @ contexts, (shape.size, 1))
    return np.concatenate([effects.ravel(), contexts.sum(axis=0)]) / len(log)


def columns_of_target(target: Target, doubts: Callable[[Rankings], FloatArray]) -> FloatArray:
    """Return the mean of `target_columns` over requests and a policy's slates, shape (k,)."""
    total = np.zeros(target.slates.shape[2])
    for slates, probabilities in target.lists():
        doubt = doubts(slates)
        total += probabilities @ target_columns(target, slates, doubt)
        total += (target.uniform_share / target.n_eligible * probabilities) @ doubt.sum(axis=1)
    return total / len(target.uniform_share)


def values_of_target(
    log: SlateLog, rows: RegressionRows, target: Target, part: slice, coefficients: FloatArray
) -> FloatArray:
    """Return what coefficients (P,) give on average to a policy's slates to some requests, shape (A,)."""
    shape, contexts = rows.shape, rows.contexts[part]
    effects = shape.effects(coefficients)[..., 0].sum(axis=0)
    shared = coefficients[shape.n_effects :]
    of_items = ((log.policy.eligible[part] @ effects) * contexts).sum(axis=1) / target.n_eligible[part]
    total = target.uniform_share[part] * (of_items + contexts @ shared)
    for slates, probabilities in target.lists():
        listed = RegressionRows.of(log.n_items, contexts, slates[part])
        total = total + probabilities[part] * listed.apply(coefficients[:, None])[:, 0]
    return np.asarray(total)
