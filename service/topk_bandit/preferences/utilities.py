"""Utilities of items and their spread, as every preference model predicts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Gaussian", "Utilities", "validate_features", "validate_weights"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Utilities:
    """What a model believes of n items.

    Attributes
    ----------
    mean, standard_deviation
        For each item's utility, shape (n,). Only differences of utilities mean something.
    """

    mean: FloatArray
    standard_deviation: FloatArray

    @property
    def ranks(self) -> NDArray[np.intp]:
        """Rank of each item by its mean, 1 for the best, shape (n,); of equal items the earlier is first."""
        ranks = np.empty(len(self.mean), dtype=np.intp)
        ranks[np.argsort(-self.mean, kind="stable")] = np.arange(1, len(self.mean) + 1)
        return ranks


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """A normal distribution of the weights theta: a prior, or a posterior.

    Attributes
    ----------
    mean
        Shape (d,).
    covariance
        Positive definite, shape (d, d).
    """

    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def isotropic(cls, dimension: int, *, variance: float) -> Gaussian:
        """Return N(0, variance I)."""
        if not (np.isfinite(variance) and variance > 0.0):
            raise InvalidArgumentError("variance", f"expected a positive number, got {variance}")
        return cls(np.zeros(dimension), variance * np.eye(dimension))

    def precision(self, dimension: int) -> FloatArray:
        """Return the inverse of the covariance, shape (d, d).

        Raises
        ------
        InvalidArgumentError
            Naming ``prior``: mean or covariance are not of this dimension or not finite, or the covariance is not
            symmetric and positive definite.
        """
        if self.mean.shape != (dimension,) or self.covariance.shape != (dimension, dimension):
            raise InvalidArgumentError("prior", f"expected dimension {dimension}, got {self.covariance.shape}")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise InvalidArgumentError("prior", "expected finite numbers")
        scale = np.sqrt(np.abs(np.diag(self.covariance)))
        correlation = self.covariance / np.outer(scale, scale) if scale.all() else self.covariance
        if not np.allclose(correlation, correlation.T, rtol=0.0, atol=1e-9):
            raise InvalidArgumentError("prior", "expected a symmetric covariance")
        try:
            lower = np.linalg.cholesky(0.5 * (correlation + correlation.T))
        except np.linalg.LinAlgError:
            raise InvalidArgumentError("prior", "expected a positive definite covariance") from None
        inverse = np.linalg.inv(lower)
        return np.asarray(inverse.T @ inverse / np.outer(scale, scale))

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the utilities x'theta of items with these features, shape (n, d).

        Raises
        ------
        InvalidArgumentError
            The features are no finite (n, d) matrix.
        """
        rows = validate_features(features, dimension=len(self.mean))
        variances = np.einsum("nd,nd->n", rows @ self.covariance, rows)
        return Utilities(rows @ self.mean, np.sqrt(np.maximum(variances, 0.0)))


def validate_features(features: ArrayLike, *, dimension: int | None = None, field: str = "features") -> FloatArray:
    """Return `features` as a finite (n, d) matrix of numbers, d at least 1.

    Raises
    ------
    InvalidArgumentError
        They are none, or d is not `dimension`.
    """
    try:
        rows = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, "expected a matrix of numbers") from None
    if rows.ndim != 2 or rows.shape[1] < 1 or dimension not in {None, rows.shape[1]}:
        width = "d" if dimension is None else dimension
        raise InvalidArgumentError(field, f"expected shape (n, {width}), got {rows.shape}")
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        raise InvalidArgumentError(f"{field}[{wrong[0, 0]}][{wrong[0, 1]}]", "expected a finite number")
    return np.ascontiguousarray(rows)


def validate_weights(theta: ArrayLike, *, field: str = "theta") -> FloatArray:
    """Return `theta` as a finite vector of numbers.

    Raises
    ------
    InvalidArgumentError
        It is none.
    """
    try:
        weights = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, "expected a vector of numbers") from None
    if weights.ndim != 1:
        raise InvalidArgumentError(field, f"expected shape (d,), got {weights.shape}")
    wrong = np.flatnonzero(~np.isfinite(weights))
    if len(wrong):
        raise InvalidArgumentError(f"{field}[{wrong[0]}]", "expected a finite number")
    return weights
