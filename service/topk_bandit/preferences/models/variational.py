"""The Gaussian posterior of Plackett-Luce weights that has the greatest lower bound of the evidence.

An item with features x has the utility x'theta; an answer is its successive choices, each of an item c from the items
A that are left, with probability exp(x_c'theta) / sum_A exp(x_j'theta). For q = N(mu, S) and the prior N(mu0, S0)::

    L(mu, S) = sum_choices B(mu, S) - KL(q || prior),      B <= E_q[x_c'theta - log sum_A exp(x_j'theta)]

so L is below the log of the answers' probability, and the greater it is the closer q is to the true posterior. With
y = X mu and G = X S X' of the items of a choice, each bound B has local parameters that are optimised for every choice:

- `Bound.TILTED`:     B = y_c - a'y - log sum_j exp(y_j - a'y + (G_jj - 2 (G a)_j + a'G a) / 2)
  for any a; the best a is the fixed point at which a are the parts of this sum: choice probabilities, smoothed by S.
- `Bound.QUADRATIC`:  the paper's, quadratic in theta (Eqs. 29 to 34): of one logistic function for two items, and
  Bouchard's for more. Bouchard's inequality holds for every theta by itself, so its alpha may depend on theta. The best
  is affine, alpha = sum_j lambda_j x_j'theta / sum lambda + (m - 2) / (4 sum lambda) instead of Lemma 5's number: it is
  as if the features of each choice were centred on their own mean by lambda, which is both tighter and does not change
  when they are all shifted.

A sweep updates all local parameters, then the precision and the mean: S^-1 becomes S0^-1 + sum X' C X, C the curvature
of B, and mu moves by S times the slope of L. For the quadratic bound this is the paper's update (Lemma 3) and can only
raise L. For the tilted one it is a step along the natural gradient, which is halved until L rises by enough.

Sources: the appendix on variational inference from ranked samples with features, Lemmas 1 to 6; the tilted bound is
due to Saul and Jordan (1999) for two items, and to Knowles and Minka (2011) for more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.compiled.variational import answers_log_likelihoods, sweep
from topk_bandit.preferences.utilities import Gaussian, Utilities, validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.preferences.answers import Orderings

__all__ = ["Bound", "Variational", "fit", "predictive_log_likelihood"]

FloatArray = NDArray[np.float64]

_ROWS_AT_ONCE = 2048
_NUMBERS_AT_ONCE = 1 << 22
_ROUNDING = 1e-11
"""Part of the bound by which two sums of the same terms may differ."""
_SHORTEST_STEP = 1e-6
_ENOUGH = 0.5
"""Part of the promised rise that a step must bring."""


class Bound(StrEnum):
    """A lower bound of an answer's expected log-likelihood.

    ``TILTED`` is exact where the posterior is narrow, so that its mean and covariance become those of maximum
    likelihood as answers come in. ``QUADRATIC`` is the paper's; for choices from more than two items it spreads
    utilities too far, however many the answers are.
    """

    TILTED = "tilted"
    QUADRATIC = "quadratic"


@dataclass(frozen=True, slots=True, eq=False)
class Variational:
    """A Gaussian posterior with its bound.

    Attributes
    ----------
    posterior
        q(theta); the prior of answers to come.
    bounds
        The bound of the log of the answers' probability, in nats: under the prior, then after each sweep. It never
        falls.
    converged
        Whether the last sweep changed less than the tolerance.
    """

    posterior: Gaussian
    bounds: FloatArray
    converged: bool

    @property
    def bound(self) -> float:
        """The last of the bounds."""
        return float(self.bounds[-1])

    @property
    def sweeps(self) -> int:
        """Sweeps over all answers that raised the bound."""
        return len(self.bounds) - 1

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the utilities of items with these features, shape (n, d).

        Raises
        ------
        InvalidArgumentError
            The features are no finite (n, d) matrix.
        """
        return self.posterior.utilities(features)


