from __future__ import annotations

import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Categorical, Feature, FeatureSchema, LabelSet, Numeric
from topk_bandit.domain.rules import (
    Apart,
    Count,
    Exclude,
    Exposure,
    Filter,
    Group,
    Pin,
    Rule,
    check_rules,
    describe_rule,
)

SCHEMA: FeatureSchema = (
    Feature("category", Categorical(("soup", "cake"))),
    Feature("brand", Categorical(buckets=8)),
    Feature("tags", LabelSet(("new",))),
    Feature("price", Numeric()),
)
SOUP, EACH_BRAND = Group("category", "soup"), Group("brand")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Exclude(("a", "b", "c")), "exclude a, b, c"),
        (Exclude(("a", "b", "c", "d")), "exclude 4 items"),
        (Filter("price<3"), "filter price<3"),
        (Pin(("a",), 2), "pin a at position 3"),
        (Pin(("a", "b"), 0), "pin one of 2 items at position 1"),
        (Count(Group(shown_fewer_than=1_000), least=1), "at least 1 of items shown fewer than 1000 times"),
        (Count(SOUP, least=1), "at least 1 of category soup"),
        (Count(SOUP, most=0), "at most 0 of category soup"),
        (Count(SOUP, least=1, most=3), "at least 1 and at most 3 of category soup"),
        (Count(EACH_BRAND, most=2), "at most 2 of each brand"),
        (Count(Group(item_ids=("a", "b")), least=1), "at least 1 of a, b"),
        (Apart(Group("tags", "new")), "no two of tags new beside each other"),
        (Exposure(SOUP, 0.05), "at least 0.05 of all slates show one of category soup"),
        (Exposure(Group(item_ids=("a",)), 1.0), "at least 1 of all slates show one of a"),
    ],
)
def test_rules_have_words_and_are_taken(rule: Rule, words: str) -> None:
    assert describe_rule(rule) == words
    check_rules([rule] * (8 if isinstance(rule, Exposure) else 32), SCHEMA, 3)


def test_eight_exposures_are_promised_at_most() -> None:
    with pytest.raises(InvalidArgumentError, match="rules: promise more than 8 exposures"):
        check_rules([Exposure(SOUP, 0.1)] * 9, SCHEMA, 3)


@pytest.mark.parametrize(
    ("rule", "field", "problem"),
    [
        (Exclude(()), "[1].exclude.item_ids", "must name an item"),
        (Exclude(("a", "b", "a")), "[1].exclude.item_ids", "names 'a' twice"),
        (Exclude(tuple(map(str, range(10_001)))), "[1].exclude.item_ids", "has 10001 items, more than 10000"),
        (Pin(("a",), 3), "[1].pin.position", "must be from 1 to 3, not 4"),
        (Pin(("a",), -1), "[1].pin.position", "must be from 1 to 3, not 0"),
        (Pin((), 0), "[1].pin.item_ids", "must name an item"),
        (Pin(("a", "a"), 0), "[1].pin.item_ids", "names 'a' twice"),
        (Pin(tuple(map(str, range(101))), 0), "[1].pin.item_ids", "has 101 items, more than 100"),
        (Count(SOUP, least=4), "[1].count.at_least", "must be from 0 to 3, not 4"),
        (Count(SOUP, least=-1), "[1].count.at_least", "must be from 0 to 3, not -1"),
        (Count(SOUP, least=2, most=1), "[1].count.at_most", "must be 2, which is at_least, or more, not 1"),
        (Count(SOUP, most=-1), "[1].count.at_most", "must be 0, which is at_least, or more, not -1"),
        (Count(SOUP), "[1].count", "needs at_least or at_most"),
        (Count(EACH_BRAND, least=1), "[1].count.at_least", "needs a group of one value"),
        (Count(Group(), 1), "[1].count.group.feature", "must name a feature"),
        (Count(Group("price"), most=1), "[1].count.group.feature", "price is neither categorical nor a label set"),
        (
            Count(Group(shown_fewer_than=1_001), 1),
            "[1].count.group.shown_fewer_than",
            "must be from 0 to 1000, not 1001",
        ),
        (Count(Group(shown_fewer_than=-1), 1), "[1].count.group.shown_fewer_than", "must be from 0 to 1000, not -1"),
        (
            Count(Group("brand", shown_fewer_than=1), 1),
            "[1].count.group.shown_fewer_than",
            "can't be used with a feature, a value or items",
        ),
        (
            Count(Group(value="soup", shown_fewer_than=1), 1),
            "[1].count.group.shown_fewer_than",
            "can't be used with a feature, a value or items",
        ),
        (Apart(Group(shown_fewer_than=1)), "[1].apart.shown_fewer_than", "is for count and exposure"),
        (Apart(Group(item_ids=("a",))), "[1].apart.item_ids", "is for count and exposure"),
        (
            Count(Group("brand", item_ids=("a",)), 1),
            "[1].count.group.item_ids",
            "can't be used with a feature or a value",
        ),
        (Count(Group(item_ids=("a", "a")), 1), "[1].count.group.item_ids", "names 'a' twice"),
        (
            Count(Group(item_ids=("a",), shown_fewer_than=1), 1),
            "[1].count.group.shown_fewer_than",
            "can't be used with a feature, a value or items",
        ),
        (Exposure(EACH_BRAND, 0.1), "[1].exposure.group", "needs a value, or items"),
        (Exposure(SOUP, 0.0), "[1].exposure.share", "must be above 0 and at most 1, not 0.0"),
        (Exposure(SOUP, float("nan")), "[1].exposure.share", "must be above 0 and at most 1, not nan"),
        (Exposure(SOUP, 1.01), "[1].exposure.share", "must be above 0 and at most 1, not 1.01"),
        (Apart(Group("categori")), "[1].apart.feature", "items have none 'categori', the nearest is 'category'"),
        (Apart(Group("price")), "[1].apart.feature", "price is neither categorical nor a label set"),
        (
            Count(Group("category", "soop"), 1),
            "[1].count.group.value",
            "category declares no value 'soop', the nearest is 'soup'",
        ),
        (Apart(Group("tags", "xyz")), "[1].apart.value", "tags declares no label 'xyz'"),
    ],
)
def test_what_is_no_rule_is_refused_by_its_field(rule: Rule, field: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_rules([Exclude(("x",)), rule], SCHEMA, 3)
    assert (refused.value.field, refused.value.problem) == (f"rules{field}", problem)


def test_rules_are_limited() -> None:
    with pytest.raises(InvalidArgumentError, match="rules: has 33 rules, more than 32"):
        check_rules([Exclude(("x",))] * 33, SCHEMA, 3)
