"""Choosing the first of what is equal, so that no choice hangs on how a processor rounds.

Rows that mirror each other (items shown equally often, one-hot contexts) are equally good to pivot on, and the last
digits of what is compared differ between processors. An argmax over rounded numbers would take one row here and another
there, and the posteriors would part by more than rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["leading"]

FloatArray = NDArray[np.float64]

TIE = 1e-6
"""Numbers are equal if they differ by less than this part of the largest: far more than rounding, less than matters."""


def leading(size: int) -> FloatArray:
    """Return factors that fall from one by a little, (size,): equal numbers times these are pivoted on in order."""
    return np.asarray(1.0 - TIE * np.arange(size), dtype=np.float64)
