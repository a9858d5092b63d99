"""The direct model of rewards: items at positions, times contexts, by ridge regression.

    f(x, s) = alpha . x + sum_j theta[j, s_j] . x + noise,        theta[:, i, :] ~ N(0, P x Q) for each item i

x is the context, standardised, with a one. P says how alike an item's effects at different positions are, Q how large
those of each part of the context are; both, and the variance of the noise, are the most likely ones for the rewards
(by expectation maximisation). So positions share what they have in common, and nothing is said of it beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target
    from topk_bandit.learning.rankings import Rankings

__all__ = ["EffectPrior", "Fold", "RegressionRows", "RewardModel", "learn_rewards"]

FloatArray = NDArray[np.float64]

FOLDS = 10
"""With more of them a policy that learns changes less within one; but each has less to balance."""

_STEPS = 10
_MOST_COEFFICIENTS = 5000
_SAME, _SMALLEST = 1e-12, 1e-200
_WIDE = 100.0
_FLOOR = 1e-8
_LEAST_NOISE = 1e-6
"""The least noise, as a share of the rewards' variance: with less the sums would be too near to singular for floats."""


class RegressionRows:
    """Rows of the regression: which coefficients a slate in a context has, and with which values."""

    def __init__(self, log: SlateLog) -> None:
        spread = log.contexts.std(axis=0)
        varying = log.contexts[:, spread > _SAME * np.abs(log.contexts).max(axis=0, initial=1.0)]
        standard = (varying - varying.mean(axis=0)) / varying.std(axis=0)
        self.contexts = np.column_stack([np.ones(len(log)), standard])
        self.size, self.n_items, self.dim = log.policy.slate_size, log.n_items, self.contexts.shape[1]
        self.n_effects = self.size * self.n_items * self.dim
        self.n_coefficients = self.n_effects + self.dim
        if self.n_coefficients > _MOST_COEFFICIENTS:
            text = f"{self.n_coefficients} coefficients, of positions times items times contexts"
            raise InvalidArgumentError("log", f"{text}, are more than {_MOST_COEFFICIENTS}")

    def columns(self, slates: Rankings) -> NDArray[np.intp]:
        """Return the coefficients of slates (A, k): at each position the item's, then alpha; shape (A, (k + 1) C)."""
        parts = np.arange(self.dim)
        of_items = (np.arange(self.size) * self.n_items + slates)[:, :, None] * self.dim + parts
        of_all = np.broadcast_to(self.n_effects + parts, (len(slates), self.dim))
        return np.concatenate([of_items.reshape(len(slates), -1), of_all], axis=1)

    def values(self, rows: slice) -> FloatArray:
        """Return the values of these coefficients for some requests, shape (A, (k + 1) C)."""
        return np.tile(self.contexts[rows], (1, self.size + 1))

    def apply(self, coefficients: FloatArray, slates: Rankings, rows: slice) -> FloatArray:
        """Return what coefficients give to slates (A, k) of some requests, shape (A,)."""
        return np.asarray((coefficients[self.columns(slates)] * self.values(rows)).sum(axis=1))

    def mean_of_target(self, log: SlateLog, target: Target) -> FloatArray:
        """Return the mean row over requests and the target's slates: what coefficients give to it is its value."""
        every, effects = slice(None), np.zeros(self.n_coefficients)
        for slates, probabilities in target.lists():
            weights = self.values(every) * probabilities[:, None]
            effects += np.bincount(self.columns(slates).ravel(), weights.ravel(), minlength=self.n_coefficients)
        of_each_item = log.policy.eligible * (target.uniform_share / target.n_eligible)[:, None]
        effects[: self.n_effects] += np.tile((of_each_item.T @ self.contexts).ravel(), self.size)
        effects[self.n_effects :] = self.contexts.sum(axis=0)
        return effects / len(log)

    def of_target(self, coefficients: FloatArray, log: SlateLog, target: Target) -> FloatArray:
        """Return what coefficients give on average to the target's slates, of each request, shape (N,)."""
        effects = coefficients[: self.n_effects].reshape(self.size, self.n_items, self.dim).sum(axis=0)
        of_items = ((log.policy.eligible @ effects) * self.contexts).sum(axis=1) / target.n_eligible
        total = target.uniform_share * (of_items + self.contexts @ coefficients[self.n_effects :])
        for slates, probabilities in target.lists():
            total = total + probabilities * self.apply(coefficients, slates, slice(None))
        return np.asarray(total)


class Fold(NamedTuple):
    """Requests that follow each other: which, and the sums over their rows of x x' and x times the reward."""

    rows: slice
    gram: FloatArray
    products: FloatArray


class EffectPrior(NamedTuple):
    """P (k, k), Q (C, C) with a mean diagonal of one, the variance of the noise, and that of alpha: a large one."""

    positions: FloatArray
    parts: FloatArray
    noise: float
    level: float

    def precision(self, features: RegressionRows) -> FloatArray:
        """Return the coefficients' inverse covariance."""
        n, whole = features.n_effects, np.eye(features.n_coefficients) / self.level
        parts = np.kron(np.eye(features.n_items), np.linalg.inv(self.parts))
        whole[:n, :n] = np.kron(np.linalg.inv(self.positions), parts)
        return whole

    def variance_of(self, row: FloatArray, features: RegressionRows) -> float:
        """Return the variance of what the effects give to a row of them."""
        shaped = row[: features.n_effects].reshape(features.size, features.n_items, features.dim)
        return float(np.einsum("jic,jl,lid,cd->", shaped, self.positions, shaped, self.parts, optimize=True))


