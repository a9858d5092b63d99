"""Which slates a decision may show, and how probable each is: the best one, slates near it, and all others.

Slates near the best one differ from it by one item that is replaced, or by two that change places. They cost little
regret, and tell what the best slate's parts are worth. The uniform share gives every slate a chance, so that whatever
another policy would show can be evaluated from the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.rankings import log_count, random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import Exploration

__all__ = ["SlateDistribution"]


@dataclass(frozen=True, slots=True, eq=False)
class SlateDistribution:
    """The distribution that one decision draws its slate from.

    Attributes
    ----------
    best
        Item indices, best first, shape (k,); all of them are eligible.
    eligible
        Distinct item indices in ascending order, shape (E,).
    near_share, uniform_share
        Probabilities of a slate near the best one, 0 where there is none, and of one drawn uniformly.
    """

    best: NDArray[np.int32]
    eligible: NDArray[np.int32]
    near_share: float
    uniform_share: float

    @classmethod
    def of(cls, exploration: Exploration, best: NDArray[np.int32], eligible: NDArray[np.int32]) -> SlateDistribution:
        """Return the distribution that settings of exploration name."""
        near = exploration.near_share if _count_near(len(best), len(eligible)) else 0.0
        return cls(best, eligible, (1.0 - exploration.uniform_share) * near, exploration.uniform_share)

    @property
    def best_share(self) -> float:
        """Probability of showing the best slate because it is that."""
        return 1.0 - self.near_share - self.uniform_share

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int32], bool]:
        """Return a slate, and whether it was drawn by one of the shares."""
        chance = rng.random()
        if chance < self.uniform_share:
            return random_rankings(self.eligible, slate_size=len(self.best), count=1, rng=rng)[0], True
        if chance < self.uniform_share + self.near_share:
            return self._draw_near(rng), True
        return self.best, False

    def propensity(self, slate: NDArray[np.int32]) -> float:
        """Return the probability of an eligible slate."""
        uniform = self.uniform_share * math.exp(-log_count(len(self.eligible), len(self.best)))
        differs = np.flatnonzero(slate != self.best)
        if not len(differs):
            return uniform + self.best_share
        return uniform + (self.near_share / self._near if self._is_near(slate, differs) else 0.0)

    def position_propensities(self, slate: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the probabilities of showing each item of an eligible slate at its position, shape (k,)."""
        k, n_eligible = len(self.best), len(self.eligible)
        uniform, is_best = self.uniform_share / n_eligible, slate == self.best
        # One replacement or one exchange puts any other item there; those of other positions leave the best one's.
        ways = np.where(is_best, self._near - (n_eligible - k) - (k - 1), 1)
        beside = self.near_share * ways / self._near if self._near else 0.0
        return np.asarray(uniform + self.best_share * is_best + beside)

    @property
    def near(self) -> NDArray[np.int32]:
        """All slates near the best one, shape (A, k)."""
        k, others = len(self.best), np.setdiff1d(self.eligible, self.best).astype(np.int32)
        replaced = np.tile(self.best, (k, len(others), 1))
        replaced[np.arange(k), :, np.arange(k)] = others
        first, second = np.triu_indices(k, 1)
        exchanged, rows = np.tile(self.best, (len(first), 1)), np.arange(len(first))
        exchanged[rows, first], exchanged[rows, second] = self.best[second], self.best[first]
        return np.concatenate([replaced.reshape(-1, k), exchanged])

    @property
    def _near(self) -> int:
        return _count_near(len(self.best), len(self.eligible))

    def _is_near(self, slate: NDArray[np.int32], differs: NDArray[np.intp]) -> bool:
        if len(differs) == 1:
            return bool(slate[differs[0]] not in self.best)
        return len(differs) == 2 and bool((slate[differs] == self.best[differs[::-1]]).all())

    def _draw_near(self, rng: np.random.Generator) -> NDArray[np.int32]:
        slate, k, n_others = self.best.copy(), len(self.best), len(self.eligible) - len(self.best)
        choice = int(rng.integers(self._near))
        if choice < k * n_others:
            position, other = divmod(choice, n_others)
            slate[position] = np.setdiff1d(self.eligible, slate)[other]
            return slate
        first, second = np.triu_indices(k, 1)
        pair = [first[choice - k * n_others], second[choice - k * n_others]]
        slate[pair] = slate[pair[::-1]]
        return slate


def _count_near(slate_size: int, n_eligible: int) -> int:
    return slate_size * (n_eligible - slate_size) + slate_size * (slate_size - 1) // 2
