"""What loops need of arrays, as loops: numpy's own forms take the compiler longer than all that is here.

`np.empty` is compiled anew for each shape, for each way to write its type and for the options of the function that
calls it: here once for each shape. `np.zeros`, `np.full` and `np.arange` take the compiler longer than a loop does.

Assigning an array to a slice compiles the text of an error for unequal shapes, and sorting a whole library.
A whole number that stands in a call as a literal, or that a counter begins with, is a type of its own: the called
function is compiled once for it and once more for all others, unless it is one of the constants here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.options import FOR_LOOPS

__all__ = [
    "NOWHERE",
    "ONE",
    "ZERO",
    "add_up",
    "are_equal",
    "copy",
    "count_up",
    "fill",
    "fill_rows",
    "find_largest",
    "floats",
    "floats32",
    "integers",
    "integers32",
    "multiply_by_own",
    "sort_descending",
    "zero_counts",
    "zero_rows",
    "zeros",
]

ZERO, ONE, NOWHERE = np.int64(0), np.int64(1), np.int64(-1)


@njit(**FOR_LOOPS)
def floats(shape):
    """Return an empty array for numbers."""
    return np.empty(shape, np.float64)


@njit(**FOR_LOOPS)
def floats32(shape):
    """Return an empty array for numbers in single precision."""
    return np.empty(shape, np.float32)


@njit(**FOR_LOOPS)
def integers(shape):
    """Return an empty array for whole numbers."""
    return np.empty(shape, np.int64)


@njit(**FOR_LOOPS)
def integers32(shape):
    """Return an empty array for whole numbers of 32 bits."""
    return np.empty(shape, np.int32)


@njit(**FOR_LOOPS)
def copy(target, source):
    """Set the numbers of `target` to those of `source`, as many."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@njit(**FOR_LOOPS)
def fill(numbers, value):
    """Set each number to `value`; return them."""
    for i in range(numbers.shape[0]):
        numbers[i] = value
    return numbers


@njit(**FOR_LOOPS)
def fill_rows(rows, value):
    """Set each number of a matrix to `value`; return it."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[i, j] = value
    return rows


@njit(**FOR_LOOPS)
def zeros(count):
    """Return so many zeros."""
    return fill(floats(count), 0.0)


@njit(**FOR_LOOPS)
def zero_rows(n_rows, n_columns):
    """Return a matrix of zeros."""
    return fill_rows(floats((n_rows, n_columns)), 0.0)


@njit(**FOR_LOOPS)
def zero_counts(count):
    """Return so many whole numbers, all of them zero."""
    return fill(integers(count), ZERO)


@njit(**FOR_LOOPS)
def count_up(count):
    """Return the whole numbers from 0 on, so many of them."""
    numbers = integers(count)
    for i in range(count):
        numbers[i] = i
    return numbers


_ROWS_AT_ONCE = 32


@njit(**FOR_LOOPS)
def multiply_by_own(rows):
    """Return the dot products of all pairs of rows: of two that are alike but for their order one is computed."""
    n_rows = rows.shape[0]
    out = floats32((n_rows, n_rows))
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, n_rows)
        part = np.dot(rows[first:last], rows[:last].T)
        for i in range(first, last):
            for j in range(last):
                out[i, j] = part[i - first, j]
                out[j, i] = part[i - first, j]
    return out


@njit(**FOR_LOOPS)
def add_up(numbers):
    """Set each of some whole numbers to the sum of those up to it; return them."""
    for i in range(1, numbers.shape[0]):
        numbers[i] += numbers[i - 1]
    return numbers


@njit(**FOR_LOOPS)
def are_equal(left, right):
    """Return whether two arrays of the same length have the same numbers."""
    for i in range(left.shape[0]):  # noqa: SIM110 - compiled
        if left[i] != right[i]:
            return False
    return True


@njit(**FOR_LOOPS)
def find_largest(values):
    """Return the index of the largest number, the first of equal ones."""
    largest = 0
    for i in range(1, values.shape[0]):
        if values[i] > values[largest]:
            largest = i
    return largest


@njit(**FOR_LOOPS)
def sort_descending(values, count):
    """Return the indices of the `count` largest numbers, the largest first and of equal ones the first first."""
    indices = integers(count)
    n_found = 0
    for i in range(values.shape[0]):
        rank = n_found
        while rank > 0 and values[indices[rank - 1]] < values[i]:
            rank -= 1
        if rank == count:
            continue
        n_found = min(n_found + 1, count)
        for j in range(n_found - 1, rank, -1):
            indices[j] = indices[j - 1]
        indices[rank] = i
    return indices
