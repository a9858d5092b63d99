"""Which rank weights a kernel gets: dcg^p, with the p that the marginal likelihood prefers.

Eq. 5 asks of w_s only that it is symmetric and positive. How much more the upper ranks count is a matter of the shop,
and its rewards tell: WCK with the weights of DCG is p = 1, CK is p = 0. Each candidate is compared at its own best
noise, offset, slope and scale (`hyperparameters`), and with the prior mean that is its own.

A kernel settles when its evidence has more than `MOST_ROWS` rows: to compare then costs less than the largest refit
does, and where the choice matters it was made long before (`docs/decisions`). It also settles where rows were folded
through the span of one kernel (`evidence`), which are no sums under another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.learning.hyperparameters import best_noise
from topk_bandit.learning.observed_rows import compact, fold_by_ranking

if TYPE_CHECKING:
    from topk_bandit.learning.hyperparameters import SlopePrior
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.prior_mean import PriorMean

__all__ = ["MOST_ROWS", "Chosen", "choose", "condense"]

MOST_ROWS = 256
"""Rows up to which candidates are compared."""

_TIE = 1e-6
"""A candidate whose log density is larger by no more than this is no better: it may be the same kernel, rounded."""


class Chosen(NamedTuple):
    """A kernel, the evidence with the h of its prior mean, and its noise ratio r."""

    kernel: KendallKernel
    evidence: ObservedRows
    noise_variance: float


def condense(kernel: KendallKernel, evidence: ObservedRows) -> ObservedRows:
    """Return evidence that says the same in fewer rows: the same under all candidates, while there is a choice."""
    if len(kernel.candidates) > 1 and evidence.noise_shape is None:
        evidence = fold_by_ranking(evidence)
        if evidence.n_rows <= MOST_ROWS:
            return evidence
    return compact(kernel, evidence)


def choose(
    kernel: KendallKernel, evidence: ObservedRows, *, prior_mean: PriorMean | None, prior: SlopePrior | None
) -> Chosen:
    """Return the kernel and the noise that rewards and the prior of the noise prefer, the kernel there is at a tie.

    Parameters
    ----------
    kernel
        Kernel of the rankings, and its candidates.
    evidence
        At least one row, with the h of `prior_mean`.
    prior_mean
        h, made for `kernel`; None for a constant prior mean.
    prior
        Of the slope, if there is a prior mean.
    """
    fit = best_noise(kernel, evidence, prior=prior)
    best, chosen = fit.log_density, Chosen(kernel, evidence, fit.noise_variance)
    for other in _others(kernel, evidence):
        seen = evidence if prior_mean is None else evidence.with_prior_mean(prior_mean.with_kernel(other))
        fit = best_noise(other, seen, prior=prior)
        if fit.log_density > best + _TIE:
            best, chosen = fit.log_density, Chosen(other, seen, fit.noise_variance)
    return chosen


def _others(kernel: KendallKernel, evidence: ObservedRows) -> tuple[KendallKernel, ...]:
    if evidence.noise_shape is not None or evidence.n_rows > MOST_ROWS:
        return ()
    return tuple(candidate for candidate in kernel.candidates if candidate.power != kernel.power)
