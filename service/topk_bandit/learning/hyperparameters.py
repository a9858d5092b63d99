"""Noise, offset, slope and scale by marginal likelihood, over the rows at hand.

With covariance s^2 (K_r + r V) and a constant prior mean b, the best b and s^2 for a given noise ratio r have closed
forms, so only r is searched. With V = W W', one reduction to three diagonals, W^-1 K_r W^-T = Q T Q', serves every r:
T + r = L D L' takes O(N). With y and o the rewards and ones, taken through (W Q L)^-1, and n observations that N rows
stand for::

    b     = [ sum_i o_i y_i / D_i + y1 / r ] / [ sum_i o_i^2 / D_i + 11 / r ]
    s^2   = [ sum_i (y_i - b o_i)^2 / D_i + (yy - 2 b y1 + b^2 11) / r ] / n
    log|.| = sum_i log D_i + (n - N) log r

where yy, y1 and 11 are what was left of the observations beside the rows that they were folded into (`observed_rows`).

b is the generalised least squares mean. The plain mean of the rewards will not do: a bandit shows good slates far more
often than others, so it would be taken for granted that unknown slates are as good as the good ones (`docs/decisions`).

With a prior mean b + t s h the slope t, in units of s, is normal with mean rho and variance omega^2 before the rewards:
positive, so that the first slates follow the utilities, and free to go where the rewards say. At the best b for each t,
integrated over t, with S_yy, S_yh and S_hh the products above of y and h, less their generalised least squares means::

    P     = 1 + omega^2 S_hh
    a     = S_yy - omega^2 S_yh^2 / P        c = rho S_yh / P
    -2 log L = log|.| + n log s^2 + a / s^2 - 2 c / s + rho^2 S_hh / P + log P + constants
    s     = [ sqrt(c^2 + 4 n a) - c ] / (2 n)
    t     = (rho + omega^2 S_yh / s) / P

s is where the derivative vanishes, t its posterior mean, and omega^2 / P its posterior variance: closed forms again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning._lapack import reduce_to_diagonals, whiten
from topk_bandit.learning.compiled import tridiagonal
from topk_bandit.learning.observed_rows import rewards_differ
from topk_bandit.learning.slope_prior import SlopePrior, unit_of

if TYPE_CHECKING:
    from topk_bandit.learning.item_parts import KernelEvidence
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.observed_rows import ObservedRows

__all__ = [
    "RELATIVE_NOISE_GRID",
    "NoiseFit",
    "Products",
    "Profile",
    "Scaling",
    "best_noise",
    "fit_noise",
    "noise_factor",
    "profile_likelihood",
    "scaling",
]

FloatArray = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.float64] | np.float64

RELATIVE_NOISE_GRID = np.logspace(-3.0, 3.0, 25)
"""Noise ratios tried, relative to the mean prior variance of a slate's own part: rare clicks need several hundred."""

_PRIOR_LOG10_MEAN = -1.0
_PRIOR_LOG10_SPREAD = 1.0

_PRIOR_LOG10_MEAN_BESIDE_OUTCOMES = 0.0
"""Where outcomes of items tell most of what slates differ by, less is left for rewards to tell."""

_LEAST_SQUARES = 1e-14
"""Rewards that are not all equal are not explained wholly, but for this part of the largest one's square."""

_TIE = 1e-6
"""Log densities that differ by less are equal: the smaller noise is taken, on whatever processor."""


class Products(NamedTuple):
    """S_yy, S_yh and S_hh, numbers or arrays of one shape, and how many observations they stand for."""

    yy: Numbers
    yh: Numbers
    hh: Numbers
    observations: float


class Scaling(NamedTuple):
    """The best s^2 and, in units of the rewards, slope t s and its posterior standard deviation.

    `misfit` is -2 log L less log|.| and n log s^2 there.
    """

    slope: Numbers
    spread: Numbers
    amplitude: Numbers
    misfit: Numbers


def scaling(products: Products, prior: SlopePrior, *, amplitude: float | None = None) -> Scaling:
    """Return the best slope and amplitude, or the best slope for an amplitude that is given."""
    if prior.in_rewards:
        return _scaling_in_rewards(products, prior, amplitude)
    n, precision = products.observations, 1.0 + prior.variance * products.hh
    square = np.maximum(products.yy - prior.variance * products.yh**2 / precision, 0.0)
    cross = prior.mean * products.yh / precision
    if amplitude is None:
        root = np.sqrt(cross * cross + 4.0 * n * square)
        # Of the two forms, the one without a difference of equal numbers.
        deviation = np.where(cross > 0.0, 2.0 * square / (root + np.abs(cross)), (root - cross) / (2.0 * n))
    else:
        deviation = np.full_like(square, np.sqrt(amplitude))
    slope = (prior.mean * deviation + prior.variance * products.yh) / precision
    misfit = square / deviation**2 - 2.0 * cross / deviation + prior.mean**2 * products.hh / precision
    spread = deviation * np.sqrt(prior.variance / precision)
    return Scaling(slope, spread, deviation**2, misfit + np.log(precision))


