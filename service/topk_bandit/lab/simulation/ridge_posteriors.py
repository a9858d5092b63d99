"""Posteriors of ridge regressions with sparse rows, for Thompson sampling: dense factors, or conjugate gradients.

With rows X, rewards y that are centred, and a ridge r, the weights' posterior is normal with precision
(X'X + r) / sigma^2 and mean (X'X + r)^-1 X'y. sigma^2 is the scale that is most likely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DenseRidge", "RidgePosterior", "SparseRidge", "ridge_posterior"]

FloatArray = NDArray[np.float64]

_GROWTH = 0.02
"""What the mean is a function of is computed anew when the rewards have grown by this share."""

_EXACT = 1e-12
"""Residuals that are this small, relative to the rewards, are zero: rewards that are equal say nothing of the noise."""

_MOST_DENSE = 2000
_TOLERANCE, _STEPS = 1e-3, 60
_NUMBERS_A_ROUND = 50_000


class RidgePosterior(Protocol):
    """What rows and rewards say of weights."""

    @property
    def rounds_a_draw(self) -> int:
        """For how many rounds a draw should serve, so that draws cost little."""
        ...

    def observe(self, columns: NDArray[np.intp], values: FloatArray, reward: float) -> None:
        """Learn the reward of a row that has these values in these columns, and zeros."""
        ...

    def draw(self, width: float, rng: np.random.Generator) -> FloatArray:
        """Return weights that deviate from the mean by `width` times the posterior's deviations."""
        ...


def ridge_posterior(dim: int, *, ridge: float, row_size: int) -> RidgePosterior:
    """Return the posterior of `dim` weights that suits their number; rows have `row_size` values."""
    if dim <= _MOST_DENSE:
        return DenseRidge(dim, ridge=ridge)
    return SparseRidge(dim, ridge=ridge, row_size=row_size)


class _Rewards:
    """Sums over rewards, and the deviation of the noise."""

    def __init__(self, dim: int) -> None:
        self.count, self.total, self.squares = 0, 0.0, 0.0
        self.features, self.products = np.zeros(dim), np.zeros(dim)  # sums of x, and of x y
        self.deviation = 1.0

    def add(self, columns: NDArray[np.intp], values: FloatArray, reward: float) -> None:
        self.features[columns] += values
        self.products[columns] += reward * values
        self.count += 1
        self.total += reward
        self.squares += reward * reward

    @property
    def centre(self) -> float:
        return self.total / max(self.count, 1)

    @property
    def centred_products(self) -> FloatArray:
        return self.products - self.centre * self.features

    def rescale(self, mean: FloatArray) -> None:
        """Choose the deviation that is most likely with this mean of the weights."""
        square = self.squares - self.count * self.centre**2 - float(self.centred_products @ mean)
        if square > _EXACT * self.squares:
            self.deviation = float(np.sqrt(square / self.count))


class DenseRidge:
    """The posterior by a factor of its precision.

    Parameters
    ----------
    dim
        For the weights.
    ridge
        r.
    """

    def __init__(self, dim: int, *, ridge: float) -> None:
        self._ridge = ridge
        self._rewards = _Rewards(dim)
        self._gram = np.zeros((dim, dim))
        self._factor = np.eye(dim) * np.sqrt(ridge)
        self._mean = np.zeros(dim)
        self._fitted = 0

    @property
    def rounds_a_draw(self) -> int:
        """See `RidgePosterior.rounds_a_draw`."""
        return max(len(self._mean) ** 2 // (5 * _NUMBERS_A_ROUND), 1)

    def observe(self, columns: NDArray[np.intp], values: FloatArray, reward: float) -> None:
        """See `RidgePosterior.observe`."""
        self._gram[np.ix_(columns, columns)] += np.outer(values, values)
        self._rewards.add(columns, values, reward)

    def draw(self, width: float, rng: np.random.Generator) -> FloatArray:
        """See `RidgePosterior.draw`."""
        if self._rewards.count > self._fitted * (1.0 + _GROWTH):
            self._fit()
        normal = rng.normal(size=len(self._mean))
        deviating = solve_triangular(self._factor, normal, lower=True, trans="T", check_finite=False)
        return np.asarray(self._mean + width * self._rewards.deviation * deviating)

    def _fit(self) -> None:
        precision = self._gram.copy()
        precision[np.diag_indices_from(precision)] += self._ridge
        self._factor = cholesky(precision, lower=True, overwrite_a=True, check_finite=False)
        self._mean = cho_solve((self._factor, True), self._rewards.centred_products, check_finite=False)
        self._rewards.rescale(self._mean)
        self._fitted = self._rewards.count


class SparseRidge:
    """The posterior by its rows: a draw solves for weights of a perturbed ridge regression, to a part in a thousand.

    Parameters
    ----------
    dim
        For the weights.
    ridge
        r.
    row_size
        How many values a row has.
    """

    def __init__(self, dim: int, *, ridge: float, row_size: int) -> None:
        self._ridge = ridge
        self._rewards = _Rewards(dim)
        self._columns, self._values = np.zeros((64, row_size), dtype=np.int32), np.zeros((64, row_size))
        self._squares = np.zeros(dim)
        self._mean = np.zeros(dim)
        self._fitted = 0

    @property
    def rounds_a_draw(self) -> int:
        """See `RidgePosterior.rounds_a_draw`."""
        return max(self._rewards.count * self._columns.shape[1] // _NUMBERS_A_ROUND, 1)

    def observe(self, columns: NDArray[np.intp], values: FloatArray, reward: float) -> None:
        """See `RidgePosterior.observe`."""
        n = self._rewards.count
        if n == len(self._columns):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)])
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._columns[n], self._values[n] = columns, values
        self._squares[columns] += values**2
        self._rewards.add(columns, values, reward)

    def draw(self, width: float, rng: np.random.Generator) -> FloatArray:
        """See `RidgePosterior.draw`."""
        rows, rewards = self._rows(), self._rewards
        if rewards.count > self._fitted * (1.0 + _GROWTH):
            self._mean = self._solve(rows, rewards.centred_products, start=self._mean)
            rewards.rescale(self._mean)
            self._fitted = rewards.count
        normal = np.sqrt(self._ridge) * rng.normal(size=len(self._mean)) + rows.T @ rng.normal(size=rewards.count)
        deviating = self._solve(rows, normal, start=np.zeros_like(normal))
        return np.asarray(self._mean + width * rewards.deviation * deviating)

    def _rows(self) -> csr_array:
        n, size = self._rewards.count, self._columns.shape[1]
        starts = np.arange(0, n * size + 1, size)
        shape = n, len(self._mean)
        return csr_array((self._values[:n].ravel(), self._columns[:n].ravel(), starts), shape=shape)

    def _solve(self, rows: csr_array, right: FloatArray, *, start: FloatArray) -> FloatArray:
        turned: Callable[[FloatArray], FloatArray] = rows.T.__matmul__
        diagonal, shape = self._squares + self._ridge, (len(right), len(right))
        times = LinearOperator(shape, matvec=lambda x: turned(rows @ x) + self._ridge * x, dtype=np.float64)
        divided = LinearOperator(shape, matvec=lambda x: x / diagonal, dtype=np.float64)
        solution, _ = cg(times, right, x0=start, rtol=_TOLERANCE, maxiter=_STEPS, M=divided)
        return np.asarray(solution)
