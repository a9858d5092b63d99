"""One layout in memory for what defines a state.

BLAS adds up in another order for a column-major operand than for a row-major one, and numpy leaves BLAS aside where the
strides of an axis of length one are odd. So equal numbers in two layouts give results that differ in their last digits,
and which layouts do depends on the processor. What enters a state is therefore copied into the layout of a new array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["lay_out"]


def lay_out(values: NDArray[Any], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return a copy in row-major order, with the strides that a new array of its shape has."""
    return np.array(values, dtype=dtype, order="C")
