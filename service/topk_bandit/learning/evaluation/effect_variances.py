"""The prior of the effects of items on rewards: the most likely covariances and noise, as the rewards have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.evaluation.equations import EffectPrior, solve

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.regression import RegressionRows

__all__ = ["likely_prior"]

FloatArray = NDArray[np.float64]

_STEPS, _LONGEST, _ROUGH = 4, 8.0, 1e-2
_FIRST = 20.0
"""How many times smaller effects are than rewards, to begin with: what is too small grows sooner than the other way."""

_SMALLEST = 1e-200
_WIDE = 100.0
_FLOOR = 1e-8
_LEAST_NOISE = 1e-6
"""The least noise, as a share of the rewards' variance: with less the sums would be too near to singular for floats."""

_LEAST_DRAWS, _DRAWN_ITEMS = 4, 60
"""Of the posterior, by which the prior's next step is averaged: as many as make so many draws of an item."""


def likely_prior(rewards: FloatArray, features: RegressionRows) -> EffectPrior:
    """Climb the likelihood of P, Q and the noise, from effects that are half shared by all positions.

    Steps of expectation maximisation are short where rewards say little, so two of them show how far to go on
    (Varadhan and Roland 2008). Moments of the posterior are those of its mean and of draws around it, which are as many
    equations more.
    """
    shape, variance = features.shape, max(float(rewards.var()), _SMALLEST)
    shared = (np.eye(shape.size) + 1.0) * variance / (_FIRST * shape.size)
    prior = EffectPrior(shared, np.eye(shape.dim), variance, _WIDE * variance)
    rng, draws = np.random.default_rng(0), max(_LEAST_DRAWS, -(-_DRAWN_ITEMS // shape.n_items))
    of_noise = rng.normal(size=(len(rewards), draws))
    of_prior = rng.normal(size=(features.n_coefficients, draws))

    def step(prior: EffectPrior) -> EffectPrior:
        coefficients = _mean_and_draws(rewards, features, prior, of_noise, of_prior)
        missed = features.apply(coefficients)
        missed[:, 0] -= rewards
        squares = (missed**2).mean(axis=0)
        noise = max(float(squares[0] + squares[1:].mean()), _LEAST_NOISE * variance)
        return _next_prior(prior, features, coefficients, noise=noise)

    for _ in range(_STEPS):
        once = step(prior)
        prior = step(_go_on(prior, once, step(once)))
    return prior


def _go_on(first: EffectPrior, once: EffectPrior, twice: EffectPrior) -> EffectPrior:
    """Return where steps that get shorter as the two do lead to: on logarithms, so that covariances stay such."""
    begin, middle, end = (_logarithms(one) for one in (first, once, twice))
    moved, turned = middle - begin, end - 2.0 * middle + begin
    longer = float(np.linalg.norm(moved) / max(float(np.linalg.norm(turned)), _SMALLEST))
    longer = min(max(longer, 1.0), _LONGEST)
    found, size = begin + 2.0 * longer * moved + longer**2 * turned, len(first.positions)
    positions, parts = (
        _exponential(found[: size**2].reshape(size, size)),
        _exponential(found[size**2 : -1].reshape(first.parts.shape)),
    )
    scale = np.trace(parts) / len(parts)
    return EffectPrior(
        positions * scale, parts / scale, max(float(np.exp(found[-1])), _LEAST_NOISE * first.level / _WIDE), first.level
    )


def _logarithms(prior: EffectPrior) -> FloatArray:
    matrices = []
    for one in (prior.positions, prior.parts):
        values, vectors = np.linalg.eigh(one)
        matrices.append(((vectors * np.log(np.maximum(values, _SMALLEST))) @ vectors.T).ravel())
    return np.concatenate([*matrices, [np.log(prior.noise)]])


def _exponential(logarithm: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(logarithm)
    return _with_floor((vectors * np.exp(values)) @ vectors.T)


def _mean_and_draws(
    rewards: FloatArray, features: RegressionRows, prior: EffectPrior, of_noise: FloatArray, of_prior: FloatArray
) -> FloatArray:
    """Return the posterior's mean, and draws of what coefficients differ by from it, shape (P, 1 + draws).

    A draw is the solution for a right side whose covariance is the equations' own matrix (Papandreou and Yuille 2010).
    """
    shape, root = features.shape, np.sqrt(prior.noise)
    sides = prior.gather(shape, features.gather(np.column_stack([rewards / root, of_noise])) / root)
    sides[:, 1:] += of_prior
    return prior.spread(shape, solve(features, prior, sides, rounding=_ROUGH))


def _with_floor(covariance: FloatArray) -> FloatArray:
    """Return a covariance that is not singular: rewards without noise may make it so."""
    floor = max(_FLOOR * float(np.trace(covariance)) / len(covariance), _SMALLEST)
    return np.asarray(covariance + floor * np.eye(len(covariance)))


def _next_prior(prior: EffectPrior, features: RegressionRows, coefficients: FloatArray, *, noise: float) -> EffectPrior:
    """Return the maximum of the expected log likelihood: covariances of matrix-normal effects, P then Q."""
    shape, effects = features.shape, features.shape.effects(coefficients)
    counts = np.r_[1.0, np.full(effects.shape[3] - 1, 1.0 / max(effects.shape[3] - 1, 1))]
    effects = effects * np.sqrt(counts / shape.n_items)
    inner = np.einsum("jicm,cd->jidm", effects, np.linalg.inv(prior.parts))
    positions = _with_floor(np.einsum("jicm,licm->jl", inner, effects, optimize=True) / shape.dim)
    outer = np.einsum("jicm,jl->licm", effects, np.linalg.inv(positions))
    parts = _with_floor(np.einsum("jicm,jidm->cd", outer, effects, optimize=True) / shape.size)
    scale = np.trace(parts) / shape.dim
    return EffectPrior(positions * scale, parts / scale, noise, prior.level)
