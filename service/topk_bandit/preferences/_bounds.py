"""What no subset's gradient exceeds, where there are too many subsets to look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["gradient_bound", "largest_sums"]

FloatArray = NDArray[np.float64]

_MOST_STEPS = 100
_PRECISION = 1e-4


def gradient_bound(items: FloatArray, largest: FloatArray) -> float:
    """Return a bound of the gradients of all subsets of K items: the smaller of two.

    Parameters
    ----------
    items
        y, shape (N, d): a subset's gradient is the sum of D_jk = |y_j - y_k|^2 over its pairs.
    largest
        As `largest_sums` returns them, shape (N, K).
    """
    return min(_scatter_bound(items, largest.shape[1]), _pair_bound(largest))


def largest_sums(pairs: FloatArray, size: int) -> FloatArray:
    """Return the sums of each item's r largest pair gradients, r = 0 .. K - 1, shape (N, K)."""
    top = -np.sort(np.partition(-pairs, size - 2, axis=1)[:, : size - 1], axis=1)
    return np.column_stack([np.zeros(len(pairs)), np.cumsum(top, axis=1)])


def _pair_bound(largest: FloatArray) -> float:
    """Half the sum of the K largest sums of an item's K - 1 largest pair gradients. Tight where all D are alike."""
    size = largest.shape[1]
    return 0.5 * float(np.partition(largest[:, -1], -size)[-size:].sum())


def _scatter_bound(items: FloatArray, size: int) -> float:
    """Return K times the sum of the K largest |y_i - m|^2, for a good m.

    A subset's gradient is K times the scatter of its y about their mean, and about any other point the scatter is
    larger. The best m is a mean sum_i w_i y_i / K, 0 <= w_i <= 1, sum w = K, with w maximising the concave
    sum_i w_i |y_i|^2 - |sum_i w_i y_i|^2 / K: found by Frank-Wolfe steps, every one of which gives a bound.
    """
    shares, bound = np.full(len(items), size / len(items)), np.inf
    for _ in range(_MOST_STEPS):
        distances = np.square(items - shares @ items / size).sum(axis=1)
        top = np.argpartition(-distances, size - 1)[:size]
        bound = min(bound, float(distances[top].sum()))
        change = -shares
        change[top] += 1.0
        slope, move = float(distances @ change), change @ items
        curvature = float(move @ move) / size
        if slope <= _PRECISION * bound:
            break
        shares = shares + min(1.0, slope / max(2.0 * curvature, slope)) * change
    return size * bound