@dataclass(frozen=True, eq=False)
class RewardModel:
    """What rewards of slates are expected to be.

    Attributes
    ----------
    folds
        The log in `FOLDS` parts, one after the other.
    coefficients
        For each fold, learned from those before it: what b was shown in a fold may depend on its own rewards, but those
        before it do not depend on its noise. The first fold's are learned from the second one.
    """

    features: RegressionRows
    folds: tuple[Fold, ...]
    prior: EffectPrior
    coefficients: tuple[FloatArray, ...]

    def residuals(self, log: SlateLog) -> FloatArray:
        """Return rewards minus what was expected of the slates shown, shape (N,)."""
        pairs = zip(self.folds, self.coefficients, strict=True)
        expected = [self.features.apply(one, log.slates[fold.rows], fold.rows) for fold, one in pairs]
        return np.asarray(log.rewards - np.concatenate(expected))

    def expect_target(self, log: SlateLog, target: Target) -> FloatArray:
        """Return what is expected of the target for each request, shape (N,)."""
        total = np.empty(len(log))
        for fold, coefficients in zip(self.folds, self.coefficients, strict=True):
            total[fold.rows] = self.features.of_target(coefficients, log, target)[fold.rows]
        return total


def learn_rewards(log: SlateLog) -> RewardModel:
    """Learn the direct model from a log of at least `FOLDS` requests.

    Raises
    ------
    InvalidArgumentError
        There are fewer requests, or too many coefficients.
    """
    if len(log) < FOLDS:
        raise InvalidArgumentError("log", f"expected at least {FOLDS} requests, got {len(log)}")
    features = RegressionRows(log)
    edges = np.linspace(0, len(log), FOLDS + 1).astype(int).tolist()
    folds = tuple(_fold(log, features, slice(*pair)) for pair in pairwise(edges))
    prior = _likely_prior(log, features, folds)
    precision = prior.precision(features)
    before = [folds[1:2], *(folds[:number] for number in range(1, FOLDS))]
    return RewardModel(features, folds, prior, tuple(_solve(part, precision, prior.noise) for part in before))


def _fold(log: SlateLog, features: RegressionRows, rows: slice) -> Fold:
    columns, values = features.columns(log.slates[rows]), features.values(rows)
    products = (values * log.rewards[rows, None]).ravel()
    return Fold(
        rows,
        _gram(columns, values, features.n_coefficients),
        np.bincount(columns.ravel(), products, minlength=features.n_coefficients).astype(float),
    )


def _gram(columns: NDArray[np.intp], values: FloatArray, size: int) -> FloatArray:
    """Return the sum of x x' over sparse rows, so many at a time as have about as many products as the sum entries."""
    total, step = np.zeros(size * size), max(size * size // columns.shape[1] ** 2, 1)
    for start in range(0, len(columns), step):
        column, value = columns[start : start + step], values[start : start + step]
        cells = (column[:, :, None] * size + column[:, None, :]).ravel()
        total += np.bincount(cells, (value[:, :, None] * value[:, None, :]).ravel(), minlength=size * size)
    return total.reshape(size, size)


def _solve(folds: tuple[Fold, ...], precision: FloatArray, noise: float) -> FloatArray:
    gram, products = sum(fold.gram for fold in folds), sum(fold.products for fold in folds)
    return np.asarray(np.linalg.solve(gram / noise + precision, products / noise))


def _likely_prior(log: SlateLog, features: RegressionRows, folds: tuple[Fold, ...]) -> EffectPrior:
    """Climb the likelihood of P, Q and the noise, from effects that are half shared by all positions."""
    size, squares = features.size, float((log.rewards**2).sum())
    square = max(squares / len(log), _SMALLEST)
    variance = max(float(log.rewards.var()), _SAME * square)
    gram = np.asarray(sum(fold.gram for fold in folds))
    products = np.asarray(sum(fold.products for fold in folds))
    shared = (np.eye(size) + 1.0) * variance / (2 * size)
    prior = EffectPrior(shared, np.eye(features.dim), variance, _WIDE * square)
    for _ in range(_STEPS):
        spread = np.asarray(np.linalg.inv(gram / prior.noise + prior.precision(features)), dtype=float)
        mean = spread @ products / prior.noise
        missed = squares - 2.0 * mean @ products + mean @ gram @ mean + float((spread * gram).sum())
        prior = _next_prior(prior, features, mean, spread, noise=max(missed / len(log), _LEAST_NOISE * variance))
    return prior


def _with_floor(covariance: FloatArray) -> FloatArray:
    """Return a covariance that is not singular: rewards without noise may make it so."""
    floor = max(_FLOOR * float(np.trace(covariance)) / len(covariance), _SMALLEST)
    return np.asarray(covariance + floor * np.eye(len(covariance)))


def _next_prior(
    prior: EffectPrior, features: RegressionRows, mean: FloatArray, spread: FloatArray, *, noise: float
) -> EffectPrior:
    """Return the maximum of the expected log likelihood: covariances of matrix-normal effects, P then Q."""
    shape, n = (features.size, features.n_items, features.dim), features.n_effects
    effects = mean[:n].reshape(shape)
    moments = np.einsum("jic,lid->jcld", effects, effects)
    moments = (moments + np.einsum("jiclid->jcld", spread[:n, :n].reshape(*shape, *shape))) / features.n_items
    positions = _with_floor(np.einsum("jcld,dc->jl", moments, np.linalg.inv(prior.parts)) / features.dim)
    parts = _with_floor(np.einsum("jcld,lj->cd", moments, np.linalg.inv(positions)) / features.size)
    scale = np.trace(parts) / features.dim
    return EffectPrior(positions * scale, parts / scale, noise, prior.level)
