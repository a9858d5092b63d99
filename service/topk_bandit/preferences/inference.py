"""Utilities from a study's answers: what features tell, an own part of each item, and how wide the prior of both is.

The utility of an item with coordinates z (`spans`, of unit mean square) is z'theta + e: theta ~ N(0, v I), so that
sqrt(v) is about the spread of what features tell, and e ~ N(0, w), one for each item, is what they do not tell. How far
people agree, and how much features explain, is not known beforehand. So v and w are of a few values each, w = 0 among
them, and the posterior is the mixture over all of them, each as probable as it makes the answers, by Laplace's
approximation of the marginal likelihood:

    log p(answers | v, w) = log-likelihood(beta) + log N(beta; 0, P) + log |2 pi S| / 2,

beta = (theta, e) the mode and S the covariance there. For ratings, with noise of a variance that is chosen with v and
w, it is exact. The mixture is kept as the Gaussian with its mean and covariance: every utility has the mixture's mean
and spread. Beforehand all v are as probable, and w so that its root, the spread of own parts, is uniform. Values a
hundred and fifty times less probable than the best ones are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotri

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import IntArray, Orderings, Ratings
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.models.own_parts import OwnPartsAnswers
from topk_bandit.preferences.utilities import FloatArray, Gaussian, Utilities, validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["OWN_VARIANCES", "PRIOR_VARIANCES", "UtilityPosterior", "learn_utilities"]

PRIOR_VARIANCES = (0.04, 0.2, 1.0, 5.0, 25.0)
"""Values of v tried; for ratings, in units of the noise variance."""

OWN_VARIANCES = (0.0, 0.03, 0.055, 0.1, 0.17, 0.3, 0.55, 1.0, 1.7, 3.0, 5.5, 10.0, 17.0, 30.0)
"""Values of w tried; for ratings, in units of the noise variance."""

RATER_VARIANCES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of the variance of raters' levels tried beside 0, in units of the noise variance."""

_FEATURES_TELL_ALL = 1.1
"""The weight of w = 0 beforehand, where that of another value is its root: as much as those up to 0.17 together."""

_NEGLIGIBLE = 5.0
"""Nats by which answers are less probable under values that are left out."""

_LEAST_NOISE = 1e-12
"""Ratings that agree to the last digit still leave some noise, relative to their square."""


@dataclass(frozen=True, slots=True, eq=False)
class UtilityPosterior:
    """The posterior of the weights and of the items' own parts, given answers.

    Attributes
    ----------
    posterior
        For theta alone, r weights.
    own
        For the own parts, of N items: about their mean where answers order items, which tells only differences.
    across
        Covariance of theta with the own parts, shape (r, N).
    prior_variance, own_variance
        The most probable v and w.
    log_marginal_likelihood
        For the answers under these, in nats.
    level
        Mean of the ratings, which utilities are above or below; 0 for other answers.
    rater_variance
        The most probable variance of raters' levels, in units of the noise variance; 0 where raters are not named.
    """

    posterior: Gaussian
    own: Gaussian
    across: FloatArray
    prior_variance: float
    own_variance: float
    log_marginal_likelihood: float
    level: float = 0.0
    rater_variance: float = 0.0

    def utilities(self, coordinates: ArrayLike) -> Utilities:
        """Return the utilities of all items, with coordinates (N, r); of rated ones, the ratings expected."""
        rows = validate_features(coordinates, dimension=len(self.posterior.mean))
        above = self.posterior.utilities(rows)
        shared = 2.0 * np.einsum("nr,rn->n", rows, self.across)
        variances = above.standard_deviation**2 + shared + np.diagonal(self.own.covariance)
        return Utilities(self.level + above.mean + self.own.mean, np.sqrt(np.maximum(variances, 0.0)))


def learn_utilities(
    coordinates: ArrayLike, answers: Orderings | Ratings, *, items: ArrayLike | None = None, own_parts: bool = True
) -> UtilityPosterior:
    """Return what answers tell of items with these coordinates, shape (R, r).

    Parameters
    ----------
    items
        Item of each row, from 0 on without gaps, shape (R,). None: each row is an item of its own.
    own_parts
        Whether utilities may have parts that coordinates do not tell. Where coordinates tell every item from all
        others, as those of items without features do, there are none.

    Raises
    ------
    InvalidArgumentError
        The coordinates are no finite matrix, or an answer names an item without any.
    """
    rows = validate_features(coordinates)
    numbers = np.arange(len(rows)) if items is None else np.asarray(items, dtype=np.int64)
    own_variances = OWN_VARIANCES if own_parts else OWN_VARIANCES[:1]
    if isinstance(answers, Orderings):
        return _learn(_Ordered(rows, numbers, answers), own_variances)
    alike = _Rated(rows, numbers, answers)
    found = _learn(alike, own_variances)
    if answers.raters is None or (answers.raters < 0).all():
        return found
    prior = found.prior_variance, found.own_variance
    problems = [alike, *(alike.with_levels(answers.raters, ratio) for ratio in RATER_VARIANCES)]
    best = max(problems, key=lambda problem: problem.learn(*prior, None).log_marginal_likelihood)
    return found if best is alike else _learn(best, own_variances)


