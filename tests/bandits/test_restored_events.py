"""What is restored is held to the limits that callers are held to: each at its end, and just beyond it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from topk_bandit.bandits.restored_events import check_restored
from topk_bandit.domain.bandits import (
    Aggregation,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Item,
    Kernel,
    PaperBeta,
    RewardRange,
)
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Boolean, Feature, Features, Numeric, Vector
from topk_bandit.domain.rules import Filter, Pin, SlateRule
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.store.events import (
    Activated,
    Expired,
    Imported,
    ItemsChanged,
    PastSlate,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SettingsChanged,
    Shown,
)
from topk_bandit.store.log import MOST_REWARDS
from topk_bandit.store.recorded import (
    NamedItems,
    PostedReward,
    Provisional,
    Recorded,
    RecordState,
    aggregate,
    aggregate_items,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.slates import ItemValues

CONTEXT, SLATE = (1.0, -2.0), ("a", "b", "c")
SETTINGS = BanditSettings(
    item_capacity=5,
    slate_size=3,
    context_dim=2,
    kernel=Kernel.ADAPTIVE,
    exploration=Exploration(beta=ConstantBeta(1.0), uniform_share=0.1),
    reward_wait_ms=1000,
    default_reward=None,
)
SCHEMA = (Feature("age", Numeric()), Feature("taste", Vector(3)))
NAMED = replace(SETTINGS, context_schema=SCHEMA, context_dim=6)
WHOLE_FEATURES = Features.of({"age": 1e100, "taste": (1.0, -1e100, 0.0)})
GIVEN = Recommendation(
    recommendation_id="r",
    slate=SLATE,
    propensity=0.5,
    mean=0.0,
    standard_deviation=1.0,
    regret_bound=1.0,
    estimated_regret=0.5,
    explored=False,
    model_version=7,
    observations=5,
    position_propensities=(0.5, 0.5, 0.5),
)
MOST_WAIT_MS, DECADE_MS = 90 * 86_400_000, 3650 * 86_400_000


def field_of(restored: Any, settings: BanditSettings = SETTINGS) -> str | None:  # noqa: ANN401 - an archive has anything
    """Return the field that something is refused for, None if it is not."""
    try:
        check_restored(settings, restored)
    except InvalidArgumentError as error:
        return error.field
    return None


def exploring(**changes: Any) -> BanditSettings:  # noqa: ANN401 - of any field
    return replace(SETTINGS, exploration=replace(SETTINGS.exploration, **changes))


LIMITS: dict[str, tuple[Callable[[Any], BanditSettings], list[Any], list[Any]]] = {
    "settings.reward_wait_ms": (
        lambda value: replace(SETTINGS, reward_wait_ms=value),
        [0, MOST_WAIT_MS],
        [-1, MOST_WAIT_MS + 1],
    ),
    "settings.half_life_ms": (lambda value: replace(SETTINGS, half_life_ms=value), [0, DECADE_MS], [-1, DECADE_MS + 1]),
    "settings.learned_per_second": (lambda value: replace(SETTINGS, learned_per_second=value), [0], [-1, math.inf]),
    "settings.beta": (lambda value: exploring(beta=ConstantBeta(value)), [0.0, 1e6], [-1e-9, 1e6 + 1, math.nan]),
    "settings.uniform_share": (lambda value: exploring(uniform_share=value), [0.0, 1.0], [-1e-9, 1.0 + 1e-9]),
    "settings.near_share": (lambda value: exploring(near_share=value), [0.0, 1.0], [-1e-9, 1.0 + 1e-9]),
    "settings.shares_fall_after": (lambda value: exploring(shares_fall_after=value), [0, 100], [-1, 2**60]),
    "settings.baseline_item_ids": (
        lambda value: replace(SETTINGS, baseline_item_ids=value),
        [(), SLATE],
        [("a",), ("a", "b"), (*SLATE, "d")],
    ),
    "settings.guardrail_margin": (
        lambda value: replace(SETTINGS, guardrail_margin=value[0], control_share=value[1]),
        [(None, 0.0), (None, 0.1), (0.0, 0.1), (1.0, 0.1)],
        [(0.0, 0.0), (0.1, 0.0), (1.1, 0.1)],
    ),
    "settings.conservative_share": (
        lambda value: replace(SETTINGS, conservative_share=value[0], requires_activation=value[1]),
        [(0.0, False), (0.0, True), (0.5, False)],
        [(0.5, True), (-0.1, False), (1.1, False)],
    ),
    "settings.provisional_after": (
        lambda value: replace(SETTINGS, provisional_after_ms=value, reward_wait_ms=1000),
        [None, 0, 999],
        [1000, 1001],
    ),
    "settings.default_reward": (
        lambda value: replace(SETTINGS, default_reward=value, reward_range=RewardRange(-1.0, 2.0)),
        [None, -1.0, 2.0],
        [-1.1, 2.1],
    ),
}


@pytest.mark.parametrize("field", LIMITS)
def test_settings_are_held_to_their_limits(field: str) -> None:
    having, allowed, refused = LIMITS[field]
    for value in allowed:
        assert field_of(SettingsChanged(having(value)), having(value)) is None, value
    for value in refused:
        assert field_of(SettingsChanged(having(value)), having(value)) == field, value


def test_rules_are_those_of_the_bandits_slates() -> None:
    for position, field in ((2, None), (3, "settings.rules[0].pin.position")):
        having = replace(SETTINGS, rules=(SlateRule(Pin(("a",), position)),))
        assert field_of(SettingsChanged(having), having) == field
    for text, field in (("age < 3", None), ("age ~ 3", "request.rules[0].filter")):
        asked = RecommendationRequest("q", (0.5, 0.5), None, rules=(SlateRule(Filter(text)),))
        given = Recommended(asked, GIVEN)
        assert field_of(given, replace(SETTINGS, item_schema=SCHEMA)) == field


@pytest.mark.parametrize("beta", [PaperBeta, ConstantBeta])
def test_beta_is_held_to_its_limit_whatever_its_kind(beta: type[PaperBeta | ConstantBeta]) -> None:
    for value, field in ((1e6, None), (2e6, "settings.beta")):
        having = exploring(beta=beta(value))
        assert field_of(SettingsChanged(having), having) == field


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rewards_of_settings_are_held_to_their_limit(sign: float) -> None:
    for value, field in ((1e100 * sign, None), (2e100 * sign, "settings.reward")):
        low, high = sorted((0.0, value))
        for having in (
            replace(SETTINGS, default_reward=value),
            replace(SETTINGS, default_item_value=value),
            replace(SETTINGS, reward_range=RewardRange(low, high)),
        ):
            assert field_of(SettingsChanged(having), having) == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((None, 32e100, -32e100), None),
        ((None, 0.0), "item_values"),
        ((0.0, 0.0, 0.0, None), "item_values"),
        ((None, None, 33e100), "item_values"),
        ((math.nan, None, None), "item_values"),
    ],
)
def test_values_of_items_are_held_to_the_slate_and_to_their_limit(values: ItemValues, field: str | None) -> None:
    shown = Shown(CONTEXT, SLATE, 1)
    posted = PostedReward("", 1.0, 1.0, 3, NamedItems("0" * 16, "0" * 16, values))
    slate = Recorded("f", CONTEXT, GIVEN, 1, rewards=(posted,))
    learned = Provisional(1.0, 7, is_default=False, item_values=values)
    revised = RewardRevised("r", 1.0, shown, 0, is_default=False, was_default=False, is_final=False)
    for restored in (
        RewardCollected("r", "a", 1.0, item_values=values),
        Rewarded("r", 1.0, shown, item_values=values),
        RewardAmended("r", 1.0, item_values=values),
        Expired("r", 1.0, shown, item_values=values),
        replace(revised, item_values=values),
        replace(revised, item_values_before=values),
        Imported("i", 0, (PastSlate(CONTEXT, SLATE, 1.0, item_values=values),)),
        slate,
        replace(slate, rewards=(), state=RecordState.PROVISIONAL, provisional=learned),
    ):
        assert field_of(restored) == field, restored


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sums_that_a_slate_can_come_to_are_restored(sign: float) -> None:
    posted = PostedReward("", sign * 1e100, sign * 1e100, 3, NamedItems("0" * 16, "0" * 16, (sign * 1e100, None, None)))
    settings, rewards = replace(SETTINGS, reward_aggregation=Aggregation.SUM), (posted,) * MOST_REWARDS
    value, items = aggregate(Aggregation.SUM, rewards), aggregate_items(settings, rewards)
    assert value is not None
    assert abs(value) > 32e100  # rounded 31 times
    assert field_of(Rewarded("r", value, Shown(CONTEXT, SLATE, 1), item_values=items), settings) is None
    assert field_of(RewardAmended("r", math.nextafter(value, sign * math.inf)), settings) == "reward"


def test_schemas_have_to_be_what_a_learner_can_have() -> None:
    items = tuple(Feature(f"f{number}", Boolean()) for number in range(200))
    for having, field in (
        (NAMED, None),
        (replace(NAMED, context_dim=7), "settings.context_schema"),
        (replace(SETTINGS, item_schema=SCHEMA), None),
        (replace(SETTINGS, item_schema=SCHEMA, kernel=Kernel.WEIGHTED), "settings.item_schema"),
        (replace(SETTINGS, item_schema=items), "settings.item_schema"),
        (replace(SETTINGS, item_schema=items[:60], item_capacity=10**9), "settings.item_schema"),
    ):
        assert field_of(SettingsChanged(having), having) == field


def recommended(context: Any = CONTEXT, **changes: Any) -> Recommended:  # noqa: ANN401 - of any field
    return Recommended(RecommendationRequest("q", context, None), replace(GIVEN, **changes))


@pytest.mark.parametrize("name", ["passed_over", "observations", "model_version"])
def test_counts_of_a_recommendation_are_held_to_their_limits(name: str) -> None:
    field = f"recommendation.{name}"
    for value, expected in ((0, None), (2**31 - 1, None), (-1, field), (2**31, field)):
        assert field_of(recommended(**{name: value})) == expected


@pytest.mark.parametrize("name", ["propensity", "mean", "standard_deviation", "regret_bound", "estimated_regret"])
def test_figures_of_a_recommendation_are_held_to_their_limit(name: str) -> None:
    field = f"recommendation.{name}"
    for value, expected in ((1e120, None), (-1e120, None), (1.1e120, field), (-1.1e120, field), (math.nan, field)):
        assert field_of(recommended(**{name: value})) == expected


def test_propensities_of_positions_are_held_to_theirs() -> None:
    assert field_of(recommended(position_propensities=(1e120, 0.0, -1e120))) is None
    assert field_of(recommended(position_propensities=(0.5, 0.5, 1.1e120))) == "recommendation.position_propensities"


def in_each_event(context: Any, slate: tuple[str, ...]) -> list[Any]:  # noqa: ANN401 - of any kind
    """Return an event of each kind that has a context and a slate, and what a store remembers of an open one."""
    shown = Shown(context, slate, 1)
    given = replace(GIVEN, slate=slate)
    return [
        Recommended(RecommendationRequest("q", context, None), given),
        Activated("r", shown, instead=False),
        Rewarded("r", 1.0, shown),
        Expired("r", 1.0, shown),
        Imported("i", 0, (PastSlate(CONTEXT, SLATE, 1.0), PastSlate(context, slate, 1.0))),
        Recorded("f", context, given, 1, RecordState.PENDING),
        Recorded("f", context, given, 1, RecordState.INACTIVE),
    ]


@pytest.mark.parametrize(
    ("context", "slate", "field"),
    [
        (CONTEXT, SLATE, None),
        ((1e6, -1e6), SLATE, None),
        ((1.1e6, 0.0), SLATE, "context"),
        ((0.0, -1.1e6), SLATE, "context"),
        ((0.0, math.nan), SLATE, "context"),
        ((1.0,), SLATE, "context"),
        (Features.of({"age": 1.0}), SLATE, "features"),
        (CONTEXT, ("a", "b"), "slate"),
        (CONTEXT, ("a", "b", "a"), "slate"),
        (CONTEXT, ("a", "b", "c", "d"), "slate"),
    ],
)
def test_what_was_shown_is_checked_in_each_event(context: Any, slate: tuple[str, ...], field: str | None) -> None:  # noqa: ANN401
    for restored in in_each_event(context, slate):
        assert field_of(restored) == field, restored


def test_features_are_checked_by_name() -> None:
    bad_age = Features.of({"age": 1.1e100})
    bad_taste = Features.of({"taste": (1.0, -1.1e100, 0.0)})
    for features, field in ((WHOLE_FEATURES, None), (bad_age, 'features["age"]'), (bad_taste, 'features["taste"]')):
        assert field_of(recommended(features), NAMED) == field
        assert field_of(ItemsChanged((Item("x"), Item("y", features=features)))) == field
    assert field_of(recommended(CONTEXT), NAMED) == "context"


def test_of_a_slate_that_is_closed_the_context_may_be_missing() -> None:
    for state in (RecordState.REWARDED, RecordState.EXPIRED, RecordState.LAPSED, RecordState.VOID):
        assert field_of(Recorded("f", (), GIVEN, 1, state)) is None
    assert field_of(Recorded("f", (), GIVEN, 1, RecordState.PENDING)) == "context"
    assert field_of(Expired("r", None, None)) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rewards_are_held_to_what_all_of_a_slate_may_come_to(sign: float) -> None:
    """A slate's rewards may be added up, so that a learned one may be larger than a posted one."""
    shown, past = Shown(CONTEXT, SLATE, 1), PastSlate(CONTEXT, SLATE, 0.0)
    for value, field in ((sign * 3.1e101, None), (sign * 3.3e101, "reward"), (math.nan, "reward")):
        posted = [PostedReward("x", 0.0, None), PostedReward("y", 1.0, 1.0)]
        for restored in (
            Rewarded("r", value, shown),
            RewardCollected("r", "x", value),
            RewardAmended("r", value),
            RewardAmended("r", 0.0, value),
            RewardAmended("r", None, value),
            Expired("r", value, shown),
            Imported("i", 0, (past, replace(past, reward=value))),
            Recorded("f", CONTEXT, GIVEN, 1, rewards=(*posted, PostedReward("z", value, 0.0))),
            Recorded("f", CONTEXT, GIVEN, 1, rewards=(*posted, PostedReward("z", 0.0, value))),
        ):
            assert field_of(restored) == field, restored


def test_rewards_that_are_taken_back_are_none() -> None:
    assert field_of(RewardCollected("r", "x", None)) is None
    assert field_of(RewardAmended("r", None)) is None
