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

_LARGEST_SHARE = 8
"""Where most values are the centre, no run of others has more than one of so many parts of the weight."""

_LARGEST_CLASS = 1000.0
"""A class that recurs is not so many times as far as most values."""

_FEWEST_OF_CLASS, _LEAST_GAP = 6, 1.5
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
        Of the values; distances that are no longer are 0.

    Returns
    -------
    values, told, gaps, distances, weights
        With the new one, shape (V + 1,), or (V,).
    """
    first = max(values.shape[0] - MOST_VALUES + 1, 0)
    newest = values.shape[0] - first
    kept, kept_told, kept_gaps = floats(newest + 1), floats(newest + 1), floats(newest + 1)
    for i in range(newest):
        kept[i], kept_told[i], kept_gaps[i] = values[first + i], told[first + i], gaps[first + i]
    kept[newest], kept_told[newest], kept_gaps[newest] = value, 0.0, gap
    distances = floats(newest + 1)
    for i in range(newest + 1):
        distance = abs(kept[i] - centre)
        distances[i] = distance if distance > nothing else 0.0
    return kept, kept_told, kept_gaps, distances, _weigh(kept_gaps)


@njit(**FOR_LOOPS)
def _weigh(gaps):
    """Return how much each value counts for the median, shape (V,): all the same, unless most values are the centre.

    Then a run of others counts as much as there were values since the run before, each of it a part of that. So a burst
    of them says no more than one that came in as long a time.
    """
    count, weights = gaps.shape[0], floats(gaps.shape[0])
    values, total, largest = float(count), 0.0, 0.0
    for i in range(count):
        values += gaps[i]
        if i == 0 or gaps[i] > 0.0:
            total += gaps[i] + 1.0
            largest = max(largest, gaps[i] + 1.0)
    cap, first = max((total - largest) / (_LARGEST_SHARE - 1), 1.0), 0
    for i in range(1, count + 1):
        if i < count and gaps[i] == 0.0:
            continue
        for j in range(first, i):
            weights[j] = min(gaps[first] + 1.0, cap) / (i - first) if values > 2.0 * count else 1.0
        first = i
    return weights


@njit(**FOR_PYTHON)
def judge_newest(distances, weights, ascending, told, accepted, before, is_beginning):
    """Judge the newest value; set in `told` which distances limit the range.

    Parameters
    ----------
    distances, weights
        From the centre, and how much each counts for the median, shape (V,).
    ascending
        The distances in this order, shape (V,).
    told
        The distances when they came, 0 for those that limit nothing, shape (V,); it is changed.
    accepted
        How far a class of values is that proved to be no accident.
    before, is_beginning
        How far values were believed until now, and whether this is the beginning.

    Returns
    -------
    farthest, recurrent, is_within
        See `RobustRange`; whether the newest value is in range.
    """
    newest = distances.shape[0] - 1
    limit = _find_limit(told)
    middle, farthest, lengths = _find_farthest(distances, weights, ascending)
    has_changed = limit < middle < np.inf
    farthest = GAP * _quantile(lengths) if has_changed else min(farthest, limit)
    recurrent = _find_recurrent(distances, farthest, _LARGEST_CLASS * middle if is_beginning else before, is_beginning)
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
    """Return whether all distances from an index on are in range."""
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
def _find_farthest(distances, weights, ascending):
    """Return the weighted median of the positive distances, how far they thin out, and them in ascending order."""
    first = 0
    while first < ascending.shape[0] and ascending[first] == 0.0:
        first += 1
    lengths = ascending[first:]
    count = lengths.shape[0]
    if count < 2:
        return np.inf, np.inf, lengths
    middle = _find_middle(distances, weights, lengths)
    if count < FEWEST_VALUES:
        return middle, _FEW_GAP * middle, lengths
    begin = _count_below(lengths, middle, 0)
    inside, edge = count - begin, middle
    while True:
        edge *= _BIN
        end = _count_below(lengths, edge, begin)
        if not 0 < end - begin <= inside + _CHANCE * math.sqrt(inside):
            return middle, GAP * lengths[begin - 1], lengths
        inside, begin = end - begin, end


@njit(**FOR_LOOPS)
def _find_middle(distances, weights, lengths):
    """Return the weighted median of distances that are positive, of which `lengths` are in ascending order."""
    half = 0.5 * _weight_up_to(distances, weights, lengths[-1])
    low, high = 0, lengths.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if _weight_up_to(distances, weights, lengths[middle]) >= half:
            high = middle
        else:
            low = middle + 1
    return lengths[low]


@njit(**FOR_LOOPS)
def _weight_up_to(distances, weights, longest):
    """Return the weight of positive distances that are no longer than one."""
    weight = 0.0
    for i in range(distances.shape[0]):
        if 0.0 < distances[i] <= longest:
            weight += weights[i]
    return weight


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
def _find_recurrent(distances, farthest, longest, is_beginning):
    """Return how far a class lies that recurs, between two distances; 0 if there is none, or it has stopped."""
    first, last, count, largest = -1, -1, 0, 0.0
    for i in range(distances.shape[0]):
        if farthest < distances[i] <= longest:
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
