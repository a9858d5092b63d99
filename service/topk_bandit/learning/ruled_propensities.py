"""The distribution that a decision under rules draws its slate from: as without rules, among the slates they allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.compiled.ruled_climbing import list_near

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.learning.allowed_slates import AllowedSlates

__all__ = ["RuledDistribution"]


@dataclass(frozen=True, slots=True, eq=False)
class RuledDistribution:
    """The distribution that one decision under rules draws its slate from.

    Attributes
    ----------
    best
        Item indices, best first, shape (k,); they keep the rules.
    eligible
        Distinct item indices in ascending order, shape (E,): those that rules leave.
    near
        All allowed slates near the best one, shape (A, k).
    allowed
        All allowed slates, as places of eligible items; None where none of them is drawn uniformly.
    near_share, uniform_share
        Probabilities of one of `near`, and of one of `allowed`.
    """

    best: NDArray[np.int32]
    eligible: NDArray[np.int32]
    near: NDArray[np.int32]
    allowed: AllowedSlates | None
    near_share: float
    uniform_share: float

    @classmethod
    def of(
        cls, exploration: Exploration, best: NDArray[np.int32], eligible: NDArray[np.int32], allowed: AllowedSlates
    ) -> RuledDistribution:
        """Return the distribution that settings of exploration name.

        Where the allowed slates are too many to be counted none is drawn uniformly, and those near the best one have
        that share, too: each probability is exact all the same.
        """
        places = np.searchsorted(eligible, best)
        near = eligible[list_near(allowed.rules, places)]
        if not exploration.uniform_share or allowed.count is None:
            share = exploration.uniform_share + (1.0 - exploration.uniform_share) * exploration.near_share
            return cls(best, eligible, near, None, share if len(near) else 0.0, 0.0)
        near_share = exploration.near_share if len(near) else 0.0
        uniform = exploration.uniform_share
        return cls(best, eligible, near, allowed, (1.0 - uniform) * near_share, uniform)

    @property
    def best_share(self) -> float:
        """Probability of showing the best slate because it is that."""
        return 1.0 - self.near_share - self.uniform_share

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int32], bool]:
        """Return a slate, and whether it was drawn by one of the shares."""
        chance = rng.random()
        if self.allowed is not None and chance < self.uniform_share:
            return self.eligible[self.allowed.draw(rng)], True
        if chance < self.uniform_share + self.near_share:
            return self.near[int(rng.integers(len(self.near)))], True
        return self.best, False

    def propensity(self, slate: NDArray[np.int32]) -> float:
        """Return the probability of an allowed slate."""
        uniform = self.uniform_share / self.allowed.count if self.allowed and self.allowed.count else 0.0
        if (slate == self.best).all():
            return uniform + self.best_share
        return uniform + (self.near_share / len(self.near) if (self.near == slate).all(axis=1).any() else 0.0)

    def position_propensities(self, slate: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the probabilities of showing each item of an allowed slate at its position, shape (k,)."""
        shown = self.best_share * (slate == self.best)
        if self.near_share:
            shown = shown + self.near_share * (self.near == slate).mean(axis=0)
        if self.allowed is not None:
            places = np.searchsorted(self.eligible, slate)
            shown = shown + self.uniform_share * self.allowed.position_shares[np.arange(len(slate)), places]
        return np.asarray(shown)
