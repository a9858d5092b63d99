"""Plackett-Luce: weights from rankings, choices and pairs, by maximum likelihood or with a Gaussian prior.

An answer is a sequence of stages. At stage s the item there is chosen from all those at or below it, item j with
probability p_sj = exp(u_j) / sum_{k >= s} exp(u_k), where u = X theta (dope.md, Eq. 2 and 9). A full ranking of m items
has m - 1 stages, a choice and a pair have one. With c_j = sum_s p_sj and the stage means m_s = sum_j p_sj x_j::

    log-likelihood   sum_s (u_s - log sum_{k >= s} exp(u_k))
    gradient         sum_s (x_s - m_s)                           = X' (wins - c)
    Hessian          -sum_s sum_j p_sj (x_j - m_s)(x_j - m_s)'   = -(X' diag(c) X - M' M)

The log-likelihood is concave, and Newton's method on it is iteratively reweighted least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri, dpotrs

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.models.existence import check_not_separable, check_rank, is_certain
from topk_bandit.preferences.models.likelihood import Likelihood, Local
from topk_bandit.preferences.utilities import Gaussian, Utilities, validate_features, validate_weights

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.preferences.answers import Orderings

__all__ = ["PlackettLuce", "fit", "gradient", "hessian", "log_likelihood"]

FloatArray = NDArray[np.float64]

_SUFFICIENT = 1e-4
_HALVINGS = 60
_PATIENCE = 15
_HEAD, _FEWEST, _ROUGHLY, _MOST = 8, 50, 0.5, 100
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class PlackettLuce:
    """Weights learned from orderings.

    Attributes
    ----------
    posterior
        For the weights theta: the mode as its mean, and the inverse of the negative Hessian where the last step began
        as its covariance (Laplace's approximation; without a prior, the asymptotic covariance of the estimate).
    log_likelihood
        For the answers at the mode, in nats, without the prior.
    iterations
        Newton steps taken on all answers.
    """

    posterior: Gaussian
    log_likelihood: float
    iterations: int

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the utilities of items with these features, shape (n, d)."""
        return self.posterior.utilities(features)


def log_likelihood(theta: ArrayLike, features: ArrayLike, orderings: Orderings) -> float:
    """Return the log-likelihood of answers in nats: of those learned from, or of others held out.

    Parameters
    ----------
    theta
        Weights, shape (d,).
    features
        For the items, shape (n, d).

    Raises
    ------
    InvalidArgumentError
        Naming ``theta``, ``features`` or ``orderings``: another shape, not finite, or an item without features.
    """
    weights, likelihood = _validate(theta, features, orderings)
    return likelihood.value(weights)


def gradient(theta: ArrayLike, features: ArrayLike, orderings: Orderings) -> FloatArray:
    """Return the gradient of `log_likelihood`, shape (d,); errors as there."""
    weights, likelihood = _validate(theta, features, orderings)
    return likelihood.gradient(weights)


def hessian(theta: ArrayLike, features: ArrayLike, orderings: Orderings) -> FloatArray:
    """Return the Hessian of `log_likelihood`, shape (d, d), negative semidefinite; errors as there."""
    weights, likelihood = _validate(theta, features, orderings)
    return -likelihood.at(weights).information


def fit(
    features: ArrayLike,
    orderings: Orderings,
    *,
    prior: Gaussian | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
) -> PlackettLuce:
    """Return the most likely weights, or with a prior the most probable ones, with their spread.

    Contradictory answers are noise like any other. With a prior there always is a maximum: what the answers do not
    tell (directions that no answer compares, items never shown) stays as the prior has it, and without answers the
    posterior is the prior.

    Parameters
    ----------
    features
        For the items that `orderings` refers to, shape (N, d). Only differences within an answer matter.
    tolerance
        The step is the last one that gains less than this, in nats, by Newton's model of the objective (or less than
        its rounding). It is sqrt(2 tolerance) posterior standard deviations long, and ends far nearer the maximum.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: not finite, or, without a prior, such that the answers compare fewer than d directions
        (features of rank < d, one-hot features of all items, or groups of items that no answer connects). Naming
        ``orderings``: an item without features; or, without a prior, no answers, or separable ones: some weights
        explain each of them, and larger ones always better. Naming ``prior``: not of d weights, or no positive definite
        covariance. Naming ``max_iterations``: they did not suffice.
    """
    rows = validate_features(features)
    likelihood = Likelihood.of(rows, orderings)
    precision = None if prior is None else prior.precision(rows.shape[1])
    if orderings.n_answers == 0:
        return _return_prior(prior)
    standardised, scale = likelihood.standardise()
    if prior is None or precision is None:
        check_rank(standardised)
        objective = _Objective(standardised, np.zeros(len(scale)), None)
    else:
        objective = _Objective(standardised, prior.mean * scale, precision / scale / scale[:, None])
    found = _maximise(objective, _find_start(objective), tolerance=tolerance, max_iterations=max_iterations)
    value = found.value + objective.penalty(found.theta)
    return PlackettLuce(found.gaussian(scale), value, found.steps)


def _return_prior(prior: Gaussian | None) -> PlackettLuce:
    if prior is None:
        raise InvalidArgumentError("orderings", "there are no answers: give a prior, or answers")
    return PlackettLuce(prior, 0.0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Objective:
    """A log-likelihood, and the log density of a prior where there is one.

    Attributes
    ----------
    centre
        The prior's mean, or where to begin without one, shape (d,).
    """

    likelihood: Likelihood
    centre: FloatArray
    precision: FloatArray | None

    def at(self, theta: FloatArray) -> Local:
        """Return value, gradient and negative Hessian."""
        here = self.likelihood.at(theta)
        if self.precision is None:
            return here
        pull = self.precision @ (theta - self.centre)
        return Local(here.value - self.penalty(theta), here.gradient - pull, here.information + self.precision)

    def penalty(self, theta: FloatArray) -> float:
        """Return what the prior takes off the log-likelihood: half the squared distance from its mean."""
        away = theta - self.centre
        return 0.0 if self.precision is None else 0.5 * float(away @ self.precision @ away)

    def has_maximum(self, lower: FloatArray, decrement: float) -> bool:
        """Return whether a maximum is known to exist, from the information's factor and the squared decrement."""
        return self.precision is not None or is_certain(self.likelihood, lower, decrement)


class _Maximum(NamedTuple):
    """Where Newton's method ended: weights, the objective there, the information's lower factor, and steps taken."""

    theta: FloatArray
    value: float
    lower: FloatArray
    steps: int

    def gaussian(self, scale: FloatArray) -> Gaussian:
        """Return Laplace's approximation in the features' own units."""
        inverse = np.tril(dpotri(self.lower, lower=1)[0])
        covariance = (inverse + np.tril(inverse, -1).T) / scale / scale[:, None]
        return Gaussian(self.theta / scale, covariance)


def _find_start(objective: _Objective) -> FloatArray:
    """Return where to begin: of many answers, about the maximum of the first few, where each step costs less."""
    n_answers = len(objective.likelihood.places) // _HEAD
    if n_answers < _FEWEST:
        return objective.centre
    precision = np.eye(len(objective.centre)) if objective.precision is None else objective.precision
    few = _Objective(objective.likelihood.head(n_answers), objective.centre, precision)
    return _maximise(few, few.centre, tolerance=_ROUGHLY, max_iterations=_MOST).theta


def _maximise(objective: _Objective, start: FloatArray, *, tolerance: float, max_iterations: int) -> _Maximum:
    theta, here = start, objective.at(start)
    for iteration in range(max_iterations):
        if iteration == _PATIENCE and objective.precision is None:
            check_not_separable(objective.likelihood)
        lower = _factor(objective, here)
        step = dpotrs(lower, here.gradient, lower=1)[0]
        decrement = float(here.gradient @ step)
        near = 0.5 * decrement <= max(tolerance, _EPSILON * abs(here.value))
        if near and objective.has_maximum(lower, decrement):
            return _Maximum(theta + step, here.value + 0.5 * decrement, lower, iteration + 1)
        theta, here = _rise(objective, theta, here, step, decrement)
    raise InvalidArgumentError("max_iterations", f"no maximum within {max_iterations} steps")


def _rise(
    objective: _Objective, theta: FloatArray, here: Local, step: FloatArray, decrement: float
) -> tuple[FloatArray, Local]:
    """Return a point along the step where the objective is higher, but for rounding, and what it is like there."""
    rounding = 64.0 * _EPSILON * abs(here.value)
    size = 1.0
    for _ in range(_HALVINGS):
        there = objective.at(theta + size * step)
        if there.value >= here.value + _SUFFICIENT * size * decrement - rounding:
            return theta + size * step, there
        size *= 0.5
    raise InvalidArgumentError("features", "too large or too unequal to compute with")


def _factor(objective: _Objective, here: Local) -> FloatArray:
    try:
        lower = np.linalg.cholesky(here.information)
        if np.isfinite(lower).all():
            return np.asarray(lower)
    except np.linalg.LinAlgError:
        pass
    if objective.precision is None:
        check_not_separable(objective.likelihood)
    raise InvalidArgumentError("features", "too unequal, or answers too close to separable, to compute with")


def _validate(theta: ArrayLike, features: ArrayLike, orderings: Orderings) -> tuple[FloatArray, Likelihood]:
    weights = validate_weights(theta)
    return weights, Likelihood.of(validate_features(features, dimension=len(weights)), orderings)
