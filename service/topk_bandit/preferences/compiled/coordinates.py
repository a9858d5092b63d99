"""Compiled coordinate ascent on log det V(p) - l sum_i p_i over p >= 0, V(p) = R + sum_i p_i B_i B_i'.

Without R the level l is d.

One coordinate at a time has a closed form: adding t B B' to V changes the objective by

    sum_k log(1 + t e_k) - l t,    e the eigenvalues of C = B' V^-1 B,

which is concave, and V^-1 by - U' diag(t / (1 + t e)) U, with U = Q' B' V^-1 and C = Q diag(e) Q'.

Letters: S candidates, M columns, d features.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["best_change", "diagonalise", "sweep"]

_REASSOCIATE = {"reassoc", "contract", "nsz"}
_MOST_STEPS = 60
_MOST_ROTATIONS = 30


@njit(nogil=True, cache=True)
def diagonalise(matrix, basis):
    """Diagonalise a symmetric matrix in place by Jacobi's rotations; the columns of `basis` become its eigenvectors."""
    size = matrix.shape[0]
    for a in range(size):
        for b in range(size):
            basis[a, b] = 1.0 if a == b else 0.0
    for _ in range(_MOST_ROTATIONS):
        largest = 0.0
        for a in range(size):
            for b in range(a):
                scale = np.sqrt(abs(matrix[a, a] * matrix[b, b]))
                if abs(matrix[a, b]) > 1e-15 * scale and abs(matrix[a, b]) > 0.0:
                    largest = max(largest, abs(matrix[a, b]) - 1e-15 * scale)
                    _rotate(matrix, basis, b, a)
        if largest <= 0.0:
            return


@njit(nogil=True, cache=True)
def _rotate(matrix, basis, a, b):
    ratio = (matrix[b, b] - matrix[a, a]) / (2.0 * matrix[a, b])
    tangent = (1.0 if ratio >= 0.0 else -1.0) / (abs(ratio) + np.sqrt(ratio * ratio + 1.0))
    cosine = 1.0 / np.sqrt(tangent * tangent + 1.0)
    sine = tangent * cosine
    for c in range(matrix.shape[0]):
        first, second = matrix[c, a], matrix[c, b]
        matrix[c, a], matrix[c, b] = cosine * first - sine * second, sine * first + cosine * second
        first, second = basis[c, a], basis[c, b]
        basis[c, a], basis[c, b] = cosine * first - sine * second, sine * first + cosine * second
    for c in range(matrix.shape[0]):
        first, second = matrix[a, c], matrix[b, c]
        matrix[a, c], matrix[b, c] = cosine * first - sine * second, sine * first + cosine * second
    matrix[a, b] = matrix[b, a] = 0.0


@njit(nogil=True, cache=True)
def best_change(eigenvalues, level, weight):
    """Return the t >= -weight that maximises sum_k log(1 + t e_k) - l t, for a level l > 0 and e_k >= 0.

    The derivative is convex and falls, so that Newton's steps from a point left of its zero never overshoot.
    """
    largest = eigenvalues.max()
    if largest <= 0.0:
        return -weight
    t = 0.0
    if eigenvalues.sum() < level:
        t = 1.0 / level - 1.0 / largest
        if t <= -weight:
            t = -weight
            if _slope(eigenvalues, t) <= level:
                return t
    for _ in range(_MOST_STEPS):
        curvature = 0.0
        for e in eigenvalues:
            curvature += (e / (1.0 + t * e)) ** 2
        step = (_slope(eigenvalues, t) - level) / curvature
        t += step
        if abs(step) <= 1e-12 * abs(t):
            break
    return max(t, -weight)


@njit(nogil=True, cache=True)
def _slope(eigenvalues, t):
    total = 0.0
    for e in eigenvalues:
        total += e / max(1.0 + t * e, 1e-300)
    return total


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _project(inverse, row, image, products):
    """Set `image`, (M, d), to B' V^-1 and `products`, (M, M), to B' V^-1 B; return the latter's trace."""
    width, d = row.shape
    for i in range(d):
        for a in range(width):
            total = 0.0
            for j in range(d):
                total += row[a, j] * inverse[i, j]
            image[a, i] = total
    trace = 0.0
    for a in range(width):
        for b in range(a + 1):
            total = 0.0
            for i in range(d):
                total += image[a, i] * row[b, i]
            products[a, b] = products[b, a] = total
        trace += products[a, a]
    return trace


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def _update(inverse, image, basis, eigenvalues, t, rotated):
    """Let V become V + t B B'."""
    width, d = image.shape
    for a in range(width):
        rotated[a] = 0.0
        for b in range(width):
            for i in range(d):
                rotated[a, i] += basis[b, a] * image[b, i]
    for i in range(d):
        for a in range(width):
            factor = t / (1.0 + t * eigenvalues[a]) * rotated[a, i]
            for j in range(d):
                inverse[i, j] -= factor * rotated[a, j]


@njit(nogil=True, cache=True)
def sweep(inverse, rows, weights, first, last, level, enough):
    """Set each of the weights [first, last) to its best in turn, in place with V^-1; return the largest |g - l| met.

    `rows` are the transposes of the candidates' matrices, (S, M, d). A weight whose |g - l| is at most `enough` stays.
    """
    _, width, d = rows.shape
    image, rotated = np.empty((width, d)), np.empty((width, d))
    products, basis, eigenvalues = np.empty((width, width)), np.empty((width, width)), np.empty(width)
    largest = 0.0
    for s in range(first, last):
        excess = _project(inverse, rows[s], image, products) - level
        if abs(excess) <= enough or (excess < 0.0 and weights[s] <= 0.0):
            continue
        largest = max(largest, abs(excess))
        diagonalise(products, basis)
        for a in range(width):
            eigenvalues[a] = max(products[a, a], 0.0)
        t = best_change(eigenvalues, level, weights[s])
        _update(inverse, image, basis, eigenvalues, t, rotated)
        weights[s] = max(weights[s] + t, 0.0)
    return largest
