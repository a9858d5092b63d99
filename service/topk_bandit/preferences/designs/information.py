"""The information of a design, factored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

__all__ = ["Information"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """V = C C'.

    Attributes
    ----------
    whitener
        C^-1, lower triangular, shape (d, d).
    log_det
        Of V.
    """

    whitener: FloatArray
    log_det: float

    @classmethod
    def of(cls, rows: FloatArray, weights: FloatArray, *, prior: FloatArray | float = 0.0) -> Information:
        """Return that of V = R + sum_i p_i B_i B_i'.

        Parameters
        ----------
        rows
            Transposes of the matrices B_i, shape (S, M, d).
        weights
            p, shape (S,).
        prior
            R, shape (d, d), or 0.

        Raises
        ------
        numpy.linalg.LinAlgError
            V is singular.
        """
        d = rows.shape[2]
        weighed = (rows * np.sqrt(weights)[:, None, None]).reshape(-1, d)
        factor = np.linalg.cholesky(weighed.T @ weighed + prior)
        whitener = solve_triangular(factor, np.eye(d), lower=True, check_finite=False)
        return cls(whitener, 2.0 * float(np.log(np.diagonal(factor)).sum()))

    @property
    def inverse(self) -> FloatArray:
        """V^-1."""
        return np.asarray(self.whitener.T @ self.whitener)

    def level(self, prior: FloatArray | None) -> float:
        """Return d - tr(V^-1 R), the mean of g_i = tr(B_i' V^-1 B_i) by the weights: d without R."""
        known = 0.0 if prior is None else float(np.sum((self.whitener @ prior) * self.whitener))
        return len(self.whitener) - known

    def whiten(self, rows: FloatArray) -> FloatArray:
        """Return y = C^-1 x of every row x, so that |y|^2 = x' V^-1 x; any shape (..., d)."""
        return (rows.reshape(-1, rows.shape[-1]) @ self.whitener.T).reshape(rows.shape)
