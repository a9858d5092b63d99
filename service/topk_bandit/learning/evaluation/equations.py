"""The normal equations of a sparse ridge regression, solved by conjugate gradients.

For rows X, noise s^2 and coefficients W z with z ~ N(0, I) the most likely z solves (I + W' X' X W / s^2) z = W' b,
so no matrix of coefficients by coefficients is made. Preconditioned by parts of it (Hestenes and Stiefel 1952;
Golub and Van Loan 2013, section 11.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import eye_array, kron

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.regression import RegressionRows, Shape
    from topk_bandit.learning.rankings import Rankings

__all__ = ["EffectPrior", "doubts", "item_covariances", "solve"]

FloatArray = NDArray[np.float64]

_MOST_STEPS, _AT_ONCE = 2000, 1000
_SELECTION = 2.0
"""How much better than other items those that a policy selects may be: standard deviations of an item's effect."""


@dataclass(frozen=True, eq=False)
class EffectPrior:
    """P (k, k), Q (C, C) with a mean diagonal of one, the variance of the noise, and that of alpha: a large one."""

    positions: FloatArray
    parts: FloatArray
    noise: float
    level: float

    @cached_property
    def of_positions(self) -> FloatArray:
        """A root of P, shape (k, k): what positions have in common is its first column."""
        values, vectors = np.linalg.eigh(self.positions)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1])

    @cached_property
    def of_parts(self) -> FloatArray:
        """A root of Q, shape (C, C)."""
        return np.asarray(np.linalg.cholesky(self.parts))

    def spread(self, shape: Shape, z: FloatArray) -> FloatArray:
        """Return W z for z (P, m): coefficients whose covariance is the prior's where that of z is one."""
        return self._multiply(shape, z, self.of_positions, self.of_parts)

    def gather(self, shape: Shape, row: FloatArray) -> FloatArray:
        """Return W' times a row (P, m)."""
        return self._multiply(shape, row, self.of_positions.T, self.of_parts.T)

    def _multiply(self, shape: Shape, z: FloatArray, of_positions: FloatArray, of_parts: FloatArray) -> FloatArray:
        size, items, dim, count = shape.size, shape.n_items, shape.dim, z.shape[1]
        effects = (of_positions @ z[: shape.n_effects].reshape(size, -1)).reshape(size * items, dim, count)
        effects = np.matmul(of_parts, effects)
        level, selected = z[shape.n_effects : shape.n_effects + dim], z[shape.n_effects + dim :]
        chosen = of_positions @ selected.reshape(len(selected) // size, size, count) * (_SELECTION * np.sqrt(dim))
        return np.concatenate([effects.reshape(-1, count), np.sqrt(self.level) * level, chosen.reshape(-1, count)])

    def variance_of(self, shape: Shape, row: FloatArray) -> float:
        """Return the variance of what coefficients give to a row of them (P,)."""
        return float((self.gather(shape, row[:, None]) ** 2).sum())


def solve(
    rows: RegressionRows, prior: EffectPrior, wanted: FloatArray, *, rounding: float, start: FloatArray | None = None
) -> FloatArray:
    """Return the z of several right sides W' b (P, m), shape (P, m).

    Parameters
    ----------
    rounding
        By how much of a right side the equations may be missed.
    start
        A z to begin with, shape (P, m).
    """
    shape, nearly = rows.shape, _NearInverse.of(rows, prior)

    def times(z: FloatArray) -> FloatArray:
        return z + prior.gather(shape, rows.gather(rows.apply(prior.spread(shape, z)))) / prior.noise

    z = np.zeros_like(wanted) if start is None else start
    missed = wanted if start is None else wanted - times(start)
    enough = rounding**2 * (wanted * nearly.times(wanted)).sum(axis=0)
    scaled = nearly.times(missed)
    direction, square = scaled, (missed * scaled).sum(axis=0)
    for _ in range(_MOST_STEPS):
        if (square <= enough).all():
            break
        turned = times(direction)
        step = _ratio(square, (direction * turned).sum(axis=0))
        z, missed = z + step * direction, missed - step * turned
        scaled = nearly.times(missed)
        before, square = square, (missed * scaled).sum(axis=0)
        direction = scaled + _ratio(square, before) * direction
    return z


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)


def item_covariances(rows: RegressionRows, prior: EffectPrior) -> FloatArray:
    """Return the covariance of z of what each item does at all positions alike, if all else was known: (n, C, C)."""
    shape, contexts = rows.shape, rows.contexts @ prior.of_parts
    moments = np.zeros((shape.n_items, shape.dim**2))
    weighted = rows.shown @ kron(prior.of_positions[:, :1] ** 2, eye_array(shape.n_items), format="csr")
    for start in range(0, len(rows), _AT_ONCE):
        some = contexts[start : start + _AT_ONCE]
        products = (some[:, :, None] * some[:, None, :]).reshape(len(some), -1)
        moments += weighted[start : start + _AT_ONCE].T @ products
    of_items = np.eye(shape.dim) + moments.reshape(-1, shape.dim, shape.dim) / prior.noise
    return np.asarray(np.linalg.inv(of_items))


def doubts(covariances: FloatArray, prior: EffectPrior, contexts: FloatArray, slates: Rankings) -> FloatArray:
    """Return the variance of the effect of each item of slates (A, k), as a share of the prior's, shape (A, k).

    That is the share of what an item is better than the prior's mean which the model has not seen.
    """
    found, of_parts = np.empty(slates.shape), contexts @ prior.of_parts
    for start in range(0, len(slates), _AT_ONCE):
        some, items = of_parts[start : start + _AT_ONCE], slates[start : start + _AT_ONCE]
        left = np.einsum("ac,ajcd,ad->aj", some, covariances[items], some, optimize=True)
        found[start : start + _AT_ONCE] = left / (some**2).sum(axis=1)[:, None]
    return found


@dataclass(frozen=True, eq=False)
class _NearInverse:
    """The inverse of parts of the matrix: what an item does at all positions alike, what items share, and a diagonal.

    Shapes (n, C, C), ((k - 1) n C,) and (E, E).
    """

    of_items: FloatArray
    scale: FloatArray
    shared: FloatArray

    @classmethod
    def of(cls, rows: RegressionRows, prior: EffectPrior) -> _NearInverse:
        """Return that of the equations of rows: a slate shows an item at one position at most."""
        shape, contexts = rows.shape, rows.contexts @ prior.of_parts
        squares = rows.shown.T @ contexts**2
        diagonal = ((prior.of_positions**2).T @ squares.reshape(shape.size, -1))[1:].ravel()
        columns = np.zeros((rows.n_coefficients, rows.shared.shape[1]))
        columns[shape.n_effects :] = np.eye(rows.shared.shape[1])
        spread = prior.spread(shape, columns)[shape.n_effects :]
        shared = np.eye(len(spread)) + spread.T @ (rows.shared.T @ rows.shared) @ spread / prior.noise
        inverse = np.asarray(np.linalg.inv(shared), dtype=float)
        return cls(item_covariances(rows, prior), 1.0 / (1.0 + diagonal / prior.noise), inverse)

    def times(self, z: FloatArray) -> FloatArray:
        """Return the product with z (P, m)."""
        items, dim, _ = self.of_items.shape
        first, last = items * dim, items * dim + len(self.scale)
        alike = np.matmul(self.of_items, z[:first].reshape(items, dim, -1)).reshape(first, -1)
        return np.concatenate([alike, self.scale[:, None] * z[first:last], self.shared @ z[last:]])
