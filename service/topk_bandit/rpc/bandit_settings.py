"""A bandit's settings between the wire and `domain.bandits`, and the changes that an update mask describes."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.domain.bandits import (
    DEFAULT_LEARNED_PER_SECOND,
    MAX_BETA,
    MAX_CONTEXT_DIMENSION,
    MAX_HALF_LIFE_MS,
    MAX_ITEM_CAPACITY,
    MAX_REWARD_WAIT_MS,
    MAX_SLATE_SIZE,
    MOST_LEARNED_PER_SECOND,
    MOST_SHARES_FALL_AFTER,
    Aggregation,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Kernel,
    PaperBeta,
    RewardRange,
)
from topk_bandit.domain.durability import Durability
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import width_of
from topk_bandit.domain.joint_settings import check_together
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.stages import MAX_CONTROL_SHARE, Stage
from topk_bandit.rpc import fields
from topk_bandit.rpc.features import schema_from_proto
from topk_bandit.rpc.rules import rules_from_proto
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.wire.bandits import AGGREGATIONS, KERNELS, SETTINGS, STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from google.protobuf.duration_pb2 import Duration

    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.wire.forms import Enumeration

__all__ = ["masked_change", "settings_from_proto", "settings_to_proto"]

E = TypeVar("E", bound=Enum)

_UNKNOWN = {"kernel": "is not a kernel", "reward_aggregation": "is no aggregation", "stage": "is no stage"}
_DEFAULT_REWARD_WAIT_MS = 24 * 60 * 60 * 1000
_NANOS_PER_SECOND = 1_000_000_000
_NANOS_PER_MS = 1_000_000

_BETAS = frozenset({"exploration.constant_beta", "exploration.schedule_scale"})
_SHARES = ("uniform_share", "near_share")
_BESIDE_BETA = (*_SHARES, "shares_fall_after")
_EXPLORATION = _BETAS | {f"exploration.{name}" for name in _BESIDE_BETA}
_FIXED = frozenset({"name", "slate_size", "context_dimension", "kernel", "create_time"})


def settings_from_proto(bandit: pb.Bandit, default: Exploration) -> BanditSettings:
    """Return a new bandit's settings, with every default filled in; errors name fields below ``bandit``."""
    slate_size = fields.integer("bandit.slate_size", bandit.slate_size, low=1, high=MAX_SLATE_SIZE)
    schema = _context_schema(bandit)
    readers = [of_path for path, of_path in _READERS.items() if path != "item_capacity"]
    settings = BanditSettings(
        item_capacity=_item_capacity(bandit, low=slate_size),
        slate_size=slate_size,
        context_dim=_context_dimension(bandit, schema),
        kernel=_enumerated(bandit, "kernel", KERNELS, unset=Kernel.ADAPTIVE),
        exploration=Exploration(
            _beta(bandit, default), **{name: _beside_beta(bandit, default, name) for name in _BESIDE_BETA}
        ),
        context_schema=schema,
        **{name: read(bandit) for of_path in readers for name, read in of_path.items()},
    )
    check_together(settings, path="bandit")
    return settings


def settings_to_proto(settings: BanditSettings) -> pb.Bandit:
    """Return the message that holds `settings`, without names."""
    return SETTINGS.write(settings, exploration=_exploration_to_proto(settings.exploration))


def _exploration_to_proto(exploration: Exploration) -> pb.Exploration:
    beside = {name: getattr(exploration, name) for name in _BESIDE_BETA}
    match exploration.beta:
        case ConstantBeta(value):
            return pb.Exploration(constant_beta=value, **beside)
        case PaperBeta(scale):
            return pb.Exploration(schedule_scale=scale, **beside)


def _item_capacity(bandit: pb.Bandit, *, low: int) -> int:
    return fields.integer("bandit.item_capacity", bandit.item_capacity, low=low, high=MAX_ITEM_CAPACITY)