def _scaling_in_rewards(products: Products, prior: SlopePrior, amplitude: float | None) -> Scaling:
    """Return the same for a prior in units of the rewards.

    With the squares at its mean, Q = S_yy - 2 rho S_yh + rho^2 S_hh, and c = S_yh - rho S_hh::

        -2 log L = log|.| + n log s^2 + (Q - omega^2 c^2 / P) / s^2 + log(P / s^2)      P = s^2 + omega^2 S_hh
    """
    square = np.maximum(
        products.yy - 2.0 * prior.mean * products.yh + prior.mean**2 * products.hh, _LEAST_SQUARES * products.yy
    )
    cross = products.yh - prior.mean * products.hh
    if amplitude is None:
        fixed = _amplitude_in_rewards(square, cross, prior.variance, products)
    else:
        fixed = np.full_like(square, amplitude)
    precision = fixed + prior.variance * products.hh
    weight = prior.variance / precision
    misfit = (square - weight * cross * cross) / fixed + np.log(precision / fixed)
    return Scaling(prior.mean + weight * cross, np.sqrt(weight * fixed), fixed, misfit)


def _amplitude_in_rewards(square: Numbers, cross: Numbers, variance: float, products: Products) -> Numbers:
    """Return the best s^2 for Q, c and omega^2.

    The derivative vanishes at n s^2 = Q - omega^2 c^2 / P + s^2 (omega^2 S_hh / P - omega^2 c^2 / P^2). The right side
    grows with s^2, so what begins below all solutions climbs to the first one, at which the slope follows the rewards,
    and what begins above them all falls to the last, at which it is what was believed. The more likely one is taken.
    """
    n, unit = products.observations, np.maximum(square / products.observations, np.finfo(float).tiny)
    known, learned = variance / unit * products.hh, variance / unit * (cross / np.sqrt(unit)) ** 2
    most = n + known if n < _FEW else np.minimum(n + known, n * n / (n - 1.0))
    ends = np.stack([np.full_like(known, _LEAST_SQUARES), most / n])
    found = ends
    for _ in range(_STEPS_OF_AMPLITUDE):
        total = found + known
        share, part = known / total, learned / (total * total)
        steepness = (share * share + 2.0 * found * part / total) / n
        step = (n - part * total + found * (share - part)) / n - found
        # Newton's step, where the right side does not grow nearly as fast as the left one.
        found = found + step / np.where(steepness < _STEEP, 1.0 - steepness, 1.0)
        found = np.minimum(np.maximum(found, ends[0]), ends[1])
    total = found + known
    misfit = n * np.log(found) + (n - learned / total) / found + np.log(total / found)
    return np.asarray(np.where(misfit[0] < misfit[1] - _TIE, found[0], found[1]) * unit)


_STEPS_OF_AMPLITUDE = 8
"""After so many it is right to rounding, but where hardly more than one observation is left."""

_STEEP, _FEW = 0.9, 2.0


class Profile(NamedTuple):
    """Best values for each noise ratio, all of shape (G,)."""

    log_likelihood: FloatArray
    offset: FloatArray
    slope: FloatArray
    amplitude: FloatArray


def profile_likelihood(
    covariance: FloatArray, observed_rows: ObservedRows, ratios: FloatArray, *, prior: SlopePrior | None = None
) -> Profile:
    """Return the log density of the observations at its best b and s^2, and these, for each r.

    Where observations were folded into rows, it is the density up to a constant.

    Parameters
    ----------
    covariance
        K_r, shape (N, N).
    observed_rows
        Rewards that are not all equal.
    ratios
        Values of r > 0, shape (G,).
    prior
        The slope's, if the rows have the h of a prior mean.
    """
    return _profile(
        *_whiten_observed(covariance, observed_rows, noise_factor(observed_rows)), observed_rows, ratios, prior=prior
    )


def _profile(
    whitened: FloatArray,
    targets: FloatArray,
    observed_rows: ObservedRows,
    ratios: FloatArray,
    *,
    prior: SlopePrior | None,
) -> Profile:
    diagonals = reduce_to_diagonals(whitened, targets)
    means, squares, determinant = tridiagonal.profile(*diagonals, observed_rows.left_products, ratios)
    n, believed = observed_rows.n_observations, len(targets) == 3
    nothing = np.zeros(len(ratios))
    # What was taken out may have been a little more than there was, by rounding.
    largest = float(np.abs(observed_rows.targets[0]).max(initial=0.0))
    least = _LEAST_SQUARES * (largest * largest + abs(float(observed_rows.left_products[0, 0])))
    products = Products(
        np.maximum(squares[:, 0, 0], least),
        squares[:, 0, 2] if believed else nothing,
        squares[:, 2, 2] if believed else nothing,
        n,
    )
    best = scaling(products, prior or SlopePrior(0.0, 0.0))
    slope, amplitude = np.asarray(best.slope), np.asarray(best.amplitude)
    determinant += observed_rows.leftovers[:, 0].sum() * np.log(ratios)
    log_likelihood = -0.5 * (determinant + n * np.log(2.0 * np.pi * amplitude) + best.misfit)
    return Profile(log_likelihood, means[:, 0] - slope * (means[:, 2] if believed else nothing), slope, amplitude)


