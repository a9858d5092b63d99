"""What a log says of a policy in a sentence; where it can't tell, with which exploration it would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.learning.evaluation.exploration import expected_margin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["ASSUMING_NOTHING", "agree_with", "choose_estimate", "describe_best", "find_best", "verdict", "verdict_of"]

ASSUMING_NOTHING = ("ips", "snips")
"""Estimates that hold whatever rewards depend on."""

_APART = 0.01
"""Of intervals of 95 % some are apart in 2 % of made logs whose items' parts add up, of these in .3 %."""

_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


_CANNOT_TELL = "the log can't tell whether it earns more or less than the slates that were shown"


def choose_estimate(estimates: Mapping[str, Estimate]) -> tuple[str, str]:
    """Return which estimate decides, and in words what that rests on.

    The one with the narrowest interval decides, but `balanced` never does, whose model has to be right. Those that
    take it that items earn something of their own have to agree with those that assume nothing. Where the intervals
    are apart, the rewards of these slates are no such sums.
    """
    narrowest = _find_narrowest({name: one for name, one in estimates.items() if name != "balanced"})
    if narrowest in ASSUMING_NOTHING:
        return narrowest, f"by {narrowest}"
    free = {name: estimates[name] for name in ASSUMING_NOTHING}
    if agree_with(estimates[narrowest], free.values()):
        return narrowest, f"by {narrowest}, which takes it that items' parts add up"
    return (name := _find_narrowest(free)), f"by {name}, since {narrowest} is apart from it: items' parts do not add up"


def agree_with(estimate: Estimate, others: Iterable[Estimate]) -> bool:
    """Return whether an interval meets each of some others; of intervals of 99 %, since several are compared."""
    found, wide = estimate.with_error(_APART), [one.with_error(_APART) for one in others]
    return not any(one.is_below(found) or found.is_below(one) for one in wide)


def _find_narrowest(estimates: Mapping[str, Estimate]) -> str:
    return min(estimates, key=lambda name: estimates[name].high - estimates[name].low)


def verdict_of(shown: Estimate, deciding: Estimate) -> str:
    """Return whether a policy earns more or less than what was shown, or that the log can't tell."""
    if shown.is_below(deciding):
        return "earns more than the slates that were shown"
    if deciding.is_below(shown):
        return "earns less than the slates that were shown"
    return _CANNOT_TELL


def find_best(shown: Estimate, found: Sequence[tuple[str, Estimate]]) -> str | None:
    """Return the title of the policy that earns most; None where the log can't tell, or what was shown does.

    Policies have titles, and come best first. One earns more than another if their intervals are apart, which asks for
    more than it would have to.
    """
    (title, best), others = found[0], found[1:]
    return title if all(one.is_below(best) for one in (shown, *(other for _, other in others))) else None


def describe_best(shown: Estimate, found: Sequence[tuple[str, Estimate]]) -> str:
    """Return which policy earns most, or that the log can't tell, as a sentence; for policies as in `find_best`."""
    (title, best), others = found[0], found[1:]
    if find_best(shown, found) is not None:
        return f"{title} earns most"
    if best.is_below(shown):
        return "what was shown earns most: keep the settings"
    if not shown.is_below(best):
        return "the log can't tell whether any of them earns more than the slates that were shown"
    rivals = [name for name, one in others if not one.is_below(best)]
    return f"{title} earns more than what was shown; the log can't tell it from {' nor from '.join(rivals)}"


def verdict(log: SlateLog, target: Target, shown: Estimate, deciding: Estimate, model: RewardModel | None) -> str:
    """Return whether a policy earns more or less; where the log can't tell, with which exploration it would.

    Parameters
    ----------
    deciding
        The estimate of the policy that `choose_estimate` chooses.
    model
        Of the rewards, by which the exploration is found that would tell; None if there is none.
    """
    said = verdict_of(shown, deciding)
    if model is None or said != _CANNOT_TELL:
        return said
    missed = float((model.residuals(log) ** 2).mean())
    difference = abs(deciding.value - shown.value)
    largest = float(log.policy.uniform_share.max())
    for share in (one for one in _SHARES if one > largest):
        if expected_margin(log, target, noise=missed, uniform_share=share) <= difference:
            return (
                f"{said}; a uniform share of {share:.0%} would, on as many requests, if it earns {deciding.value:.4g}"
            )
    margin = expected_margin(log, target, noise=missed, uniform_share=1.0)
    return f"{said}; with a uniform share of 100% it could if they differed by more than {margin:.2g}"
