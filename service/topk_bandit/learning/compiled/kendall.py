"""Compiled loops over plain arrays: kernel values, sums of items' features, and rotations of pending rows.

What may take long releases the GIL; all keep their results the same from run to run (the order of each sum is fixed by
the compiled code), and are compiled on their first call and cached on disk.

Letters: A rankings, k positions, n items.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from topk_bandit.learning.compiled.arrays import (
    ZERO,
    add_up,
    copy,
    fill_rows,
    floats,
    integers,
    zero_counts,
    zero_rows,
)
from topk_bandit.learning.compiled.options import FOR_LOOPS, FOR_PYTHON, WITHOUT_LOCK

__all__ = ["gram", "gram_of", "rotate_out", "rotate_rows", "rotate_to_front", "sum_rows"]


@njit(**WITHOUT_LOCK)
def gram(left, right, n_items, u, d, v, s):
    """Return the brackets D.D' + n u.u' + u.v' + v.u' - s s' for all pairs, (A, B)."""
    k = left.shape[1]
    # Not by `floats`: this one runs as plain Python, too, where its work is counted.
    out = np.empty((left.shape[0], right.shape[0]))
    position = np.full(n_items, -1, dtype=np.int32)
    for row in range(left.shape[0]):
        for a in range(k):
            position[left[row, a]] = a
        for column in range(right.shape[0]):
            total = 0.0 - s * s
            for a in range(k):
                p = position[right[column, a]]
                if p < 0:
                    continue
                total += n_items * u[a] * u[p] + u[a] * v[p] + v[a] * u[p]
                for b in range(a + 1, k):
                    q = position[right[column, b]]
                    if q > p:
                        total += d[a, b] * d[p, q]
                    elif q >= 0:
                        total -= d[a, b] * d[q, p]
            out[row, column] = total
        for a in range(k):
            position[left[row, a]] = -1
    return out


@njit(**FOR_LOOPS)
def _find_starts(rankings, n_items):
    """Return where each item's list starts in an array of all entries of all rankings, by items."""
    starts = zero_counts(n_items + 1)
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            starts[rankings[row, a] + 1] += 1
    return add_up(starts)


@njit(**WITHOUT_LOCK)
def gram_of(rankings, n_items, u, d, v, s):
    """Return the brackets of all pairs of rankings (A, k), shape (A, A), in time that grows with the items shared.

    Each ranking goes through the earlier rankings of each of its items, and through the items shared with these before.
    """
    n_rows, k = rankings.shape
    out, starts = fill_rows(floats((n_rows, n_rows)), -s * s), _find_starts(rankings, n_items)
    ends, rows, positions = starts.copy(), integers(starts[-1]), integers(starts[-1])
    shared = zero_counts(n_rows)
    own, others = integers((n_rows, k)), integers((n_rows, k))
    for row in range(n_rows):
        shared[: row + 1] = 0
        for a in range(k):
            item = rankings[row, a]
            rows[ends[item]], positions[ends[item]] = row, a
            ends[item] += 1
            for entry in range(starts[item], ends[item]):
                other, b = rows[entry], positions[entry]
                total = n_items * u[a] * u[b] + u[a] * v[b] + v[a] * u[b]
                for j in range(shared[other]):
                    p, q = own[other, j], others[other, j]
                    total += d[p, a] * d[q, b] if q < b else -d[p, a] * d[b, q]
                own[other, shared[other]], others[other, shared[other]] = a, b
                shared[other] += 1
                out[row, other] += total
        for other in range(row):
            out[other, row] = out[row, other]
    return out


@njit(**FOR_PYTHON)
def sum_rows(features, rankings, weights):
    """Return the rows of `features` (n, q) of each ranking's items, added up by weights of positions, (A, q)."""
    out = zero_rows(rankings.shape[0], features.shape[1])
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            item, weight = rankings[row, a], weights[a]
            for column in range(features.shape[1]):
                out[row, column] += weight * features[item, column]
    return out


