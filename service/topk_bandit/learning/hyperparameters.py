"""Noise, offset and scale by marginal likelihood, over the rows at hand.

With K = s^2 (K_r + r I) and a constant prior mean b, the best b and s^2 for a given noise ratio r have closed forms, so
only r is searched. One eigendecomposition K_r = Q diag(lambda) Q' serves every r::

    b     = sum_i (q_i'1)(q_i'y) / (lambda_i + r)  /  sum_i (q_i'1)^2 / (lambda_i + r)
    s^2   = sum_i (q_i'(y - b))^2 / (lambda_i + r) / N
    log|K_r + r I| = sum_i log(lambda_i + r)

b is the generalised least squares mean. The plain mean of the rewards will not do: a bandit shows good slates far more
often than others, so it would be taken for granted that unknown slates are as good as the good ones (`docs/decisions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.posterior import Observations

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


def profile_likelihood(
    covariance: NDArray[np.float64], rewards: NDArray[np.float64], ratios: NDArray[np.float64]
) -> Profile:
    """Return log N(y; b, s^2 (K_r + r I)) at its best b and s^2, and these, for each r.

    Parameters
    ----------
    covariance
        K_r, shape (N, N).
    rewards
        y, not all equal, shape (N,).
    ratios
        Values of r > 0, shape (G,).
    """
    # Unlike scipy's, numpy's lets other threads decide meanwhile.
    eigenvalues, vectors = np.linalg.eigh(covariance)
    spectrum = np.maximum(eigenvalues, 0.0)[None, :] + ratios[:, None]
    y, ones = vectors.T @ rewards, vectors.sum(axis=0)
    offset = (ones * y / spectrum).sum(axis=1) / (ones**2 / spectrum).sum(axis=1)
    amplitude = ((y - offset[:, None] * ones) ** 2 / spectrum).mean(axis=1)
    determinant = np.log(spectrum).sum(axis=1)
    log_likelihood = -0.5 * (determinant + len(rewards) * (np.log(2.0 * np.pi * amplitude) + 1.0))
    return Profile(log_likelihood, offset, amplitude)


def choose_noise_variance(kernel: KendallKernel, data: Observations) -> float:
    """Return the noise ratio r that the marginal likelihood prefers, for rows of a posterior.

    A weak prior on the relative noise (log10 normal, mean 0.1, one decade wide) decides while there are few rows;
    without it a dozen rewards can pass for pure noise, or for none. Rewards that are all equal say nothing, and leave
    the prior's mean.

    Parameters
    ----------
    kernel
        Kernel of the rankings.
    data
        At least one row.
    """
    covariance = (data.contexts @ data.contexts.T) * kernel.gram(data.rankings, data.rankings)
    unit = float(np.mean(np.diag(covariance)))
    unit = unit if unit > _SMALLEST_UNIT else 1.0
    if not np.ptp(data.rewards) > 0.0:
        return float(unit * 10.0**_PRIOR_LOG10_MEAN)
    profile = profile_likelihood(covariance, data.rewards, RELATIVE_NOISE_GRID * unit)
    log_prior = -0.5 * ((np.log10(RELATIVE_NOISE_GRID) - _PRIOR_LOG10_MEAN) / _PRIOR_LOG10_SPREAD) ** 2
    return float(RELATIVE_NOISE_GRID[int(np.argmax(profile.log_likelihood + log_prior))] * unit)
