"""What a model says of a bandit's worth: what its shadow would have earned, and its lift over the control group."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from topk_bandit.domain.stages import ConservativeStats, GroupStats, Interval, LiftDay, LiftStats, ShadowStats, Stage
from topk_bandit.learning.guardrails import decide_guardrail
from topk_bandit.learning.lift import estimate_lift
from topk_bandit.learning.sample_ratio import judge_sample_ratio

if TYPE_CHECKING:
    from topk_bandit.bandits.comparison import DayTallies, GroupTally
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings

__all__ = [
    "CONFIDENCE",
    "describe_conservative",
    "describe_lift",
    "describe_shadow",
    "find_guardrail_reason",
    "in_shadow",
]

CONFIDENCE = 0.95
"""With which each interval of a lift holds at all times at once, a shadow's gain, and a guardrail is right."""

_ERRORS = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
_ERRORS_BELOW = 3.5
"""In shops whose own slates are of good items the gain is overestimated by one deviation in the mean."""


def describe_shadow(model: Model) -> ShadowStats:
    """Return what a bandit in shadow would have shown.

    The interval of the gain takes the errors of all requests for the same one, since one posterior made them. Its lower
    end is farther away: a shop shows what it knows to be good, and the bandit takes items that it never saw for average
    ones. See decision 78.
    """
    tally = model.comparison.shadow
    if not tally.slates:
        return ShadowStats(0, 0, 0.0, None)
    gain, deviation = tally.gain_sum / tally.slates, tally.deviation_sum / tally.slates
    interval = Interval(gain, gain - _ERRORS_BELOW * deviation, gain + _ERRORS * deviation)
    return ShadowStats(tally.slates, tally.agreements, tally.shared_items / tally.slates, interval)


def describe_lift(model: Model, *, by_day: bool = False) -> LiftStats | None:
    """Return what a bandit's group earns beside its control group; None for one that never had one.

    Parameters
    ----------
    by_day
        Whether to say so of each day, too, which takes as long as sixty lifts.
    """
    known = model.comparison
    had_control = model.settings.control_share or known.control.drawn or known.guarded_position
    if not (known.since_ms and had_control):
        return None
    lift = estimate_lift(known.bandit.earned, known.control.earned, confidence=CONFIDENCE)
    return LiftStats(
        since_ms=known.since_ms,
        bandit=_describe_group(known.bandit),
        control=_describe_group(known.control),
        verdict=lift.verdict,
        difference=lift.difference,
        ratio=lift.ratio,
        further_requests=lift.further_requests,
        has_odd_groups=_has_odd_groups(model),
        confidence=CONFIDENCE,
        guarded_position=known.guarded_position,
        guarded_reason=known.guarded_reason,
        days=tuple(map(_describe_day, known.by_day())) if by_day else (),
    )


def describe_conservative(model: Model) -> ConservativeStats | None:
    """Return how a bandit's conservative share was kept; None for one without."""
    share, known = model.settings.conservative_share, model.comparison
    if not share:
        return None
    return ConservativeStats(
        since_ms=known.since_ms,
        own=_describe_group(known.own),
        baseline=_describe_group(known.conservative),
        reserve=known.find_reserve(share),
        shows_own=known.may_show_own(share),
    )


def find_guardrail_reason(model: Model) -> str:
    """Return why a bandit is to be taken off; empty if its guardrail, if it has one, does not ask for that."""
    settings, known = model.settings, model.comparison
    if settings.guardrail_margin is None or not settings.stage.shows_own:
        return ""
    margin, groups = settings.guardrail_margin, (known.bandit.earned, known.control.earned)
    found = decide_guardrail(*groups, margin=margin, confidence=CONFIDENCE)
    if not found.is_worse:
        return ""
    means = " and ".join(f"{group.mean:.6g} a request over {group.count}" for group in groups)
    return (
        f"the bandit's group earns less than the control group by more than {margin:g} of that, with a confidence of "
        f"{CONFIDENCE:.0%}: they earn {means}"
    )


def in_shadow(settings: BanditSettings) -> BanditSettings:
    """Return the settings that a guardrail changes to: as they are where somebody was faster, or took it away."""
    is_guarded = settings.guardrail_margin is not None and settings.stage.shows_own
    return replace(settings, stage=Stage.SHADOW) if is_guarded else settings


def _has_odd_groups(model: Model) -> bool:
    share, known = model.settings.control_share, model.comparison
    return bool(share) and judge_sample_ratio(known.bandit.drawn, known.control.drawn, control_share=share).is_odd


def _describe_day(day: DayTallies) -> LiftDay:
    lift = estimate_lift(day.bandit.earned, day.control.earned, confidence=CONFIDENCE)
    return LiftDay(day.start_ms, _describe_group(day.bandit), _describe_group(day.control), lift.difference)


def _describe_group(tally: GroupTally) -> GroupStats:
    earned = tally.earned
    return GroupStats(tally.drawn, earned.count, earned.mean if earned.count > 0 else 0.0)
