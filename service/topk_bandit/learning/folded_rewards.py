"""Another reward, or none, of an observation that was learned before and is part of rows by now.

The posterior depends on rewards only through the shift V^-1 y of the rows, and on the observations only through their
precision V^-1. An observation x that is the sum w of the rows' expected rewards has added a w w' to the precision and
a w y to the shift, with a its weight: less than one where it has faded, or was projected onto rows that do not explain
all of it (`observed_rows.project`). So a reward that was y and is y + d changes the shift by a w d, and nothing else.
That is exact as long as x is a row or a sum of rows, and as exact as the projection where it was projected. Taking the
observation out changes the precision, too (a rank-one downdate: Golub and Van Loan, 2013, section 6.5.4).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from topk_bandit.learning.observed_rows import leftover

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.observed_rows import ObservedRows

__all__ = ["Learned", "Span", "take_out"]

FloatArray = NDArray[np.float64]

_JITTER = 1e-14
"""Rows of which this part of the largest prior variance is new are taken for sums of the others."""

_SAME = 1e-9
"""Contexts and rewards that differ by less than this part are those of one observation."""

_MOST_KNOWN = 1.01
"""Rows can't hold more than all of an observation, but for rounding."""

_ROUNDING = 1e-6
"""Products of targets that are below zero by no more than this part of them are rounded."""

_MOST_LEVERAGE = 1.0 - 1e-6
"""An observation that alone says what some row says is taken out up to this part: some precision has to be left."""


class Learned(NamedTuple):
    """An observation as it was learned.

    Attributes
    ----------
    context, ranking
        Shapes (C,) and (k,).
    targets
        Its reward, one and, if there is a prior mean, its h; shape (T,).
    weight
        What it counts now, 1 for one that has not faded.
    """

    context: FloatArray
    ranking: NDArray[np.int32]
    targets: FloatArray
    weight: float


class _Sum(NamedTuple):
    """An observation as a sum of rows.

    Attributes
    ----------
    weights, image
        w and V w, shape (N,).
    leverage
        w'V w.
    counted
        a.
    beside
        How much more the observation has of each target than the sum, shape (T,).
    """

    weights: FloatArray
    image: FloatArray
    leverage: float
    counted: float
    beside: FloatArray


class Span:
    """What rows can be summed to.

    Parameters
    ----------
    kernel
        Of the rankings.
    rows
        At least one; their targets may change afterwards.
    noise_variance
        sigma^2.
    """

    def __init__(self, kernel: KendallKernel, rows: ObservedRows, *, noise_variance: float) -> None:
        self._kernel = kernel
        self._rows = rows
        self._noise_variance = noise_variance

    @cached_property
    def _factor(self) -> tuple[FloatArray, bool]:
        """The Cholesky factor of the rows' covariance: O(N^3)."""
        rows = self._rows
        gram = (rows.contexts @ rows.contexts.T) * self._kernel.gram_of(rows.rankings)
        gram[np.diag_indices(len(gram))] += _JITTER * max(float(np.diag(gram).max()), np.finfo(float).tiny)
        factor: tuple[FloatArray, bool] = cho_factor(gram, lower=True)
        return factor

    def amend(self, rows: ObservedRows, learned: Learned, change: float) -> ObservedRows:
        """Return rows that learned a reward that is larger by `change`: O(N^2).

        Parameters
        ----------
        rows
            Those that the span is of, with whatever targets.
        learned
            An observation that they or their `parts` were made of.
        change
            In units of rewards.
        """
        own = _find_own(rows, learned)
        if own is not None:
            targets = rows.targets.copy()
            targets[0, own] += change
            return replace(rows, targets=targets)
        if rows.parts is not None:
            return replace(
                rows,
                parts=rows.parts.amend(self._kernel, learned.context, learned.ranking, change=learned.weight * change),
            )
        weights, left = _of_one_ranking(rows, learned), 0.0
        if weights is None:
            weights, left = self._of_all(rows, learned)
        return _amend_sum(rows, _sum_of(rows, learned, weights, left=left / self._noise_variance), change)

    def _of_all(self, rows: ObservedRows, learned: Learned) -> tuple[FloatArray, float]:
        """Return the sum of all rows that is nearest under this kernel, and the variance of what it leaves."""
        kernel, context, ranking = self._kernel, learned.context, learned.ranking[None]
        covariance = (rows.contexts @ context) * kernel.gram(rows.rankings, ranking)[:, 0]
        weights = np.asarray(cho_solve(self._factor, covariance))
        variance = float(context @ context) * float(kernel.variances(ranking)[0])
        return weights, max(variance - float(weights @ covariance), 0.0)


