"""The compiled part of the profile likelihood: products of the targets with the inverse of T + r, for many r.

It releases the GIL, keeps its results the same from run to run, and is cached on disk.

Letters: N rows, T targets, G ratios.
"""

from __future__ import annotations

import math

from numba import njit

from topk_bandit.learning.compiled.arrays import floats
from topk_bandit.learning.compiled.options import FOR_LOOPS, WITHOUT_LOCK

__all__ = ["profile"]


@njit(**FOR_LOOPS)
def _eliminate(diagonal, beside, targets, ratio, pivots, solved):
    """Set L^-1 times the targets and D, with L D L' = T + r; return log|T + r|. No pivot is less than r."""
    determinant = 0.0
    for i in range(diagonal.shape[0]):
        pivots[i] = diagonal[i] + ratio
        factor = beside[i - 1] / pivots[i - 1] if i > 0 else 0.0
        if i > 0:
            # Rounding can take more off than there is.
            pivots[i] = max(pivots[i] - factor * beside[i - 1], ratio)
        for t in range(targets.shape[0]):
            solved[t, i] = targets[t, i] - (factor * solved[t, i - 1] if i > 0 else 0.0)
        determinant += math.log(pivots[i])
    return determinant


@njit(**FOR_LOOPS)
def _product(left, right, mean_left, mean_right, ones, pivots):
    """Return the product of two targets less their means, weighted by the inverse pivots."""
    total = 0.0
    for i in range(pivots.shape[0]):
        total += (left[i] - mean_left * ones[i]) * (right[i] - mean_right * ones[i]) / pivots[i]
    return total


@njit(**WITHOUT_LOCK)
def profile(diagonal, beside, targets, left, ratios):
    """Return the targets' generalised least squares means, what is left of their products, and log|T + r|, for each r.

    Parameters: T by its two diagonals, (N,) and (N - 1,); the targets, of which the second is the ones, (T, N); the
    products of the targets beside the rows, (T, T); r (G,). Shapes: (G, T), (G, T, T) and (G,).
    """
    size, count = targets.shape[0], ratios.shape[0]
    means, products, determinants = floats((count, size)), floats((count, size, size)), floats(count)
    pivots, solved = floats(diagonal.shape[0]), floats(targets.shape)
    for g in range(count):
        ratio = ratios[g]
        determinants[g] = _eliminate(diagonal, beside, targets, ratio, pivots, solved)
        ones = solved[1]
        whole = _product(ones, ones, 0.0, 0.0, ones, pivots) + left[1, 1] / ratio
        for s in range(size):
            means[g, s] = (_product(solved[s], ones, 0.0, 0.0, ones, pivots) + left[s, 1] / ratio) / whole
        for s in range(size):
            for t in range(s + 1):
                a, b = means[g, s], means[g, t]
                beyond = left[s, t] - a * left[1, t] - b * left[s, 1] + a * b * left[1, 1]
                within = _product(solved[s], solved[t], a, b, ones, pivots)
                products[g, s, t] = within + beyond / ratio
                products[g, t, s] = products[g, s, t]
    return means, products, determinants
