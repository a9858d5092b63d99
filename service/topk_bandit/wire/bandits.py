"""Bandits on the wire: enumerations, what settings are made of, and where a bandit stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Aggregation, BanditSettings, Kernel, RewardRange
from topk_bandit.domain.durability import Durability
from topk_bandit.domain.reward_times import ALMOST_ALL, HALF, NINE_TENTHS
from topk_bandit.domain.rules import ExposureStats
from topk_bandit.domain.stages import (
    ConservativeStats,
    GroupStats,
    Interval,
    LiftDay,
    LiftStats,
    LiftVerdict,
    ShadowStats,
    Stage,
)
from topk_bandit.domain.statistics import BanditStats, LogReach
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.wire.features import FEATURE_STATS, SCHEMA
from topk_bandit.wire.forms import MILLISECONDS, SPAN_MS, Enumeration, Form, Pair, duration
from topk_bandit.wire.rules import RULE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.reward_times import RewardTimes
    from topk_bandit.wire.forms import Part

__all__ = [
    "AGGREGATIONS",
    "CONSERVATIVE",
    "KERNELS",
    "LIFT",
    "LOG_REACH",
    "RANGE",
    "SETTINGS",
    "SETTING_PARTS",
    "SHADOW",
    "STAGES",
    "STATS",
    "write_stats",
]

KERNELS = Enumeration(Kernel, pb.Kernel)
AGGREGATIONS = Enumeration(Aggregation, pb.RewardAggregation)
STAGES = Enumeration(Stage, recommender_pb.Stage, unset=Stage.LIVE)

_CLAMP = Pair(
    lambda clamp: pb.OUT_OF_RANGE_CLAMPED if clamp else pb.OUT_OF_RANGE_REFUSED,
    lambda number: bool(number == pb.OUT_OF_RANGE_CLAMPED),
)
RANGE = Form(
    RewardRange, pb.RewardRange, names={"low": "min", "high": "max", "clamp": "out_of_range"}, parts={"clamp": _CLAMP}
)

SETTING_PARTS: Mapping[str, Part] = {
    "kernel": KERNELS,
    "reward_range": RANGE,
    "reward_aggregation": AGGREGATIONS,
    "context_schema": SCHEMA,
    "item_schema": SCHEMA,
    "durability": Pair(str, lambda text: Durability.parse(text) if text else None),
    "stage": STAGES,
    "rules": RULE,
}
"""How settings are made that are not the same on the wire, but for those with other units at both ends."""

SETTINGS = Form(
    BanditSettings,
    pb.Bandit,
    names={
        "context_dim": "context_dimension",
        "reward_wait_ms": "reward_wait",
        "half_life_ms": "half_life",
        "provisional_after_ms": "provisional_after",
    },
    parts={
        **SETTING_PARTS,
        "reward_wait_ms": SPAN_MS,
        "half_life_ms": Pair(lambda age_ms: duration(age_ms) if age_ms else None),
        "provisional_after_ms": SPAN_MS,
    },
    beside={"exploration", "prior_study", "prior_digest"},
)

_INTERVAL = Form(Interval, pb.Interval)
_GROUP = Form(GroupStats, pb.GroupStats)
SHADOW = Form(ShadowStats, pb.ShadowStats, names={"shared_items": "shared_item_mean"}, parts={"gain": _INTERVAL})
_LIFT_DAY = Form(
    LiftDay,
    pb.LiftDay,
    names={"start_ms": "start"},
    parts={"start_ms": MILLISECONDS, "bandit": _GROUP, "control": _GROUP, "difference": _INTERVAL},
)
LIFT = Form(
    LiftStats,
    pb.Lift,
    names={"since_ms": "since", "has_odd_groups": "odd_groups"},
    parts={
        "since_ms": MILLISECONDS,
        "bandit": _GROUP,
        "control": _GROUP,
        "verdict": Enumeration(LiftVerdict, pb.LiftVerdict),
        "difference": _INTERVAL,
        "ratio": _INTERVAL,
        "days": _LIFT_DAY,
    },
)

CONSERVATIVE = Form(
    ConservativeStats,
    pb.ConservativeStats,
    names={"since_ms": "since"},
    parts={"since_ms": MILLISECONDS, "own": _GROUP, "baseline": _GROUP},
)

LOG_REACH = Form(
    LogReach,
    pb.LogReach,
    names={"since_ms": "since"},
    parts={"since_ms": MILLISECONDS},
)


EXPOSURE = Form(ExposureStats, pb.ExposureStats, names={"shown": "shown_count"})


def _write_reward_times(times: RewardTimes) -> pb.RewardTimes:
    parts = {"half_by": HALF, "nine_tenths_by": NINE_TENTHS, "almost_all_by": ALMOST_ALL}
    came_by = {name: by_ms for name, part in parts.items() if (by_ms := times.came_by(part)) is not None}
    return pb.RewardTimes(
        slate_count=times.slates,
        points=[pb.RewardPoint(delay=duration(delay_ms), share=share) for delay_ms, share in times.points],
        reward_wait=duration(times.wait_ms),
        **{name: duration(by_ms) for name, by_ms in came_by.items()},
    )


STATS = Form(
    BanditStats,
    pb.GetBanditStatsResponse,
    names={"corrected": "corrected_reward_count"},
    parts={
        "reward_times": Pair(_write_reward_times),
        "shadow": SHADOW,
        "lift": LIFT,
        "log_reach": LOG_REACH,
        "exposures": EXPOSURE,
        "conservative": CONSERVATIVE,
        "context_features": FEATURE_STATS,
        "item_features": FEATURE_STATS,
    },
    beside={"reward_sum", "hyperparameters"},
)


def write_stats(stats: BanditStats) -> pb.GetBanditStatsResponse:
    """Return the message of where a bandit stands."""
    return STATS.write(stats, **asdict(stats.hyperparameters))
