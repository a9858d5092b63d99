"""What was logged under rules: each slate was drawn among those that the rules of its request allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.regression import place_items
from topk_bandit.learning.evaluation.weights import Weights, mean_weight_of_uniform
from topk_bandit.learning.relaxed_rules import complete_slate

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.learning.propensities import SlateDistribution
    from topk_bandit.learning.rankings import Rankings

__all__ = ["RuledLog", "RuledTarget"]

FloatArray = NDArray[np.float64]


class RuledTarget(NamedTuple):
    """A policy under rules.

    Attributes
    ----------
    weights
        Its importance weights.
    shown
        Returns, for some of the requests, how probably each position shows each item, shape (A, k n).
    """

    weights: Weights
    shown: Callable[[slice], csr_array]


@dataclass(frozen=True, slots=True, eq=False)
class RuledLog:
    """Logged requests under rules, in their order of time.

    A policy is evaluated as it would be under the rules: its slates are completed as a baseline slate is.

    Attributes
    ----------
    contexts
        Shape (N, C).
    policies
        The distribution that each slate was drawn from, with the slates that rules allow, which are counted, and a
        uniform share above 0.
    slates
        Those shown, shape (N, k).
    rewards
        Shape (N,).
    n_items
        How many items there are.
    """

    contexts: FloatArray
    policies: tuple[SlateDistribution, ...]
    slates: Rankings
    rewards: FloatArray
    n_items: int

    def __len__(self) -> int:
        return len(self.rewards)

    def part(self, rows: NDArray[np.bool_]) -> RuledLog:
        """Return the log of some of the requests, those where `rows` (N,) is true."""
        kept = tuple(self.policies[row] for row in np.flatnonzero(rows).tolist())
        return RuledLog(self.contexts[rows], kept, self.slates[rows], self.rewards[rows], self.n_items)

    def complete(self, slates: Rankings) -> Rankings:
        """Return what rules make of the slates (N, k) of a policy, of items that rules leave: each is allowed.

        It keeps the most of the policy's items at their positions, as
        `topk_bandit.learning.relaxed_rules.complete_slate` says.
        """
        return np.array([_complete(*pair) for pair in zip(self.policies, slates, strict=True)], dtype=np.int32)

    def always(self, slates: Rankings) -> RuledTarget:
        """Return the policy that shows these allowed slates (N, k)."""
        chances = self._propensities(slates)
        weights = Weights((slates == self.slates).all(axis=1) / chances, 1.0 / chances)
        return RuledTarget(weights, lambda part: place_items(self.n_items, slates[part]))

    def uniform(self) -> RuledTarget:
        """Return the policy that draws uniformly among the allowed slates."""
        return RuledTarget(self._weights_of_uniform(), self._shown_by_uniform)

    def _shown_by_uniform(self, part: slice) -> csr_array:
        policies = self.policies[part]
        # Requests with the same allowed slates have the same eligible items.
        columns = {
            allowed: _columns(one, self.n_items) for allowed, one in {one.allowed: one for one in policies}.items()
        }
        places, shares = zip(*(columns[one.allowed] for one in policies), strict=True)
        ends = np.cumsum([0, *map(len, places)])
        shape = len(policies), self.slates.shape[1] * self.n_items
        return csr_array((np.concatenate(shares), np.concatenate(places), ends), shape=shape)

    def _weights_of_uniform(self) -> Weights:
        each = 1.0 / np.array([_count(one) for one in self.policies], dtype=np.float64)
        near, uniform = (
            np.array([getattr(one, share) for one in self.policies]) for share in ("near_share", "uniform_share")
        )
        n_near = np.array([len(one.near) for one in self.policies])
        share_of_near = np.where(n_near > 0, near / np.maximum(n_near, 1), 0.0)
        best = 1.0 - near - uniform
        return Weights(
            each / self._propensities(self.slates),
            mean_weight_of_uniform(each, uniform * each, best, share_of_near, n_near),
        )

    def _propensities(self, slates: Rankings) -> FloatArray:
        return np.array([one.propensity(slate) for one, slate in zip(self.policies, slates, strict=True)])


def _columns(policy: SlateDistribution, n_items: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Return which items uniform draws show at which positions, as columns of k n, and how probably."""
    if policy.allowed is None:
        raise InvalidArgumentError("policies", "expected allowed slates")
    shares = policy.allowed.position_shares
    positions, places = np.nonzero(shares)
    return positions * n_items + policy.near.eligible[places], shares[positions, places]


def _complete(policy: SlateDistribution, slate: NDArray[np.int32]) -> NDArray[np.int32]:
    eligible = policy.near.eligible
    if policy.allowed is None or not np.isin(slate, eligible).all():
        raise InvalidArgumentError("slates", "a slate shows an item that is not eligible")
    completed = complete_slate(policy.allowed.rules, np.searchsorted(eligible, slate))
    if completed is None:
        raise InvalidArgumentError("policies", "no slate keeps the rules")
    return eligible[completed]


def _count(policy: SlateDistribution) -> int:
    count = None if policy.allowed is None else policy.allowed.count
    if not count or not policy.uniform_share:
        raise InvalidArgumentError("policies", "expected allowed slates that are counted, and a uniform share above 0")
    return count
