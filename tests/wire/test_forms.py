"""What both ends of the wire make of each other's messages, and that no field is left out at either."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.client import operations, values
from topk_bandit.domain import rules as rule_values
from topk_bandit.domain.bandits import BanditSettings, RewardRange
from topk_bandit.domain.features import Boolean, Categorical, Feature, FeatureStats, LabelSet, Numeric, Vector
from topk_bandit.domain.operators import CallStatus, ModelGlance, QuotaUse, RankedSlate, SkippedEvent, StoreStatus
from topk_bandit.domain.rules import Absence, AbsenceReason, Apart, Count, Exclude, Filter, Pin, SlateRule
from topk_bandit.domain.stages import Group, GroupStats, Interval, LiftDay, LiftStats, LiftVerdict, ShadowStats, Stage
from topk_bandit.domain.statistics import BanditStats, HyperparameterStats
from topk_bandit.domain.studies import DesignProgress
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.wire import bandits, features, operators, recommendations, rules, studies
from topk_bandit.wire.forms import MILLISECONDS, SPAN_MS, Enumeration, Form

if TYPE_CHECKING:
    from topk_bandit.wire.forms import Part

COUNTS, NUMBERS = st.integers(0, 2**31 - 1), st.floats(allow_nan=False)
TEXTS, TIMES = st.text(max_size=8), st.integers(0, 4_000_000_000_000)
INTERVALS = st.builds(Interval, NUMBERS, NUMBERS, NUMBERS)
GROUPS = st.builds(GroupStats, COUNTS, COUNTS, NUMBERS)
SLATES = st.lists(TEXTS, max_size=3).map(tuple)
RULE_GROUPS = st.builds(rule_values.Group, TEXTS, st.none() | st.text(min_size=1, max_size=8), COUNTS)

SHARED: list[tuple[Part, st.SearchStrategy[Any]]] = [
    (MILLISECONDS, TIMES),
    (SPAN_MS, TIMES),
    (bandits.RANGE, st.builds(RewardRange, NUMBERS, NUMBERS, st.booleans(), st.booleans())),
    (bandits.SHADOW, st.builds(ShadowStats, COUNTS, COUNTS, NUMBERS, st.none() | INTERVALS)),
    (
        bandits.LIFT,
        st.builds(
            LiftStats,
            since_ms=TIMES,
            bandit=GROUPS,
            control=GROUPS,
            verdict=st.sampled_from(LiftVerdict),
            difference=st.none() | INTERVALS,
            ratio=st.none() | INTERVALS,
            further_requests=st.none() | COUNTS,
            has_odd_groups=st.booleans(),
            confidence=NUMBERS,
            guarded_position=COUNTS,
            guarded_reason=TEXTS,
            days=st.lists(st.builds(LiftDay, TIMES, GROUPS, GROUPS, st.none() | INTERVALS), max_size=3).map(tuple),
        ),
    ),
    (
        features.SCHEMA,
        st.lists(
            st.builds(
                Feature,
                TEXTS,
                st.builds(Numeric, st.none() | NUMBERS, st.none() | NUMBERS, TEXTS, st.booleans())
                | st.builds(Boolean)
                | st.builds(Categorical, SLATES, COUNTS)
                | st.builds(LabelSet, SLATES, COUNTS)
                | st.builds(Vector, COUNTS, NUMBERS),
            ),
            max_size=3,
        ).map(tuple),
    ),
    (
        features.FEATURE_STATS,
        st.builds(FeatureStats, TEXTS, NUMBERS, NUMBERS, st.booleans(), COUNTS, COUNTS, COUNTS, NUMBERS),
    ),
    (operators.QUOTA_USE, st.builds(QuotaUse, TEXTS, st.none() | COUNTS, st.none() | COUNTS)),
    (operators.RANKED_SLATE, st.builds(RankedSlate, SLATES, NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS)),
    (operators.CALL, st.builds(CallStatus, TEXTS, COUNTS, COUNTS, NUMBERS, NUMBERS, NUMBERS)),
    (operators.STORE, st.builds(StoreStatus, TEXTS, TEXTS, TEXTS, TEXTS, SLATES, COUNTS, COUNTS)),
    (operators.SKIPPED, st.builds(SkippedEvent, COUNTS, COUNTS, TEXTS)),
    (
        operators.GLANCE,
        st.builds(ModelGlance, COUNTS, COUNTS, COUNTS, COUNTS, NUMBERS, NUMBERS, NUMBERS, COUNTS, COUNTS),
    ),
    (
        rules.RULE,
        st.builds(
            SlateRule,
            st.builds(Exclude, SLATES)
            | st.builds(Filter, TEXTS)
            | st.builds(Pin, SLATES, st.integers(0, 11))
            | st.builds(Count, RULE_GROUPS, COUNTS, st.none() | COUNTS)
            | st.builds(Apart, RULE_GROUPS),
            st.booleans(),
        ),
    ),
    (rules.ABSENCE, st.builds(Absence, TEXTS, st.sampled_from(AbsenceReason), TEXTS)),
    (studies.PROGRESS, st.builds(DesignProgress, COUNTS, NUMBERS, NUMBERS, NUMBERS)),
]


@given(st.data())
def test_what_one_end_writes_the_other_end_reads(data: st.DataObject) -> None:
    form, known = data.draw(st.sampled_from(SHARED))
    value = data.draw(known)
    assert form.read(form.write(value)) == value


@pytest.mark.parametrize(
    "known",
    [
        bandits.KERNELS,
        bandits.AGGREGATIONS,
        bandits.STAGES,
        recommendations.OUTCOMES,
        recommendations.ACTIVATIONS,
        recommendations.GROUPS,
        operators.SOURCES,
        rules.ABSENCE_REASONS,
        studies.KINDS,
        studies.STATES,
        studies.OUTCOMES,
    ],
)
def test_an_enumeration_has_every_value_once(known: Enumeration[Any]) -> None:
    kind = type(next(iter(known.numbers)))
    assert list(known.numbers) == list(kind)
    assert all(known.read(known.write(value)) is value for value in kind)


def test_zero_stands_for_nothing_unless_it_is_said_for_what() -> None:
    assert bandits.STAGES.read(recommender_pb.STAGE_UNSPECIFIED) is Stage.LIVE
    assert recommendations.GROUPS.read(recommender_pb.GROUP_UNSPECIFIED) is Group.NONE
    with pytest.raises(KeyError):
        bandits.KERNELS.read(pb.KERNEL_UNSPECIFIED)


def names_of(kind: type[Any]) -> set[str]:
    return {one.name for one in fields(kind)}


def test_every_statistic_on_the_wire_is_one_of_the_clients() -> None:
    assert names_of(values.BanditStats) == set(pb.GetBanditStatsResponse.DESCRIPTOR.fields_by_name)


def test_every_statistic_of_the_domain_is_on_the_wire() -> None:
    known = set(pb.GetBanditStatsResponse.DESCRIPTOR.fields_by_name)
    written = {one.wire for one in bandits.STATS.described} | names_of(HyperparameterStats)
    assert written == known
    assert len(written) == len(names_of(BanditStats) - {"reward_sum", "hyperparameters"}) + len(
        names_of(HyperparameterStats)
    )


def test_every_setting_on_the_wire_is_one_of_both_ends() -> None:
    known = set(pb.Bandit.DESCRIPTOR.fields_by_name)
    written = {one.wire for one in bandits.SETTINGS.described}
    assert written | {"name", "exploration", "create_time", "prior_study"} == known
    assert names_of(BanditSettings) - {one.name for one in bandits.SETTINGS.described} == {
        "exploration",
        "prior_study",
        "prior_digest",
    }
    assert {one.wire for one in operations.BANDIT.described} | {"exploration"} == known


def test_a_field_that_is_not_on_the_wire_is_refused_at_once() -> None:
    @dataclass
    class Other:
        low: float
        widths: int

    with pytest.raises(ValueError, match="no field on the wire is like widths"):
        Form(Other, pb.Interval)