def fit(
    features: ArrayLike,
    orderings: Orderings,
    *,
    prior: Gaussian,
    bound: Bound = Bound.TILTED,
    tolerance: float = 1e-3,
    max_sweeps: int = 1000,
) -> Variational:
    """Return the Gaussian with the greatest bound.

    Yesterday's posterior may be today's prior; the local parameters of earlier answers then stay as they were.

    Parameters
    ----------
    features
        Row i is item i, shape (n, d).
    orderings
        Rankings, choices and pairs of these items; with none, the prior is returned.
    prior
        N(mu0, S0) in d dimensions. It keeps the posterior proper for separable answers and features of rank < d.
    tolerance
        Stop after a sweep that raises the bound by at most this many nats and moves the mean by at most this many
        posterior standard deviations (the Mahalanobis length of the step).
    max_sweeps
        Stop after so many in any case.

    Raises
    ------
    InvalidArgumentError
        Naming ``features`` (not finite, another width than the prior's, or so large that the bound overflows),
        ``orderings`` (an item without features), ``prior`` (no mean or no positive definite covariance in d
        dimensions), ``tolerance`` or ``max_sweeps``.
    """
    rows = validate_features(features)
    _check(rows, orderings)
    precision = prior.precision(rows.shape[1])
    if not tolerance > 0.0:
        raise InvalidArgumentError("tolerance", f"expected a positive number, got {tolerance}")
    if max_sweeps < 1:
        raise InvalidArgumentError("max_sweeps", f"expected at least 1, got {max_sweeps}")
    if orderings.n_answers == 0:
        return Variational(prior, np.zeros(1), converged=True)
    return _climb(_Answers(rows, orderings, prior, precision, bound), tolerance=tolerance, max_sweeps=max_sweeps)


def predictive_log_likelihood(
    posterior: Gaussian, features: ArrayLike, orderings: Orderings, *, rng: np.random.Generator, draws: int = 1024
) -> FloatArray:
    """Return log E_q[P(answer | theta)] of each answer by itself, shape (A,), in nats.

    The expectation is a mean over `draws` weights, in pairs mu + z and mu - z; its relative error falls as one over
    their root.

    Parameters
    ----------
    posterior
        q(theta) in d dimensions.
    features
        Row i is item i, shape (n, d).
    orderings
        Answers to predict.
    rng
        Draws the weights.
    draws
        An even number, at least 2.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``, ``orderings`` (an item without features) or ``draws``.
    """
    rows = validate_features(features, dimension=len(posterior.mean))
    _check(rows, orderings)
    if draws < 2 or draws % 2:
        raise InvalidArgumentError("draws", f"expected an even number of at least 2, got {draws}")
    used, items = np.unique(orderings.items, return_inverse=True)
    normal = rng.standard_normal((len(posterior.mean), draws // 2))
    offsets = rows[used] @ np.linalg.cholesky(posterior.covariance) @ normal
    means = (rows[used] @ posterior.mean)[:, None]
    utilities = np.concatenate([means + offsets, means - offsets], axis=1)
    at_once = max(_NUMBERS_AT_ONCE // draws, 1)
    found = [np.zeros(0)]
    for first in range(0, orderings.n_answers, at_once):
        some = slice(first, first + at_once)
        starts = orderings.starts[first : first + at_once + 1]
        each = answers_log_likelihoods(utilities, items.astype(np.int64), starts, orderings.places[some])
        found.append(logsumexp(each, axis=1) - math.log(draws))
    return np.concatenate(found)


class _Point(NamedTuple):
    """A Gaussian, the bound there, and where it says to go.

    mean (d,), precision and a root of its inverse, R'R = S, (d, d); the slope of the bound by the mean, (d,), and the
    precision that the bound's curvature asks for, (d, d).
    """

    mean: FloatArray
    precision: FloatArray
    root: FloatArray
    bound: float
    slope: FloatArray
    target: FloatArray


class _Answers:
    """The answers with their local parameters, which every evaluation of the bound improves."""

    def __init__(
        self, rows: FloatArray, orderings: Orderings, prior: Gaussian, precision: FloatArray, bound: Bound
    ) -> None:
        used, items = np.unique(orderings.items, return_inverse=True)
        self._rows, self._items = np.ascontiguousarray(rows[used]), items.astype(np.int64)
        self._orderings, self._prior, self._tilted = orderings, prior, bound is Bound.TILTED
        self._prior_factor, self._prior_precision = np.linalg.cholesky(prior.covariance), precision
        lengths, places = np.diff(orderings.starts), orderings.places
        self._added = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths - 1)])
        self._cuts = _cuts(self._added)
        left = _items_left(lengths, places)
        self._local = np.repeat(1.0 / left, left)
        of_answer = places * lengths - places * (places - 1) // 2
        self._local_starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(of_answer)])

    def at_prior(self) -> _Point:
        return self.at(self._prior.mean, self._prior_precision)

    def at(self, mean: FloatArray, precision: FloatArray) -> _Point:
        """Evaluate the bound; raises LinAlgError where the precision is not positive definite."""
        d = len(mean)
        root = solve_triangular(np.linalg.cholesky(precision), np.eye(d), lower=True)
        scaled, means = self._rows @ root.T, self._rows @ mean
        slopes, curvature, value = np.zeros(len(means)), np.zeros((d, d)), 0.0
        buffer = np.empty((max(int(self._added[b] - self._added[a]) for a, b in pairwise(self._cuts)), d))
        for a, b in pairwise(self._cuts):
            out, local = buffer[: self._added[b] - self._added[a]], slice(*self._local_starts[[a, b]])
            answers = self._items, self._orderings.starts[a : b + 1], self._orderings.places[a:b]
            value += sweep(self._tilted, self._rows, scaled, means, *answers, self._local[local], slopes, out)
            curvature += out.T @ out
        pull = self._prior_precision @ (mean - self._prior.mean)
        slope, target = self._rows.T @ slopes - pull, self._prior_precision + curvature
        return _Point(mean, precision, root, value - self._divergence(mean, root), slope, target)

    def _divergence(self, mean: FloatArray, root: FloatArray) -> float:
        """Return KL(q || prior)."""
        away = solve_triangular(self._prior_factor, mean - self._prior.mean, lower=True)
        ratio = solve_triangular(self._prior_factor, root.T, lower=True)
        log_ratio = np.log(np.diag(self._prior_factor)).sum() - np.log(np.diag(root)).sum()
        return float(0.5 * (away @ away + (ratio**2).sum() - len(mean)) + log_ratio)


