"""The Plackett-Luce likelihood of given answers as a function of the weights, with its derivatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.compiled import orderings as compiled_orderings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.preferences.answers import IntArray, Orderings

__all__ = ["Likelihood", "Local"]

FloatArray = NDArray[np.float64]

_BLOCK_BYTES = 2**22
_ROUNDING = 1e-13
_OPERATIONS_A_PAIR = 8
_WIDEST = 200.0
"""Range of utilities whose exponentials and their products stay within floating point."""


class Local(NamedTuple):
    """A log-likelihood near some weights.

    Attributes
    ----------
    value
        In nats.
    gradient
        Shape (d,).
    information
        The negative Hessian, shape (d, d), positive semidefinite.
    """

    value: float
    gradient: FloatArray
    information: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood:
    """Answers, with the features of the items in them.

    Attributes
    ----------
    features
        For the items that occur, shape (n, d).
    items, starts, places
        As those of `Orderings`, the items counted among those that occur.
    wins
        How many places each item was given, shape (n,).
    """

    features: FloatArray
    items: IntArray
    starts: IntArray
    places: IntArray
    wins: FloatArray

    @classmethod
    def of(cls, features: FloatArray, orderings: Orderings) -> Likelihood:
        """Return the likelihood of orderings of items with these features, shape (N, d).

        Raises
        ------
        InvalidArgumentError
            Naming ``orderings``: it has an item without features.
        """
        items = orderings.items
        if len(items) and not 0 <= items.min() <= items.max() < len(features):
            wrong = int(np.argmax((items >= len(features)) | (items < 0)))
            problem = f"item {items[wrong]} has no features: there are {len(features)} rows"
            raise InvalidArgumentError("orderings", problem)
        used, renamed, wins = compiled_orderings.renumber_items(
            items, orderings.starts, orderings.places, len(features)
        )
        return cls(features[used], renamed, orderings.starts, orderings.places, wins)

    @property
    def groups(self) -> IntArray:
        """Number of each item's group, shape (n,): answers connect the items in them."""
        return np.asarray(compiled_orderings.find_components(self.items, self.starts, len(self.features)))

    def standardise(self) -> tuple[Likelihood, FloatArray]:
        """Return the same likelihood of features about the means of their groups, and the scale taken out, (d,).

        Shifting the features of a group changes no difference of utilities within an answer, so the likelihood at theta
        is that of the standardised features at theta * scale. A feature that no answer compares becomes 0.
        """
        groups = self.groups
        sums = np.zeros((int(groups.max()) + 1, self.features.shape[1]))
        np.add.at(sums, groups, self.features)
        centred = self.features - (sums / np.bincount(groups)[:, None])[groups]
        scale = np.abs(centred).max(axis=0)
        flat = scale <= _ROUNDING * np.abs(self.features).max(axis=0)
        centred[:, flat], scale[flat] = 0.0, 1.0
        return replace(self, features=centred / scale), scale

    def head(self, n_answers: int) -> Likelihood:
        """Return the likelihood of the first answers alone."""
        starts, places = self.starts[: n_answers + 1], self.places[:n_answers]
        items = self.items[: starts[-1]]
        used, renamed, wins = compiled_orderings.renumber_items(items, starts, places, len(self.features))
        return Likelihood(self.features[used], renamed, starts, places, wins)

    def value(self, theta: FloatArray) -> float:
        """Return the log-likelihood."""
        return float(compiled_orderings.log_likelihood(self.features @ theta, self.items, self.starts, self.places))

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Return the gradient, shape (d,)."""
        surplus = np.zeros(len(self.features))
        compiled_orderings.accumulate_surplus(self.features @ theta, self.items, self.starts, self.places, surplus)
        return np.asarray(self.features.T @ surplus)

    def at(self, theta: FloatArray) -> Local:
        """Return the log-likelihood with both derivatives, by pairs or by stages, whichever costs less.

        Summing over pairs of items takes O(pairs in the answers + n^2 d), over stages O(E d + S d^2).
        """
        (n, d), lengths = self.features.shape, np.diff(self.starts)
        by_pairs = _OPERATIONS_A_PAIR * float(lengths @ (lengths - 1)) / 2.0 + float(n) ** 2 * d
        by_stages = 2.0 * len(self.items) * d + float(self.places.sum()) * d**2
        if by_pairs < by_stages and np.ptp(self.features @ theta) < _WIDEST:
            return self.by_pairs(theta)
        return self.by_stages(theta)

    def by_pairs(self, theta: FloatArray) -> Local:
        """Return `at`: X' (diag(Q 1) - Q) X, where Q_ij = sum over stages of p_si p_sj for i != j."""
        n, utilities = len(self.features), self.features @ theta
        weights = np.exp(utilities - 0.5 * (utilities.max() + utilities.min()))
        surplus, products = np.zeros(n), np.zeros((n, n))
        value = compiled_orderings.accumulate_pairs(weights, self.items, self.starts, self.places, surplus, products)
        products += products.T
        images = products.sum(axis=1)[:, None] * self.features - products @ self.features
        return Local(value, self.features.T @ surplus, _symmetric(self.features.T @ images))

    def by_stages(self, theta: FloatArray) -> Local:
        """Return `at`: X' diag(c) X - M' M, in blocks of stages."""
        (n, d), utilities = self.features.shape, self.features @ theta
        surplus, value, products = np.zeros(n), 0.0, np.zeros((d, d))
        for block in self._blocks():
            means = np.empty((int(block.places.sum()), d))
            value += compiled_orderings.fill_stage_means(
                utilities, self.features, block.items, block.starts, block.places, surplus, means
            )
            products += means.T @ means
        expected = self.wins - surplus
        information = self.features.T @ (expected[:, None] * self.features) - products
        return Local(value, self.features.T @ surplus, information)

    def _blocks(self) -> Iterator[Likelihood]:
        stages = max(_BLOCK_BYTES // (8 * self.features.shape[1]), 1)
        block_of = np.cumsum(self.places) // stages
        ends = np.append(np.flatnonzero(np.diff(block_of)) + 1, len(self.places))
        first = 0
        for end in ends:
            yield replace(self, starts=self.starts[first : end + 1], places=self.places[first:end])
            first = int(end)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)