def noise_factor(observed_rows: ObservedRows) -> FloatArray | None:
    """Return W, lower triangular, V = W W'; None for the identity."""
    return None if observed_rows.noise_shape is None else np.asarray(np.linalg.cholesky(observed_rows.noise_shape))


def _whiten_observed(
    covariance: FloatArray, observed_rows: ObservedRows, factor: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return W^-1 K_r W^-T, of which the lower triangle counts, and the targets times W^-T."""
    return (covariance, observed_rows.targets) if factor is None else whiten(covariance, observed_rows.targets, factor)


class NoiseFit(NamedTuple):
    """The noise ratio r of a kernel, and the log density of rewards and noise at the best one, up to a constant.

    The constant is the same for all kernels. The log density is 0 where rewards that are all equal say nothing.
    `at_edge` tells that no ratio beyond the best one was tried: there may be a better one.
    """

    noise_variance: float
    log_density: float
    at_edge: bool


def best_noise(
    kernel: KendallKernel,
    observed_rows: ObservedRows,
    *,
    prior: SlopePrior | None = None,
    evidence: KernelEvidence | None = None,
) -> NoiseFit:
    """Return the noise ratio r by the marginal likelihood, for rows of a posterior.

    It is the mean of noise over the mean of amplitude, both over all ratios by their posterior probabilities. The most
    likely ratio alone is often one at which all is noise while a noisy shop has few rewards, and then little is tried,
    and the estimated regret is too small. A weak prior on the relative noise (log10 normal, mean 0.1, one decade wide)
    decides while there are few rows; without it a dozen rewards can pass for pure noise, or for none. Rewards that are
    all equal say nothing, and leave the prior's mean.

    Parameters
    ----------
    kernel
        Kernel of the rankings.
    observed_rows
        At least one row.
    prior
        The slope's, if the rows have the h of a prior mean.
    evidence
        The evidence on single items from rows that left.
    """
    gram, to_own = kernel.gram_of(observed_rows.rankings), kernel.variance_to_own(observed_rows.rankings)
    return fit_noise(gram, observed_rows, noise_factor(observed_rows), to_own=to_own, prior=prior, evidence=evidence)


def fit_noise(
    gram: FloatArray,
    observed_rows: ObservedRows,
    factor: FloatArray | None,
    *,
    to_own: float,
    prior: SlopePrior | None,
    evidence: KernelEvidence | None = None,
) -> NoiseFit:
    """Return `best_noise` for those who have the kernel's values (N, N) and `noise_factor`, of V, already.

    `to_own` is the kernel's `variance_to_own`.
    """
    covariance, left = (observed_rows.contexts @ observed_rows.contexts.T) * gram, 1.0
    if evidence is not None:
        taken = evidence.known.gram(observed_rows.contexts, observed_rows.rankings)
        left = 1.0 - float(np.trace(taken)) / float(np.trace(covariance))
        covariance, observed_rows = covariance - taken, observed_rows.centre_on(evidence.known)
    whitened, targets = _whiten_observed(covariance, observed_rows, factor)
    # Folding keeps this sum over all observations. Noise is relative to what there was before anything was known.
    unit = unit_of(float(np.trace(whitened)) / (observed_rows.n_observations * to_own * left))
    if not rewards_differ(observed_rows.targets, observed_rows.leftovers):
        return NoiseFit(float(unit * 10.0**_PRIOR_LOG10_MEAN), 0.0, at_edge=False)
    profile = _profile(whitened, targets, observed_rows, RELATIVE_NOISE_GRID * unit, prior=prior)
    of_outcomes = prior is not None and prior.in_rewards
    log10_mean = _PRIOR_LOG10_MEAN_BESIDE_OUTCOMES if of_outcomes else _PRIOR_LOG10_MEAN
    log_prior = -0.5 * ((np.log10(RELATIVE_NOISE_GRID) - log10_mean) / _PRIOR_LOG10_SPREAD) ** 2
    log_density = profile.log_likelihood + log_prior
    if evidence is not None:
        log_density += evidence.log_evidence(RELATIVE_NOISE_GRID * unit)
    best = int(np.argmax(log_density > log_density.max() - _TIE))
    amplitudes = np.exp(log_density - log_density[best]) * profile.amplitude
    ratio = float(amplitudes @ RELATIVE_NOISE_GRID) / float(amplitudes.sum())
    at_edge = best in {0, len(RELATIVE_NOISE_GRID) - 1}
    return NoiseFit(ratio * unit, float(log_density[best]), at_edge)
