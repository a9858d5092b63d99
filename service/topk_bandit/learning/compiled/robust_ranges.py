"""Where distances of values from their centre thin out, and which of them are in range: see `learning.robust_ranges`.

Letters: V of the latest values, oldest first.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import floats
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON

__all__ = ["FEWEST_VALUES", "GAP", "MOST_VALUES", "append", "judge_newest"]

MOST_VALUES = 256
"""So many of the latest values judge; a class that recurs among the first so many is there from the beginning."""

FEWEST_VALUES = 8
"""The median of so many values at least is needed to judge others."""

_BIN = 3.0
"""The end of a bin over its beginning."""

GAP = 2.5
"""What is so many times as far as the farthest value of the last bin is an outlier."""

_CHANCE = 0.5
"""A bin may have more values than the one before, by so many times the root of those: that is chance."""

_FEW_GAP = 30.0
"""While few values came, what is so many times as far as most of them is one."""

_LATEST, _FEWEST_EARLIER = 64, 32
"""Earlier values are those before so many of the latest; so many of them limit the range."""

_MOST = 0.9
"""Where the scale has changed, the range is about as long as the distances of this share of values."""

_BESIDE = 8
"""A value counts for the range if so many before it and after it are no outliers: it may be one of a run."""

_LONG_RUN, _LONGER = 8, 3
"""A run of values is odd if it has so many, and is so many times as long as any other."""

_LARGEST_CLASS = 1000.0
"""A class that recurs is not so many times as far as most values."""

_FEWEST_OF_CLASS, _LEAST_GAP = 6, 2.5
"""A class recurs if there are so many of it, so far from each other in the mean: else it is a run of wild values."""

_GAPS_BEFORE = 4.0
"""One that recurs from the beginning has no more of the mean gaps before its first."""

_FEWEST_WITHOUT, _GAPS_WITHOUT = 32, 12.0
"""A class has stopped after so many values without it, and so many of the mean gaps between two of it."""


@njit(**FOR_PYTHON)
def append(values, told, gaps, value, gap, centre, nothing):
    """Append a value, and leave the oldest one if there are too many.

    Parameters
    ----------
    values, told, gaps
        See `RobustRange`, shape (V,).
    value, gap
        The new one, and how many that did not differ from their centre came before it.
    centre, nothing
        Of the values; distances that are no longer are none.

    Returns
    -------
    values, told, gaps, distances
        With the new one, shape (V + 1,), or (V,).
    judging
        The distances that judge others, in the order of the values.
    """
    first = max(values.shape[0] - MOST_VALUES + 1, 0)
    newest = values.shape[0] - first
    kept, kept_told, kept_gaps = floats(newest + 1), floats(newest + 1), floats(newest + 1)
    total = gap
    for i in range(newest):
        kept[i], kept_told[i], kept_gaps[i] = values[first + i], told[first + i], gaps[first + i]
        total += kept_gaps[i]
    kept[newest], kept_told[newest], kept_gaps[newest] = value, 0.0, gap
    begin, end = _find_odd_run(kept_gaps, total)
    distances, judging, count = floats(newest + 1), floats(newest + 1), 0
    for i in range(newest + 1):
        distances[i] = abs(kept[i] - centre)
        if distances[i] > nothing and not begin < i < end:
            judging[count] = distances[i]
            count += 1
    return kept, kept_told, kept_gaps, distances, judging[:count]


@njit(**FOR_LOOPS)
def _find_odd_run(gaps, total):
    """Return where the longest run of values begins and ends that are no centre, if it is an odd one; else nowhere.

    It is, if it is long, and several times as long as any other, where most values but for it are the centre. So many
    are: `total`, at least half as many as the run is long.
    """
    begin, end, longest, second, first = 0, 0, 0, 0, 0
    for i in range(1, gaps.shape[0] + 1):
        if i < gaps.shape[0] and gaps[i] == 0.0:
            continue
        length = i - first
        if length > longest:
            begin, end, longest, second = first, i, length, longest
        else:
            second = max(second, length)
        first = i
    is_sparse = total > gaps.shape[0] - longest and 2.0 * total > longest
    is_odd = is_sparse and longest >= _LONG_RUN and longest > _LONGER * second
    return (begin, end) if is_odd else (0, 0)


@njit(**FOR_PYTHON)
def judge_newest(distances, ascending, told, accepted, may_recur, is_beginning):
    """Judge the newest value; set in `told` which distances limit the range.

    Parameters
    ----------
    distances
        From the centre, shape (V,).
    ascending
        Those of them that judge, in this order.
    told
        The distances when they came, 0 for those that limit nothing, shape (V,); it is changed.
    accepted
        How far a class of values is that proved to be no accident.
    may_recur, is_beginning
        Whether a class may recur from the beginning, and whether this is the beginning.

    Returns
    -------
    farthest, recurrent, is_within
        See `RobustRange`; whether the newest value is in range.
    """
    newest = distances.shape[0] - 1
    limit = _find_limit(told)
    middle, farthest = _find_farthest(ascending)
    has_changed = limit < middle < np.inf
    farthest = GAP * _quantile(ascending) if has_changed else min(farthest, limit)
    recurrent = _find_recurrent(distances, middle, farthest, is_beginning) if may_recur else 0.0
    reach = max(farthest, recurrent, accepted)
    is_within = distances[newest] <= reach
    if has_changed or math.isinf(limit):
        for i in range(newest + 1):
            told[i] = distances[i] if distances[i] <= reach else 0.0
        return farthest, recurrent, is_within
    first = max(newest - _BESIDE, 0)
    if not is_within:
        for i in range(first, newest + 1):
            told[i] = 0.0
    elif _are_within(distances, first, reach):
        told[newest] = distances[newest]
    return farthest, recurrent, is_within


@njit(**FOR_LOOPS)
def _are_within(distances, first, reach):
    """Tell whether all distances from an index on are in range."""
    for i in range(first, distances.shape[0]):  # noqa: SIM110 - compiled
        if distances[i] > reach:
            return False
    return True


@njit(**FOR_LOOPS)
def _find_limit(told):
    """Return the longest range that distances of earlier values allow; infinite where too few are positive."""
    positive, largest = 0, 0.0
    for i in range(told.shape[0] - _LATEST):
        if told[i] > 0.0:
            positive += 1
            largest = max(largest, told[i])
    return GAP * largest if positive >= _FEWEST_EARLIER else np.inf


@njit(**FOR_LOOPS)
def _find_farthest(ascending):
    """Return the median of distances in ascending order, all positive, and how far they thin out."""
    count = ascending.shape[0]
    if count < 2:
        return np.inf, np.inf
    middle = ascending[(count - 1) // 2]
    if count < FEWEST_VALUES:
        return middle, _FEW_GAP * middle
    begin = _count_below(ascending, middle, 0)
    inside, edge = count - begin, middle
    while True:
        edge *= _BIN
        end = _count_below(ascending, edge, begin)
        if not 0 < end - begin <= inside + _CHANCE * math.sqrt(inside):
            return middle, GAP * ascending[begin - 1]
        inside, begin = end - begin, end


@njit(**FOR_LOOPS)
def _count_below(ascending, edge, start):
    """Return how many numbers are below an edge, which so many are."""
    count = start
    while count < ascending.shape[0] and ascending[count] < edge:
        count += 1
    return count


@njit(**FOR_LOOPS)
def _quantile(ascending):
    """Return the distance of the share of `_MOST`, between two distances by their weights."""
    place = _MOST * (ascending.shape[0] - 1)
    below = int(place)
    above = min(below + 1, ascending.shape[0] - 1)
    return ascending[below] + (place - below) * (ascending[above] - ascending[below])


@njit(**FOR_LOOPS)
def _find_recurrent(distances, middle, farthest, is_beginning):
    """Return how far a class lies that recurs since the beginning; 0 if there is none, or it has stopped."""
    first, last, count, largest = -1, -1, 0, 0.0
    for i in range(distances.shape[0]):
        if farthest < distances[i] <= _LARGEST_CLASS * middle:
            first = i if first < 0 else first
            last = i
            count += 1
            largest = max(largest, distances[i])
    if count < _FEWEST_OF_CLASS or distances.shape[0] < FEWEST_VALUES:
        return 0.0
    mean_gap = (last - first) / (count - 1)
    has_stopped = distances.shape[0] - 1 - last > max(float(_FEWEST_WITHOUT), _GAPS_WITHOUT * mean_gap)
    begins_late = is_beginning and first > _GAPS_BEFORE * mean_gap
    if mean_gap < _LEAST_GAP or has_stopped or begins_late:
        return 0.0
    return GAP * largest
