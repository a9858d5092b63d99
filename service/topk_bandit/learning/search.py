"""Local search over rankings under any acquisition.

Breadth-first local search (Appendix B.2): from several starts, move to the best neighbour until none is better. The neighbours are
replacements of one item and exchanges of two positions, which reach the same optima as the paper's (n - k) k k! + k! at a small
part of the evaluations; every start climbs in step, so that a round costs one call of the acquisition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.acquisition import Acquisition
    from topk_bandit.learning.posterior import Landscape
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
        The best ranking met, as positions in the landscape's items, shape (k,).
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
    climbers = np.unique(starts, axis=0)
    moments = landscape.moments(climbers)
    values = acquisition(moments)
    highest_mean, evaluations = float(moments.mean.max()), len(climbers)
    best, best_value = climbers[int(np.argmax(values))], float(values.max())
    while len(climbers):
        moments = landscape.neighbourhoods(climbers)
        scores = acquisition(moments)
        evaluations += scores.size
        highest_mean = max(highest_mean, float(moments.mean.max()))
        chosen = np.argmax(scores, axis=1)
        reached = scores[np.arange(len(climbers)), chosen]
        rising = reached > values + _RELATIVE_GAIN * (1e-6 + np.abs(values))
        climbers = np.array(
            [landscape.neighbour(climbers[row], int(chosen[row])) for row in np.flatnonzero(rising)], dtype=np.int32
        ).reshape(-1, landscape.slate_size)
        climbers, kept = np.unique(climbers, axis=0, return_index=True)
        values = reached[rising][kept]
        if len(values) and values.max() > best_value:
            best, best_value = climbers[int(np.argmax(values))], float(values.max())
    return Found(best, best_value, highest_mean, evaluations)
