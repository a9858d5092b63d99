"""Weights from ratings: a rating is x'theta plus normal noise (dope.md, Eq. 1 and 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import Gaussian, Utilities, validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.preferences.answers import Ratings

__all__ = ["LeastSquares", "fit"]

FloatArray = NDArray[np.float64]

_SMALLEST_NOISE = 1e-6
_GRID = 49


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares:
    """Weights learned from ratings.

    Attributes
    ----------
    posterior
        For the weights theta; without a prior, the least-squares estimate and its covariance.
    noise_variance
        Variance of a rating around its item's utility, given or estimated.
    """

    posterior: Gaussian
    noise_variance: float

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the utilities of items with these features, shape (n, d)."""
        return self.posterior.utilities(features)


def fit(
    features: ArrayLike, ratings: Ratings, *, prior: Gaussian | None = None, noise_variance: float | None = None
) -> LeastSquares:
    """Return weights by least squares, or with a prior their posterior.

    Utilities have no constant of their own: where ratings are not centred, add a feature that is 1 for every item.

    Parameters
    ----------
    features
        For the items that `ratings` refers to, shape (N, d).
    noise_variance
        None estimates it: without a prior as the residual sum of squares over the number of ratings less d; with a
        prior as what makes the ratings most probable, between 10^-6 and 1 times their mean square about the prior's
        mean.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: not finite, of another width than the prior, or, without a prior, of rank < d among the
        rated items. Naming ``ratings``: an item without features; or, without a prior, none. Naming ``prior``: no mean
        of shape (d,) or no positive definite covariance. Naming ``noise_variance``: not positive; or None where the
        ratings leave nothing to estimate it from.
    """
    rows = validate_features(features)
    if noise_variance is not None and not (np.isfinite(noise_variance) and noise_variance > 0.0):
        raise InvalidArgumentError("noise_variance", f"expected a positive number, got {noise_variance}")
    if prior is not None:
        prior.precision(rows.shape[1])
    problem = _Problem.of(rows, ratings, prior)
    if prior is None:
        problem.check_rank()
    noise = problem.noise_variance(ridged=prior is not None) if noise_variance is None else noise_variance
    return LeastSquares(problem.posterior(noise, ridge=0.0 if prior is None else noise), float(noise))


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Ratings about a centre, with theta = centre + W beta and orthogonal columns of X W.

    The ratings of one item are folded into their mean, whose row counts as often as there are ratings.

    Attributes
    ----------
    basis
        W: L V, where L L' is the prior's covariance (or only scales the features) and V has the right singular vectors
        of X L; shape (d, d).
    singular
        Singular values s of X L, shape (d,).
    projected
        Projections of the ratings on the left singular vectors, shape (d,).
    residual
        Sum of squares that no weights explain.
    n_ratings, n_rows
        How many there are of ratings, and of items rated.
    """

    centre: FloatArray
    basis: FloatArray
    singular: FloatArray
    projected: FloatArray
    residual: float
    n_ratings: int
    n_rows: int

    @classmethod
    def of(cls, features: FloatArray, ratings: Ratings, prior: Gaussian | None) -> _Problem:
        """Decompose; errors of `fit` that name ``ratings``."""
        if len(ratings.items) and not 0 <= ratings.items.min() <= ratings.items.max() < len(features):
            raise InvalidArgumentError("ratings", f"an item has no features: there are {len(features)} rows")
        if prior is None and len(ratings.items) == 0:
            raise InvalidArgumentError("ratings", "there are none: give a prior, or ratings")
        d = features.shape[1]
        counts = np.bincount(ratings.items, minlength=len(features))
        used = np.flatnonzero(counts)
        weights = np.sqrt(counts[used])
        means = np.bincount(ratings.items, weights=ratings.values, minlength=len(features)) / np.maximum(counts, 1)
        within = float(np.sum((ratings.values - means[ratings.items]) ** 2))
        design = weights[:, None] * features[used]
        centre = np.zeros(d) if prior is None else prior.mean
        lower = np.diag(1.0 / _norms(design)) if prior is None else np.linalg.cholesky(prior.covariance)
        targets = weights * means[used] - design @ centre
        # With at least d rows the right singular vectors are a basis of all weights.
        missing = max(d - len(used), 0)
        left, singular, right = np.linalg.svd(np.vstack([design @ lower, np.zeros((missing, d))]), full_matrices=False)
        targets = np.append(targets, np.zeros(missing))
        projected = left.T @ targets
        residual = within + float(np.sum((targets - left @ projected) ** 2))
        return cls(centre, lower @ right.T, singular, projected, residual, len(ratings.items), len(used))

    def check_rank(self) -> None:
        """Refuse ratings that leave directions of the weights open."""
        d = len(self.singular)
        tolerance = max(self.n_rows, d) * np.finfo(np.float64).eps * self.singular[0]
        rank = int(np.count_nonzero(self.singular > tolerance))
        if rank < d:
            problem = f"the rated items have rank {rank} of {d}: give a prior, more ratings or fewer features"
            raise InvalidArgumentError("features", problem)

    def posterior(self, noise_variance: float, *, ridge: float) -> Gaussian:
        """Return N(centre + W (s p / (s^2 + ridge)), noise W diag(1 / (s^2 + ridge)) W')."""
        precisions = self.singular**2 + ridge
        mean = self.centre + self.basis @ (self.singular * self.projected / precisions)
        return Gaussian(mean, noise_variance * (self.basis / precisions) @ self.basis.T)

    def noise_variance(self, *, ridged: bool) -> float:
        """Return the noise variance that the ratings tell, as `fit` says."""
        scale = self.residual + float(self.projected @ self.projected)
        if ridged and scale > 0.0:
            return self._maximise_density(scale / self.n_ratings)
        freedom = self.n_ratings - len(self.singular)
        if not ridged and freedom > 0 and self.residual > scale * np.finfo(np.float64).eps ** 2:
            return self.residual / freedom
        raise InvalidArgumentError("noise_variance", "the ratings leave nothing to estimate it from: give it")

    def _maximise_density(self, largest: float) -> float:
        grid = np.linspace(np.log(_SMALLEST_NOISE * largest), np.log(largest), _GRID)
        costs = [self._surprise(value) for value in grid]
        best = int(np.argmin(costs))
        near = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
        found = minimize_scalar(self._surprise, bounds=near, method="bounded", options={"xatol": 1e-9})
        return float(np.exp(found.x))

    def _surprise(self, log_noise: float) -> float:
        """Return -2 log density of the ratings, up to a constant: y ~ N(X mean, X S0 X' + noise I)."""
        noise = np.exp(log_noise)
        spectrum = self.singular**2 + noise
        determinant = np.log(spectrum).sum() + (self.n_ratings - len(spectrum)) * log_noise
        return float(determinant + np.sum(self.projected**2 / spectrum) + self.residual / noise)


def _norms(design: FloatArray) -> FloatArray:
    norms = np.sqrt(np.sum(design**2, axis=0))
    return np.where(norms > 0.0, norms, 1.0)
