"""What no subset's gradient exceeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["scatter_bound"]

FloatArray = NDArray[np.float64]


def scatter_bound(items: FloatArray, size: int, most: int = 50) -> float:
    n = len(items)
    shares, best = np.full(n, size / n), np.inf
    for _ in range(most):
        centre = shares @ items / size
        distances = np.square(items - centre).sum(axis=1)
        top = np.argpartition(-distances, size - 1)[:size]
        best = min(best, float(distances[top].sum()))
        change = -shares
        change[top] += 1.0
        slope, move = float(distances @ change), change @ items
        curvature = float(move @ move) / size
        if slope <= 1e-6 * best:
            break
        shares = shares + min(1.0, slope / (2 * curvature) if curvature > 0 else 1.0) * change
    return size * best
