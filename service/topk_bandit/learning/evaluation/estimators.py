"""The value of another policy on the logged requests, with its standard error and an interval of 95 %.

All estimates are of the mean, over the logged requests, of the reward that the target's slate would have had.
"""

from __future__ import annotations

from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.equations import doubts, item_covariances, solve
from topk_bandit.learning.evaluation.regression import columns_of_target, target_columns, target_row
from topk_bandit.learning.evaluation.weights import importance_weights, pseudo_inverse_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.ruled_log import RuledLog, RuledTarget
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target
    from topk_bandit.learning.evaluation.weights import Weights

__all__ = [
    "QUANTILE",
    "Estimate",
    "average_weighted",
    "balanced",
    "cascade",
    "doubly_robust",
    "doubly_robust_under_rules",
    "ips",
    "normalise_weighted",
    "on_policy",
    "pool",
    "pseudo_inverse",
    "snips",
]

FloatArray = NDArray[np.float64]

_MISSES = 0.05
QUANTILE = NormalDist().inv_cdf(1.0 - 0.5 * _MISSES)
"""Half the width of an interval of 95 %, in standard errors."""

_FEWEST = 6.0
"""Slates of the target's own that a log has to be expected to count as, so that a mean by its weights is one."""

_LEAST_FREEDOM = 2.0
"""Of an error that is hardly seen. In logs of 300 to 3,000 requests intervals then hold in 92 to 99 %, not in 83."""

_ROUNDING = 1e-4
"""Weights may miss the best ones by as much: what they leave is counted as it is."""


class Estimate(NamedTuple):
    """A value, its standard error, and the ends of an interval of 95 %, as far as what the estimate assumes holds.

    Attributes
    ----------
    seen_error, freedom
        The part of the standard error that a few slates with large weights show, and its degrees of freedom: the
        interval is at least as wide as Student's t has it.
    """

    value: float
    standard_error: float
    low: float
    high: float
    seen_error: float = 0.0
    freedom: float = np.inf

    def is_below(self, other: Estimate) -> bool:
        """Return whether the whole interval is below that of another one."""
        return self.high < other.low

    def with_error(self, error: float) -> Estimate:
        """Return the same with an interval that misses with this chance."""
        of_normal, of_few = NormalDist().inv_cdf(1.0 - 0.5 * error), float(stdtrit(self.freedom, 1.0 - 0.5 * error))
        width = max(of_normal * self.standard_error, of_few * self.seen_error)
        return self._replace(low=self.value - width, high=self.value + width)


class _Seen(NamedTuple):
    """The variance of a value as the terms of its sum have it, and the degrees of freedom of that."""

    variance: float
    freedom: float


_NOTHING_SEEN = _Seen(0.0, np.inf)


def on_policy(*logs: SlateLog | RuledLog) -> Estimate:
    """Return the mean reward of the slates that were shown, in one log or in several: what the policy earned."""
    rewards = np.concatenate([log.rewards for log in logs])
    return _estimate(float(rewards.mean()), float(rewards.var()) / len(rewards))


def pool(estimates: Sequence[Estimate], counts: Sequence[int]) -> Estimate:
    """Return the estimate for the requests of several logs, from that of each and how many requests it has."""
    shares = np.array(counts) / sum(counts)
    values, errors, seen = (
        np.array([getattr(one, name) for one in estimates]) for name in ("value", "standard_error", "seen_error")
    )
    of_few = _Seen(float(shares**2 @ seen**2), min(one.freedom for one in estimates))
    return _estimate(float(shares @ values), float(shares**2 @ errors**2), of_few)


def ips(log: SlateLog, target: Target) -> Estimate:
    """Return the mean of importance weights times rewards: unbiased whatever rewards depend on."""
    return average_weighted(importance_weights(log, target), log.rewards)


def snips(log: SlateLog, target: Target) -> Estimate:
    """Return the mean reward by importance weights (Swaminathan and Joachims 2015), as `normalise_weighted` does."""
    return normalise_weighted(importance_weights(log, target), log.rewards)


