"""Offset, slope and amplitude of a posterior: the unit of its rewards, and what is believed of the slope."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from topk_bandit.learning.hyperparameters import scaling
from topk_bandit.learning.slope_prior import SlopePrior

if TYPE_CHECKING:
    from topk_bandit.learning.observed_rows import ObservedRows
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.prior_mean import PriorMean

__all__ = ["scale_best", "slope_prior", "spread_of_slope"]


def scale_best(posterior: Posterior, *, noise_at_edge: bool = False) -> Posterior:
    """Centre the rewards on their best b + s h and scale the kernel by the best amplitude.

    Rewards that are all equal leave the amplitude at one, so that a bandit that has only seen zeros goes on exploring.
    Where the noise is the least that is tried, rewards that come again and again say that there is less, and nothing of
    the amplitude: then the rows count, and not the observations. Else a bandit becomes sure of what it never shows.
    """
    prior, offset = slope_prior(posterior.prior_mean, posterior), posterior.best_offset
    square = posterior.whitened_square(offset)
    varied = posterior.rewards_vary and square > 0.0 and posterior.n_observations > 0.0
    is_least = noise_at_edge and posterior.noise_variance < posterior.context_square
    count = min(posterior.n_rows if is_least else math.inf, posterior.n_observations)
    if prior is None:
        return posterior.rescale(offset=offset, amplitude=square / count if varied else 1.0)
    products = posterior.centred_products._replace(observations=count)
    best = scaling(products, prior, amplitude=None if varied else 1.0)
    amplitude, slope = float(best.amplitude), float(best.slope)
    if posterior.has_item_parts:
        slope = float(scaling(posterior.slope_products, prior, amplitude=amplitude).slope)
    return posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=amplitude)


def slope_prior(prior_mean: PriorMean | None, rows: ObservedRows | Posterior) -> SlopePrior | None:
    """Return what is believed of the slope before the rewards of some rows; None without a prior mean."""
    if prior_mean is None:
        return None
    if prior_mean.worth is not None:
        return prior_mean.worth
    return SlopePrior.of_contexts(1.0 if prior_mean.grows_with_the_context else rows.context_square)


def spread_of_slope(posterior: Posterior) -> float:
    """Return the posterior standard deviation of the slope, in units of the rewards; 0 without a prior mean."""
    prior = slope_prior(posterior.prior_mean, posterior)
    if prior is None:
        return 0.0
    return float(scaling(posterior.slope_products, prior, amplitude=posterior.amplitude).spread)
