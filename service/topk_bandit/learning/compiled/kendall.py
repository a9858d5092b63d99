"""Compiled loops over plain arrays: kernel values, sums of items' features, and rotations of pending rows.

All of them release the GIL, keep their results the same from run to run (the order of each sum is fixed by the compiled
code), and are compiled on their first call and cached on disk.

Letters: A rankings, k positions, n items.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["gram", "gram_of", "rotate_out", "rotate_to_front", "sum_rows"]


@njit(nogil=True, cache=True)
def gram(left, right, n_items, u, d, v, s):
    """Return the brackets D.D' + n u.u' + u.v' + v.u' - s s' for all pairs, (A, B)."""
    k = left.shape[1]
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


@njit(nogil=True, cache=True)
def _listed(rankings, n_items):
    """Return where each item's list starts in an array of all entries of all rankings, by items."""
    starts = np.zeros(n_items + 1, dtype=np.int64)
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            starts[rankings[row, a] + 1] += 1
    return np.cumsum(starts)


@njit(nogil=True, cache=True)
def gram_of(rankings, n_items, u, d, v, s):
    """Return the brackets of all pairs of rankings (A, k), shape (A, A), in time that grows with the items shared.

    Each ranking goes through the earlier rankings of each of its items, and through the items shared with these before.
    """
    n_rows, k = rankings.shape
    out, starts = np.full((n_rows, n_rows), -s * s), _listed(rankings, n_items)
    ends, rows, places = starts.copy(), np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1], dtype=np.int64)
    shared = np.zeros(n_rows, dtype=np.int64)
    own, others = np.empty((n_rows, k), dtype=np.int64), np.empty((n_rows, k), dtype=np.int64)
    for row in range(n_rows):
        shared[: row + 1] = 0
        for a in range(k):
            item = rankings[row, a]
            rows[ends[item]], places[ends[item]] = row, a
            ends[item] += 1
            for entry in range(starts[item], ends[item]):
                other, b = rows[entry], places[entry]
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


@njit(nogil=True, cache=True)
def sum_rows(features, rankings, weights):
    """Return the rows of `features` (n, q) of each ranking's items, added up by weights of positions, (A, q)."""
    out = np.zeros((rankings.shape[0], features.shape[1]))
    for row in range(rankings.shape[0]):
        for a in range(rankings.shape[1]):
            item, weight = rankings[row, a], weights[a]
            for column in range(features.shape[1]):
                out[row, column] += weight * features[item, column]
    return out


@njit(nogil=True, cache=True)
def _annihilate(factor, whitened, row, first):
    """Rotate columns `first`, `first + 1` of the factor, and so of M', such that factor[row, first + 1] = 0."""
    x = factor[row, first]
    y = factor[row, first + 1]
    norm = np.hypot(x, y)
    if y == 0.0 or norm == 0.0:
        return
    _rotate(factor, first, x / norm, y / norm)
    _rotate(whitened, first, x / norm, y / norm)


@njit(nogil=True, cache=True)
def _rotate(array, first, cosine, sine):
    for i in range(array.shape[0]):
        left = array[i, first]
        right = array[i, first + 1]
        array[i, first] = cosine * left + sine * right
        array[i, first + 1] = cosine * right - sine * left


@njit(nogil=True, cache=True)
def rotate_to_front(factor, whitened, chosen):
    """Make pending row `chosen` the first: `factor` becomes L of the permuted matrix, `whitened` its part of M'."""
    moved = factor[chosen].copy()
    for i in range(chosen, 0, -1):
        factor[i] = factor[i - 1]
    factor[0] = moved
    for t in range(chosen - 1, -1, -1):
        _annihilate(factor, whitened, 0, t)


@njit(nogil=True, cache=True)
def rotate_out(factor, whitened, chosen):
    """Make pending row `chosen` removable: the last row and column of `factor`, and the last of M', can go then."""
    size = factor.shape[0]
    for i in range(chosen, size - 1):
        factor[i] = factor[i + 1]
    factor[size - 1] = 0.0
    for t in range(chosen, size - 1):
        _annihilate(factor, whitened, t, t)
