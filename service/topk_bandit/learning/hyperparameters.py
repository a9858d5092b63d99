"""Noise, offset and scale by marginal likelihood, over the rows at hand.

With covariance s^2 (K_r + r V) and a constant prior mean b, the best b and s^2 for a given noise ratio r have closed
forms, so only r is searched. With V = W W', one eigendecomposition W^-1 K_r W^-T = Q diag(lambda) Q' serves every r.
With y and o the rewards and ones, taken through W^-1, and n observations that N rows stand for::

    b     = [ sum_i (q_i'o)(q_i'y) / (lambda_i + r) + y1 / r ] / [ sum_i (q_i'o)^2 / (lambda_i + r) + 11 / r ]
    s^2   = [ sum_i (q_i'(y - b o))^2 / (lambda_i + r) + (yy - 2 b y1 + b^2 11) / r ] / n
    log|.| = sum_i log(lambda_i + r) + (n - N) log r

where yy, y1 and 11 are what was left of the observations beside the rows that they were folded into (`evidence`).

b is the generalised least squares mean. The plain mean of the rewards will not do: a bandit shows good slates far more
often than others, so it would be taken for granted that unknown slates are as good as the good ones (`docs/decisions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning._triangles import inverse_lower
from topk_bandit.learning.evidence import varied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.evidence import Evidence
    from topk_bandit.learning.kendall import KendallKernel

__all__ = ["RELATIVE_NOISE_GRID", "Profile", "choose_noise_variance", "profile_likelihood"]

RELATIVE_NOISE_GRID = np.logspace(-3.0, 1.0, 17)
"""Noise ratios tried, relative to the mean of K_r's diagonal."""

_SMALLEST_UNIT = 1e-100
"""A smaller prior variance is that of contexts that are all zero."""

_PRIOR_LOG10_MEAN = -1.0
_PRIOR_LOG10_SPREAD = 1.0


class Profile(NamedTuple):
    """Best values for each noise ratio, all of shape (G,)."""

    log_likelihood: NDArray[np.float64]
    offset: NDArray[np.float64]
    amplitude: NDArray[np.float64]


def profile_likelihood(covariance: NDArray[np.float64], evidence: Evidence, ratios: NDArray[np.float64]) -> Profile:
    """Return the log density of the observations at its best b and s^2, and these, for each r.

    Where observations were folded into rows, it is the density up to a constant.

    Parameters
    ----------
    covariance
        K_r, shape (N, N).
    evidence
        Rewards that are not all equal.
    ratios
        Values of r > 0, shape (G,).
    """
    whitened, targets = _whitened(covariance, evidence)
    # Unlike scipy's, numpy's lets other threads decide meanwhile.
    eigenvalues, vectors = np.linalg.eigh(whitened)
    spectrum = np.maximum(eigenvalues, 0.0)[None, :] + ratios[:, None]
    y, ones = targets @ vectors
    count, left_yy, left_y1, left_11 = evidence.leftovers.sum(axis=0)
    across = (ones * y / spectrum).sum(axis=1) + left_y1 / ratios
    offset = across / ((ones**2 / spectrum).sum(axis=1) + left_11 / ratios)
    squares = ((y - offset[:, None] * ones) ** 2 / spectrum).sum(axis=1)
    left = (left_yy - 2.0 * offset * left_y1 + offset**2 * left_11) / ratios
    n = evidence.n_observations
    amplitude = (squares + left) / n
    determinant = np.log(spectrum).sum(axis=1) + count * np.log(ratios)
    log_likelihood = -0.5 * (determinant + n * (np.log(2.0 * np.pi * amplitude) + 1.0))
    return Profile(log_likelihood, offset, amplitude)


def _whitened(covariance: NDArray[np.float64], evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return W^-1 K_r W^-T and the targets times W^-T."""
    if evidence.noise_shape is None:
        return covariance, evidence.targets
    inverse = inverse_lower(np.asarray(np.linalg.cholesky(evidence.noise_shape)))
    return inverse @ covariance @ inverse.T, evidence.targets @ inverse.T


def choose_noise_variance(kernel: KendallKernel, evidence: Evidence) -> float:
    """Return the noise ratio r that the marginal likelihood prefers, for rows of a posterior.

    A weak prior on the relative noise (log10 normal, mean 0.1, one decade wide) decides while there are few rows;
    without it a dozen rewards can pass for pure noise, or for none. Rewards that are all equal say nothing, and leave
    the prior's mean.

    Parameters
    ----------
    kernel
        Kernel of the rankings.
    evidence
        At least one row.
    """
    covariance = (evidence.contexts @ evidence.contexts.T) * kernel.gram(evidence.rankings, evidence.rankings)
    # Folding keeps this sum over all observations.
    unit = float(np.trace(_whitened(covariance, evidence)[0])) / evidence.n_observations
    unit = unit if unit > _SMALLEST_UNIT else 1.0
    if not varied(evidence.targets, evidence.leftovers):
        return float(unit * 10.0**_PRIOR_LOG10_MEAN)
    profile = profile_likelihood(covariance, evidence, RELATIVE_NOISE_GRID * unit)
    log_prior = -0.5 * ((np.log10(RELATIVE_NOISE_GRID) - _PRIOR_LOG10_MEAN) / _PRIOR_LOG10_SPREAD) ** 2
    return float(RELATIVE_NOISE_GRID[int(np.argmax(profile.log_likelihood + log_prior))] * unit)
