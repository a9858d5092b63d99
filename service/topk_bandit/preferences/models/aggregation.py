"""Rank aggregation with features (RABF): scores from pairwise comparisons, by features as far as these can be trusted.

Item i has the score s_i = x_i'w + r_i; the residual r_i corrects an item whose features mislead. With t = s_j - s_i for
a comparison P of i and j::

    J(w, r) = sum loss(t, P) + lambda_w |w|^2 + lambda_r |r|^2            (problem 1 and Eq. 6 of the source)

Newton's steps, of which the squared loss needs one, eliminate r. With c the second derivatives of loss / 2, B the m x n
matrix of e_j - e_i, the graph Laplacian L = B' diag(c) B, and M = L + lambda_r I::

    (lambda_w I + lambda_r X'Y) dw = u_w - Y'u_r,      dr = M^-1 u_r - Y dw,      Y = M^-1 L X

u being minus half the gradient. Items that were never compared have r = 0, and only the others enter. The inverse of
the Hessian gives the spread of the scores::

    cov s = M^-1 + (X - Y) (lambda_w I + lambda_r X'Y)^-1 (X - Y)'

Source: the appendix on rank aggregation with features, Appendices A and C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.models.comparisons import Comparisons, Loss, check_positive, validate_item_features
from topk_bandit.preferences.models.laplacian import RidgedLaplacian
from topk_bandit.preferences.models.online import Online
from topk_bandit.preferences.utilities import Utilities

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Aggregate", "Comparisons", "Loss", "Online", "fit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_HALVINGS = 60
_ROUNDING = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """The inverse Hessian, as far as the variances of scores need it.

    Attributes
    ----------
    weights_covariance
        (lambda_w I + lambda_r X'Y)^-1, shape (d, d).
    explained
        Y, with 0 for items that were not compared, shape (n, d).
    residual_variances
        Diagonal of M^-1, shape (n,).
    new_variance
        The same for a new item: 1 / lambda_r.
    """

    weights_covariance: FloatArray
    explained: FloatArray
    residual_variances: FloatArray
    new_variance: float

    def variances(self, rows: FloatArray) -> FloatArray:
        """Return the variances of the scores of the n items and of new ones after them."""
        n = len(self.explained)
        left, variances = rows.copy(), np.full(len(rows), self.new_variance)
        left[:n] -= self.explained
        variances[:n] = self.residual_variances
        return np.asarray(variances + np.einsum("nd,nd->n", left @ self.weights_covariance, left))


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Scores learned from comparisons.

    Attributes
    ----------
    weights
        w, shape (d,).
    residuals
        r, shape (n,); 0 for an item that was never compared.
    objective
        J at the minimum.
    noise_variance
        What the inverse Hessian is multiplied with: 1 for the logistic loss (whose J is a negative log density); for
        the squared loss (1 + J) / (1 + m), the variance of a comparison that makes the comparisons most probable,
        one more of squared deviation 1 being added to them.
    spread
        What the standard deviations are made of.
    """

    weights: FloatArray
    residuals: FloatArray
    objective: float
    noise_variance: float
    spread: _Spread

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the scores x'w + r with their standard deviations.

        Parameters
        ----------
        features
            Row i is item i as in `fit`; rows after these are new items, shape (n or more, d).

        Raises
        ------
        InvalidArgumentError
            Naming ``features``: not finite, another d, or fewer rows than items.
        """
        rows = validate_item_features(features, dimension=len(self.weights))
        new = len(rows) - len(self.residuals)
        if new < 0:
            raise InvalidArgumentError("features", f"expected at least {len(self.residuals)} rows, got {len(rows)}")
        residuals = np.append(self.residuals, np.zeros(new))
        deviations = np.sqrt(self.noise_variance * self.spread.variances(rows))
        return Utilities(rows @ self.weights + residuals, deviations)


def fit(
    features: ArrayLike,
    comparisons: Comparisons,
    *,
    loss: Loss = Loss.SQUARED,
    weights_ridge: float = 1.0,
    residual_ridge: float = 10.0,
    tolerance: float = 1e-8,
) -> Aggregate:
    """Return the scores that minimise J.

    Aggregation without features (least squares for `Loss.SQUARED`, maximum likelihood for `Loss.LOGISTIC`, each with a
    ridge) is the case d = 0: features of shape (n, 0). Contradictory and repeated comparisons each count by themselves.
    Items that no path of comparisons connects differ by their features alone. Without comparisons the scores
    are 0 with the spread of the ridges.

    Parameters
    ----------
    features
        Row i is item i, shape (n, d); d may be 0.
    comparisons
        For these items.
    loss
        How a score difference is compared with what was observed.
    weights_ridge, residual_ridge
        lambda_w and lambda_r > 0. How much is put down to features depends on their size: x'w and r have prior
        variances in the ratio |x|^2 / lambda_w to 1 / lambda_r. The defaults suit features of variance about 1 that
        are right for most items; the worse the features, the smaller lambda_r should be.
    tolerance
        Stop after a step that lowers J by at most this much.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``, ``comparisons``, ``values[c]`` (no sign, for the logistic loss), ``weights_ridge``,
        ``residual_ridge`` or ``tolerance``.
    """
    rows = validate_item_features(features)
    check_positive(weights_ridge=weights_ridge, residual_ridge=residual_ridge, tolerance=tolerance)
    comparisons.check(loss, n_items=len(rows))
    problem = _Problem.of(rows, comparisons, loss, weights_ridge=weights_ridge, residual_ridge=residual_ridge)
    return problem.solve(tolerance)


class _Local(NamedTuple):
    """Losses at some score differences: their sum, and first and second derivatives, shape (m,)."""

    value: float
    slopes: FloatArray
    curvatures: FloatArray


def _evaluate_squared(differences: FloatArray, values: FloatArray) -> _Local:
    """Return half the squared loss."""
    errors = differences - values
    return _Local(0.5 * float(errors @ errors), errors, np.ones(len(errors)))


def _evaluate_logistic(differences: FloatArray, values: FloatArray) -> _Local:
    margins = values * differences
    wrong = expit(-margins)
    return _Local(float(np.logaddexp(0.0, -margins).sum()), -values * wrong, wrong * expit(margins))


class _Point(NamedTuple):
    """Weights, residuals of the items compared, the objective there, and the losses' derivatives."""

    weights: FloatArray
    residuals: FloatArray
    value: float
    slopes: FloatArray
    curvatures: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Minimise sum of losses + (weights_ridge |w|^2 + residual_ridge |r|^2) / 2 over the items compared.

    It is J for the logistic loss, J / 2 for the squared one: a negative log density, for a noise variance of 1.

    Attributes
    ----------
    features, compared, rows
        For all items, (n, d); indices of the items compared; and their features.
    first, second, values
        Comparisons, as indices into `compared`.
    """

    loss: Loss
    features: FloatArray
    compared: IntArray
    rows: FloatArray
    first: IntArray
    second: IntArray
    values: FloatArray
    weights_ridge: float
    residual_ridge: float

    @classmethod
    def of(
        cls, features: FloatArray, comparisons: Comparisons, loss: Loss, *, weights_ridge: float, residual_ridge: float
    ) -> _Problem:
        m = len(comparisons)
        ends = np.concatenate([comparisons.first, comparisons.second])
        compared, indices = np.unique(ends, return_inverse=True)
        part = 1.0 if loss is Loss.SQUARED else 2.0
        ridges = part * weights_ridge, part * residual_ridge
        return cls(loss, features, compared, features[compared], indices[:m], indices[m:], comparisons.values, *ridges)

    def at(self, weights: FloatArray, residuals: FloatArray) -> _Point:
        scores = self.rows @ weights + residuals
        losses = _evaluate_squared if self.loss is Loss.SQUARED else _evaluate_logistic
        value, slopes, curvatures = losses(scores[self.second] - scores[self.first], self.values)
        ridge = self.weights_ridge * weights @ weights + self.residual_ridge * residuals @ residuals
        return _Point(weights, residuals, value + 0.5 * float(ridge), slopes, curvatures)

    def solve(self, tolerance: float) -> Aggregate:
        point = self.at(np.zeros(self.rows.shape[1]), np.zeros(len(self.compared)))
        while True:
            hessian = _Hessian(self, point.curvatures)
            step = hessian.solve(*self._find_descent(point))
            lower = self._search_line(point, *step)
            gain = point.value - lower.value
            point = lower
            if gain <= tolerance or self.loss is Loss.SQUARED:
                return self._aggregate(point)

    def _find_descent(self, point: _Point) -> tuple[FloatArray, FloatArray]:
        """Return minus the gradient by w and by r."""
        size = len(self.compared)
        pull = np.bincount(self.second, point.slopes, size) - np.bincount(self.first, point.slopes, size)
        by_weights = -self.rows.T @ pull - self.weights_ridge * point.weights
        return by_weights, -pull - self.residual_ridge * point.residuals

    def _search_line(self, point: _Point, by_weights: FloatArray, by_residuals: FloatArray) -> _Point:
        """Return a point along a Newton step where the objective is not higher, but for rounding."""
        length = 1.0
        for _ in range(_HALVINGS):
            found = self.at(point.weights + length * by_weights, point.residuals + length * by_residuals)
            if found.value <= point.value + _ROUNDING * abs(point.value):
                return found
            length *= 0.5
        return point

    def _aggregate(self, point: _Point) -> Aggregate:
        hessian = _Hessian(self, point.curvatures)
        n, d = self.features.shape
        residuals, explained, variances = np.zeros(n), np.zeros((n, d)), np.full(n, 1.0 / self.residual_ridge)
        residuals[self.compared], explained[self.compared] = point.residuals, hessian.explained
        variances[self.compared] = hessian.laplacian.inverse_diagonal()
        squared = self.loss is Loss.SQUARED
        objective = 2.0 * point.value if squared else point.value
        noise = (1.0 + objective) / (1.0 + len(self.values)) if squared else 1.0
        covariance = np.asarray(np.linalg.inv(hessian.of_weights), dtype=np.float64)
        spread = _Spread(covariance, explained, variances, 1.0 / self.residual_ridge)
        return Aggregate(point.weights, residuals, objective, noise, spread)


class _Hessian:
    """The Hessian of a problem by blocks, with the residuals eliminated.

    Attributes
    ----------
    explained
        Y = M^-1 L X, shape (n, d) over the items compared.
    of_weights
        What is left for w, lambda_w I + lambda_r X'Y, shape (d, d).
    """

    def __init__(self, problem: _Problem, curvatures: FloatArray) -> None:
        size, ridge = len(problem.compared), problem.residual_ridge
        self.laplacian = RidgedLaplacian(problem.first, problem.second, curvatures, ridge=ridge, n_nodes=size)
        self.explained = self.laplacian.solve(self.laplacian.times(problem.rows))
        across = ridge * problem.rows.T @ self.explained
        self.of_weights = 0.5 * (across + across.T) + problem.weights_ridge * np.eye(len(across))

    def solve(self, by_weights: FloatArray, by_residuals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the inverse times a vector (by w, by r)."""
        left = by_weights - self.explained.T @ by_residuals
        weights = np.asarray(np.linalg.solve(self.of_weights, left), dtype=np.float64)
        return weights, self.laplacian.solve(by_residuals[:, None])[:, 0] - self.explained @ weights
