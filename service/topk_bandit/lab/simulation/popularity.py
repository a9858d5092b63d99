"""Shows the most popular items: those whose slates earned most on average, whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

__all__ = ["Popularity"]

FloatArray = NDArray[np.float64]

_SHRINKAGE = 5.0
"""An item's mean counts as if it had been shown so often more, with the mean of all rewards."""

_EXPLORED = 0.05


class Popularity:
    """Shows the items with the best mean rewards of slates that showed them, items never shown first.

    Parameters
    ----------
    n_items, slate_size
        n and k.
    rng
        Draws the share of slates that are random, and breaks ties.
    explored
        That share.
    """

    def __init__(self, *, n_items: int, slate_size: int, rng: np.random.Generator, explored: float = _EXPLORED) -> None:
        self._slate_size = slate_size
        self._rng = rng
        self._explored = explored
        self._sums, self._counts, self._shown = np.zeros(n_items), np.zeros(n_items), np.zeros(n_items, dtype=bool)
        self._slates: dict[int, NDArray[np.int32]] = {}

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator) -> Popularity:
        """Return a player for one trial."""
        return cls(n_items=size.n_items, slate_size=size.slate_size, rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        eligible = visit.eligible
        if self._rng.random() < self._explored:
            ranking = random_rankings(eligible, slate_size=self._slate_size, count=1, rng=self._rng)[0]
        else:
            order = np.lexsort((self._rng.random(len(eligible)), -self._popularity()[eligible]))
            ranking = eligible[order[: self._slate_size]]
        self._shown[ranking] = True
        self._slates[visit.number] = ranking
        return np.asarray(ranking, dtype=np.int32)

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        ranking = self._slates.pop(number)
        self._sums[ranking] += reward
        self._counts[ranking] += 1.0

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._slates[number]

    def _popularity(self) -> FloatArray:
        total = self._counts.sum()
        overall = self._sums.sum() / total if total else 0.0
        means = (self._sums + _SHRINKAGE * overall) / (self._counts + _SHRINKAGE)
        return np.where(self._shown, means, np.inf)
