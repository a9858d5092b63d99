"""Which slates a decision may show, and how probable each is: the best one, slates near it, and all others.

Slates near the best one differ from it by one item that is replaced, or by two that change places. They cost little
regret, and tell what the best slate's parts are worth. The uniform share gives every slate a chance, so that whatever
another policy would show can be evaluated from the log. Under rules each of them is a slate that they allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.near_slates import NearSlates
from topk_bandit.learning.rankings import log_count, random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.learning.allowed_slates import AllowedSlates

__all__ = ["SlateDistribution"]


@dataclass(frozen=True, slots=True, eq=False)
class SlateDistribution:
    """The distribution that one decision draws its slate from.

    Attributes
    ----------
    near
        The slates near the best one.
    allowed
        All slates that rules allow, as places of eligible items; None where any is allowed.
    near_share, uniform_share
        Probabilities of a slate near the best one, 0 where there is none, and of one drawn uniformly.
    """

    near: NearSlates
    allowed: AllowedSlates | None
    near_share: float
    uniform_share: float

    @classmethod
    def of(
        cls,
        exploration: Exploration,
        best: NDArray[np.int32],
        eligible: NDArray[np.int32],
        allowed: AllowedSlates | None = None,
    ) -> SlateDistribution:
        """Return the distribution that settings of exploration name.

        Parameters
        ----------
        best
            Item indices, best first, shape (k,); all of them are eligible, and rules allow it.
        eligible
            Distinct item indices in ascending order, shape (E,).
        allowed
            As of the distribution. Where they are too many to be counted none is drawn uniformly, and those near the
            best one have that share, too: each probability is exact all the same.
        """
        near = NearSlates(best, eligible, None if allowed is None else allowed.rules)
        uniform_share, near_share = (
            exploration.uniform_share,
            (1.0 - exploration.uniform_share) * exploration.near_share,
        )
        if allowed is not None and uniform_share and allowed.count is None:
            uniform_share, near_share = 0.0, uniform_share + near_share
        return cls(near, allowed, near_share if len(near) else 0.0, uniform_share)

    @property
    def best(self) -> NDArray[np.int32]:
        """Item indices of the best slate, shape (k,)."""
        return self.near.centre

    @property
    def best_share(self) -> float:
        """Probability of showing the best slate because it is that."""
        return 1.0 - self.near_share - self.uniform_share

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int32], bool]:
        """Return a slate, and whether it was drawn by one of the shares."""
        chance = rng.random()
        if chance < self.uniform_share:
            return self._draw_any(rng), True
        if chance < self.uniform_share + self.near_share:
            return self.near.draw(rng), True
        return self.best, False

    def propensity(self, slate: NDArray[np.int32]) -> float:
        """Return the probability of an allowed slate."""
        uniform = self.uniform_share * self._share_of_one if self.uniform_share else 0.0
        if (slate == self.best).all():
            return uniform + self.best_share
        return uniform + (self.near_share / len(self.near) if self.near.has(slate) else 0.0)

    def position_propensities(self, slate: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the probabilities of showing each item of an allowed slate at its position, shape (k,)."""
        uniform = self._position_shares(slate) if self.uniform_share else 0.0
        beside = self.near_share * self.near.count_with(slate) / len(self.near) if self.near_share else 0.0
        return np.asarray(uniform + self.best_share * (slate == self.best) + beside)

    def _draw_any(self, rng: np.random.Generator) -> NDArray[np.int32]:
        eligible = self.near.eligible
        if self.allowed is None:
            return np.asarray(random_rankings(eligible, slate_size=len(self.best), count=1, rng=rng)[0])
        return np.asarray(eligible[self.allowed.draw(rng)])

    @property
    def _share_of_one(self) -> float:
        """The share of one slate among all, where these are counted."""
        if self.allowed is None:
            return math.exp(-log_count(len(self.near.eligible), len(self.best)))
        return 1.0 / self.allowed.count if self.allowed.count else 0.0

    def _position_shares(self, slate: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return how probable uniform draws show each item of a slate at its position, shape (k,)."""
        eligible = self.near.eligible
        if self.allowed is None:
            return np.full(len(slate), self.uniform_share / len(eligible))
        places = np.searchsorted(eligible, slate)
        return np.asarray(self.uniform_share * self.allowed.position_shares[np.arange(len(slate)), places])
