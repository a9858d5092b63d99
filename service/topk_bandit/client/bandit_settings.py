"""The settings that a bandit is made with and that can be changed, as keywords and on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from topk_bandit.client.arguments import WRONG, message, refuse, texts
from topk_bandit.client.errors import invalid_argument
from topk_bandit.client.features import schema_message
from topk_bandit.domain.bandits import Aggregation, RewardRange
from topk_bandit.domain.stages import Stage
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.features import Feature

__all__ = ["AGGREGATIONS", "STAGES", "BanditChanges", "BanditSettings", "settings_mask", "settings_message"]

STAGES = {
    Stage.LIVE: recommender_pb.STAGE_LIVE,
    Stage.SHADOW: recommender_pb.STAGE_SHADOW,
    Stage.FROZEN: recommender_pb.STAGE_FROZEN,
    Stage.OFF: recommender_pb.STAGE_OFF,
}

AGGREGATIONS = {
    Aggregation.FIRST: bandit_pb.REWARD_AGGREGATION_FIRST,
    Aggregation.LAST: bandit_pb.REWARD_AGGREGATION_LAST,
    Aggregation.SUM: bandit_pb.REWARD_AGGREGATION_SUM,
    Aggregation.MEAN: bandit_pb.REWARD_AGGREGATION_MEAN,
    Aggregation.MAX: bandit_pb.REWARD_AGGREGATION_MAX,
}
_EXPLORATION = ("constant_beta", "schedule_scale", "uniform_share", "near_share", "shares_fall_after")


class BanditSettings(TypedDict, total=False):
    """What a bandit may be made with beside its size; None stands for the service's default, as does what is left out.

    Attributes
    ----------
    constant_beta, schedule_scale
        How wide it explores, the same in every round or growing with them: at most one of the two.
    uniform_share, near_share
        Probabilities of a slate drawn from all, and from those near the best one.
    shares_fall_after
        After how many rewards both shares fall.
    reward_wait
        How long a reward may come after its slate.
    default_reward
        What is learned of a slate without a reward; None learns nothing.
    prior_study
        Id of the study whose utilities are the prior mean.
    half_life
        Age at which a reward counts half.
    reward_range
        The rewards that are taken, each by itself.
    reward_aggregation
        What is learned of a slate that gets several rewards.
    requires_activation
        Whether a slate counts only once it is said to have been shown.
    baseline_item_ids
        What is shown where too few candidates are left.
    context_schema, item_schema
        The features that requests have, and that items may have.
    durability
        What is awaited before a write is acknowledged.
    learned_per_second
        About how many slates a second are learned from at most.
    provisional_after
        How long after a slate its reward so far is first learned, or the default reward; None learns when it is final.
    default_item_value
        What an item counts that no reward of its slate names; None where nothing is known of such items.
    stage
        Whose slates are shown, and whether anything is learned.
    control_share
        Share of the requests that get the baseline slate, so that others are compared with them.
    guardrail_margin
        By which share of the control group's reward the bandit may be worse before it goes in shadow by itself; None
        for no guardrail.
    """

    constant_beta: float | None
    schedule_scale: float | None
    uniform_share: float | None
    near_share: float | None
    shares_fall_after: int | None
    reward_wait: timedelta | None
    default_reward: float | None
    prior_study: str | None
    half_life: timedelta | None
    reward_range: RewardRange | None
    reward_aggregation: Aggregation | None
    requires_activation: bool | None
    baseline_item_ids: Iterable[str] | None
    context_schema: Iterable[Feature] | None
    item_schema: Iterable[Feature] | None
    durability: Durability | None
    learned_per_second: int | None
    provisional_after: timedelta | None
    default_item_value: float | None
    stage: Stage | None
    control_share: float | None
    guardrail_margin: float | None


class BanditChanges(BanditSettings, total=False):
    """What can be changed later: None takes a field back to its default, and what is left out stays as it is.

    Attributes
    ----------
    item_capacity
        How many items there may be; it can only be raised.
    """

    item_capacity: int


def settings_message(settings: Mapping[str, Any], *, parent: str, **others: Any) -> bandit_pb.Bandit:  # noqa: ANN401
    """Return a bandit's message with its settings, and with what else it has on the wire.

    Raises
    ------
    TypeError
        If there is no setting of a name.
    InvalidArgument
        If both ways to widen exploration are given, or a setting can't be what it is.
    """
    unknown = settings.keys() - BanditChanges.__annotations__.keys()
    if unknown:
        raise TypeError(f"a bandit has no setting {min(unknown)!r}")
    study, get = settings.get("prior_study"), settings.get
    baseline, aggregation = get("baseline_item_ids"), get("reward_aggregation") or Aggregation.FIRST
    if aggregation not in AGGREGATIONS:
        raise refuse("reward_aggregation", aggregation)
    stage = get("stage") or Stage.LIVE
    if stage not in STAGES:
        raise refuse("stage", stage)
    return message(
        bandit_pb.Bandit,
        exploration=_exploration(settings),
        reward_wait=_duration("reward_wait", get("reward_wait")),
        default_reward=get("default_reward"),
        prior_study=f"{parent}/studies/{study}" if study else "",
        half_life=_duration("half_life", get("half_life")),
        reward_range=_range(get("reward_range")),
        reward_aggregation=AGGREGATIONS[aggregation],
        requires_activation=get("requires_activation"),
        item_capacity=get("item_capacity"),
        baseline_item_ids=None if baseline is None else texts("baseline_item_ids", baseline),
        context_schema=schema_message("context_schema", get("context_schema")),
        item_schema=schema_message("item_schema", get("item_schema")),
        durability=str(get("durability") or ""),
        learned_per_second=get("learned_per_second"),
        provisional_after=_duration("provisional_after", get("provisional_after")),
        default_item_value=get("default_item_value"),
        stage=STAGES[stage],
        control_share=get("control_share"),
        guardrail_margin=get("guardrail_margin"),
        **others,
    )


def settings_mask(changes: Iterable[str]) -> FieldMask:
    """Return the wire's paths of the settings that are to be changed."""
    return FieldMask(paths=[f"exploration.{name}" if name in _EXPLORATION else name for name in changes])


def _exploration(settings: Mapping[str, Any]) -> bandit_pb.Exploration:
    values = {name: settings.get(name) for name in _EXPLORATION}
    if values["constant_beta"] is not None and values["schedule_scale"] is not None:
        raise invalid_argument("exploration", "has constant_beta and schedule_scale, of which only one can hold")
    return message(bandit_pb.Exploration, "exploration", **values)


def _duration(field: str, wait: timedelta | None) -> Duration | None:
    if wait is None:
        return None
    duration = Duration()
    try:
        duration.FromTimedelta(wait)
    except (AttributeError, *WRONG):
        raise refuse(field, wait) from None
    return duration


def _range(taken: RewardRange | None) -> bandit_pb.RewardRange | None:
    if taken is None:
        return None
    if not isinstance(taken, RewardRange):
        raise invalid_argument("reward_range", f"must be a RewardRange, such as RewardRange(0.0, 1.0), not {taken!r}")
    outside = bandit_pb.OUT_OF_RANGE_CLAMPED if taken.clamp else bandit_pb.OUT_OF_RANGE_REFUSED
    return message(bandit_pb.RewardRange, "reward_range", min=taken.low, max=taken.high, out_of_range=outside)