def _learn(problem: _Ordered | _Rated, own_variances: tuple[float, ...]) -> UtilityPosterior:
    return _mix(_explore(problem.learn, own_variances), problem)


class _Learned(NamedTuple):
    """A Gaussian of beta = (theta, own parts of the items asked about) under one prior, and the answers' evidence."""

    variance: float
    own_variance: float
    mean: FloatArray
    covariance: FloatArray
    log_marginal_likelihood: float

    @property
    def log_weight(self) -> float:
        """Of the prior given the answers, but for a constant."""
        weight = np.sqrt(self.own_variance) if self.own_variance else _FEATURES_TELL_ALL
        return self.log_marginal_likelihood + float(np.log(weight))


_Cell: TypeAlias = tuple[int, int]
_Learn: TypeAlias = Callable[[float, float, "_Learned | None"], _Learned]


def _explore(learn: _Learn, own_variances: tuple[float, ...]) -> list[_Learned]:
    """Learn under all v without own parts, and from the best of these on under all neighbours of what is probable."""
    cells: dict[_Cell, _Learned] = {
        (index, 0): learn(variance, 0.0, None) for index, variance in enumerate(PRIOR_VARIANCES)
    }
    if len(own_variances) > 1:
        best = max(cells, key=lambda cell: cells[cell].log_weight)
        middle = best[0], len(own_variances) // 2
        cells[middle] = learn(PRIOR_VARIANCES[middle[0]], own_variances[middle[1]], None)
        while next_to := _find_neighbours(cells, own_variances):
            for cell, known in next_to.items():
                cells[cell] = learn(PRIOR_VARIANCES[cell[0]], own_variances[cell[1]], cells[known])
    return list(cells.values())


def _find_neighbours(cells: dict[_Cell, _Learned], own_variances: tuple[float, ...]) -> dict[_Cell, _Cell]:
    """Return the cells not learned yet that are next to probable ones, each with one of these."""
    best = max(one.log_weight for one in cells.values())
    found: dict[_Cell, _Cell] = {}
    for (row, column), one in cells.items():
        if one.log_weight < best - _NEGLIGIBLE:
            continue
        for other in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if 0 <= other[0] < len(PRIOR_VARIANCES) and 0 <= other[1] < len(own_variances) and other not in cells:
                found.setdefault(other, (row, column))
    return found


def _mix(cells: list[_Learned], problem: _Ordered | _Rated) -> UtilityPosterior:
    best = max(cells, key=lambda one: one.log_weight)
    kept = [one for one in cells if one.log_weight >= best.log_weight - _NEGLIGIBLE]
    weights = np.exp([one.log_weight - best.log_weight for one in kept])
    weights /= weights.sum()
    r, asked, n_items = problem.rank, problem.asked, problem.n_items
    places = np.concatenate([np.arange(r), r + asked])
    mean, covariance = np.zeros(r + n_items), np.zeros((r + n_items,) * 2)
    unseen = np.setdiff1d(r + np.arange(n_items), places)
    for weight, one in zip(weights, kept, strict=True):
        mean[places[: len(one.mean)]] += weight * one.mean
    for weight, one in zip(weights, kept, strict=True):
        away = -mean
        away[places[: len(one.mean)]] += one.mean
        covariance += weight * np.outer(away, away)
        covariance[np.ix_(places[: len(one.mean)], places[: len(one.mean)])] += weight * one.covariance
        covariance[unseen, unseen] += weight * problem.own_prior(one)
    own_mean, own, across = problem.centre(mean[r:], covariance[r:, r:], covariance[:r, r:])
    return UtilityPosterior(
        Gaussian(mean[:r], covariance[:r, :r]),
        Gaussian(own_mean, own),
        across,
        best.variance,
        best.own_variance,
        best.log_marginal_likelihood,
        problem.level,
        problem.rater_ratio,
    )


