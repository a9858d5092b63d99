"""Whether a bandit's group earns less than its control group by more than may be: then the bandit should be taken off.

The margin is a share of what the control group earns per request: the question is whether mu_1 < mu_0 - margin
|mu_0|. That bound is the smaller one of (1 - margin) mu_0 and (1 + margin) mu_0, so that the sign of mu_0 need not be
known: the bandit is worse if it is below both, each by the confidence sequence of `lift` on one side. If it is not
worse, it is not below one of these two, and ever seems to be with probability 1 - confidence at most.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.confidence_sequences import check_confidence, errors_away
from topk_bandit.learning.lift import compare_means

if TYPE_CHECKING:
    from topk_bandit.learning.group_totals import GroupTotals

__all__ = ["GuardrailState", "decide_guardrail"]


class GuardrailState(NamedTuple):
    """What a guardrail says of a bandit.

    Attributes
    ----------
    is_worse
        Whether the bandit's group is worse by more than the margin, with the confidence asked for. The first time
        counts, whatever comes after it.
    shortfall
        By how much the bandit's group earns less per request than the control group, as a share of what that one earns;
        below 0 if it earns more. None while it is too early, or the control group earns nothing.
    highest_gain
        With that confidence the bandit's group earns at most so much per request above the margin's bound: it is
        below 0 if the bandit is worse. None while it is too early.
    """

    is_worse: bool
    shortfall: float | None
    highest_gain: float | None


def decide_guardrail(
    bandit: GroupTotals, control: GroupTotals, *, margin: float, confidence: float = 0.95
) -> GuardrailState:
    """Return whether a bandit's group is worse than its control group by more than a margin.

    Parameters
    ----------
    bandit, control
        Totals of both groups, since the control group has its share.
    margin
        At least 0: the share of the control group's reward per request that may be lost. Others raise
        `InvalidArgumentError`.
    confidence
        In [0.5, 1): a bandit that is not worse is ever said to be with probability 1 - confidence at most, however
        often this is asked.
    """
    check_confidence(confidence)
    if not 0.0 <= margin < math.inf:
        raise InvalidArgumentError("margin", f"expected a number of at least 0, got {margin}")
    means = compare_means(bandit, control)
    if means is None:
        return GuardrailState(is_worse=False, shortfall=None, highest_gain=None)
    away = errors_away(means.information, error=1.0 - confidence)
    spreads = math.sqrt(means.bandit_variance), math.sqrt(means.control_variance)
    gain = max(
        means.bandit - part * means.control + away * math.hypot(spreads[0], part * spreads[1])
        for part in (1.0 - margin, 1.0 + margin)
    )
    shortfall = (means.control - means.bandit) / abs(means.control) if means.control else None
    return GuardrailState(gain < 0.0, shortfall, gain)