@njit(**FOR_LOOPS)
def _annihilate(factor, row, first, rotations, count):
    """Rotate columns `first`, `first + 1` of the factor such that factor[row, first + 1] = 0; return the new count."""
    x = factor[row, first]
    y = factor[row, first + 1]
    norm = np.hypot(x, y)
    if y == 0.0 or norm == 0.0:
        return count
    cosine, sine = x / norm, y / norm
    for i in range(factor.shape[0]):
        left = factor[i, first]
        right = factor[i, first + 1]
        factor[i, first] = cosine * left + sine * right
        factor[i, first + 1] = cosine * right - sine * left
    rotations[count, 0], rotations[count, 1], rotations[count, 2] = first, cosine, sine
    return count + 1


@njit(**FOR_PYTHON)
def rotate_to_front(factor, chosen):
    """Make `factor` L of the permuted matrix whose first row is pending row `chosen`; return the rotations for M'."""
    moved = factor[chosen].copy()
    for i in range(chosen, 0, -1):
        copy(factor[i], factor[i - 1])
    copy(factor[0], moved)
    rotations, count = floats((chosen, 3)), ZERO
    for t in range(chosen - 1, -1, -1):
        count = _annihilate(factor, ZERO, t, rotations, count)
    return rotations[:count]


@njit(**FOR_PYTHON)
def rotate_out(factor, chosen):
    """Make pending row `chosen` the last, so that it can go from `factor`; return the rotations for M'."""
    size = factor.shape[0]
    for i in range(chosen, size - 1):
        copy(factor[i], factor[i + 1])
    factor[size - 1] = 0.0
    rotations, count = floats((size, 3)), ZERO
    for t in range(chosen, size - 1):
        count = _annihilate(factor, t, t, rotations, count)
    return rotations[:count]


_ROWS_AT_ONCE = 16

# Of a signed index the compiler has to ask whether it counts from the end.
_index = np.uint64


@njit(**FOR_LOOPS)
def _rotate_block(block, rotations):
    for r in range(_index(rotations.shape[0])):
        first, cosine, sine = _index(rotations[r, 0]), rotations[r, 1], rotations[r, 2]
        for i in range(_index(_ROWS_AT_ONCE)):
            left = block[first, i]
            right = block[first + _index(1), i]
            block[first, i] = cosine * left + sine * right
            block[first + _index(1), i] = cosine * right - sine * left


@njit(**FOR_LOOPS)
def _find_touched(rotations, size):
    """Return the first column that any rotation changes, and the one after the last."""
    first, end = size, 0
    for r in range(rotations.shape[0]):
        first, end = min(first, int(rotations[r, 0])), max(end, int(rotations[r, 0]) + 2)
    return min(first, end), end


@njit(**FOR_LOOPS)
def _copy(target, row, shift, source, source_row, first, end):
    for j in range(_index(first), _index(end)):
        target[row, j - shift] = source[source_row, j]


@njit(**FOR_LOOPS)
def _copy_turned(target, row, shift, block, i, first, end):
    for j in range(_index(first), _index(end)):
        target[row, j - shift] = block[j, i]


@njit(**FOR_PYTHON)
def rotate_rows(whitened, order, rotations, gone, others, column):
    """Rotate the columns of the rows `order` of M'; set `column` to the column `gone`, and `others` to all but that.

    It is the first or the last one. A few rows at a time are turned in a block that stays in the processor's nearest
    cache. Each number is computed as if all rows were rotated by one rotation after the other.
    """
    size, shift = whitened.shape[1], _index(1 if gone == 0 else 0)
    first, end = _find_touched(rotations, size)
    least, most = (1, size) if gone == 0 else (0, size - 1)
    block = zero_rows(size, _ROWS_AT_ONCE)
    for start in range(0, order.shape[0], _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, order.shape[0] - start)
        for i in range(_index(count)):
            source = _index(order[_index(start) + i])
            for j in range(_index(first), _index(end)):
                block[j, i] = whitened[source, j]
        _rotate_block(block, rotations)
        for i in range(_index(count)):
            row = _index(start) + i
            source = _index(order[row])
            _copy(others, row, shift, whitened, source, least, max(first, least))
            _copy_turned(others, row, shift, block, i, max(first, least), min(end, most))
            _copy(others, row, shift, whitened, source, max(end, least), most)
            column[row] = block[gone, i] if first <= gone < end else whitened[source, gone]
