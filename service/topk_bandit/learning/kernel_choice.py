"""Which kernel of the adaptive family a bandit gets: the one that the marginal likelihood prefers.

Eq. 5 asks of the rank weights only that they are symmetric and positive. How much more the upper ranks count, how much
the order inside a slate, and how much of a reward is due to the context alone, are matters of the shop, and its rewards
tell (`kendall.Shape`). The choice climbs: it goes to the neighbour with the largest density, each at its own best
noise, offset, slope and scale (`hyperparameters`) and with the prior mean that is its own, until none is better.

While every ranking has rows of its own the densities are exact. Rows that were folded or projected are sums under the
kernel that there was; under another they are taken for the same sums. Few rows are compared at every refit, more
whenever the rewards have grown by half, and more than `MOST_ROWS` by a projection onto so many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.learning.hyperparameters import best_noise
from topk_bandit.learning.observed_rows import compact, fold_by_ranking, project

if TYPE_CHECKING:
    from topk_bandit.learning.hyperparameters import SlopePrior
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.prior_mean import PriorMean

__all__ = ["MOST_ROWS", "choice_is_due", "choose", "condense"]

MOST_ROWS = 256
"""Rows by which kernels are compared."""

_FEW_ROWS = 64
_GROWTH = 1.5

_TIE = 1e-6
"""A kernel whose log density is larger by no more than this is no better: it may be the same one, rounded."""


def condense(kernel: KendallKernel, rows: ObservedRows, *, most_rows: int, noise_variance: float) -> ObservedRows:
    """Return at most `most_rows` rows that say as much as so many can: all of it, where that is known to be possible.

    Rows of an adaptive kernel are the same under the whole family up to `MOST_ROWS` of them.
    """
    if rows.noise_shape is None:
        rows = fold_by_ranking(rows)
        if kernel.shape is not None and rows.n_rows <= min(MOST_ROWS, most_rows):
            return rows
    if rows.n_rows <= most_rows:
        return compact(kernel, rows)
    return project(kernel, rows, most_rows=most_rows, noise_variance=noise_variance)


def choice_is_due(rows: ObservedRows, *, observations: int, compared: int) -> bool:
    """Tell whether kernels are compared after so many observations, the last time having been after `compared`."""
    return rows.n_rows <= _FEW_ROWS or observations >= _GROWTH * compared


def choose(
    kernel: KendallKernel,
    rows: ObservedRows,
    *,
    noise_variance: float,
    prior_mean: PriorMean | None,
    prior: SlopePrior | None,
) -> KendallKernel:
    """Return the kernel where the climb from `kernel` ends.

    Parameters
    ----------
    kernel
        Where it begins.
    rows
        At least one row, with the h of `prior_mean`.
    noise_variance
        The noise at which more than `MOST_ROWS` rows are projected.
    prior_mean
        h, made for `kernel`; None for a constant prior mean.
    prior
        Of the slope, if there is a prior mean.
    """
    rows = project(kernel, rows, most_rows=MOST_ROWS, noise_variance=noise_variance)
    best, density = kernel, best_noise(kernel, rows, prior=prior).log_density
    while True:
        found, beside = best, density + _TIE
        for other in best.neighbours:
            seen = rows if prior_mean is None else rows.with_prior_mean(prior_mean.with_kernel(other))
            other_density = best_noise(other, seen, prior=prior).log_density
            if other_density > beside:
                found, beside = other, other_density
        if found is best:
            return best
        best, density = found, beside
