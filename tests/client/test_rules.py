"""Rules of a slate in the client: as a caller writes them, as the service has them, and what a fallback keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.client.conftest import BY_ONE_WAY, ONCE
from tests.waiting import PATIENCE

from topk_bandit.client import (
    Absence,
    AbsenceReason,
    Apart,
    Count,
    Exclude,
    Exposure,
    Filter,
    Frequency,
    InvalidArgument,
    Pin,
    categorical,
)
from topk_bandit.client.operations import recommendation_of
from topk_bandit.domain import rules as domain
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.rules import SlateRule
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.conftest import EitherClient
    from tests.rpc.harness import RunningServer

    from topk_bandit.client import Rule

NAME = BanditName("acme", "home")
RULES: list[tuple[Rule, domain.Rule]] = [
    (Exclude(("a", "b")), domain.Exclude(("a", "b"))),
    (Filter("brand == 'x'"), domain.Filter("brand == 'x'")),
    (Pin(1, ("a",)), domain.Pin(("a",), 0)),
    (Count("brand", at_most=0), domain.Count(domain.Group("brand"), 0, 0)),
    (Count("brand", "x", at_least=1), domain.Count(domain.Group("brand", "x"), 1)),
    (
        Count(shown_fewer_than=5, at_least=1, at_most=2),
        domain.Count(domain.Group(shown_fewer_than=5), 1, 2),
    ),
    (Count(item_ids=("a", "b"), at_least=1), domain.Count(domain.Group(item_ids=("a", "b")), 1)),
    (Apart("brand"), domain.Apart(domain.Group("brand"))),
    (Apart("brand", "x"), domain.Apart(domain.Group("brand", "x"))),
    (Frequency(1, 60), domain.Frequency(domain.Group(), 1, 60)),
    (Frequency(2, 60, "brand", "x"), domain.Frequency(domain.Group("brand", "x"), 2, 60)),
    (Frequency(3, 60, item_ids=("a", "b")), domain.Frequency(domain.Group(item_ids=("a", "b")), 3, 60)),
]
DECLARED = tuple(SlateRule(rule) for _, rule in RULES)


@pytest.fixture
def home(client: EitherClient) -> str:
    client.create_bandit("home", slate_size=2, item_capacity=20, item_schema=[categorical("brand", buckets=8)])
    client.upsert_items("home", ["a", "b", "c"])
    return "home"


def test_a_bandit_and_a_request_have_each_rule(server: RunningServer, client: EitherClient, home: str) -> None:
    rules = [rule for rule, _ in RULES]
    assert client.get_bandit(home).rules == ()
    assert client.update_bandit(home, rules=rules).rules == tuple(rules)
    assert server.shop.loops[NAME].record.settings.rules == DECLARED
    client.recommend(home, request_id="r", rules=rules, explain=["c", "z"], frequency_key="v")
    asked, _ = server.shop.loops[NAME].given["r"]
    assert (asked.rules, asked.explain, asked.frequency_key) == (DECLARED, ("c", "z"), "v")
    assert client.update_bandit(home, rules=None).rules == ()


def test_a_bandit_promises_exposures(server: RunningServer, client: EitherClient, home: str) -> None:
    promised = (Exposure(0.1, "brand", "x"), Exposure(0.2, item_ids=("a", "b")), Exposure(0.3, shown_fewer_than=5))
    assert client.update_bandit(home, rules=promised).rules == promised
    assert server.shop.loops[NAME].record.settings.rules == (
        SlateRule(domain.Exposure(domain.Group("brand", "x"), 0.1)),
        SlateRule(domain.Exposure(domain.Group(item_ids=("a", "b")), 0.2)),
        SlateRule(domain.Exposure(domain.Group(shown_fewer_than=5), 0.3)),
    )


def test_a_rule_may_be_relaxed_and_a_text_is_a_filter(server: RunningServer, client: EitherClient, home: str) -> None:
    relaxed = Pin(2, ["b", "a"], may_relax=True)
    client.recommend(home, request_id="r", rules=["brand in ['x']", relaxed, Exclude({"c", "b", "a"})])
    asked, _ = server.shop.loops[NAME].given["r"]
    assert asked.rules == (
        SlateRule(domain.Filter("brand in ['x']")),
        SlateRule(domain.Pin(("b", "a"), 1), may_relax=True),
        SlateRule(domain.Exclude(("a", "b", "c"))),  # of a set, in an order that is the same each time
    )


@BY_ONE_WAY
@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ("brand == 'x'", "rules"),
        ([Exclude(["a"]), 7], "rules[1]"),
        ([Exclude("ab")], "rules[0].exclude.item_ids"),
        ([Exclude(["a", 7])], "rules[0].exclude.item_ids[1]"),  # type: ignore[list-item]
        ([Pin("1", ["a"])], "rules[0]"),  # type: ignore[arg-type]
        ([Pin(2**31, ["a"])], "rules[0]"),
        ([Filter(7)], "rules[0]"),  # type: ignore[arg-type]
        ([Count("brand", at_most="two")], "rules[0]"),  # type: ignore[arg-type]
        ([Exclude(["a", "a"])], "rules[0].exclude.item_ids[1]"),
        ([Exclude([])], "rules[0].exclude.item_ids"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(
    server: RunningServer,
    client: EitherClient,
    home: str,
    rules: Any,  # noqa: ANN401 - whatever a caller gives
    field: str,
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        client.recommend(home, rules=rules)
    assert refused.value.field == field
    assert not server.shop.loops[NAME].given


def test_an_answer_names_relaxed_rules_and_absent_items() -> None:
    answer = pb.RecommendResponse(
        item_ids=["a"],
        relaxed_rules=["pin b at position 1"],
        paid_exposures=["at least 0.1 of all slates show one of brand x"],
        absent_items=[pb.AbsentItem(item_id="b", reason=pb.ABSENCE_REASON_FILTERED, rule="filter price < 2")],
    )
    slate = recommendation_of(answer)
    assert slate.relaxed_rules == ("pin b at position 1",)
    assert slate.paid_exposures == ("at least 0.1 of all slates show one of brand x",)
    assert slate.absent_items == (Absence("b", AbsenceReason.FILTERED, "filter price < 2"),)


OWN = ["z", "y", "x", "w"]


def test_a_fallback_keeps_what_is_excluded(
    server: RunningServer, make: Callable[..., EitherClient], target: str, home: str
) -> None:
    client = make(target, retry=ONCE)
    client.recommend(home, fallback=OWN, timeout=PATIENCE)
    server.shop.away = True
    rules = [Exclude(["y"]), Pin(1, ["w"]), Exclude({"z", "a"})]
    assert client.recommend(home, fallback=OWN, rules=rules).items == ("x", "w")
    broken: list[Any] = [7, [7], [Exclude("xy")], [Exclude(7)], [Exclude([7, "z"]), None]]  # type: ignore[arg-type]
    shown = [client.recommend(home, fallback=OWN, fallback_size=4, rules=rules).items for rules in broken]
    assert shown == [tuple(OWN), tuple(OWN), tuple(OWN), tuple(OWN), tuple(OWN[1:])]
