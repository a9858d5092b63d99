"""Plackett-Luce with an own part of each item, beside what its features tell.

The utility of a row is z'theta + e_i: z are its coordinates, i is its item, theta ~ N(0, v I) and e_i ~ N(0, w). With
beta = (theta, e) of the items that answers name, W the information of the rows' utilities (a graph Laplacian: minus
sum_s p_si p_sj off its diagonal) and X = [Z, P], P the rows' items, the most probable beta is found by Newton's method,

    gradient     X' (wins - c) - (theta / v, e / w)
    information  X' W X + diag(1 / v, 1 / w)

and Laplace's approximation of the answers' log-probability, given v and w, is

    log-likelihood - |theta|^2 / 2 v - |e|^2 / 2 w - (log det information + r log v + n log w) / 2.

P'W P is counted pair by pair, so that no product has more than r columns. An item that no answer names has the
prior's own part, and no place in beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri, dpotrs
from scipy.sparse import coo_array

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.compiled.orderings import fill_pairs
from topk_bandit.preferences.models.likelihood import Likelihood

if TYPE_CHECKING:
    from topk_bandit.preferences.answers import IntArray, Orderings

__all__ = ["OwnPartsAnswers", "OwnPartsMode"]

FloatArray = NDArray[np.float64]

_TOLERANCE = 1e-8
_MOST_STEPS = 100
_HALVINGS = 60
_SUFFICIENT = 1e-4
_EPSILON = float(np.finfo(np.float64).eps)


class _Local(NamedTuple):
    """The objective near some beta: its value, gradient, and negative Hessian."""

    value: float
    gradient: FloatArray
    information: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OwnPartsMode:
    """The most probable weights and own parts, under one prior.

    Attributes
    ----------
    beta
        theta, then the own parts of `OwnPartsAnswers.asked`, shape (r + n,).
    covariance
        Laplace's, shape (r + n, r + n).
    log_marginal_likelihood
        Laplace's, in nats.
    """

    beta: FloatArray
    covariance: FloatArray
    log_marginal_likelihood: float


class OwnPartsAnswers:
    """Answers that order rows, ready to be learned from under several priors.

    Parameters
    ----------
    coordinates
        For each row, shape (R, r).
    items
        Item of each row, shape (R,).

    Raises
    ------
    InvalidArgumentError
        Naming ``orderings``: an answer names a row without coordinates.

    Attributes
    ----------
    asked
        The items that answers name, in increasing order, shape (n,).
    """

    def __init__(self, coordinates: FloatArray, items: IntArray, orderings: Orderings) -> None:
        answers = Likelihood.of(coordinates, orderings)
        rows = np.unique(orderings.items)
        self.asked, self._item = np.unique(items[rows], return_inverse=True)
        self._answers, self._rows = answers, answers.features
        lengths = np.diff(answers.starts)
        counts = lengths * (lengths - 1) // 2
        first, second = np.empty(counts.sum(), dtype=np.int64), np.empty(counts.sum(), dtype=np.int64)
        ends = np.cumsum(counts)
        for length in np.unique(lengths):
            answered = np.flatnonzero(lengths == length)
            i, j = np.triu_indices(int(length), 1)
            places = (ends - counts)[answered][:, None] + np.arange(len(i))
            first[places] = answers.items[answers.starts[answered][:, None] + i]
            second[places] = answers.items[answers.starts[answered][:, None] + j]
        # Rows meet in many answers: sums over answers are taken once, for each two rows that meet at all.
        met, self._pair = np.unique(first * len(rows) + second, return_inverse=True)
        self._first, self._second = np.divmod(met, len(rows))

    @property
    def rank(self) -> int:
        """Numbers of a row's coordinates, r."""
        return int(self._rows.shape[1])

    def maximise(self, variance: float, own_variance: float, *, start: FloatArray | None = None) -> OwnPartsMode:
        """Return the most probable beta under N(0, variance) for weights and N(0, own_variance) for own parts.

        Parameters
        ----------
        start
            Where to begin, shape (r + n,): the mode under a prior nearby, for example. None begins at zero.
        """
        r, n = self.rank, len(self.asked)
        precision = np.concatenate([np.full(r, 1.0 / variance), np.full(n, 1.0 / own_variance)])
        beta = np.zeros(r + n) if start is None else start
        here = self._at(beta, precision)
        for _ in range(_MOST_STEPS):
            lower = np.linalg.cholesky(here.information)
            step = dpotrs(lower, here.gradient, lower=1)[0]
            decrement = float(here.gradient @ step)
            if 0.5 * decrement <= max(_TOLERANCE, _EPSILON * abs(here.value)):
                inverse = np.tril(dpotri(lower, lower=1)[0])
                log_det = 2.0 * float(np.log(np.diagonal(lower)).sum()) - float(np.log(precision).sum())
                evidence = here.value + 0.5 * decrement - 0.5 * log_det
                return OwnPartsMode(beta + step, inverse + np.tril(inverse, -1).T, evidence)
            beta, here = self._rise(beta, here, step, decrement, precision)
        raise InvalidArgumentError("features", "too large or too unequal to compute with")

    def _rise(
        self, beta: FloatArray, here: _Local, step: FloatArray, decrement: float, precision: FloatArray
    ) -> tuple[FloatArray, _Local]:
        """Return a point along the step where the objective is higher, but for rounding, and what it is like there."""
        size, rounding = 1.0, 64.0 * _EPSILON * abs(here.value)
        for _ in range(_HALVINGS):
            there = self._at(beta + size * step, precision)
            if there.value >= here.value + _SUFFICIENT * size * decrement - rounding:
                return beta + size * step, there
            size *= 0.5
        raise InvalidArgumentError("features", "too large or too unequal to compute with")

    def _at(self, beta: FloatArray, precision: FloatArray) -> _Local:
        rows, item, r, n = self._rows, self._item, self.rank, len(self.asked)
        answers, surplus, each = self._answers, np.zeros(len(rows)), np.empty(len(self._pair))
        utilities = rows @ beta[:r] + beta[r:][item]
        value = fill_pairs(utilities, answers.items, answers.starts, answers.places, surplus, each)
        weights = np.bincount(self._pair, weights=each, minlength=len(self._first))
        ends = np.concatenate([self._first, self._second]), np.concatenate([self._second, self._first])
        twice = np.concatenate([weights, weights])
        degrees = np.bincount(ends[0], weights=twice, minlength=len(rows))
        images = degrees[:, None] * rows - coo_array((twice, ends), shape=(len(rows),) * 2).tocsr() @ rows
        information = np.empty((r + n, r + n))
        information[:r, :r] = rows.T @ images
        across = np.zeros((n, r))
        np.add.at(across, item, images)
        information[r:, :r], information[:r, r:] = across, across.T
        met = np.bincount(item[ends[0]] * n + item[ends[1]], weights=twice, minlength=n * n).reshape(n, n)
        information[r:, r:] = np.diag(met.sum(axis=1)) - met
        information[np.diag_indices(r + n)] += precision
        gradient = np.concatenate([rows.T @ surplus, np.bincount(item, weights=surplus, minlength=n)])
        penalty = 0.5 * float(precision @ beta**2)
        return _Local(float(value) - penalty, gradient - precision * beta, information)
