"""Conditions and groups of all items at once, against one item at a time."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.ruled import SCHEMA, Shop, draw_features

from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.domain.filters import accepts, parse_filter
from topk_bandit.learning.id_index import IdIndex
from topk_bandit.learning.item_table import ItemTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.features import FeatureValue

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
    met = ItemTable.of([f"i{n}" for n in range(len(features))], features).meet(condition)
    assert met.tolist() == [accepts(condition, one) for one in features]
    assert 0 < met.sum() < len(features)


@pytest.mark.parametrize("text", FILTERS)
def test_what_no_item_has_is_met_as_by_each_item(text: str) -> None:
    condition = parse_filter(text, SCHEMA)
    for features in ([Features()] * 3, [Features.of({"tags": (), "embedding": (0.5, 1.0)})] * 3):
        assert ItemTable.of(list("abc"), features).meet(condition).tolist() == [accepts(condition, features[0])] * 3


@pytest.mark.parametrize("feature", ["category", "tags", "price", "unknown"])
def test_groups_of_some_items_are_those_that_their_values_say(feature: str) -> None:
    rng = np.random.default_rng(1)
    shop = Shop.draw(40, rng)
    table, some = ItemTable.of(*shop), np.sort(rng.choice(40, size=25, replace=False))
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
    wanted = [shop.item_ids[place] for place in some[::-1]]
    values = table.values_of(feature, ["nowhere", *wanted])
    assert values == {one: several for one, several in zip(wanted, labels[::-1], strict=True) if several}
    for asked in (["none"], [], [*{*chain(*labels)}][:2]) if feature != "price" else ():
        have = np.flatnonzero(table.have_any(feature, asked))
        known = [dict(one.values).get(feature, ()) for one in shop.features]
        assert have.tolist() == [
            n for n, one in enumerate(known) if {*asked} & ({*one} if isinstance(one, tuple) else {one})
        ]


def test_places_of_items_that_are_not_there_are_passed_over() -> None:
    table = ItemTable.of(["a", None, "b"], [Features()] * 3)
    assert len(table) == 3
    assert table.places_of(["b", "x", "a"]).tolist() == [0, 2]
    assert table.places_of([]).tolist() == []


def test_features_are_given_back_as_they_were_sent() -> None:
    rng = np.random.default_rng(2)
    features = [*(draw_features(rng) for _ in range(60)), NO_FEATURES, Features.of({"tags": ()})]
    features.append(Features.of({"price": -0.0, "stock": False, "tags": ("new", "hot"), "embedding": (0.5, 1.0)}))
    table = ItemTable.of([f"i{n}" for n in range(len(features))], features)
    asked = [Features.of({name: value for name, value in one.values if name != "embedding"}) for one in features]
    assert table.features() == {place: one for place, one in enumerate(asked) if one.values}
    assert [table.features_at(place) for place in range(len(features))] == asked
    assert repr(table.features_at(len(features) - 1)) == repr(asked[-1])  # zero keeps its sign, a flag is no number


def test_a_table_after_any_changes_is_that_of_its_items() -> None:
    """Items that are changed, come, go and leave their places to others; groups have the same numbers, too."""
    rng = np.random.default_rng(3)
    features, ids = [NO_FEATURES] * 30, [f"i{n}" for n in range(30)]
    table = ItemTable.of(ids, features)
    for _ in range(60):
        n_more = int(rng.integers(3))
        ids += [f"i{len(ids) + n}" for n in range(n_more)]
        features += [NO_FEATURES] * n_more
        places = rng.choice(len(ids), size=int(rng.integers(1, 8)), replace=False)
        for place in places.tolist():
            features[place] = draw_features(rng) if rng.random() < 0.7 else NO_FEATURES
        table = table.change(IdIndex.of(ids), places, [features[place] for place in places])
        expected, every = ItemTable.of(ids, features), np.arange(len(ids))
        assert table.features() == expected.features() == {n: one for n, one in enumerate(features) if one.values}
        assert table.nbytes == expected.nbytes
        for name in ("category", "tags", "price"):
            assert [one.tolist() for one in table.groups_of(name, None, every)] == [
                one.tolist() for one in expected.groups_of(name, None, every)
            ]


@pytest.mark.parametrize(
    "first", [("tags", ()), ("tags", ("new",)), ("stock", False), ("category", "soup"), ("price", 0.0)]
)
@pytest.mark.parametrize("then", [None, ("tags", ("hot", "new")), ("tags", ())])
def test_the_first_value_of_a_feature_may_be_of_any_kind(
    first: tuple[str, FeatureValue], then: tuple[str, FeatureValue] | None
) -> None:
    index, features = IdIndex.of(["a", "b"]), [Features.of(dict([first])), NO_FEATURES]
    table = ItemTable.of(["a", "b"], [NO_FEATURES] * 2).change(index, np.array([0]), features[:1])
    if then is not None:
        features[1] = Features.of(dict([then]))
        table = table.change(index, np.array([1]), features[1:])
    assert [table.features_at(place) for place in (0, 1)] == features
    assert table.features() == ItemTable.of(["a", "b"], features).features()


def test_a_change_that_changes_no_value_copies_nothing() -> None:
    rng = np.random.default_rng(4)
    shop = Shop.draw(20, rng)
    table = ItemTable.of(*shop)
    same = table.change(IdIndex.of(shop.item_ids), np.array([7, 3]), [shop.features[7], shop.features[3]])
    dearer = dict(shop.features[5].values) | {"price": 99.0}
    changed = table.change(IdIndex.of(shop.item_ids), np.array([5]), [Features.of(dearer)])
    assert all(column is table._columns[name] for name, column in same._columns.items())
    assert {name for name, column in changed._columns.items() if column is not table._columns[name]} == {"price"}


def test_some_items_are_a_table_of_their_own() -> None:
    rng = np.random.default_rng(5)
    shop, some = Shop.draw(40, rng), np.array([31, 4, 17, 2])
    few = ItemTable.of(*shop).select(some)
    alone = ItemTable.of([shop.item_ids[n] for n in some], [shop.features[n] for n in some])
    assert (len(few), few.features()) == (4, alone.features())
    assert few.places_of([shop.item_ids[2], shop.item_ids[3], shop.item_ids[31]]).tolist() == [0, 3]
    for text in FILTERS:
        condition = parse_filter(text, SCHEMA)
        assert few.meet(condition).tolist() == alone.meet(condition).tolist()


@pytest.mark.parametrize(
    "features",
    [
        lambda n: {"price": n / 7, "kind": f"kind {n % 8}"},
        lambda n: {"price": n / 7, "title": f"a title of its own, {n}"},
        lambda n: {"tags": tuple(f"label {m}" for m in range(n % 4)), "stock": n % 3 > 0},
    ],
    ids=["two of eight kinds", "texts that differ", "labels and flags"],
)
def test_what_it_says_that_it_takes_is_what_it_takes(features: Callable[[int], dict[str, float | str]]) -> None:
    n_items = 5_000
    index = IdIndex.of([f"item-{n:07}" for n in range(n_items)])
    tracemalloc.start()
    try:
        table = ItemTable(index).change(index, np.arange(n_items), [Features.of(features(n)) for n in range(n_items)])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert abs(table.nbytes - taken) < 0.1 * taken
