"""Compiled climbs on slate functions.

Letters: k positions, E items, A slates; P, D and W as in `slate_functions`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import copy, floats
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["climb"]


@njit(**WITHOUT_LOCK)
def climb(singles, weight, pairs, turned, slates, gain, most_sweeps):
    """Move each of `slates` (A, k), in place, to where no replacement and no exchange gains more than `gain`.

    A sweep gives every position in turn its best item, and then exchanges the two positions that gain most. `turned` is
    the transpose of W.
    """
    shown = np.zeros(singles.shape[1], dtype=np.bool_)
    scores = floats(singles.shape[1])
    for row in range(slates.shape[0]):
        slate = slates[row]
        for item in slate:
            shown[item] = True
        for _ in range(most_sweeps):
            replaced = _replace(singles, weight, pairs, turned, slate, shown, scores, gain)
            exchanged = _exchange(singles, weight, pairs, slate, gain)
            if not (replaced or exchanged):
                break
        for item in slate:
            shown[item] = False


@njit(**FOR_LOOPS)
def _replace(singles, weight, pairs, turned, slate, shown, scores, gain):
    moved = False
    for a in range(slate.shape[0]):
        copy(scores, singles[a])
        for b in range(slate.shape[0]):
            if b < a:
                _add(scores, weight[b, a], pairs[slate[b]])
            elif b > a:
                _add(scores, weight[a, b], turned[slate[b]])
        best, most = slate[a], scores[slate[a]] + gain
        for item in range(scores.shape[0]):
            if scores[item] > most and not shown[item]:
                best, most = item, scores[item]
        if best != slate[a]:
            shown[slate[a]], shown[best] = False, True
            slate[a] = best
            moved = True
    return moved


@njit(**FOR_LOOPS)
def _add(scores, factor, row):
    for item in range(scores.shape[0]):
        scores[item] += factor * row[item]


@njit(**FOR_LOOPS)
def _exchange(singles, weight, pairs, slate, gain):
    first, second, most = -1, -1, _value(singles, weight, pairs, slate) + gain
    for a in range(slate.shape[0]):
        for b in range(a + 1, slate.shape[0]):
            slate[a], slate[b] = slate[b], slate[a]
            value = _value(singles, weight, pairs, slate)
            slate[a], slate[b] = slate[b], slate[a]
            if value > most:
                first, second, most = a, b, value
    if first >= 0:
        slate[first], slate[second] = slate[second], slate[first]
    return first >= 0


@njit(**FOR_LOOPS)
def _value(singles, weight, pairs, slate):
    total = 0.0
    for a in range(slate.shape[0]):
        total += singles[a, slate[a]]
        for b in range(a + 1, slate.shape[0]):
            total += weight[a, b] * pairs[slate[a], slate[b]]
    return total
