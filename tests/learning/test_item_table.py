"""Conditions and groups of all items at once, against one item at a time."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from tests.learning.ruled import SCHEMA, Shop, draw_features

from topk_bandit.domain.features import Features
from topk_bandit.domain.filters import accepts, parse_filter
from topk_bandit.learning.item_table import ItemTable

FILTERS = [
    "price < 4",
    "price <= 4",
    "price > 4",
    "price >= 4",
    "price == 4",
    "price != 4",
    "price in [1, 4, 7]",
    "stock == true",
    "stock != true",
    'category == "soup"',
    'category != "soup"',
    'category in ["soup", "cake"]',
    'tags has "new"',
    'not tags has "new"',
    'not (price < 4 or stock == true) and category != "cake"',
    'price > 2 and stock == true and tags has "hot" or category == "salad"',
]


@pytest.mark.parametrize("text", FILTERS)
def test_a_table_meets_a_condition_where_each_item_does(text: str) -> None:
    rng = np.random.default_rng(0)
    features = [*(draw_features(rng) for _ in range(300)), Features()]
    condition = parse_filter(text, SCHEMA)
    met = ItemTable([f"i{n}" for n in range(len(features))], features).meet(condition)
    assert met.tolist() == [accepts(condition, one) for one in features]
    assert 0 < met.sum() < len(features)


@pytest.mark.parametrize("text", FILTERS)
def test_what_no_item_has_is_met_as_by_each_item(text: str) -> None:
    condition = parse_filter(text, SCHEMA)
    for features in ([Features()] * 3, [Features.of({"tags": (), "embedding": (0.5, 1.0)})] * 3):
        assert ItemTable(list("abc"), features).meet(condition).tolist() == [accepts(condition, features[0])] * 3


@pytest.mark.parametrize("feature", ["category", "tags", "price", "unknown"])
def test_groups_of_some_items_are_those_that_their_values_say(feature: str) -> None:
    rng = np.random.default_rng(1)
    shop = Shop.draw(40, rng)
    table, some = ItemTable(*shop), np.sort(rng.choice(40, size=25, replace=False))
    named = [dict(shop.features[place].values).get(feature, ()) for place in some]
    labels = [value if isinstance(value, tuple) else (value,) for value in named]
    labels = [[] if feature == "price" else [str(one) for one in several] for several in labels]
    for value in {one for several in labels for one in several} | {"none"}:
        found = table.groups_of(feature, value, some)
        assert found.items.tolist() == [n for n, several in enumerate(labels) if value in several]
    every = table.groups_of(feature, None, some)
    assert np.bincount(every.items, minlength=25).tolist() == list(map(len, labels))
    groups = {group: set(every.items[every.groups == group].tolist()) for group in every.groups.tolist()}
    expected = [{n for n, several in enumerate(labels) if one in several} for one in {*chain(*labels)}]
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, expected))


def test_places_of_items_that_are_not_there_are_passed_over() -> None:
    table = ItemTable(["a", None, "b"], [Features()] * 3)
    assert len(table) == 3
    assert table.places_of(["b", "x", "a"]).tolist() == [0, 2]
    assert table.places_of([]).tolist() == []
