"""Compiled loop that counts pairs of items by how two orders put them.

It releases the GIL, and is compiled on its first call and cached on disk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["count_pairs"]


@njit(nogil=True, cache=True)
def _sort_counting(values, scratch):
    """Sort by merging ever longer sorted runs; return the sorted array and the number of pairs i < j that were > ."""
    source, target = values, scratch
    size, count, width = len(values), 0, 1
    while width < size:
        for first in range(0, size, 2 * width):
            middle, end = min(first + width, size), min(first + 2 * width, size)
            left, right = first, middle
            for slot in range(first, end):
                if right >= end or (left < middle and source[left] <= source[right]):
                    target[slot] = source[left]
                    left += 1
                else:
                    target[slot] = source[right]
                    right += 1
                    count += middle - left
        source, target = target, source
        width *= 2
    return source, count


@njit(nogil=True, cache=True)
def _count_tied(values):
    """Return the number of equal pairs of a sorted array."""
    count = run = 0
    for i in range(1, len(values)):
        run = run + 1 if values[i] == values[i - 1] else 0
        count += run
    return count


@njit(nogil=True, cache=True)
def count_pairs(first, second):
    """Return for each list the pairs reversed, tied in `first` alone, in `second` alone, and not tied in `first`.

    The items of each list (row) are in ascending order of `first`, and of `second` where that is tied; shape (L, n).
    """
    n_lists, n = first.shape
    counts = np.empty((n_lists, 4), dtype=np.int64)
    scratch, copied = np.empty(n), np.empty(n)
    for number in range(n_lists):
        tied_both = run = 0
        for i in range(1, n):
            equal = first[number, i] == first[number, i - 1] and second[number, i] == second[number, i - 1]
            run = run + 1 if equal else 0
            tied_both += run
        tied_first = _count_tied(first[number])
        copied[:] = second[number]
        ordered, counts[number, 0] = _sort_counting(copied, scratch)
        counts[number, 1] = tied_first - tied_both
        counts[number, 2] = _count_tied(ordered) - tied_both
        counts[number, 3] = n * (n - 1) // 2 - tied_first
    return counts