class _Ordered:
    """Answers that order items."""

    level = rater_ratio = 0.0

    def __init__(self, rows: FloatArray, items: IntArray, answers: Orderings) -> None:
        self.rank, self.n_items = rows.shape[1], int(items.max(initial=-1)) + 1
        self._rows, self._answers = rows, answers
        self._own = OwnPartsAnswers(rows, items, answers) if answers.n_answers else None
        self.asked: IntArray = self._own.asked if self._own else np.zeros(0, dtype=np.int64)

    def learn(self, variance: float, own_variance: float, near: _Learned | None) -> _Learned:
        """Return the posterior under a prior; `near` is that under one nearby."""
        if own_variance and self._own:
            start = np.zeros(self.rank + len(self.asked))
            if near is not None:
                start[: len(near.mean)] = near.mean
            found = self._own.maximise(variance, own_variance, start=start)
            return _Learned(variance, own_variance, found.beta, found.covariance, found.log_marginal_likelihood)
        fitted = plackett_luce.fit(self._rows, self._answers, prior=Gaussian.isotropic(self.rank, variance=variance))
        mode, covariance = fitted.posterior.mean, fitted.posterior.covariance
        determinant = float(np.linalg.slogdet(covariance)[1]) - len(mode) * np.log(variance)
        evidence = fitted.log_likelihood - 0.5 * float(mode @ mode) / variance + 0.5 * determinant
        return _Learned(variance, own_variance, mode, covariance, evidence)

    @staticmethod
    def own_prior(one: _Learned) -> float:
        """Return the variance of an own part that no answer is about."""
        return one.own_variance

    @staticmethod
    def centre(mean: FloatArray, own: FloatArray, across: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return own parts about the mean of all: only differences can be learned."""
        within = own - own.mean(axis=0)
        covariance = within - within.mean(axis=1, keepdims=True)
        return mean - mean.mean(), covariance, across - across.mean(axis=1, keepdims=True)


class _Rated:
    """Ratings, which are exact for a noise variance s^2 that is best for v = ratio s^2 and w = own ratio s^2.

    The level of a rater is a normal number of the variance rater_ratio s^2, added to all ratings of that rater. Levels
    are about their mean, so that utilities are the ratings that are expected of the raters of the study.
    """

    rater_ratio = 0.0

    def __init__(self, rows: FloatArray, items: IntArray, answers: Ratings) -> None:
        self.rank, self.n_items = rows.shape[1], int(items.max(initial=-1)) + 1
        self.level = float(answers.values.mean()) if len(answers.values) else 0.0
        if len(answers.items) and not 0 <= answers.items.min() <= answers.items.max() < len(rows):
            raise InvalidArgumentError("ratings", f"an item has no features: there are {len(rows)} rows")
        self.asked, own = np.unique(items[answers.items], return_inverse=True)
        self._above = answers.values - self.level
        self._shown = np.hstack([rows[answers.items], np.eye(len(self.asked))[own]])
        self._products, self._told = self._shown.T @ self._shown, self._shown.T @ self._above
        self._square, self._spread_of_raters = float(self._above @ self._above), 0.0
        self._noise: dict[tuple[float, float], float] = {}

    def learn(self, ratio: float, own_ratio: float, near: _Learned | None) -> _Learned:  # noqa: ARG002 - it is exact
        """Return the posterior under a prior."""
        prior = np.repeat([ratio, own_ratio], [self.rank, len(self.asked) if own_ratio else 0])
        count, d = max(len(self._above), 1), len(prior)
        lower = np.linalg.cholesky(self._products[:d, :d] + np.diag(1.0 / prior))
        inverse = np.tril(dpotri(lower, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        mean = inverse @ self._told[:d]
        square = self._square - float(self._told[:d] @ mean)
        noise = max(square / count, _LEAST_NOISE * max(self.level * self.level, 1.0))
        determinant = (
            2.0 * float(np.log(np.diagonal(lower)).sum()) + float(np.log(prior).sum()) + self._spread_of_raters
        )
        evidence = -0.5 * (len(self._above) * np.log(2.0 * np.pi * noise) + square / noise + determinant)
        self._noise[ratio, own_ratio] = noise
        return _Learned(ratio, own_ratio, mean, noise * inverse, evidence)

    def with_levels(self, raters: IntArray, ratio: float) -> _Rated:
        """Return the same ratings with what raters' levels explain taken out of all products.

        Ratings have the covariance M = I + ratio (Z Z' - z z' / P), Z having a column of ones for each of P raters and
        z being their sum: levels are about the mean of the study's raters. M is M0 = I + ratio Z Z', whose inverse is
        that of each rater, less a matrix of rank one.
        """
        named = raters >= 0
        numbers, of = np.unique(raters[named], return_inverse=True)
        sums, above = np.zeros((len(numbers), self._shown.shape[1])), np.bincount(of, self._above[named])
        np.add.at(sums, of, self._shown[named])
        counts, each = np.bincount(of), ratio / len(numbers)
        left = 1.0 / (1.0 + ratio * counts)
        remaining = 1.0 - each * float(counts @ left)
        across, mean = sums.T @ left, float(above @ left)
        again = each / remaining
        found = copy(self)
        found.rater_ratio, found._noise = ratio, {}  # noqa: SLF001 - its own kind
        explained = (sums * (ratio * left)[:, None]).T @ sums
        found._products = self._products + (again * np.outer(across, across) - explained)  # noqa: SLF001
        found._told = self._told + (again * mean * across - sums.T @ (ratio * left * above))  # noqa: SLF001
        found._square = self._square + (again * mean**2 - ratio * float(left @ above**2))  # noqa: SLF001
        found._spread_of_raters = float(np.log(remaining) - np.log(left).sum())  # noqa: SLF001
        return found

    def own_prior(self, one: _Learned) -> float:
        """Return the variance of an own part that no answer is about."""
        return one.own_variance * self._noise[one.variance, one.own_variance]

    @staticmethod
    def centre(mean: FloatArray, own: FloatArray, across: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return own parts as they are: a rating tells them themselves."""
        return mean, own, across
