"""Policies to evaluate: for each logged request a finite list of slates with probabilities, and a uniform share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.slate_log import checked_slates, share_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Target", "always", "make_target", "uniform"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a policy would show to each of N requests; make one with `always`, `make_target` or `uniform`, which check.

    Attributes
    ----------
    slates
        Shape (N, L, k); one may be listed twice.
    probabilities
        For the slates listed, shape (N, L).
    uniform_share
        Of a slate drawn uniformly from all eligible ones, shape (N,): what the probabilities lack to one.
    n_eligible
        How many items can be shown, shape (N,).
    """

    slates: Rankings
    probabilities: FloatArray
    uniform_share: FloatArray
    n_eligible: NDArray[np.intp]

    def lists(self) -> Iterator[tuple[Rankings, FloatArray]]:
        """Yield the slates (N, k) and their probabilities (N,), L times."""
        yield from zip(self.slates.swapaxes(0, 1), self.probabilities.T, strict=True)

    def first(self, count: int) -> Target:
        """Return what the policy shows at the first `count` positions."""
        return replace(self, slates=self.slates[:, :, :count])

    def probability_of(self, slates: Rankings) -> FloatArray:
        """Return the probability of each request's slate (N, k), shape (N,)."""
        total = self.uniform_share * share_of_each(self.n_eligible, slates.shape[1])
        for listed_slates, probabilities in self.lists():
            total = total + probabilities * (listed_slates == slates).all(axis=1)
        return total

    def position_matches(self, items: Rankings) -> FloatArray:
        """Return the probability that each position shows each of a request's items (N, q), shape (N, k, q).

        The items have to be eligible.
        """
        total = np.empty((len(items), self.slates.shape[2], items.shape[1]))
        total[:] = (self.uniform_share / self.n_eligible)[:, None, None]
        for slates, probabilities in self.lists():
            total += probabilities[:, None, None] * (slates[:, :, None] == items[:, None, :])
        return total


def make_target(log: SlateLog, slates: Rankings, probabilities: FloatArray) -> Target:
    """Return the policy that shows one of a request's slates (N, L, k), with these probabilities (N, L).

    What probabilities lack to one is the share of slates drawn uniformly from all eligible ones.

    Raises
    ------
    InvalidArgumentError
        Shapes differ, a slate shows what is not eligible, or probabilities are negative or add up to more than one.
    """
    rows, chances = np.asarray(slates), np.asarray(probabilities, dtype=float)
    if rows.ndim != 3 or rows.shape[:2] != chances.shape or len(rows) != len(log):
        raise InvalidArgumentError("slates", f"expected shapes ({len(log)}, L, k) and ({len(log)}, L)")
    rest = 1.0 - chances.sum(axis=1)
    if not ((chances >= 0.0).all() and (rest > -_ROUNDING).all()):
        raise InvalidArgumentError("probabilities", "expected none below zero, and at most one together")
    size, policy = log.policy.slate_size, log.policy
    for column in rows.swapaxes(0, 1):
        checked_slates(column, policy.eligible, size, field="slates")
    return Target(rows.astype(np.int32), chances, np.where(rest < _ROUNDING, 0.0, rest), policy.n_eligible)


def always(log: SlateLog, slates: Rankings) -> Target:
    """Return the policy that shows each request its slate (N, k); errors as `make_target`."""
    return make_target(log, np.asarray(slates)[:, None, :], np.ones((len(log), 1)))


def uniform(log: SlateLog) -> Target:
    """Return the policy that draws uniformly from all eligible slates."""
    nothing = np.empty((len(log), 0, log.policy.slate_size), dtype=np.int32)
    return make_target(log, nothing, np.empty((len(log), 0)))


_ROUNDING = 1e-9
