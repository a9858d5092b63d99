"""Triangular matrices, without keeping other threads waiting: LAPACK's own routines hold the GIL under scipy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dtrtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["inverse_lower"]

_BLOCK = 64


def inverse_lower(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of a lower triangular matrix, by halves."""
    size = len(lower)
    if size <= _BLOCK:
        return np.asarray(dtrtri(lower, lower=1)[0]) if size else np.zeros((0, 0))
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = inverse_lower(lower[:half, :half])
    inverse[half:, half:] = inverse_lower(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse
