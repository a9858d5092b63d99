"""The work of the service's own state, counted as that of the approaches it is compared with.

The state's arithmetic is compiled or vectorised, and nothing in it counts. So its work is derived from the sizes of its
arrays before and after each step, and from the rankings that go into its kernel values; what does not grow with the
rows, less than two thousand operations a refit, is left out. This holds while slates do not repeat and rows are fewer
than the features of a slate in a context, so that a refit folds nothing (`learning.observed_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.paper.work import of_brackets, of_cholesky, of_own_brackets, of_triangular_solve, of_tridiagonal
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID
from topk_bandit.learning.policy import State

if TYPE_CHECKING:
    from topk_bandit.lab.paper.work import Work
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.limits import Limits
    from topk_bandit.learning.rankings import Rankings

__all__ = ["ServiceApproach", "of_profile", "of_reduction", "of_whitening"]

FloatArray = NDArray[np.float64]

_FIRST_SURPRISE = 16
"""So many rewards are learned before one can surprise."""

_UNSPLIT = 64
"""Triangles of up to so many rows are inverted by LAPACK, larger ones by halves."""


class ServiceApproach:
    """The service's state: M = L^-1 of so many rows at most, whose noise and scale are chosen anew at each refit.

    Attributes
    ----------
    work
        What it adds its own to.
    state
        As the service has it.
    """

    def __init__(self, kernel: KendallKernel, work: Work, *, context_dim: int, limits: Limits) -> None:
        self.work = work
        self.state = State.initial(kernel, context_dim=context_dim, limits=limits)
        self._is_projected = False

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that are held."""
        return self.state.memory_bytes

    def update(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> None:
        """Show a slate and take in its reward at once; the state refits itself when that is due."""
        before = self._rankings
        # Showing it, and then turning it from a pending row into a rewarded one.
        n = len(before)
        self.work.count += self._cross(context, before, ranking[None]) + 2 * n * n + 2 * n + 1 + len(context)
        self.work.count += 4 * n + 8 + len(context) + _scaling(n + 1)
        shown, learned = self.state.shown(_NOW, context, ranking), self.state.observations
        self.state = shown.rewarded(_NOW, context, ranking, reward=reward)
        # Its surprise, of two targets, once enough were learned.
        self.work.count += 6 if learned >= _FIRST_SURPRISE else 0
        if not self.state.since_refit:
            self.work.count += self._refit(np.vstack([before, ranking[None]]), self._rankings, len(context))

    def moments(self, context: FloatArray, rankings: Rankings) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of rankings (A, k) in one context (C,), both (A,)."""
        rows, count = self._rankings, len(rankings)
        n = len(rows)
        self.work.count += self._cross(context, rows, rankings) + n * n * count + 2 * n * count + n
        # The last of these widens the spread.
        self.work.count += len(context) + 2 * count
        return self.state.predict(context, rankings)

    @property
    def _rankings(self) -> Rankings:
        return self.state.posterior.observations.rankings

    def _cross(self, context: FloatArray, rows: Rankings, rankings: Rankings) -> int:
        """Return the work of the covariance of all rows with rankings in a context."""
        n = len(rows)
        return n * (len(context) + 1 + len(rankings)) + self._brackets(rows, rankings)

    def _brackets(self, left: Rankings, right: Rankings) -> int:
        return of_brackets(left, right, n_items=self.state.posterior.kernel.n_items)

    def _refit(self, before: Rankings, after: Rankings, context_dim: int) -> int:
        """Return the work of projecting rows, choosing the noise, and building M anew."""
        n, covariance = len(after), self._covariance(after, context_dim)
        if len(before) > n:
            condensing = self._projecting(before, n, context_dim)
            # The noise of what was projected has a shape.
            whitening, shaping = of_cholesky(n) + of_whitening(n, _TARGETS), n * n
        else:
            # The singular values of the contexts tell whether rows can be folded.
            condensing, whitening, shaping = 2 * n * context_dim**2, 0, 0
        noise = covariance + whitening + of_reduction(n, _TARGETS) + of_profile(n, _TARGETS)
        # Whether rewards differ.
        noise += 4 * n
        fitting = covariance + shaping + n + of_cholesky(n) + _inverse(n) + 4 * n * n + 4 * n + n * context_dim
        return condensing + noise + fitting + _scaling(n)

    def _projecting(self, rows: Rankings, basis: int, context_dim: int) -> int:
        n, m, rest = len(rows), basis, len(rows) - basis
        choosing = self._covariance(rows, context_dim) + 2 * n * n + of_cholesky(n) + _inverse(m) + rest * m * m
        # Whether contexts vary in so many directions that rows are not projected.
        varying = n * (1 + 2 * context_dim + context_dim**2) + context_dim
        left = n * m + n + (2 * n if self._is_projected else 0)
        # What was projected before has noise in common: as many rows as then.
        shared = m if self._is_projected else 0
        whitening = of_cholesky(shared) + _inverse(shared) + shared * shared * (m + 2)
        whitening += (n - shared) * (m + 4)
        self._is_projected = True
        return (
            choosing
            + varying
            + left
            + whitening
            + n * m * m
            + of_cholesky(m)
            + _inverse(m)
            + m**3
            + 4 * n * m
            + 2 * m * m
            + 4 * n
        )

    def _covariance(self, rows: Rankings, context_dim: int) -> int:
        """Return the work of K_r: products of contexts, and kernel values, scaled and multiplied with these."""
        n = len(rows)
        return n * n * (context_dim + 2) + of_own_brackets(rows, n_items=self.state.posterior.kernel.n_items)


_NOW = "now"

_TARGETS = 2
"""Rewards and ones."""


def of_whitening(n: int, targets: int) -> int:
    """Return the work of taking a symmetric matrix and targets through the inverse of a triangle."""
    return n**3 // 2 + targets * of_triangular_solve(n)


def of_reduction(n: int, targets: int) -> int:
    """Return the work of reducing a symmetric matrix to three diagonals, and targets with it."""
    return of_tridiagonal(n) + targets * n * n


def of_profile(n: int, targets: int) -> int:
    """Return the work of eliminating for each ratio, and of the products of the targets."""
    products = 1 + targets + targets * (targets + 1) // 2
    return len(RELATIVE_NOISE_GRID) * n * (2 + targets + 4 * products)


def _scaling(n: int) -> int:
    """Return the work of telling whether n rewards vary; offset and amplitude are then a few numbers."""
    return 4 * n


def _inverse(n: int) -> int:
    """Return the work of inverting a triangle by halves."""
    if n <= _UNSPLIT:
        return of_cholesky(n)
    half = n // 2
    rest = n - half
    return _inverse(half) + _inverse(rest) + half * rest * n