def take_out(rows: ObservedRows, learned: Learned) -> ObservedRows | None:
    """Return rows that never learned an observation that they were made of; None if they can't be had.

    They can where the rows of its ranking hold all of it, which is so under any kernel. What they were made of they
    know at least as well as it does: else it was projected onto rows of other rankings, or it was never learned.
    """
    own = _find_own(rows, learned)
    if own is not None:
        return rows.select(np.delete(np.arange(rows.n_rows), own))
    weights = None if rows.parts is not None else _of_one_ranking(rows, learned)
    if weights is None:
        return None
    of_rows = _sum_of(rows, learned, weights)
    return _remove_sum(rows, of_rows, learned) if of_rows.leverage * learned.weight < _MOST_KNOWN else None


def _sum_of(rows: ObservedRows, learned: Learned, weights: FloatArray, *, left: float = 0.0) -> _Sum:
    """Return an observation as a sum that leaves so much of it, in units of the noise."""
    image = weights if rows.noise_shape is None else rows.noise_shape @ weights
    leverage = float(weights @ image)
    counted = learned.weight / (1.0 + left)
    counted = counted if counted * leverage < _MOST_KNOWN else 1.0 / leverage
    return _Sum(weights, image, leverage, counted, beside=learned.targets - rows.targets @ weights)


def _of_one_ranking(rows: ObservedRows, learned: Learned) -> FloatArray | None:
    """Return the sum of the rows of the observation's ranking, which holds under any kernel; None if there is none."""
    same = np.flatnonzero((rows.rankings == learned.ranking).all(axis=1))
    if not len(same):
        return None
    contexts = rows.contexts[same].T
    of_same = np.linalg.lstsq(contexts, learned.context, rcond=None)[0]
    if np.linalg.norm(contexts @ of_same - learned.context) > _SAME * np.linalg.norm(learned.context):
        return None
    weights = np.zeros(rows.n_rows)
    weights[same] = of_same
    return weights


def _find_own(rows: ObservedRows, learned: Learned) -> int | None:
    """Return which row is the observation and nothing else, None if none is."""
    is_own = (rows.rankings == learned.ranking).all(axis=1) & (rows.targets[1] == 1.0)
    is_own &= (rows.leftovers[:, 0] <= 0.0) & ~rows.leftovers[:, 1:].any(axis=1)
    expected = np.append(learned.context, learned.targets[0])
    for row in np.flatnonzero(is_own).tolist():
        has_own_noise = rows.noise_shape is None or np.count_nonzero(rows.noise_shape[row]) == 1
        values = np.append(rows.contexts[row], rows.targets[0, row])
        if has_own_noise and np.allclose(values, expected, rtol=_SAME, atol=_SAME * float(np.abs(expected).max())):
            return row
    return None


def _amend_sum(rows: ObservedRows, of_rows: _Sum, change: float) -> ObservedRows:
    targets, shift = rows.targets.copy(), of_rows.counted * change
    targets[0] += shift * of_rows.image
    more = np.zeros((len(targets), len(targets)))
    more[0] = more[:, 0] = shift * of_rows.beside
    more[0, 0] = shift * (2.0 * of_rows.beside[0] + change - shift * of_rows.leverage)
    return replace(rows, targets=targets, leftovers=_with_leftovers(rows, of_rows, more))


def _remove_sum(rows: ObservedRows, of_rows: _Sum, learned: Learned) -> ObservedRows:
    count = min(of_rows.counted, _MOST_LEVERAGE / max(of_rows.leverage, np.finfo(float).tiny))
    gain, image, beside = count / (1.0 - count * of_rows.leverage), of_rows.image, of_rows.beside
    shape = np.eye(rows.n_rows) if rows.noise_shape is None else rows.noise_shape
    leftovers = _with_leftovers(rows, of_rows, -gain * np.outer(beside, beside), count=-learned.weight)
    return replace(
        rows,
        targets=rows.targets - gain * np.outer(beside, image),
        noise_shape=shape + gain * np.outer(image, image),
        leftovers=leftovers,
    )


def _with_leftovers(rows: ObservedRows, of_rows: _Sum, more: FloatArray, *, count: float = 0.0) -> FloatArray:
    """Return the leftovers with more products of the targets, at the row that the observation is most of."""
    left = rows.left_products
    least = -_ROUNDING * float((rows.targets * rows.targets).sum() + np.trace(left))
    if np.linalg.eigvalsh(left + more)[0] < least:
        more = np.zeros_like(more)  # the sum only comes near the observation: products of nothing real
    leftovers, row = rows.leftovers.copy(), int(np.argmax(np.abs(of_rows.weights)))
    leftovers[row] += leftover(count, more)
    return leftovers