def _context_schema(bandit: pb.Bandit) -> FeatureSchema | None:
    if not bandit.HasField("context_schema"):
        return None
    return schema_from_proto("bandit.context_schema", bandit.context_schema)


def _item_schema(bandit: pb.Bandit) -> FeatureSchema | None:
    return schema_from_proto("bandit.item_schema", bandit.item_schema) if bandit.HasField("item_schema") else None


def _context_dimension(bandit: pb.Bandit, schema: FeatureSchema | None) -> int:
    if schema is not None:
        width = width_of(schema)
        if bandit.context_dimension not in {0, width}:
            raise InvalidArgumentError(
                "bandit.context_dimension", f"follows from the context_schema: {width}, or unset"
            )
        return width
    high = MAX_CONTEXT_DIMENSION
    return fields.integer("bandit.context_dimension", bandit.context_dimension, low=0, high=high) or 1


def _beta(bandit: pb.Bandit, default: Exploration) -> ConstantBeta | PaperBeta:
    exploration = bandit.exploration
    match exploration.WhichOneof("beta"):
        case "constant_beta":
            path = "bandit.exploration.constant_beta"
            return ConstantBeta(fields.number(path, exploration.constant_beta, low=0.0, high=MAX_BETA))
        case "schedule_scale":
            path = "bandit.exploration.schedule_scale"
            return PaperBeta(fields.number(path, exploration.schedule_scale, low=0.0, high=MAX_BETA))
        case _:
            return default.beta


def _beside_beta(bandit: pb.Bandit, default: Exploration, name: str) -> Any:  # noqa: ANN401 - a share, or a number
    exploration, path = bandit.exploration, f"bandit.exploration.{name}"
    if not exploration.HasField(name):
        return getattr(default, name)
    if name in _SHARES:
        return fields.number(path, getattr(exploration, name), low=0.0, high=1.0)
    return fields.integer(path, getattr(exploration, name), low=0, high=MOST_SHARES_FALL_AFTER)


def _reward_wait_ms(bandit: pb.Bandit) -> int:
    most = MAX_REWARD_WAIT_MS, "90 days"
    return _milliseconds("bandit.reward_wait", bandit.reward_wait, most) or _DEFAULT_REWARD_WAIT_MS


def _half_life_ms(bandit: pb.Bandit) -> int:
    return _milliseconds("bandit.half_life", bandit.half_life, (MAX_HALF_LIFE_MS, "3650 days"))


def _milliseconds(path: str, duration: Duration, most: tuple[int, str]) -> int:
    """Return a duration in milliseconds, 0 for one that is unset or zero."""
    if not duration.seconds and not duration.nanos:
        return 0
    milliseconds, rest = divmod(duration.seconds * _NANOS_PER_SECOND + duration.nanos, _NANOS_PER_MS)
    if abs(duration.nanos) >= _NANOS_PER_SECOND or duration.seconds * duration.nanos < 0:
        raise InvalidArgumentError(path, f"is no duration, got {duration.seconds} s and {duration.nanos} ns")
    if not 1 <= milliseconds <= most[0] or rest:
        got = f"{duration.seconds + duration.nanos / _NANOS_PER_SECOND:.12g} s"
        raise InvalidArgumentError(path, f"must be 1 millisecond to {most[1]}, in whole milliseconds, not {got}")
    return milliseconds


def _default_reward(bandit: pb.Bandit) -> float | None:
    if not bandit.HasField("default_reward"):
        return None
    return fields.reward_value("bandit.default_reward", bandit.default_reward)


def _default_item_value(bandit: pb.Bandit) -> float | None:
    if not bandit.HasField("default_item_value"):
        return None
    return fields.reward_value("bandit.default_item_value", bandit.default_item_value)


