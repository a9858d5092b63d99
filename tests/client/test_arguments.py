"""Whatever a caller gives that can't be sent is InvalidArgument and names its field, before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from topk_bandit.client import (
    InvalidArgument,
    Item,
    PastAnswer,
    PastObservation,
    RewardRange,
    categorical,
    numeric,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.conftest import EitherClient

VAST, ENDLESS, SURROGATE = 10**400, 10**5000, "\ud800"
SLATE = ("a", "b")

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("recommend", (), {"features": {"age": VAST}}, 'features["age"]'),
    ("recommend", (), {"features": {"age": ENDLESS}}, 'features["age"]'),
    ("recommend", (), {"features": {"taste": [1.0, VAST]}}, 'features["taste"]'),
    ("recommend", (), {"features": {"land": SURROGATE}}, 'features["land"]'),
    ("recommend", (), {"features": {"tags": {"x", SURROGATE}}}, 'features["tags"]'),
    ("recommend", (), {"features": {SURROGATE: 1.0}}, "features"),
    ("recommend", (), {"features": {3: 1.0}}, "features"),
    ("recommend", (), {"features": {None: 1.0}}, "features"),
    ("recommend", ([1.0, "x"],), {}, "context[1]"),
    ("recommend", (3.0,), {}, "context"),
    ("recommend", (), {"candidates": "tea"}, "candidate_item_ids"),
    ("recommend", (), {"candidates": ["tea", 3]}, "candidate_item_ids[1]"),
    ("recommend", (), {"candidates": []}, "candidate_item_ids"),
    ("recommend", (), {"min_model_version": 2**70}, "min_model_version"),
    ("recommend", (), {"min_model_version": 1.5}, "min_model_version"),
    ("top_slates", (), {"limit": 2.5}, "limit"),
    ("activate", ("id",), {"shown": "ab"}, "shown_item_ids"),
    ("activate", ("id",), {"shown": []}, "shown_item_ids"),
    ("activate", (7,), {}, "recommendation_id"),
    ("reward", ("id", "x"), {}, "value"),
    ("reward", ("id", None), {}, "value"),
    ("reward", ("id", VAST), {}, "value"),
    ("reward", ("id", 1.0), {"reward_id": 7}, "reward_id"),
    ("reward", ("id", 1.0), {"item_values": {"tea": "x"}}, 'item_values["tea"]'),
    ("reward", ("id", 1.0), {"item_values": {"tea": None}}, 'item_values["tea"]'),
    ("reward", ("id", 1.0), {"item_values": [1.0]}, "item_values"),
    ("reward", ("id", 1.0), {"item_values": {3: 1.0}}, "item_values"),
    ("reward", ("id", 1.0), {"item_values": {SURROGATE: 1.0}}, "item_values"),
    ("amend_reward", ("id", 1.0), {"item_values": {"tea": VAST}}, 'item_values["tea"]'),
    ("rewards", ({"one": 1.0, "two": "x"},), {}, "rewards[1].value"),
    ("amend_reward", ("id", "x"), {}, "value"),
    ("void_reward", (7,), {}, "recommendation_id"),
    ("upsert_items", ("tea",), {}, "items"),
    ("upsert_items", ([3],), {}, "items[0]"),
    ("upsert_items", (["tea", SURROGATE],), {}, "items[1].item_id"),
    ("upsert_items", ([Item("tea", features={"price": VAST})],), {}, 'items["tea"].features["price"]'),
    ("retire_items", ("tea",), {}, "item_ids"),
    ("get_import", (7,), {}, "import_id"),
    ("update_bandit", (), {"item_capacity": 2**40}, "item_capacity"),
    ("update_bandit", (), {"reward_wait": 5.0}, "reward_wait"),
    ("update_bandit", (), {"half_life": "a week"}, "half_life"),
    ("update_bandit", (), {"reward_aggregation": "median"}, "reward_aggregation"),
    ("update_bandit", (), {"baseline_item_ids": "ab"}, "baseline_item_ids"),
    ("update_bandit", (), {"default_reward": "none"}, "default_reward"),
    ("update_bandit", (), {"shares_fall_after": 2.5}, "exploration.shares_fall_after"),
    ("update_bandit", (), {"reward_range": RewardRange(0.0, "x")}, "reward_range.max"),  # type: ignore[arg-type]
    ("update_bandit", (), {"context_schema": ["age"]}, "context_schema[0]"),
    ("update_bandit", (), {"context_schema": numeric("age")}, "context_schema"),
    ("update_bandit", (), {"context_schema": [numeric("age", minimum=0.0, maximum=VAST)]}, 'context_schema["age"].max'),
    ("update_bandit", (), {"item_schema": [vector("text", dimension=2.5)]}, 'item_schema["text"].dimension'),  # type: ignore[arg-type]
    ("update_bandit", (), {"item_schema": [categorical("kind", values=[1])]}, 'item_schema["kind"].values'),  # type: ignore[list-item]
    ("update_bandit", (), {"item_schema": [numeric(3)]}, "item_schema[0].name"),  # type: ignore[arg-type]
    ("create_bandit", (), {"slate_size": 2.5, "item_capacity": 9}, "slate_size"),
    ("create_bandit", (), {"slate_size": 2, "item_capacity": 9, "kernel": "best"}, "kernel"),
    ("create_study", ("tea",), {"answer_kind": "ranking", "list_size": 2, "budget": 5}, "items"),
    ("create_study", (["tea", "milk"],), {"answer_kind": "best", "list_size": 2, "budget": 5}, "answer_kind"),
    ("create_study", (["tea", "milk"],), {"answer_kind": "ranking", "list_size": 2, "budget": 2**40}, "budget"),
    (
        "create_study",
        ({"tea": ["x"]},),
        {"answer_kind": "pair", "list_size": 2, "budget": 5},
        'items["tea"].features[0]',
    ),
    ("submit_answers", ({"q": {"tea": "x"}},), {}, 'answers["q"].ratings["tea"]'),
    ("submit_answers", ({"q": 3},), {}, 'answers["q"].ranking'),
    ("import_answers", ([PastAnswer("tea", "tea")],), {"import_id": "x"}, "item_ids"),
]


@pytest.mark.parametrize(("call", "given", "named", "field"), CALLS)
def test_what_can_t_be_sent_is_refused_by_field(
    make: Callable[..., EitherClient], call: str, given: tuple[Any, ...], named: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        getattr(make("127.0.0.1:1"), call)("home", *given, **named)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (PastObservation("ab", 1.0), "item_ids"),  # type: ignore[arg-type]
        (PastObservation(SLATE, None), "reward"),  # type: ignore[arg-type]
        (PastObservation(SLATE, VAST), "reward"),
        (PastObservation(SLATE, 1.0, propensity="x"), "propensity"),  # type: ignore[arg-type]
        (PastObservation(SLATE, 1.0, item_values={"tea": "x"}), 'item_values["tea"]'),  # type: ignore[dict-item]
        (PastObservation(SLATE, 1.0, item_values=[1.0]), "item_values"),  # type: ignore[arg-type]
        (PastObservation(SLATE, 1.0, time="2026-01-31"), "time"),  # type: ignore[arg-type]
        (PastObservation(SLATE, 1.0, features={"age": VAST}), 'features["age"]'),
        (PastObservation(SLATE, 1.0, context=("x",)), "context[0]"),  # type: ignore[arg-type]
    ],
)
def test_a_past_row_that_can_t_be_sent_is_refused_by_field(
    make: Callable[..., EitherClient], row: PastObservation, field: str
) -> None:
    good = PastObservation(SLATE, 1.0, time=datetime(2026, 1, 31, tzinfo=UTC))
    with pytest.raises(InvalidArgument) as refused:
        make("127.0.0.1:1").import_observations("home", [good, row], import_id="year")
    assert refused.value.field == f"rows[1].{field}"
