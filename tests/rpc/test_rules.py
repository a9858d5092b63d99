"""Rules of a slate from the wire: what is none is refused by the name that its caller has for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.samples import recommendation
from tests.rpc.wire import HOME, bandit, longest_id

from topk_bandit.bandits.contexts import check_own_rules
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.rules import (
    Absence,
    AbsenceReason,
    Apart,
    Count,
    Exclude,
    Filter,
    Frequency,
    Group,
    Pin,
    SlateRule,
)
from topk_bandit.rpc.bandit_settings import masked_change, settings_from_proto, settings_to_proto
from topk_bandit.rpc.converters import recommendation_request, recommendation_to_proto
from topk_bandit.rpc.placements import page_of
from topk_bandit.v1 import features_pb2 as features_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1 import rules_pb2 as pb

SCHEMA = features_pb.FeatureSchema(
    features=[
        features_pb.Feature(name="price", numeric=features_pb.NumericFeature()),
        features_pb.Feature(name="category", categorical=features_pb.CategoricalFeature(values=["soup", "cake"])),
        features_pb.Feature(name="brand", categorical=features_pb.CategoricalFeature(buckets=8)),
    ]
)
MESSAGES = [
    pb.SlateRule(exclude=pb.ExcludedItems(item_ids=["a", "b"])),
    pb.SlateRule(filter="price < 20", may_relax=True),
    pb.SlateRule(pin=pb.PinnedItems(position=2, item_ids=["c", "d"])),
    pb.SlateRule(count=pb.ItemCount(group=pb.ItemGroup(feature="category", value="soup"), at_least=1)),
    pb.SlateRule(count=pb.ItemCount(group=pb.ItemGroup(feature="brand"), at_most=0)),
    pb.SlateRule(count=pb.ItemCount(group=pb.ItemGroup(shown_fewer_than=5), at_least=1, at_most=2)),
    pb.SlateRule(apart=pb.ItemGroup(feature="brand")),
    pb.SlateRule(frequency=pb.ItemFrequency(group=pb.ItemGroup(feature="brand"), at_most=2, within_seconds=60)),
    pb.SlateRule(frequency=pb.ItemFrequency(group=pb.ItemGroup(), at_most=1, within_seconds=9), may_relax=True),
]
RULES = (
    SlateRule(Exclude(("a", "b"))),
    SlateRule(Filter("price < 20"), may_relax=True),
    SlateRule(Pin(("c", "d"), 1)),
    SlateRule(Count(Group("category", "soup"), least=1)),
    SlateRule(Count(Group("brand"), most=0)),
    SlateRule(Count(Group(shown_fewer_than=5), least=1, most=2)),
    SlateRule(Apart(Group("brand"))),
    SlateRule(Frequency(Group("brand"), 2, 60)),
    SlateRule(Frequency(Group(), 1, 9), may_relax=True),
)


def asked(**fields: Any) -> recommender_pb.RecommendRequest:  # noqa: ANN401, of any field
    return recommender_pb.RecommendRequest(bandit=HOME, context=[1.0], **fields)


def test_rules_are_read_from_requests_and_bandits_and_written_back() -> None:
    _, wanted, _ = recommendation_request(asked(rules=MESSAGES, explain_item_ids=["x", "y"], frequency_key="v"))
    assert (wanted.rules, wanted.explain, wanted.frequency_key) == (RULES, ("x", "y"), "v")
    settings = settings_from_proto(bandit(rules=MESSAGES, item_schema=SCHEMA), DEFAULT_EXPLORATION)
    check_own_rules(settings)
    assert settings.rules == RULES
    assert list(settings_to_proto(settings).rules) == MESSAGES


def test_an_answer_names_relaxed_rules_and_absent_items() -> None:
    given = replace(
        recommendation(),
        relaxed=("filter price < 20",),
        paid=("at least 0.1 of all slates show one of brand x",),
        absent=(Absence("a", AbsenceReason.EXCLUDED, "exclude a, b"), Absence("z", AbsenceReason.UNKNOWN)),
    )
    answer = recommendation_to_proto(given)
    assert list(answer.relaxed_rules) == ["filter price < 20"]
    assert list(answer.paid_exposures) == ["at least 0.1 of all slates show one of brand x"]
    assert list(answer.absent_items) == [
        recommender_pb.AbsentItem(item_id="a", reason=recommender_pb.ABSENCE_REASON_EXCLUDED, rule="exclude a, b"),
        recommender_pb.AbsentItem(item_id="z", reason=recommender_pb.ABSENCE_REASON_UNKNOWN),
    ]


def test_a_frequency_of_a_request_needs_a_key_and_no_error_quotes_one() -> None:
    for fields, field in (
        ({"rules": MESSAGES[-1:]}, "frequency_key"),
        ({"frequency_key": "my name\n"}, "frequency_key"),
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            recommendation_request(asked(**fields))
        assert refused.value.field == field
        assert "my name" not in refused.value.problem
    page = recommender_pb.RecommendPageRequest(parent="tenants/acme", context=[1.0], frequency_key="my name\n" * 20)
    page.placements.add(bandit=HOME)
    with pytest.raises(InvalidArgumentError) as refused:
        page_of(page, new_id="new")
    assert "my name" not in refused.value.problem
    page.frequency_key = "v"
    page.placements.add(bandit=HOME, frequency_key="w")
    placed = [one.frequency_key for one in page_of(page, new_id="new").placements if not isinstance(one, Exception)]
    assert placed == ["v", "w"]


FEATURE = pb.ItemGroup(feature="brand")
MALFORMED: list[tuple[list[pb.SlateRule], str, str]] = [
    ([MESSAGES[0], pb.SlateRule()], "rules[1]", "needs one of exclude, filter, pin, count, apart, exposure, frequency"),
    ([pb.SlateRule(exclude=pb.ExcludedItems())], "rules[0].exclude.item_ids", "must not be empty"),
    ([pb.SlateRule(exclude=pb.ExcludedItems(item_ids=["a", ""]))], "rules[0].exclude.item_ids[1]", "is required"),
    (
        [pb.SlateRule(exclude=pb.ExcludedItems(item_ids=["a", "a"]))],
        "rules[0].exclude.item_ids[1]",
        "repeats rules[0].exclude.item_ids[0]: 'a'",
    ),
    (
        [pb.SlateRule(exclude=pb.ExcludedItems(item_ids=map(str, range(10_001))))],
        "rules[0].exclude.item_ids",
        "has 10001 entries; at most 10000 are allowed",
    ),
    (
        [pb.SlateRule(exclude=pb.ExcludedItems(item_ids=map(str, range(5_001))))] * 2,
        "rules",
        "exclude 10002 items together; at most 10000 are allowed",
    ),
    (
        [pb.SlateRule(pin=pb.PinnedItems(position=1, item_ids=map(str, range(101))))],
        "rules[0].pin.item_ids",
        "has 101 entries; at most 100 are allowed",
    ),
    ([pb.SlateRule(count=pb.ItemCount(at_most=1))], "rules[0].count.group", "is required"),
    ([pb.SlateRule(exposure=pb.ItemExposure(share=0.1))], "rules[0].exposure.group", "is required"),
    (
        [pb.SlateRule(exposure=pb.ItemExposure(group=FEATURE, share=0.1), may_relax=True)],
        "rules[0].may_relax",
        "can't be used with exposure, which no slate breaks",
    ),
    (
        [pb.SlateRule(count=pb.ItemCount(group=pb.ItemGroup(item_ids=map(str, range(101))), at_most=1))],
        "rules[0].count.group.item_ids",
        "has 101 entries; at most 100 are allowed",
    ),
    ([MESSAGES[1]] * 33, "rules", "has 33 rules; at most 32 are allowed"),
]


@pytest.mark.parametrize(("messages", "field", "problem"), MALFORMED)
def test_what_has_not_the_form_of_a_rule_is_refused(messages: list[pb.SlateRule], field: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as of_request:
        recommendation_request(asked(rules=messages))
    assert (of_request.value.field, of_request.value.problem) == (field, problem)
    with pytest.raises(InvalidArgumentError) as of_bandit:
        settings_from_proto(bandit(rules=messages, item_schema=SCHEMA), DEFAULT_EXPLORATION)
    assert of_bandit.value.field == f"bandit.{field}"


def test_no_more_than_a_hundred_items_are_explained_and_none_twice() -> None:
    for ids, field in ((["a", "a"], "explain_item_ids[1]"), ([str(one) for one in range(101)], "explain_item_ids")):
        with pytest.raises(InvalidArgumentError) as refused:
            recommendation_request(asked(explain_item_ids=ids))
        assert refused.value.field == field


UNFITTING: list[tuple[pb.SlateRule, str, str]] = [
    (
        pb.SlateRule(filter="pric < 20"),
        "filter",
        "at character 1: items have no feature 'pric', the nearest is 'price'",
    ),
    (pb.SlateRule(filter="price < 20 and"), "filter", "at character 15: got the end where a feature's name"),
    (pb.SlateRule(filter="price < 2" + " " * 4096), "filter", "has 4105 characters, more than 4096"),
    (pb.SlateRule(pin=pb.PinnedItems(item_ids=["a"])), "pin.position", "must be from 1 to 2, not 0"),
    (pb.SlateRule(pin=pb.PinnedItems(position=3, item_ids=["a"])), "pin.position", "must be from 1 to 2, not 3"),
    (pb.SlateRule(pin=pb.PinnedItems(position=-(2**31), item_ids=["a"])), "pin.position", "must be from 1 to 2"),
    (pb.SlateRule(count=pb.ItemCount(group=FEATURE)), "count", "needs at_least or at_most"),
    (pb.SlateRule(count=pb.ItemCount(group=FEATURE, at_most=-1)), "count.at_most", "must be 0"),
    (pb.SlateRule(count=pb.ItemCount(group=FEATURE, at_least=1)), "count.at_least", "needs a group of one value"),
    (
        pb.SlateRule(apart=pb.ItemGroup(feature="category", value="soap")),
        "apart.value",
        "category declares no value 'soap', the nearest is 'soup'",
    ),
    (pb.SlateRule(apart=pb.ItemGroup(shown_fewer_than=1)), "apart.shown_fewer_than", "is for count and exposure"),
]


@pytest.mark.parametrize(("message", "field", "problem"), UNFITTING)
def test_a_rule_that_is_none_of_the_bandits_items_is_refused(message: pb.SlateRule, field: str, problem: str) -> None:
    created = settings_from_proto(bandit(item_schema=SCHEMA), DEFAULT_EXPLORATION)
    change = masked_change(bandit(rules=[MESSAGES[0], message]), ["rules"], DEFAULT_EXPLORATION)
    with pytest.raises(InvalidArgumentError) as refused:
        check_own_rules(change(created))
    assert refused.value.field == f"bandit.rules[1].{field}"
    assert refused.value.problem.startswith(problem)


def test_a_mask_without_rules_keeps_them_and_one_with_rules_takes_them_away() -> None:
    created = settings_from_proto(bandit(rules=MESSAGES, item_schema=SCHEMA), DEFAULT_EXPLORATION)
    assert masked_change(bandit(), ["half_life"], DEFAULT_EXPLORATION)(created).rules == RULES
    assert masked_change(bandit(), ["rules"], DEFAULT_EXPLORATION)(created).rules == ()


def test_the_longest_ids_are_taken() -> None:
    longest = [longest_id(number) for number in range(10_000)]
    rule = pb.SlateRule(exclude=pb.ExcludedItems(item_ids=longest))
    _, wanted, _ = recommendation_request(asked(rules=[rule]))
    assert wanted.rules == (SlateRule(Exclude(tuple(longest))),)
