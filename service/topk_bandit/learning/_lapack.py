"""Symmetric matrices reduced to three diagonals, without keeping other threads waiting.

LAPACK's routines hold the GIL under scipy's wrappers, which would stop decisions while a large bandit is refit. Here
the same routines are called where scipy has them for Cython, and the GIL is released meanwhile.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, byref, c_char, c_double, c_int
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba.extending import get_cython_function_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import _Pointer

    from numpy.typing import NDArray

__all__ = ["Tridiagonal", "reduce_to_diagonals", "whiten"]

_LETTER, _SIZE, _NUMBERS = POINTER(c_char), POINTER(c_int), POINTER(c_double)


def _routine(name: str, *arguments: type) -> Callable[..., None]:
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return CFUNCTYPE(None, *arguments)(address)


_sygst = _routine("dsygst", _SIZE, _LETTER, _SIZE, _NUMBERS, _SIZE, _NUMBERS, _SIZE, _SIZE)
_trtrs = _routine("dtrtrs", _LETTER, _LETTER, _LETTER, _SIZE, _SIZE, _NUMBERS, _SIZE, _NUMBERS, _SIZE, _SIZE)
_sytrd = _routine("dsytrd", _LETTER, _SIZE, _NUMBERS, _SIZE, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _SIZE, _SIZE)
_ormtr = _routine(
    *("dormtr", _LETTER, _LETTER, _LETTER, _SIZE, _SIZE, _NUMBERS, _SIZE, _NUMBERS, _NUMBERS, _SIZE),
    *(_NUMBERS, _SIZE, _SIZE),
)

_BLOCK = 64
"""LAPACK gets a work array for so many columns at a time."""


class Tridiagonal(NamedTuple):
    """T of A = Q T Q': its diagonal (N,), what is beside it (N - 1,), and targets times Q, shape (T, N)."""

    diagonal: NDArray[np.float64]
    beside: NDArray[np.float64]
    targets: NDArray[np.float64]


def whiten(
    matrix: NDArray[np.float64], targets: NDArray[np.float64], factor: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return W^-1 A W^-T, of which the lower triangle counts, and targets (T, N) times W^-T.

    Parameters
    ----------
    matrix
        A, symmetric, shape (N, N).
    targets
        Shape (T, N).
    factor
        W, lower triangular, shape (N, N).
    """
    # LAPACK reads columns: the lower triangle of a row-major array is an upper one, and its transpose.
    whitened, taken, size = matrix.copy(), targets.copy(), c_int(len(matrix))
    count, one, info = c_int(len(targets)), c_int(1), c_int()
    upper, numbers = byref(c_char(b"U")), _numbers(np.ascontiguousarray(factor))
    _sygst(byref(one), upper, byref(size), _numbers(whitened), byref(size), numbers, byref(size), byref(info))
    _trtrs(
        *(upper, byref(c_char(b"T")), byref(c_char(b"N")), byref(size), byref(count), numbers, byref(size)),
        *(_numbers(taken), byref(size), byref(info)),
    )
    return whitened, taken


def reduce_to_diagonals(matrix: NDArray[np.float64], targets: NDArray[np.float64]) -> Tridiagonal:
    """Reduce a symmetric matrix (N, N), of which the lower triangle counts, and targets (T, N) with it: 4/3 N^3."""
    reduced, taken, n = matrix.copy(), targets.copy(), len(matrix)
    diagonal, beside, reflectors = np.empty(n), np.empty(max(n - 1, 0)), np.empty(max(n - 1, 0))
    size, count, work_size, info = c_int(n), c_int(len(targets)), c_int(_BLOCK * max(n, 1)), c_int()
    upper, work = byref(c_char(b"U")), _numbers(np.empty(work_size.value))
    numbers, taus = _numbers(reduced), _numbers(reflectors)
    _sytrd(
        *(upper, byref(size), numbers, byref(size), _numbers(diagonal), _numbers(beside), taus),
        *(work, byref(work_size), byref(info)),
    )
    _ormtr(
        *(byref(c_char(b"L")), upper, byref(c_char(b"T")), byref(size), byref(count), numbers, byref(size), taus),
        *(_numbers(taken), byref(size), work, byref(work_size), byref(info)),
    )
    return Tridiagonal(diagonal, beside, taken)


def _numbers(array: NDArray[np.float64]) -> _Pointer[c_double]:
    return array.ctypes.data_as(_NUMBERS)
