"""The settings that a bandit is made with and that can be changed, as keywords and on the wire."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from topk_bandit.client.arguments import WRONG, choice, message, refuse, texts
from topk_bandit.client.errors import invalid_argument
from topk_bandit.client.features import schema_message
from topk_bandit.client.rules import rule_messages
from topk_bandit.domain.bandits import Aggregation, RewardRange
from topk_bandit.domain.stages import Stage
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.wire.bandits import AGGREGATIONS, RANGE, STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from topk_bandit.client.rules import Rule
    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.features import Feature
    from topk_bandit.wire.forms import Enumeration

__all__ = ["BanditChanges", "BanditSettings", "settings_mask", "settings_message"]

E = TypeVar("E", bound=Enum)

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
    conservative_share
        By which share all that was shown may have earned less than the baseline slates would have, at any time; where
        it could be more, the baseline slate is shown.
    rules
        What each slate keeps, in the order of importance; a text stands for a `Filter`.
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
    conservative_share: float | None
    rules: Iterable[Rule | str] | None


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
    given = {name: value for name, value in settings.items() if name not in _EXPLORATION}
    asked = given | {"exploration": {name: settings.get(name) for name in _EXPLORATION}}
    made = {name: write(name, asked.get(name)) for name, write in _WRITERS.items()}
    study = settings.get("prior_study")
    made["prior_study"] = f"{parent}/studies/{study}" if study else None
    return message(bandit_pb.Bandit, **others | given | made)


def settings_mask(changes: Iterable[str]) -> FieldMask:
    """Return the wire's paths of the settings that are to be changed."""
    return FieldMask(paths=[f"exploration.{name}" if name in _EXPLORATION else name for name in changes])


def _exploration(field: str, values: Mapping[str, Any]) -> bandit_pb.Exploration:
    if values["constant_beta"] is not None and values["schedule_scale"] is not None:
        raise invalid_argument(field, "has constant_beta and schedule_scale, of which only one can hold")
    return message(bandit_pb.Exploration, field, **values)


def _duration(field: str, wait: timedelta | None) -> Duration | None:
    if wait is None:
        return None
    duration = Duration()
    try:
        duration.FromTimedelta(wait)
    except (AttributeError, *WRONG):
        raise refuse(field, wait) from None
    return duration


def _range(field: str, taken: RewardRange | None) -> bandit_pb.RewardRange | None:
    if taken is None:
        return None
    if not isinstance(taken, RewardRange):
        raise invalid_argument(field, f"must be a RewardRange, such as RewardRange(0.0, 1.0), not {taken!r}")
    return message(bandit_pb.RewardRange, field, **RANGE.fields(taken))


def _number_of(known: Enumeration[E], unset: E) -> Callable[[str, E | None], object]:
    def find(field: str, value: E | None) -> object:
        return choice(field, value or unset, known)

    return find


_WRITERS: Mapping[str, Callable[[str, Any], Any]] = {
    "reward_aggregation": _number_of(AGGREGATIONS, Aggregation.FIRST),
    "stage": _number_of(STAGES, Stage.LIVE),
    "exploration": _exploration,
    "reward_wait": _duration,
    "half_life": _duration,
    "reward_range": _range,
    "baseline_item_ids": lambda field, ids: None if ids is None else texts(field, ids),
    "context_schema": schema_message,
    "item_schema": schema_message,
    "durability": lambda _, durability: str(durability or ""),
    "provisional_after": _duration,
    "rules": rule_messages,
}
"""What makes the field of a setting's name; others are the same on the wire."""