def _climb(answers: _Answers, *, tolerance: float, max_sweeps: int) -> Variational:
    point = answers.at_prior()
    if not math.isfinite(point.bound):
        raise InvalidArgumentError("features", "numbers too large for the prior: the bound overflows")
    bounds, converged = [point.bound], False
    while not converged and len(bounds) <= max_sweeps:
        found = _climb_once(answers, point)
        if found is None:
            break
        higher, length = found
        rise = higher.bound - point.bound
        moved = solve_triangular(higher.root.T, higher.mean - point.mean, lower=False)
        converged = max(rise, float(np.sqrt(moved @ moved))) <= tolerance * length
        point = higher
        bounds.append(point.bound)
    return Variational(Gaussian(point.mean, point.root.T @ point.root), np.array(bounds), converged)


def _climb_once(answers: _Answers, point: _Point) -> tuple[_Point, float] | None:
    """Return a point where the bound is higher, and its part of the step; None if there is none within rounding."""
    length, rounding = 1.0, _ROUNDING * abs(point.bound)
    while length > _SHORTEST_STEP:
        precision = point.precision + length * (point.target - point.precision)
        try:
            mean = point.mean + length * np.linalg.solve(precision, point.slope)
            found = answers.at(mean, precision)
        except np.linalg.LinAlgError:
            found = None
        # Anything higher would do, but steps that gain far less than they should go to and fro.
        if found is not None and found.bound - point.bound >= _ENOUGH * _promise_rise(point, found) - rounding:
            return found, length
        length *= 0.5
    return None


def _promise_rise(point: _Point, found: _Point) -> float:
    """Return by how much the bound would rise if its curvature by the mean stayed as it is at `point`."""
    step = found.mean - point.mean
    by_mean = float(point.slope @ step - 0.5 * step @ point.target @ step)
    log_ratio = float(np.log(np.diag(found.root) / np.diag(point.root)).sum())
    traces = [float(((one.root @ point.target) * one.root).sum()) for one in (found, point)]
    return by_mean + log_ratio - 0.5 * (traces[0] - traces[1])


def _check(rows: FloatArray, orderings: Orderings) -> None:
    if len(orderings.items) and int(orderings.items.max()) >= len(rows):
        problem = f"expected items in [0, {len(rows)}), got {int(orderings.items.max())}"
        raise InvalidArgumentError("orderings", problem)


def _cuts(added: NDArray[np.int64]) -> list[int]:
    """Return where to cut the answers into blocks of about `_ROWS_AT_ONCE` rows, at least one answer each."""
    cuts = [0]
    while cuts[-1] < len(added) - 1:
        after = int(np.searchsorted(added, added[cuts[-1]] + _ROWS_AT_ONCE, side="right")) - 1
        cuts.append(max(after, cuts[-1] + 1))
    return cuts


def _items_left(lengths: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return k of every stage of every answer, in order."""
    first = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(places)[:-1]])
    stage = np.arange(int(places.sum())) - np.repeat(first, places)
    return np.asarray(np.repeat(lengths, places) - stage, dtype=np.int64)
