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

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from topk_bandit.errors import InvalidArgumentError
from topk_bandit.preferences._laplacian import RidgedLaplacian
from topk_bandit.preferences.utilities import Utilities, validated_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Aggregate", "Comparisons", "Loss", "Online", "fit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_HALVINGS = 60
_ROUNDING = 1e-13


class Loss(StrEnum):
    """Of a difference of scores t = s_j - s_i and what was observed of it, P.

    ``SQUARED``: (t - P)^2, for a number P or a sign. ``LOGISTIC``: log(1 + exp(-P t)), for a sign.
    """

    SQUARED = "squared"
    LOGISTIC = "logistic"


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """Pairs of items and how much more the second is worth than the first.

    Attributes
    ----------
    first, second
        Items i and j of each comparison, shape (m,).
    values
        P, an observation of s_j - s_i or of its sign, shape (m,).
    """

    first: IntArray
    second: IntArray
    values: FloatArray

    @classmethod
    def of(cls, pairs: ArrayLike, values: ArrayLike, *, n_items: int) -> Comparisons:
        """Return comparisons of pairs (i, j), shape (m, 2); a pair may come any number of times, and contradict itself.

        Raises
        ------
        InvalidArgumentError
            Naming ``pairs``, ``pairs[c]``, ``values`` or ``values[c]``: wrong shape, an item against itself, an index
            outside [0, n_items), or a value that is not finite.
        """
        array = np.asarray(pairs)
        if array.size == 0:
            array = np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidArgumentError("pairs", f"expected integers of shape (m, 2), got {array.dtype} {array.shape}")
        out = ((array < 0) | (array >= n_items)).any(axis=1)
        same = array[:, 0] == array[:, 1]
        for wrong, problem in ((out, f"expected items in [0, {n_items})"), (same, "an item against itself")):
            if wrong.any():
                raise InvalidArgumentError(f"pairs[{int(np.argmax(wrong))}]", problem)
        first, second = np.ascontiguousarray(array.T, dtype=np.int64)
        return cls(first, second, _numbers(values, len(array)))

    def __len__(self) -> int:
        return len(self.values)