def cascade(log: SlateLog, target: Target, outcomes: FloatArray) -> Estimate:
    """Return the mean of outcomes times the weights of what is shown down to each: unbiased if nothing below matters.

    That is, if what an item does depends on the items above it and not on those below, as when people read downwards.
    McInerney et al. 2020, "Counterfactual evaluation of slate recommendations with sequential reward interactions",
    Eq. 4.

    Parameters
    ----------
    outcomes
        What the item at each position earned, shape (N, k); a slate's reward is their sum.

    Raises
    ------
    InvalidArgumentError
        The outcomes have another shape, are not finite, or do not add up to the rewards.
    """
    if outcomes.shape != log.slates.shape or not np.allclose(outcomes.sum(axis=1), log.rewards):
        raise InvalidArgumentError("outcomes", f"expected shape {log.slates.shape}, and the rewards as sums of rows")
    weights = [importance_weights(log.first(one), target.first(one)) for one in range(1, 1 + outcomes.shape[1])]
    terms = (np.column_stack([one.values for one in weights]) * outcomes).sum(axis=1)
    # E[w_j w_l] is E[w_j^2] for l below j: given what is above, the mean of how w changes further down is one.
    second, places = np.array([one.second_moments.mean() for one in weights]), np.arange(len(weights))
    expected = (second[np.minimum.outer(places, places)] * (outcomes.T @ outcomes)).sum() / len(log)
    return _estimate(float(terms.mean()), max(float(terms.var()), float(expected)) / len(log))


def pseudo_inverse(log: SlateLog, target: Target) -> Estimate:
    """Return the mean of pseudo-inverse weights times rewards: unbiased if an item's worth at a position is its own.

    That is, if the expected reward in each context is a sum over positions of what the item there earns there.
    Swaminathan et al. 2017, "Off-policy evaluation for slate recommendation", Eq. 3.
    """
    return average_weighted(pseudo_inverse_weights(log, target), log.rewards)


def doubly_robust(
    log: SlateLog,
    target: Target,
    model: RewardModel,
    weights: Callable[[SlateLog, Target], Weights] = pseudo_inverse_weights,
) -> Estimate:
    """Return what a model expects of the target, plus the weighted mean of what it missed (Dudik et al. 2011).

    With a fold's residuals from a model that was learned from other folds it is unbiased where the weights are,
    whatever the model is; a good model makes it narrower.

    Parameters
    ----------
    weights
        `importance_weights` or `pseudo_inverse_weights`.
    """
    return _correct(model.expect_target(log, target), weights(log, target), model.residuals(log))


def doubly_robust_under_rules(log: RuledLog, target: RuledTarget, model: RewardModel) -> Estimate:
    """Return the same for slates under rules, with importance weights: unbiased whatever rewards depend on."""
    return _correct(model.expect_shown(target.shown), target.weights, model.residuals(log))


def _correct(expected: FloatArray, weights: Weights, missed: FloatArray) -> Estimate:
    correction, varied = average_weighted(weights, missed), float((weights.values * missed).var()) / len(missed)
    # A model that knows the slates of every day misses more of the rare ones, which alone have large weights.
    seen = _Seen(varied, max(_effective_count(weights) - 1.0, _LEAST_FREEDOM))
    return _estimate(float(expected.mean()) + correction.value, correction.standard_error**2, seen)


