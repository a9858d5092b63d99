"""Coordinates in which the average candidate's information is the identity."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

__all__ = ["RankError", "White", "split_rows", "whiten"]

FloatArray = NDArray[np.float64]
_Number = TypeVar("_Number", bound=np.number)

_ROWS_AT_ONCE = 8192
_NUMBERS_AT_ONCE_FOR_QR = 1 << 17
"""So few that other threads wait no longer than some milliseconds: unlike the rest, QR keeps the interpreter's lock."""

_NOTHING = 1e-10
"""Singular values that are this part of the largest, with all features of one scale, are taken for rounding."""


class RankError(Exception):
    """Rows span only `rank` dimensions."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class White(NamedTuple):
    """Rows X W whose products sum to n I, W (d, d), and log det(X' X / n)."""

    rows: FloatArray
    log_det: float
    basis: FloatArray


def whiten(rows: FloatArray, n: int) -> White:
    """Return the rows in coordinates in which their products' sum is n I.

    Parameters
    ----------
    rows
        Shape (R, d).

    Raises
    ------
    RankError
        The rows do not span d dimensions.
    """
    scale = np.abs(rows).max(axis=0, initial=0.0)
    scale[scale == 0.0] = 1.0
    triangle = _triangle(rows, scale)
    sizes = np.linalg.svd(triangle, compute_uv=False)
    rank = int((sizes > _NOTHING * sizes[0]).sum())
    if rank < rows.shape[1]:
        raise RankError(rank)
    inverse = solve_triangular(triangle, np.eye(len(triangle)), check_finite=False) * (np.sqrt(n) / scale[:, None])
    white = np.concatenate([piece @ inverse for piece in split_rows(rows)])
    log_det = 2.0 * float((np.log(np.abs(np.diagonal(triangle))) + np.log(scale)).sum()) - len(scale) * np.log(n)
    return White(white, log_det, inverse)


def split_rows(rows: NDArray[_Number], *, at_once: int = _ROWS_AT_ONCE) -> list[NDArray[_Number]]:
    """Return views of so many rows each; as many as fit into a cache."""
    return [rows[first : first + at_once] for first in range(0, len(rows), at_once)]


def _triangle(rows: FloatArray, scale: FloatArray) -> FloatArray:
    """Return R of the QR factors of the scaled rows, (d, d)."""
    d = rows.shape[1]
    at_once = max(d, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE_FOR_QR // d))
    triangle: FloatArray = np.zeros((0, d))
    for piece in split_rows(rows, at_once=at_once):
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, piece / scale]), mode="r"))
    return np.asarray(np.linalg.qr(np.vstack([triangle, np.zeros((d, d))]), mode="r"))
