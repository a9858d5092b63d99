"""What no subset's gradient exceeds, where there are too many subsets to look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.compiled.combinations import scatter_bound

__all__ = ["gradient_bound", "largest_sums"]

FloatArray = NDArray[np.float64]


def gradient_bound(items: FloatArray, largest: FloatArray, *, enough: float) -> float:
    """Return a bound of the gradients of all subsets of K items: the smaller of two, or one that is enough.

    Parameters
    ----------
    items
        y, shape (N, d): a subset's gradient is the sum of D_jk = |y_j - y_k|^2 over its pairs.
    largest
        As `largest_sums` returns them, shape (N, K).
    enough
        No bound needs to be smaller.
    """
    bound = _pair_bound(largest)
    return bound if bound <= enough else min(bound, float(scatter_bound(items, largest.shape[1], enough)))


def largest_sums(pairs: FloatArray, size: int) -> FloatArray:
    """Return the sums of each item's r largest pair gradients, r = 0 .. K - 1, shape (N, K)."""
    top = -np.sort(np.partition(-pairs, size - 2, axis=1)[:, : size - 1], axis=1)
    return np.column_stack([np.zeros(len(pairs)), np.cumsum(top, axis=1)])


def _pair_bound(largest: FloatArray) -> float:
    """Half the sum of the K largest sums of an item's K - 1 largest pair gradients. Tight where all D are alike."""
    size = largest.shape[1]
    return 0.5 * float(np.partition(largest[:, -1], -size)[-size:].sum())