def balanced(log: SlateLog, target: Target, model: RewardModel) -> Estimate:
    """Return the doubly robust estimate with weights that balance the model's features over many requests.

    The weights of a fold are v . x for the rows x of its slates, with the v that makes the estimate's mean square error
    least: that of noise, and of what the weights leave of the target's mean row, times the effects as the prior has
    them (Hirshberg and Wager 2021, "Augmented minimax linear estimation"). They need no support request by request, so
    that the interval is narrow; it holds as far as the model's form does. Folds are prior by their expected errors.

    Beside the model's features they balance how many items of the target's a slate shows that the model knows little
    of. A target is not chosen blindly: what it selects may be better than what the prior expects of any item.
    """
    prior, shape, residuals = model.prior, model.features.shape, model.residuals(log)
    known, contexts, parts, lefts = target_row(log, model.features, target), model.features.contexts, [], []
    for fold, coefficients in zip(model.folds, model.coefficients, strict=True):
        covariances = item_covariances(model.features.part(fold.foreseen_from), prior)
        doubt = partial(doubts, covariances, prior, contexts)
        row = np.concatenate([known, columns_of_target(target, doubt)])
        columns = target_columns(target, log.slates, doubt(log.slates))[fold.rows]
        features, missed = fold.features.with_columns(columns), residuals[fold.rows]
        z, count = solve(features, prior, prior.gather(shape, row[:, None]), rounding=_ROUNDING), len(missed)
        weights = features.apply(prior.spread(shape, z))[:, 0] * count / prior.noise
        left = row - features.gather(weights[:, None])[:, 0] / count
        square, value = float((weights**2).mean()), known @ coefficients
        variance = max(float(((weights * missed) ** 2).mean()), square * float((missed**2).mean())) / count
        bias = prior.variance_of(shape, left)
        parts.append((value + (weights * missed).mean(), variance, bias, square * prior.noise / count + bias))
        lefts.append(left)
    values, variances, biases, expected = np.array(parts).T
    shares = (1.0 / expected) / (1.0 / expected).sum()
    left = shares @ np.array(lefts)
    left_by_all = float(shares @ np.sqrt(biases)) ** 2  # a policy that learns goes on with what it got wrong
    found = _estimate(float(shares @ values), float(shares**2 @ variances) + left_by_all)
    selected = np.concatenate([np.zeros(len(known)), left[len(known) :]])
    gain = float(np.sqrt(prior.variance_of(shape, selected)))  # it has one direction, so it is no part of the spread
    return found._replace(low=found.low - gain, high=found.high + gain)


def average_weighted(weights: Weights, earned: FloatArray) -> Estimate:
    """Return the mean of weights times what was earned; its variance as seen, or as expected if that is more.

    A log without the rare slates whose weights are large has a small variance by chance, and no interval of what was
    seen would be wide enough; but how large weights can be is known.
    """
    terms = weights.values * earned
    seen = float(terms.var()) / len(earned)
    return _estimate(float(terms.mean()), max(seen, _expected_variance(weights, earned)))


def normalise_weighted(weights: Weights, earned: FloatArray) -> Estimate:
    """Return the mean of what was earned by weights; NaN if too few slates are expected to have large ones.

    The value of few slates says little of how far it is off, so that each is left out in turn for the variance (the
    jackknife: Efron 1982, Eq. 3.13), and the interval is Student's. Without any of the rare slates the value is that of
    the slates of every day, which no interval would notice. As many as `_FEWEST` are expected makes that improbable.
    """
    count, total = _effective_count(weights), float(weights.values.sum())
    if count < _FEWEST or total <= 0.0:
        return Estimate(np.nan, np.inf, -np.inf, np.inf)
    shares = weights.values / total
    value = float(shares @ earned)
    without = np.maximum(1.0 - shares, _ROUNDING)
    seen = _Seen(float(((shares * (earned - value) / without) ** 2).sum()), count - 1.0)
    return _estimate(value, max(seen.variance, _expected_variance(weights, earned - earned.mean())), seen)


def _effective_count(weights: Weights) -> float:
    """Return as how many slates of the target's own the log counts by its weights' expected squares (Kong 1992)."""
    return float(len(weights.values) / weights.second_moments.mean())


def _expected_variance(weights: Weights, earned: FloatArray) -> float:
    return float(weights.second_moments.mean() * (earned**2).mean()) / len(earned)


def _estimate(value: float, variance: float, seen: _Seen = _NOTHING_SEEN) -> Estimate:
    error, seen_error = float(np.sqrt(variance)), float(np.sqrt(seen.variance))
    return Estimate(value, error, value, value, seen_error, seen.freedom).with_error(_MISSES)
