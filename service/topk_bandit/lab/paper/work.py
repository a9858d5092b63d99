"""Arithmetic that counts what it does: multiplications, divisions and square roots of numbers, not additions.

A count is the same on every machine, and tells how a cost grows without a clock. Matrix products count as the
schoolbook has them, whatever the library does; LAPACK's routines count as in LAPACK Working Note 41 (Blackford and
Dongarra, 1999), and eigenvalues with vectors as Golub and Van Loan's Matrix Computations has them (9 n^3 additions and
multiplications, half of them the latter).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

if TYPE_CHECKING:
    from scipy import sparse

    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = [
    "Arithmetic",
    "Work",
    "of_brackets",
    "of_cholesky",
    "of_own_brackets",
    "of_triangular_solve",
    "of_tridiagonal",
]

FloatArray = NDArray[np.float64]


class Arithmetic:
    """Operations on arrays of numbers."""

    def times(self, left: FloatArray | float, right: FloatArray) -> FloatArray:
        """Return left * right, number by number."""
        return np.asarray(left * right)

    def over(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return left / right, number by number."""
        return np.asarray(left / right)

    def dots(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the dot product of each column of `left` (N, A) with that of `right`, shape (A,)."""
        return np.asarray(self.times(left, right).sum(axis=0))

    def product(self, left: FloatArray | sparse.sparray, right: FloatArray) -> FloatArray:
        """Return left @ right; `left` may be sparse."""
        return np.asarray(left @ right)

    def kernel_values(self, kernel: KendallKernel, left: Rankings, right: Rankings) -> FloatArray:
        """Return the kernel's values for all pairs of rankings (A, k) and (B, k), shape (A, B)."""
        return kernel.gram(left, right)

    def solve(self, positive: FloatArray, right: FloatArray) -> FloatArray:
        """Return positive^-1 G for a positive definite matrix (N, N), by Cholesky, and G of shape (N, A)."""
        return np.asarray(cho_solve(cho_factor(positive, lower=True), right))


class Work(Arithmetic):
    """The same operations, and how many multiplications, divisions and square roots all of them took.

    Attributes
    ----------
    count
        So far.
    """

    def __init__(self) -> None:
        self.count = 0

    def times(self, left: FloatArray | float, right: FloatArray) -> FloatArray:
        """See `Arithmetic.times`: one for each number of the result."""
        product = super().times(left, right)
        self.count += product.size
        return product

    def over(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """See `Arithmetic.over`: one for each number of the result."""
        quotient = super().over(left, right)
        self.count += quotient.size
        return quotient

    def product(self, left: FloatArray | sparse.sparray, right: FloatArray) -> FloatArray:
        """See `Arithmetic.product`: one for each number of `left`, or each stored one, and column."""
        self.count += left.size * math.prod(right.shape[1:])
        return super().product(left, right)

    def kernel_values(self, kernel: KendallKernel, left: Rankings, right: Rankings) -> FloatArray:
        """See `Arithmetic.kernel_values`: what `of_brackets` says, and one for the scale of each value."""
        self.count += of_brackets(left, right, n_items=kernel.n_items) + len(left) * len(right)
        return super().kernel_values(kernel, left, right)

    def solve(self, positive: FloatArray, right: FloatArray) -> FloatArray:
        """See `Arithmetic.solve`: a Cholesky factor, and two triangular solves a column."""
        n, columns = right.shape
        self.count += of_cholesky(n) + 2 * columns * of_triangular_solve(n)
        return super().solve(positive, right)


def of_brackets(left: Rankings, right: Rankings, *, n_items: int) -> int:
    """Return the work of `KendallKernel.gram` before it scales its values.

    It is one multiplication for s s', four for every item that two rankings share, and one for every pair that they do.
    """
    shared = _members(left, n_items) @ _members(right, n_items).T
    return int((1.0 + 4.0 * shared + shared * (shared - 1.0) / 2.0).sum())


def of_own_brackets(rankings: Rankings, *, n_items: int) -> int:
    """Return the work of `KendallKernel.gram_of` before it scales its values: of one half, and s s' once."""
    shared = np.tril(_members(rankings, n_items) @ _members(rankings, n_items).T)
    return 1 + int((4.0 * shared + shared * (shared - 1.0) / 2.0).sum())


def _members(rankings: Rankings, n_items: int) -> FloatArray:
    members = np.zeros((len(rankings), n_items))
    np.put_along_axis(members, rankings, 1.0, axis=1)
    return members


def of_cholesky(n: int) -> int:
    """Return the work of the Cholesky factor of an (n, n) matrix, or of the inverse of a triangular one."""
    return n * (n + 1) * (n + 2) // 6


def of_triangular_solve(n: int) -> int:
    """Return the work of solving n triangular equations for one right-hand side."""
    return n * (n + 1) // 2


def of_tridiagonal(n: int) -> int:
    """Return the work of reducing a symmetric (n, n) matrix to three diagonals."""
    return 2 * n**3 // 3