def _reward_range(bandit: pb.Bandit) -> RewardRange | None:
    if not bandit.HasField("reward_range"):
        return None
    taken, path = bandit.reward_range, "bandit.reward_range"
    low = fields.reward_value(f"{path}.min", taken.min if taken.HasField("min") else None)
    high = fields.reward_value(f"{path}.max", taken.max if taken.HasField("max") else None)
    if low >= high:
        raise InvalidArgumentError(f"{path}.max", f"must be more than min, {low!r}, not {high!r}")
    if taken.out_of_range not in pb.OutOfRange.values():
        raise InvalidArgumentError(f"{path}.out_of_range", f"is nothing that this service knows: {taken.out_of_range}")
    return RewardRange(low, high, clamp=taken.out_of_range == pb.OUT_OF_RANGE_CLAMPED, trusted=taken.trusted)


def _durability(bandit: pb.Bandit) -> Durability | None:
    if not bandit.durability:
        return None
    try:
        return Durability.parse(bandit.durability)
    except ValueError:
        problem = f"is none of memory, fsync, replicated:1 to replicated:9: {fields.quote_text(bandit.durability)}"
        raise InvalidArgumentError("bandit.durability", problem) from None


def _learned_per_second(bandit: pb.Bandit) -> int:
    path, most = "bandit.learned_per_second", MOST_LEARNED_PER_SECOND
    return fields.integer(path, bandit.learned_per_second, low=0, high=most) or DEFAULT_LEARNED_PER_SECOND


def _provisional_after_ms(bandit: pb.Bandit) -> int | None:
    if not bandit.HasField("provisional_after"):
        return None
    return _milliseconds("bandit.provisional_after", bandit.provisional_after, (MAX_REWARD_WAIT_MS, "90 days"))


def _enumerated(bandit: pb.Bandit, name: str, known: Enumeration[E], *, unset: E) -> E:
    """Return the value that a field has by its number, `unset` for zero."""
    number = getattr(bandit, name)
    value = known.values.get(number) if number else unset
    if value is None:
        raise InvalidArgumentError(f"bandit.{name}", f"{_UNKNOWN[name]} that this service knows: {number}")
    return value


def _reward_aggregation(bandit: pb.Bandit) -> Aggregation:
    return _enumerated(bandit, "reward_aggregation", AGGREGATIONS, unset=Aggregation.FIRST)


def _stage(bandit: pb.Bandit) -> Stage:
    return _enumerated(bandit, "stage", STAGES, unset=Stage.LIVE)


def _control_share(bandit: pb.Bandit) -> float:
    return fields.number("bandit.control_share", bandit.control_share, low=0.0, high=MAX_CONTROL_SHARE)


def _guardrail_margin(bandit: pb.Bandit) -> float | None:
    if not bandit.HasField("guardrail_margin"):
        return None
    return fields.number("bandit.guardrail_margin", bandit.guardrail_margin, low=0.0, high=1.0)


def _conservative_share(bandit: pb.Bandit) -> float:
    share = fields.number("bandit.conservative_share", bandit.conservative_share, low=0.0, high=1.0)
    if share == 1.0:
        raise InvalidArgumentError("bandit.conservative_share", "must be less than 1")
    return share


def _prior_study(bandit: pb.Bandit) -> str:
    """Return the id of the study that is the prior; empty for none."""
    if not bandit.prior_study:
        return ""
    path = "bandit.prior_study"
    study = fields.study_name(path, bandit.prior_study)
    if study.tenant != fields.bandit_name("bandit.name", bandit.name).tenant:
        raise InvalidArgumentError(path, f"must be a study of the bandit's tenant, not {study}")
    return study.study


def _baseline(bandit: pb.Bandit) -> tuple[str, ...]:
    return fields.item_ids("bandit.baseline_item_ids", bandit.baseline_item_ids)


