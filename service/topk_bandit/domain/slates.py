"""What is asked for a slate, what is given out, and what becomes of its rewards and its activation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.stages import Group, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.rules import Absence, SlateRule
    from topk_bandit.domain.stages import Shadow

__all__ = [
    "NOTHING_NAMED",
    "REGRET_CONFIDENCE",
    "ActivationOutcome",
    "ActivationReceipt",
    "ItemValues",
    "Recommendation",
    "RecommendationRequest",
    "Reward",
    "RewardOutcome",
    "RewardReceipt",
    "rules_of",
]


ItemValues: TypeAlias = tuple[float | None, ...]
"""What each item of a slate did, by its position; None for an item of which nothing is known."""


NOTHING_NAMED: Mapping[str, float] = MappingProxyType({})
"""The item values of a reward that has none."""


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """What a storefront asks: a slate for this context, from these candidates (None: every available item).

    Attributes
    ----------
    baseline_item_ids
        The caller's own slate, best first: it takes the place of the bandit's baseline slate. None if it is empty.
    group_key
        What is drawn to a group, such as a visitor: equal keys are in the same one. If it is empty, the request is.
    rules
        What the slate keeps beside the bandit's own rules.
    reached
        What the visitor has seen as often as each rule of frequency allows, in the order of the rules: values of its
        feature, or ids of items. Empty where that is nothing. It is found out, and recorded.
    explain
        Items of which the answer says why they are not there. It is asked, and never recorded.
    known_features_only
        Whether features that the bandit does not know are left out. It is asked, and never recorded.
    frequency_key
        Whom rules of frequency count for, such as a visitor. It is asked, and never recorded.
    """

    request_id: str
    context: Context
    candidates: tuple[str, ...] | None
    baseline_item_ids: tuple[str, ...] = ()
    group_key: str = ""
    rules: tuple[SlateRule, ...] = ()
    reached: tuple[tuple[str, ...], ...] = ()
    explain: tuple[str, ...] = ()
    known_features_only: bool = False
    frequency_key: str = ""


def rules_of(settings: BanditSettings, request: RecommendationRequest) -> tuple[SlateRule, ...]:
    """Return the rules that a request's slate keeps: the bandit's, then its own."""
    return (*settings.rules, *request.rules)


REGRET_CONFIDENCE = 0.9
"""Probability with which a regret bound holds, if the posterior does."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One slate given out.

    Attributes
    ----------
    slate
        Item ids, best first.
    propensity
        Exact probability that this slate would be shown, given the model version, the group, and the request without
        its id.
    mean, standard_deviation
        Posterior of the slate's expected reward, in reward units, by the rewards that have come. Until two of them
        differ these have no unit, and the mean is what all of them were: 0 before the first.
    regret_bound
        The slate's regret is no larger with probability `REGRET_CONFIDENCE`, if the posterior holds; never negative.
    estimated_regret
        The slate's expected regret under the posterior.
    explored
        True when the slate was drawn by one of the exploration's shares, not by the acquisition function.
    model_version
        Log position that the posterior had folded in.
    observations
        Rewards that the posterior had learned from.
    deadline_ms
        When the reward wait ends; 0 when the recommendation could not be recorded (`degraded`).
    degraded
        True when the store was away: the slate may be shown, and may not be recorded. Without an id it is not; with one
        its reward can be posted, and finds out.
    position_propensities
        Exact probability of showing each of the slate's items at its position, k numbers.
    best_slate
        What the acquisition function chose, where an exploration's share drew another slate; else none.
    passed_over
        Candidates that were passed over: unknown, retired or unavailable.
    baseline
        True when this is the baseline slate: too few candidates were left, or the stage or the group asks for it.
    stage, group
        Those of the request.
    shadow
        The slate that the bandit would have shown, in the stage that asks for it; else None.
    relaxed
        The rules that were given up, in words, because no slate keeps all of them.
    paid
        The promised exposures that the slate paid for, in words: it was drawn among those that show their groups.
    absent
        Why items that the request asks about are not in the slate. It is answered, and never recorded.
    """

    recommendation_id: str
    slate: tuple[str, ...]
    propensity: float
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    model_version: int
    observations: int
    deadline_ms: int = 0
    degraded: bool = False
    position_propensities: tuple[float, ...] = ()
    best_slate: tuple[str, ...] = ()
    passed_over: int = 0
    baseline: bool = False
    stage: Stage = Stage.LIVE
    group: Group = Group.NONE
    shadow: Shadow | None = None
    relaxed: tuple[str, ...] = ()
    paid: tuple[str, ...] = ()
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Reward:
    """A number for the slate of one recommendation; `reward_id` is empty unless it is one of several.

    `item_values` are what single items of the slate did, by their ids.
    """

    recommendation_id: str
    value: float
    reward_id: str = ""
    final: bool = False
    item_values: Mapping[str, float] = field(default_factory=dict, hash=False)


class RewardOutcome(StrEnum):
    """What became of a posted reward that raised no error.

    DUPLICATE is one that was recorded before, perhaps by an earlier try of the same call: clients send calls again, and
    so does the service if one of its workers dies or hangs, or its connection to the store breaks.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class RewardReceipt:
    """What became of a posted reward, and where it stands in the log: 0 for one that was late.

    The position of one of several rewards is that of its `RewardCollected`, and nothing is learned there yet; that of a
    final one is that of `Rewarded`. `durability` is what was awaited and achieved by this call; another one about the
    same reward may have achieved another, so receipts are compared without it.
    """

    outcome: RewardOutcome
    log_position: int = 0
    durability: Durability = field(default=IN_MEMORY, compare=False)


class ActivationOutcome(StrEnum):
    """What became of an activation that raised no error; one after the deadline is LATE, and does nothing."""

    ACTIVATED = "activated"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class ActivationReceipt:
    """What became of an activation, and where it stands in the log: 0 for one that is not there."""

    outcome: ActivationOutcome
    log_position: int = 0
