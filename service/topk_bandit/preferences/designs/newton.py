"""D-optimal weights of a few candidates, by a primal-dual interior point method.

Maximise log det V(p) - d (sum p - 1) over p >= 0. With g_i = tr(B_i' V^-1 B_i) and slacks s_i the optimum has

    g_i + s_i = d,    p_i s_i = 0,    p, s >= 0,

and Newton steps towards p_i s_i = mu solve (H + diag(s / p)) dp = g - d + mu / p, with H_ij = |B_i' V^-1 B_j|^2. Where
candidates are nearly alike this takes a dozen steps, and coordinate ascent thousands of sweeps.

A prior R is as if each candidate had it beside its own information: V = (sum p) R + sum_i p_i B_i B_i', which is the
same where sum p = 1. Then g_i has t = tr(V^-1 R) beside it, and H_ij has a_i + a_j + tr(V^-1 R V^-1 R), with
a_i = tr(B_i' V^-1 R V^-1 B_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from topk_bandit.preferences.compiled.columns import add_squares, norms
from topk_bandit.preferences.designs.information import Information

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["newton"]

FloatArray = NDArray[np.float64]

_MOST_STEPS = 60
_FINEST = 1e-12
_TELLING = 0.1
_TO_THE_BOUNDARY = 0.99
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    weights: FloatArray
    slacks: FloatArray

    @property
    def mean(self) -> float:
        return float(self.weights @ self.slacks) / len(self.weights)

    def move(self, dp: FloatArray, ds: FloatArray, *, share: float) -> _Point:
        """Return the point at a share of the longest step that keeps all non-negative."""
        return _Point(
            self.weights + share * _longest(self.weights, dp) * dp,
            self.slacks + share * _longest(self.slacks, ds) * ds,
        )


def newton(
    rows: FloatArray,
    weights: FloatArray,
    *,
    gap_tolerance: float,
    stop: Callable[[], bool],
    prior: FloatArray | None = None,
) -> tuple[FloatArray, int]:
    """Return weights with a gap among these candidates of about the tolerance, and the steps taken.

    Weights become zero where the slack says that they would in the end.

    Parameters
    ----------
    rows
        Transposes of the candidates' matrices B_i, shape (S, M, d).
    weights
        Where to start, positive with sum 1, shape (S,).
    stop
        Asked before every step.
    prior
        R, shape (d, d), or None.
    """
    d, count = rows.shape[2], len(weights)
    point, step = _Point(weights, np.zeros(count)), 0
    while True:
        known = 0.0 if prior is None else point.weights.sum() * prior
        information = Information.of(rows, point.weights, prior=known)
        white = information.whiten(rows)
        excess = norms(white) - information.level(prior)
        gap = float((excess.max() + d) * point.weights.sum() - d)
        if step == 0:
            point = _Point(weights, np.maximum(-excess, gap / (count * weights)))
        if step == _MOST_STEPS or gap <= max(gap_tolerance, _FINEST * d) or stop():
            return _drop_vanishing(point, gap, d), step
        try:
            point, step = _step(point, _squares(white, information, prior), excess), step + 1
        except np.linalg.LinAlgError:  # candidates that are alike, and slacks too small to tell them apart
            return _drop_vanishing(point, gap, d), step


def _drop_vanishing(point: _Point, gap: float, d: int) -> FloatArray:
    """Return the weights that are not on their way to zero, with sum 1; all of them until that is certain."""
    weights, slacks = point.weights, point.slacks
    kept = weights if gap > _TELLING * d else np.where(d * len(weights) * weights >= slacks, weights, 0.0)
    return np.asarray(kept / kept.sum())


def _step(point: _Point, hessian: FloatArray, excess: FloatArray) -> _Point:
    """Take Mehrotra's predictor and corrector with one factorisation."""
    p, slacks = point.weights, point.slacks
    hessian[np.diag_indices_from(hessian)] += slacks / p
    factor = np.linalg.cholesky(hessian)
    dp = _solve(factor, excess)
    ds = -slacks - slacks * dp / p
    target = point.mean * (point.move(dp, ds, share=1.0).mean / point.mean) ** 3 - dp * ds
    dp = _solve(factor, excess + target / p)
    ds = (target - slacks * dp) / p - slacks
    return point.move(dp, ds, share=_TO_THE_BOUNDARY)


def _squares(rows: FloatArray, information: Information, prior: FloatArray | None) -> FloatArray:
    """Return H of candidates whose rows are B_i' C^-T, with V = C C', shape (S, S)."""
    flat = rows.reshape(-1, rows.shape[2])
    sums = np.zeros((len(rows), len(rows)))
    for first in range(0, len(flat), _ROWS_AT_ONCE):
        add_squares(flat[first : first + _ROWS_AT_ONCE] @ flat.T, first, rows.shape[1], sums)
    if prior is not None:
        white = information.whitener @ prior @ information.whitener.T
        alone = ((flat @ white) * flat).sum(axis=1).reshape(rows.shape[:2]).sum(axis=1)
        sums += alone[:, None] + alone + np.sum(white**2)
    return sums


def _longest(values: FloatArray, direction: FloatArray) -> float:
    return 1.0 / max(1.0, float((-direction / values).max()))


def _solve(factor: NDArray[np.floating], right: FloatArray) -> FloatArray:
    half = solve_triangular(factor, right, lower=True, check_finite=False)
    return np.asarray(solve_triangular(factor, half, lower=True, trans=1, check_finite=False))
