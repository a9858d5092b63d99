"""The robust range of values around their centre, judged by the latest values, so that no run of wild ones decides it.

The distances of the latest values are counted in bins of one width on a logarithmic scale, upward from their median.
The range ends where the bins thin out: each has some values, and no more than the one before. A value beyond a gap is
an outlier. So one value in two may be wild, of whatever size, and tails as heavy as those of purchases are in range.
While few values came, only a value many times as far as most is an outlier.

Wild values of many sizes leave no gap. So of a bandit that has seen more, the latest values may only thin out about as
far as earlier ones did that were believed, unless most of them are farther: then the scale is another one.

A class of values that are rare and large, such as orders among clicks, lies beyond a gap, too. Where it recurs from the
beginning it is in range, unless it stops: then it was an accident. Where it begins later, it is in range once it has
been there for much longer than accidents are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning._layout import lay_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEWEST_VALUES", "MOST_VALUES", "NO_VALUES", "RobustRange", "median"]

MOST_VALUES = 256
"""So many of the latest values judge; a class that recurs among the first so many is there from the beginning."""

FEWEST_VALUES = 8
"""The median of so many values at least is needed to judge others."""

_BIN = 3.0
"""The end of a bin over its beginning."""

_GAP = 2.5
"""What is so many times as far as the farthest value of the last bin is an outlier."""

_CHANCE = 0.5
"""A bin may have more values than the one before, by so many times the root of those: that is chance."""

_FEW_GAP = 30.0
"""While few values came, what is so many times as far as most of them is one."""

_NOTHING = 1e-100
"""Smaller distances are none: they tell no unit."""

_LATEST, _FEWEST_EARLIER = 64, 32
"""Earlier values are those before so many of the latest; so many of them limit the range."""

_MOST = 0.9
"""Where the scale has changed, the range is about as long as the distances of this share of values."""

_BESIDE = 8
"""A value counts for the range if so many before it and after it are no outliers: it may be one of a run."""

_ROUNDING = 1e-9
"""Values that differ by less than this part of their centre are equal, and were rounded."""

_LARGEST_CLASS = 1000.0
"""A class that recurs is not so many times as far as most values."""

_FEWEST_OF_CLASS, _LEAST_GAP = 6, 2.5
"""A class recurs if there are so many of it, so far from each other in the mean: else it is a run of wild values."""

_GAPS_BEFORE = 4.0
"""One that recurs from the beginning has no more of the mean gaps before its first."""

_FEWEST_WITHOUT, _GAPS_WITHOUT = 32, 12.0
"""A class has stopped after so many values without it, and so many of the mean gaps between two of it."""

_BLOCK, _BLOCKS = 64, 24
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
    count
        How many came.
    outliers
        How many of them were outliers when they came.
    farthest
        How far from the centre values thin out; infinite while that can't be known.
    recurrent, accepted
        How far they are because a class recurs from the beginning, or proved to be no accident; 0 for none.
    beyond, blocks, blocks_without
        Whether there were values beyond `farthest` in this block, in how many before, and how many came since.
    """

    values: NDArray[np.float64] = field(default_factory=lambda: lay_out(np.zeros(0)))
    told: NDArray[np.float64] = field(default_factory=lambda: lay_out(np.zeros(0)))
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
            return self
        values = lay_out(np.concatenate([self.values[-MOST_VALUES + 1 :], [value]]))
        distances_within = np.concatenate([self.told[-MOST_VALUES + 1 :], [0.0]])
        distances = np.abs(values - centre)
        limit = _find_limit(distances_within[:-_LATEST])
        ascending = np.sort(distances[distances > max(_NOTHING, _ROUNDING * abs(centre))])
        middle, farthest = _find_farthest(ascending)
        has_changed = limit < middle
        farthest = max(farthest, _GAP * float(np.quantile(ascending, _MOST))) if has_changed else min(farthest, limit)
        recurrent = self._find_recurrent(distances, middle, farthest)
        within = distances <= max(farthest, recurrent, self.accepted)
        if has_changed or math.isinf(limit):
            distances_within = np.where(within, distances, 0.0)
        elif within[-1 - _BESIDE :].all():
            distances_within[-1] = distances[-1]
        elif not within[-1]:
            distances_within[-1 - _BESIDE :] = 0.0
        counted = RobustRange(
            values,
            lay_out(distances_within),
            self.count + 1,
            self.outliers + (not within[-1]),
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

    def _find_recurrent(self, distances: NDArray[np.float64], middle: float, farthest: float) -> float:
        """Return how far a class lies that recurs since the beginning; 0 if there is none, or it has stopped."""
        is_beginning = self.count < MOST_VALUES
        if not (self.recurrent or is_beginning) or len(distances) < FEWEST_VALUES:
            return 0.0
        of_class = np.flatnonzero((distances > farthest) & (distances <= _LARGEST_CLASS * middle))
        if len(of_class) < _FEWEST_OF_CLASS:
            return 0.0
        first, last = int(of_class[0]), int(of_class[-1])
        mean_gap = (last - first) / (len(of_class) - 1)
        has_stopped = len(distances) - 1 - last > max(_FEWEST_WITHOUT, _GAPS_WITHOUT * mean_gap)
        begins_late = is_beginning and first > _GAPS_BEFORE * mean_gap
        if mean_gap < _LEAST_GAP or has_stopped or begins_late:
            return 0.0
        return _GAP * float(distances[of_class].max())

    def _end_block(self, distances: NDArray[np.float64]) -> RobustRange:
        """Return the same at the end of a block, and accept a class that was in enough of them."""
        if not self.beyond:
            without = self.blocks_without + 1
            return replace(self, blocks_without=without, blocks=self.blocks if without < _BLOCKS_WITHOUT else 0)
        blocks, of_class = self.blocks + 1, distances[distances > self.farthest]
        accepted = self.accepted
        if blocks >= _BLOCKS and len(of_class):
            accepted = max(accepted, _GAP * float(np.median(of_class)))
        return replace(self, accepted=accepted, beyond=False, blocks=blocks, blocks_without=0)


NO_VALUES = RobustRange()


def median(values: NDArray[np.float64]) -> float:
    """Return the median of at least one value; numpy's own takes five times as long for so few."""
    ascending, half = np.sort(values), len(values) // 2
    return float(ascending[half]) if len(values) % 2 else 0.5 * float(ascending[half - 1] + ascending[half])


def _is_nothing(distance: float, centre: float) -> bool:
    return abs(distance) <= max(_NOTHING, _ROUNDING * abs(centre))


def _find_limit(distances: NDArray[np.float64]) -> float:
    """Return the longest range that distances of earlier values allow; infinite where too few are positive."""
    return _GAP * float(distances.max()) if np.count_nonzero(distances) >= _FEWEST_EARLIER else math.inf


def _find_farthest(distances: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median of distances in ascending order, all positive, and how far they thin out."""
    count = len(distances)
    if count < 2:
        return math.inf, math.inf
    middle = float(distances[(count - 1) // 2])
    if count < FEWEST_VALUES:
        return middle, _FEW_GAP * middle
    begin = int(np.searchsorted(distances, middle))
    inside, edge = count - begin, middle
    while True:
        edge *= _BIN
        end = int(np.searchsorted(distances, edge))
        if not 0 < end - begin <= inside + _CHANCE * math.sqrt(inside):
            return middle, _GAP * float(distances[begin - 1])
        inside, begin = end - begin, end