# By the field that a mask names: the settings that it changes, and what reads their new values.
_READERS: Mapping[str, Mapping[str, Callable[[pb.Bandit], Any]]] = {
    "reward_wait": {"reward_wait_ms": _reward_wait_ms},
    "default_reward": {"default_reward": _default_reward},
    # Without a digest: its utilities are yet to be taken, also if the name is the same as before.
    "prior_study": {"prior_study": _prior_study, "prior_digest": lambda _: ""},
    "half_life": {"half_life_ms": _half_life_ms},
    "provisional_after": {"provisional_after_ms": _provisional_after_ms},
    "default_item_value": {"default_item_value": _default_item_value},
    "reward_range": {"reward_range": _reward_range},
    "reward_aggregation": {"reward_aggregation": _reward_aggregation},
    "requires_activation": {"requires_activation": lambda bandit: bandit.requires_activation},
    "item_capacity": {"item_capacity": lambda bandit: _item_capacity(bandit, low=1)},
    "baseline_item_ids": {"baseline_item_ids": _baseline},
    "item_schema": {"item_schema": _item_schema},
    "durability": {"durability": _durability},
    "learned_per_second": {"learned_per_second": _learned_per_second},
    "stage": {"stage": _stage},
    "control_share": {"control_share": _control_share},
    "guardrail_margin": {"guardrail_margin": _guardrail_margin},
    "conservative_share": {"conservative_share": _conservative_share},
    "rules": {"rules": lambda bandit: rules_from_proto("bandit.rules", bandit.rules)},
}
_CHANGEABLE = ("exploration", *sorted(_EXPLORATION), *_READERS, "context_schema")


def masked_change(
    bandit: pb.Bandit, paths: Iterable[str], default: Exploration
) -> Callable[[BanditSettings], BanditSettings]:
    """Return the change that `paths` name and `bandit` holds: from settings to those with the named fields changed.

    Raises
    ------
    InvalidArgumentError
        On ``update_mask`` when it is empty or names a field that can't be changed; on a field of ``bandit`` when its
        new value can't be used, which for item capacity and baseline the change itself finds out. Fields that the mask
        does not name are not looked at.
    """
    named = {leaf for path in paths for leaf in _leaves(path)}
    if not named:
        raise InvalidArgumentError("update_mask", f"is required; it may name {', '.join(_CHANGEABLE)}")
    exploration: dict[str, Any] = {}
    if named & _BETAS:
        is_named = f"exploration.{bandit.exploration.WhichOneof('beta')}" in named
        exploration["beta"] = _beta(bandit, default) if is_named else default.beta
    for name in _BESIDE_BETA:
        if f"exploration.{name}" in named:
            exploration[name] = _beside_beta(bandit, default, name)
    readers = [of_path for path, of_path in _READERS.items() if path in named]
    others = {name: read(bandit) for of_path in readers for name, read in of_path.items()}
    if "context_schema" in named:
        others |= _changed_schema(bandit)

    def change(settings: BanditSettings) -> BanditSettings:
        explored = replace(settings.exploration, **exploration)
        changed = replace(settings, exploration=explored, **others)
        if changed.item_capacity < settings.item_capacity:
            problem = f"can only be raised: it is {settings.item_capacity}, which can't become {changed.item_capacity}"
            raise InvalidArgumentError("bandit.item_capacity", problem)
        check_together(changed, path="bandit")
        return changed

    return change


def _changed_schema(bandit: pb.Bandit) -> dict[str, Any]:
    schema = _context_schema(bandit)
    return {"context_schema": schema} | ({} if schema is None else {"context_dim": width_of(schema)})


def _leaves(path: str) -> Iterable[str]:
    if path in _FIXED:
        raise InvalidArgumentError("update_mask", f"names {path}, which can't be changed")
    if path not in _CHANGEABLE:
        near = find_nearest(path, _CHANGEABLE)
        hint = "" if near is None else f": is it {near}?"
        problem = f"names {fields.quote_text(path)}{hint}; it may name {', '.join(_CHANGEABLE)}"
        raise InvalidArgumentError("update_mask", problem)
    return _EXPLORATION if path == "exploration" else (path,)
