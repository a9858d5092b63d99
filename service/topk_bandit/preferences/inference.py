"""Utilities from a study's answers, the width of the prior chosen by the answers themselves.

theta ~ N(0, v I) in coordinates of unit mean square (`spans`), so sqrt(v) is about the spread of the items' utilities.
How far people agree is not known beforehand: they may rank alike (v large) or toss coins (v small). So v is the one, of
a few, that the answers are most probable under, by Laplace's approximation of the marginal likelihood:

    log p(answers | v) = log-likelihood(theta) + log N(theta; 0, v I) + log |2 pi S| / 2,

theta the mode and S the covariance there. For ratings, with noise of a variance that is chosen with v, it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.models import least_squares, plackett_luce
from topk_bandit.preferences.utilities import FloatArray, Gaussian, Utilities, validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["PRIOR_VARIANCES", "UtilityPosterior", "learn_utilities"]

PRIOR_VARIANCES = (0.04, 0.2, 1.0, 5.0, 25.0)
"""Values of v tried; for ratings, in units of the noise variance."""


@dataclass(frozen=True, slots=True, eq=False)
class UtilityPosterior:
    """The posterior of theta, given answers.

    Attributes
    ----------
    prior_variance
        The v that was chosen.
    log_marginal_likelihood
        For the answers under that prior, in nats.
    level
        Mean of the ratings, which utilities are above or below; 0 for other answers.
    """

    posterior: Gaussian
    prior_variance: float
    log_marginal_likelihood: float
    level: float = 0.0

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the utilities of items with these coordinates, shape (n, r); of rated ones, the ratings expected."""
        above = self.posterior.utilities(features)
        return Utilities(self.level + above.mean, above.standard_deviation)


def learn_utilities(coordinates: ArrayLike, answers: Orderings | Ratings) -> UtilityPosterior:
    """Return what answers tell of items with these coordinates, shape (N, r).

    Raises
    ------
    InvalidArgumentError
        The coordinates are no finite matrix, or an answer names an item without any.
    """
    rows = validate_features(coordinates)
    if isinstance(answers, Ratings):
        found = [_learn_from_ratings(rows, answers, ratio) for ratio in PRIOR_VARIANCES]
    else:
        found = [_learn_from_orderings(rows, answers, variance) for variance in PRIOR_VARIANCES]
    return max(found, key=lambda one: one.log_marginal_likelihood)


def _learn_from_orderings(rows: FloatArray, answers: Orderings, variance: float) -> UtilityPosterior:
    prior = Gaussian.isotropic(rows.shape[1], variance=variance)
    fitted = plackett_luce.fit(rows, answers, prior=prior)
    mode, covariance = fitted.posterior.mean, fitted.posterior.covariance
    determinant = float(np.linalg.slogdet(covariance)[1]) - len(mode) * np.log(variance)
    evidence = fitted.log_likelihood - 0.5 * float(mode @ mode) / variance + 0.5 * determinant
    return UtilityPosterior(fitted.posterior, variance, evidence)


def _learn_from_ratings(rows: FloatArray, answers: Ratings, ratio: float) -> UtilityPosterior:
    """Return the posterior for v = ratio s^2, at the noise variance s^2 that is best for it."""
    shown, count = rows[answers.items], max(len(answers.values), 1)
    level = float(answers.values.mean()) if len(answers.values) else 0.0
    above = answers.values - level
    precision = shown.T @ shown + np.eye(rows.shape[1]) / ratio
    across = shown.T @ above
    square = float(above @ above) - float(across @ np.linalg.solve(precision, across))
    noise = max(square / count, _LEAST_NOISE * max(level * level, 1.0))
    determinant = float(np.linalg.slogdet(precision)[1]) + rows.shape[1] * np.log(ratio)
    evidence = -0.5 * (count * np.log(2.0 * np.pi * noise) + square / noise + determinant)
    prior = Gaussian.isotropic(rows.shape[1], variance=ratio * noise)
    fitted = least_squares.fit(rows, Ratings(answers.items, above), prior=prior, noise_variance=noise)
    return UtilityPosterior(fitted.posterior, ratio, evidence, level)


_LEAST_NOISE = 1e-12
"""Ratings that agree to the last digit still leave some noise, relative to their square."""