def _numbers(values: ArrayLike, count: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError("values", "expected numbers") from None
    if array.shape != (count,):
        raise InvalidArgumentError("values", f"expected shape ({count},), got {array.shape}")
    wrong = ~np.isfinite(array)
    if wrong.any():
        raise InvalidArgumentError(f"values[{int(np.argmax(wrong))}]", "expected a finite number")
    return array


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
        rows = _features(features, dimension=len(self.weights))
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
    Items that no path of comparisons connects are told apart by their features alone. Without comparisons the scores
    are 0 with the spread of the ridges.

    Parameters
    ----------
    features
        Row i is item i, shape (n, d); d may be 0.
    comparisons
        Of these items.
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
    rows = _features(features)
    _check_positive(weights_ridge=weights_ridge, residual_ridge=residual_ridge, tolerance=tolerance)
    _check(comparisons, loss, n_items=len(rows))
    problem = _Problem.of(rows, comparisons, loss, weights_ridge=weights_ridge, residual_ridge=residual_ridge)
    return problem.solved(tolerance)


@dataclass(frozen=True, slots=True, eq=False)
class Online:
    """Scores learned by one gradient step per comparison (online RABF, Algorithm 1 and Eq. 19).

    The steps go downhill on E[loss] + (weights_ridge |w|^2 + residual_ridge |r|^2) / 2, the expectation being over
    comparisons to come. So after m comparisons it is `fit` with m / 2 times these ridges that this is to be compared
    with. Features are scaled by (residual_ridge / weights_ridge)^1/2, which leaves one ridge (Eq. 6), and step t of
    size 2 / (ridge t + 2 C), with C a bound of the second derivatives along any direction, is the quickest that is
    known to converge for certain. The scores are those of the mean of the iterates, iterate t weighing t: it is within
    O(1 / t) of the minimum, while the last iterate keeps moving with every comparison.

    Attributes
    ----------
    features
        Scaled, shape (n, d).
    ridge, steepest
        The one ridge, and C.
    last, mean
        Weights of the scaled features and then residuals: the last iterate and the mean, shape (d + n,).
    steps
        Comparisons so far.
    """

    loss: Loss
    features: FloatArray
    ridge: float
    steepest: float
    last: FloatArray
    mean: FloatArray
    steps: int

    @classmethod
    def start(
        cls,
        features: ArrayLike,
        *,
        loss: Loss = Loss.SQUARED,
        weights_ridge: float = 0.01,
        residual_ridge: float = 0.1,
    ) -> Online:
        """Return the scores before any comparison, which are 0.

        Parameters
        ----------
        features
            Row i is item i, shape (n, d); d may be 0.

        Raises
        ------
        InvalidArgumentError
            Naming ``features``, ``weights_ridge`` or ``residual_ridge``.
        """
        _check_positive(weights_ridge=weights_ridge, residual_ridge=residual_ridge)
        rows = _features(features) * math.sqrt(residual_ridge / weights_ridge)
        longest = float((rows**2).sum(axis=1).max(initial=0.0))
        steepest = (2.0 if loss is Loss.SQUARED else 0.25) * (4.0 * longest + 2.0) + residual_ridge
        nothing = np.zeros(sum(rows.shape))
        return cls(loss, rows, residual_ridge, steepest, nothing, nothing, 0)

    @property
    def scores(self) -> FloatArray:
        """Of the items, shape (n,)."""
        d = self.features.shape[1]
        return np.asarray(self.features @ self.mean[:d] + self.mean[d:])

    def observed(self, comparisons: Comparisons) -> Online:
        """Return the state after one step for each comparison, in their order.

        Raises
        ------
        InvalidArgumentError
            Naming ``comparisons`` or ``values[c]``, as `fit` does.
        """
        _check(comparisons, self.loss, n_items=len(self.features))
        slope = _squared_slope if self.loss is Loss.SQUARED else _logistic_slope
        d, last, mean, step = self.features.shape[1], self.last.copy(), self.mean.copy(), self.steps
        for i, j, value in zip(comparisons.first, comparisons.second, comparisons.values, strict=True):
            towards = self.features[j] - self.features[i]
            difference = float(towards @ last[:d] + last[d + j] - last[d + i])
            size = 2.0 / (self.ridge * step + 2.0 * self.steepest)
            by_difference = size * slope(difference, float(value))
            last *= 1.0 - size * self.ridge
            last[:d] -= by_difference * towards
            last[d + j] -= by_difference
            last[d + i] += by_difference
            step += 1
            mean += (2.0 / (step + 1.0)) * (last - mean)
        return replace(self, last=last, mean=mean, steps=step)


def _squared_slope(difference: float, value: float) -> float:
    return 2.0 * (difference - value)


def _logistic_slope(difference: float, value: float) -> float:
    return -value * float(expit(-value * difference))


class _Local(NamedTuple):
    """Losses at some score differences: their sum, and first and second derivatives, shape (m,)."""

    value: float
    slopes: FloatArray
    curvatures: FloatArray


def _squared(differences: FloatArray, values: FloatArray) -> _Local:
    """Return half the squared loss."""
    errors = differences - values
    return _Local(0.5 * float(errors @ errors), errors, np.ones(len(errors)))


def _logistic(differences: FloatArray, values: FloatArray) -> _Local:
    margins = values * differences
    wrong = expit(-margins)
    return _Local(float(np.logaddexp(0.0, -margins).sum()), -values * wrong, wrong * expit(margins))


class _Place(NamedTuple):
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
        Of all items, (n, d); indices of the items compared; and their features.
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
        compared, places = np.unique(ends, return_inverse=True)
        part = 1.0 if loss is Loss.SQUARED else 2.0
        ridges = part * weights_ridge, part * residual_ridge
        return cls(loss, features, compared, features[compared], places[:m], places[m:], comparisons.values, *ridges)

    def at(self, weights: FloatArray, residuals: FloatArray) -> _Place:
        scores = self.rows @ weights + residuals
        losses = _squared if self.loss is Loss.SQUARED else _logistic
        value, slopes, curvatures = losses(scores[self.second] - scores[self.first], self.values)
        ridge = self.weights_ridge * weights @ weights + self.residual_ridge * residuals @ residuals
        return _Place(weights, residuals, value + 0.5 * float(ridge), slopes, curvatures)

    def solved(self, tolerance: float) -> Aggregate:
        place = self.at(np.zeros(self.rows.shape[1]), np.zeros(len(self.compared)))
        while True:
            hessian = _Hessian(self, place.curvatures)
            step = hessian.solve(*self._downhill(place))
            lower = self._lower(place, *step)
            gain = place.value - lower.value
            place = lower
            if gain <= tolerance or self.loss is Loss.SQUARED:
                return self._aggregate(place)

    def _downhill(self, place: _Place) -> tuple[FloatArray, FloatArray]:
        """Return minus the gradient by w and by r."""
        size = len(self.compared)
        pull = np.bincount(self.second, place.slopes, size) - np.bincount(self.first, place.slopes, size)
        by_weights = -self.rows.T @ pull - self.weights_ridge * place.weights
        return by_weights, -pull - self.residual_ridge * place.residuals

    def _lower(self, place: _Place, by_weights: FloatArray, by_residuals: FloatArray) -> _Place:
        """Return a place along a Newton step where the objective is not higher, but for rounding."""
        length = 1.0
        for _ in range(_HALVINGS):
            found = self.at(place.weights + length * by_weights, place.residuals + length * by_residuals)
            if found.value <= place.value + _ROUNDING * abs(place.value):
                return found
            length *= 0.5
        return place

    def _aggregate(self, place: _Place) -> Aggregate:
        hessian = _Hessian(self, place.curvatures)
        n, d = self.features.shape
        residuals, explained, variances = np.zeros(n), np.zeros((n, d)), np.full(n, 1.0 / self.residual_ridge)
        residuals[self.compared], explained[self.compared] = place.residuals, hessian.explained
        variances[self.compared] = hessian.laplacian.inverse_diagonal()
        squared = self.loss is Loss.SQUARED
        objective = 2.0 * place.value if squared else place.value
        noise = (1.0 + objective) / (1.0 + len(self.values)) if squared else 1.0
        covariance = np.asarray(np.linalg.inv(hessian.of_weights), dtype=np.float64)
        spread = _Spread(covariance, explained, variances, 1.0 / self.residual_ridge)
        return Aggregate(place.weights, residuals, objective, noise, spread)


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


def _features(features: ArrayLike, *, dimension: int | None = None) -> FloatArray:
    """Return features as a finite (n, d) matrix; d may be 0."""
    rows = np.asarray(features)
    if rows.ndim == 2 and rows.shape[1] == 0 and dimension in {None, 0}:
        return np.zeros(rows.shape)
    return validated_features(features, dimension=dimension)


def _check_positive(**numbers: float) -> None:
    for field, number in numbers.items():
        if not (math.isfinite(number) and number > 0.0):
            raise InvalidArgumentError(field, f"expected a positive number, got {number}")


def _check(comparisons: Comparisons, loss: Loss, *, n_items: int) -> None:
    ends = comparisons.first, comparisons.second
    if len(comparisons) and max(int(end.max()) for end in ends) >= n_items:
        raise InvalidArgumentError("comparisons", f"expected items in [0, {n_items})")
    signs = np.abs(comparisons.values) == 1.0
    if loss is Loss.LOGISTIC and not signs.all():
        raise InvalidArgumentError(f"values[{int(np.argmin(signs))}]", "expected -1 or 1 for the logistic loss")
