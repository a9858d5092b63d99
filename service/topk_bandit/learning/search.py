"""Local search over rankings under any acquisition.

Breadth-first local search (Appendix B.2): from several starts, move to better neighbours until there is none. The
neighbours are replacements of one item and exchanges of two positions, which reach the same optima as the paper's (n -
k) k k! + k! at a small part of the evaluations. All starts climb in step: a sweep tries every position in turn and
moves at each to the best item, then to the best exchange, so that it can move k + 1 times for the evaluations of one
neighbourhood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.acquisition import Acquisition
    from topk_bandit.learning.landscape import Landscape, Moments
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Found", "local_search"]

# Moves must gain more than rounding can: rows may be float32.
_RELATIVE_GAIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Where a search ended.

    Attributes
    ----------
    ranking
        The best ranking met, as positions in the landscape's items, shape (k,). No neighbour of it is better.
    value
        Its acquisition value.
    highest_mean
        Largest posterior mean over all rankings evaluated.
    evaluations
        How many rankings were evaluated.
    """

    ranking: NDArray[np.int32]
    value: float
    highest_mean: float
    evaluations: int


def local_search(landscape: Landscape, acquisition: Acquisition, starts: Rankings) -> Found:
    """Climb from each of `starts` and return the best ranking met.

    Parameters
    ----------
    landscape
        The posterior at one context.
    acquisition
        What to maximise.
    starts
        Rankings of positions in the landscape's items, shape (S, k), S >= 1.
    """
    climb = _Climb(landscape, acquisition, np.unique(starts, axis=0))
    while climb.sweep():
        pass
    return climb.found()


class _Climb:
    """Climbers on their way: `rankings` (S, k) with their `values` (S,), and the best that was met."""

    def __init__(self, landscape: Landscape, acquisition: Acquisition, starts: Rankings) -> None:
        self._landscape = landscape
        self._acquisition = acquisition
        self._rankings = starts
        self._highest_mean = -np.inf
        self._evaluations = 0
        self._values = self._scores(landscape.moments(starts))
        self._best, self._best_value = starts[0], -np.inf
        self._keep_best()

    def sweep(self) -> bool:
        """Let each climber try every position and every exchange; return whether any is still climbing."""
        before = self._values.copy()
        for position in range(self._landscape.slate_size):
            self._replace(position)
        self._exchange()
        self._keep_best()
        climbing = self._values > before
        self._rankings, kept = np.unique(self._rankings[climbing], axis=0, return_index=True)
        self._values = self._values[climbing][kept]
        return len(self._values) > 0

    def found(self) -> Found:
        """Return where the climb ended."""
        return Found(self._best, self._best_value, self._highest_mean, self._evaluations)

    def _replace(self, position: int) -> None:
        scores = self._scores(self._landscape.replacements(self._rankings, position))
        # An item that is shown already stands for the ranking itself; a gain there would be rounding, and no ranking.
        scores[np.arange(len(scores))[:, None], self._rankings] = -np.inf
        rows, items = self._rising(scores)
        self._rankings[rows, position] = items

    def _exchange(self) -> None:
        first, second = np.triu_indices(self._landscape.slate_size, 1)
        if not len(first):
            return
        neighbours = np.repeat(self._rankings[:, None], len(first), axis=1)
        pairs = np.arange(len(first))
        neighbours[:, pairs, first], neighbours[:, pairs, second] = self._rankings[:, second], self._rankings[:, first]
        moments = self._landscape.moments(neighbours.reshape(-1, self._landscape.slate_size))
        rows, chosen = self._rising(self._scores(moments).reshape(len(self._rankings), -1))
        self._rankings[rows] = neighbours[rows, chosen]

    def _rising(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the climbers that have a better neighbour, and which; their values are taken over."""
        best = np.argmax(scores, axis=1)
        reached = scores[np.arange(len(scores)), best]
        rows = np.flatnonzero(reached > self._values + _RELATIVE_GAIN * (1e-6 + np.abs(self._values)))
        self._values[rows] = reached[rows]
        return rows, best[rows]

    def _scores(self, moments: Moments) -> NDArray[np.float64]:
        self._highest_mean = max(self._highest_mean, float(moments.mean.max()))
        self._evaluations += moments.mean.size
        return self._acquisition(moments)

    def _keep_best(self) -> None:
        leader = int(np.argmax(self._values))
        if self._values[leader] > self._best_value:
            self._best, self._best_value = self._rankings[leader].copy(), float(self._values[leader])
