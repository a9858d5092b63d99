"""Compiled sums of squares over the columns of candidates' matrices."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["add_squares", "norms"]

_REASSOCIATE = {"reassoc", "contract", "nsz"}


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def norms(rows):
    """Return the squared Frobenius norm of each candidate's rows, (S, M, d) -> (S,)."""
    sums = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        total = 0.0
        for a in range(rows.shape[1]):
            for j in range(rows.shape[2]):
                total += rows[i, a, j] * rows[i, a, j]
        sums[i] = total
    return sums


@njit(nogil=True, cache=True, fastmath=_REASSOCIATE)
def add_squares(products, first, width, sums):
    """Add the squares of products of columns to their candidates' entries of `sums`, (S, S).

    `products` holds those of the columns from `first` on with all columns, (P, S M); candidate i's columns are
    [i M, (i + 1) M), M being the width.
    """
    for row in range(products.shape[0]):
        i = (first + row) // width
        for j in range(sums.shape[1]):
            total = 0.0
            for a in range(width):
                value = products[row, j * width + a]
                total += value * value
            sums[i, j] += total
