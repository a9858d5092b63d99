"""What a bandit earns beside a control group: difference and ratio of the reward per request, with intervals.

The intervals hold at all times at once (`confidence_sequences`), so that they may be looked at after every reward, and
the first that excludes no lift decides.

Each group's mean has the variance v = s^2 / n. A ratio r of the means mu_1 / mu_0 has mu_1 - r mu_0 = 0, so its
interval has all r for which 0 is in that of m_1 - r m_0, whose variance is v_1 + r^2 v_0 (Fieller 1954). With an
always valid bound this is always valid, too, and 1 is in the ratio's interval where 0 is in that of the difference.

s^2 of a group is at least that of both groups together. Few requests of which one in a hundred earns something often
have none that does: then their mean and their s^2 are too small together. So an interval from a group's own s^2
excludes the truth in a tenth of shops with a small control group. The other group knows what rewards there are.

What is assumed: which group a request is in is independent of the others, by a share that stays as it is while totals
are added up; and one request changes little of what others earn. A bandit may learn meanwhile: the difference is then
that of the mean over all requests so far.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.stages import Interval, LiftVerdict
from topk_bandit.learning.confidence_sequences import check_confidence, errors_away

if TYPE_CHECKING:
    from topk_bandit.learning.group_totals import GroupTotals

__all__ = ["FEWEST_REQUESTS", "Lift", "Means", "compare_means", "estimate_lift", "pool_information"]

FEWEST_REQUESTS = 100
"""A group with fewer has no interval yet: what means are distributed like is not known of so few."""

_MOST_INFORMATION = 10**12
"""What takes more than this is not decided in anybody's lifetime."""


class Lift(NamedTuple):
    """What a bandit earns beside its control group.

    Attributes
    ----------
    verdict
        What is known of the bandit's group.
    difference
        Reward per request of the bandit's group less that of the control group; None while it is too early.
    ratio
        The former over the latter; None while it is too early, or not yet sure that the control group earns more than
        0.
    further_requests
        So many more, of both groups together, decide it if means and spreads stay as they are: 0 once it is decided,
        None where that is unknown.
    """

    verdict: LiftVerdict
    difference: Interval | None
    ratio: Interval | None
    further_requests: int | None


_NOT_YET = Lift(LiftVerdict.TOO_EARLY, None, None, None)


class Means(NamedTuple):
    """Two groups' means, bandit first, the variances of these means, and the information in both."""

    bandit: float
    control: float
    bandit_variance: float
    control_variance: float
    information: float


def estimate_lift(bandit: GroupTotals, control: GroupTotals, *, confidence: float = 0.95) -> Lift:
    """Return what a bandit earns beside its control group.

    Parameters
    ----------
    bandit, control
        Totals of both groups, since the control group has its share.
    confidence
        In [0.5, 1): how probable it is that an interval holds the truth at all times, each by itself; other values
        raise `InvalidArgumentError`.
    """
    check_confidence(confidence)
    means = compare_means(bandit, control)
    if means is None:
        return _NOT_YET
    error = (1.0 - confidence) / 2.0
    away = errors_away(means.information, error=error)
    value, standard_error = means.bandit - means.control, math.hypot(*map(math.sqrt, means[2:4]))
    difference = Interval(value, value - away * standard_error, value + away * standard_error)
    verdict = _judge(difference)
    part = (
        _further_part(abs(value) / standard_error, means.information, error)
        if verdict is LiftVerdict.UNDECIDED
        else 0.0
    )
    further = None if part is None else math.ceil(part * (bandit.count + control.count))
    return Lift(verdict, difference, _divide(means, away), further)


def compare_means(bandit: GroupTotals, control: GroupTotals) -> Means | None:
    """Return the means of two groups and how surely they are known.

    It is None while a group has fewer than `FEWEST_REQUESTS`, or all rewards of each group are equal.
    """
    if min(bandit.count, control.count) < FEWEST_REQUESTS:
        return None
    together = float((bandit.squared_deviations + control.squared_deviations) / (bandit.count + control.count - 2))
    of_bandit, of_control = (max(together, group.variance) / group.count for group in (bandit, control))
    if min(of_bandit, of_control) <= 0.0:
        return None
    return Means(bandit.mean, control.mean, of_bandit, of_control, pool_information(bandit.count, control.count))


def pool_information(bandit_count: float, control_count: float) -> float:
    """Return how many requests' mean is known as well as the difference of two groups' means."""
    return bandit_count * control_count / (bandit_count + control_count)


def _judge(difference: Interval) -> LiftVerdict:
    if difference.low > 0.0:
        return LiftVerdict.BETTER
    return LiftVerdict.WORSE if difference.high < 0.0 else LiftVerdict.UNDECIDED


def _divide(means: Means, away: float) -> Interval | None:
    """Return the ratio of the means and its interval, if the control group's mean is above 0 for sure."""
    reach = away * math.sqrt(means.control_variance)
    if means.control <= reach:
        return None
    ratio, relative = means.bandit / means.control, reach / means.control
    left = (1.0 - relative) * (1.0 + relative)
    of_bandit = away * math.sqrt(means.bandit_variance * left) / means.control
    width = math.hypot(of_bandit, ratio * relative)
    found = Interval(ratio, (ratio - width) / left, (ratio + width) / left)
    return found if math.isfinite(found.low) and math.isfinite(found.high) else None


def _further_part(errors: float, information: float, error: float) -> float | None:
    """Return by which part of the requests so far they have to grow until an estimate is that many errors from 0.

    Parameters
    ----------
    errors
        How many standard errors the estimate is from 0 now.
    """
    low, high = 1.0, 2.0
    while errors * math.sqrt(high) < errors_away(information * high, error=error):
        low, high = high, 2.0 * high
        if high * information > _MOST_INFORMATION:
            return None
    for _ in range(40):
        middle = 0.5 * (low + high)
        enough = errors * math.sqrt(middle) >= errors_away(information * middle, error=error)
        low, high = (low, middle) if enough else (middle, high)
    return high - 1.0
