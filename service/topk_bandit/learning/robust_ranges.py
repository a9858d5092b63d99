"""The robust range of values around their centre, judged by the latest values, so that no run of wild ones decides it.

The distances of the latest values are counted in bins of one width on a logarithmic scale, upward from their median.
The range ends where the bins thin out: each has some values, and no more than the one before. A value beyond a gap is
an outlier. So one value in two may be wild, of whatever size, and tails as heavy as those of purchases are in range.
While few values came, only a value many times as far as most is an outlier.

Wild values of many sizes leave no gap. So of a bandit that has seen more, the latest values may only thin out about as
far as earlier ones did that were believed, unless most of them are farther: then the scale is another one.

Where most values are the centre itself, as those of slates that earn nothing, the median is one of time: a run of
others counts as much as there were values since the run before. So a burst of wild ones outweighs no long time.

Another class of values, such as orders among clicks, lies beyond a gap, too. Where it recurs from the beginning, or was
in range until now, it is in range, unless it stops: then it was an accident. Where it begins later, it is in range once
it has been there for much longer than accidents are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.replacing import replace
from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.compiled.robust_ranges import FEWEST_VALUES, GAP, MOST_VALUES, append, judge_newest

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALL_VALUES", "FEWEST_VALUES", "MOST_VALUES", "NO_VALUES", "RobustRange", "median"]

_NOTHING = 1e-100
"""Smaller distances are none: they tell no unit."""

_ROUNDING = 1e-9
"""Values that differ by less than this part of their centre are equal, and were rounded."""

_BLOCK, _BLOCKS = 64, 10
"""A class that was in so many blocks of so many values is no accident."""

_BLOCKS_WITHOUT = 16
"""After so many blocks without it, it is one."""


@dataclass(frozen=True, slots=True, eq=False)
class RobustRange:
    """How far from the centre values are believed.

    Attributes
    ----------
    values
        The latest ones that differ from their centre, oldest first, shape (V,).
    told
        Their distances from their centre when they came, which limit the range: 0 for values out of reach or among
        outliers; shape (V,).
    gaps
        How many values came before each that did not differ from their centre, since the one before, shape (V,).
    gap
        How many came since the latest.
    count
        How many came that differ.
    outliers
        How many of them were outliers when they came.
    farthest
        How far from the centre values thin out; infinite while that can't be known.
    recurrent, accepted
        How far they are because a class recurs, or proved to be no accident; 0 for none.
    beyond, blocks, blocks_without
        Whether there were values beyond `farthest` in this block, in how many before, and how many came since.
    """

    values: NDArray[np.float64] = field(default_factory=lambda: lay_out(np.zeros(0)))
    told: NDArray[np.float64] = field(default_factory=lambda: lay_out(np.zeros(0)))
    gaps: NDArray[np.float64] = field(default_factory=lambda: lay_out(np.zeros(0)))
    gap: int = 0
    count: int = 0
    outliers: int = 0
    farthest: float = math.inf
    recurrent: float = 0.0
    accepted: float = 0.0
    beyond: bool = False
    blocks: int = 0
    blocks_without: int = 0

    @property
    def middle(self) -> float:
        """The median of the latest values, 0 for none."""
        return median(self.values) if len(self.values) else 0.0

    @property
    def reach(self) -> float:
        """How far from the centre a value is believed."""
        return max(self.farthest, self.recurrent, self.accepted)

    def after(self, value: float, centre: float) -> RobustRange:
        """Return the same after one more value, with the centre that there is then."""
        if _is_nothing(value - centre, centre):
            return replace(self, gap=self.gap + 1)
        nothing = max(_NOTHING, _ROUNDING * abs(centre))
        values, told, gaps, distances, weights = append(
            self.values, self.told, self.gaps, value, float(self.gap), centre, nothing
        )
        is_beginning = self.count < MOST_VALUES
        farthest, recurrent, is_within = judge_newest(
            distances, weights, np.sort(distances), told, self.accepted, self.reach, is_beginning
        )
        counted = RobustRange(
            values,
            told,
            gaps,
            0,
            self.count + 1,
            self.outliers + (not is_within),
            farthest,
            recurrent,
            self.accepted,
            self.beyond or bool(distances[-1] > farthest),
            self.blocks,
            self.blocks_without,
        )
        return counted if counted.count % _BLOCK else counted._end_block(distances)

    def after_all(self, values: NDArray[np.float64], *, first: int) -> RobustRange:
        """Return the same after several, those from an index on, each with the median of the latest as the centre."""
        robust_range = self
        for index in range(first, len(values)):
            centre = median(values[max(index + 1 - MOST_VALUES, 0) : index + 1])
            robust_range = robust_range.after(float(values[index]), centre)
        return robust_range

    def _end_block(self, distances: NDArray[np.float64]) -> RobustRange:
        """Return the same at the end of a block, and accept a class that was in enough of them."""
        if not self.beyond:
            without = self.blocks_without + 1
            return replace(self, blocks_without=without, blocks=self.blocks if without < _BLOCKS_WITHOUT else 0)
        blocks, of_class = self.blocks + 1, distances[distances > self.farthest]
        accepted = self.accepted
        if blocks >= _BLOCKS and len(of_class):
            accepted = max(accepted, GAP * float(np.median(of_class)))
        return replace(self, accepted=accepted, beyond=False, blocks=blocks, blocks_without=0)


NO_VALUES = RobustRange()

ALL_VALUES = RobustRange(accepted=math.inf)
"""The range without an end."""


def median(values: NDArray[np.float64]) -> float:
    """Return the median of at least one value; numpy's own takes five times as long for so few."""
    ascending, half = np.sort(values), len(values) // 2
    return float(ascending[half]) if len(values) % 2 else 0.5 * float(ascending[half - 1] + ascending[half])


def _is_nothing(distance: float, centre: float) -> bool:
    return abs(distance) <= max(_NOTHING, _ROUNDING * abs(centre))
