"""What was logged under rules: each slate was drawn among those that the rules of its request allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.weights import Weights, mean_weight_of_uniform
from topk_bandit.learning.relaxed_rules import complete_slate

if TYPE_CHECKING:
    from topk_bandit.learning.propensities import SlateDistribution
    from topk_bandit.learning.rankings import Rankings

__all__ = ["RuledLog"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RuledLog:
    """Logged requests under rules, in their order of time.

    A policy is evaluated as it would be under the rules: its slates are completed as a baseline slate is.

    Attributes
    ----------
    policies
        The distribution that each slate was drawn from, with the slates that rules allow, which are counted, and a
        uniform share above 0.
    slates
        Those shown, shape (N, k).
    rewards
        Shape (N,).
    """

    policies: tuple[SlateDistribution, ...]
    slates: Rankings
    rewards: FloatArray

    def __len__(self) -> int:
        return len(self.rewards)

    def part(self, rows: NDArray[np.bool_]) -> RuledLog:
        """Return the log of some of the requests, those where `rows` (N,) is true."""
        kept = tuple(self.policies[row] for row in np.flatnonzero(rows).tolist())
        return RuledLog(kept, self.slates[rows], self.rewards[rows])

    def complete(self, slates: Rankings) -> Rankings:
        """Return what rules make of the slates (N, k) of a policy, of items that rules leave: each is allowed.

        It keeps the most of the policy's items at their positions, as
        `topk_bandit.learning.relaxed_rules.complete_slate` says.
        """
        return np.array([_complete(*pair) for pair in zip(self.policies, slates, strict=True)], dtype=np.int32)

    def weights_of(self, slates: Rankings) -> Weights:
        """Return the importance weights of the policy that shows these allowed slates (N, k)."""
        chances = self._propensities(slates)
        return Weights((slates == self.slates).all(axis=1) / chances, 1.0 / chances)

    def weights_of_uniform(self) -> Weights:
        """Return the importance weights of the policy that draws uniformly among the allowed slates."""
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
