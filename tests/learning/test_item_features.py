"""Rows of the content part: what they say of items, against a plain computation from all that was sent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from topk_bandit.domain.features import NO_FEATURES, Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.learning.content import validated_features
from topk_bandit.learning.item_features import ItemFeatures, content_width

SCHEMA = (
    Feature("price", Numeric(log_scale=True)),
    Feature("new", Boolean()),
    Feature("kind", Categorical(("tea", "coffee"))),
    Feature("tags", LabelSet(buckets=3)),
    Feature("look", Vector(2, 2.0)),
)
NOWHERE = np.empty(0, dtype=np.int32)


def offer(rng: np.random.Generator, *, share: float = 0.8) -> Features:
    values = {
        "price": float(rng.lognormal(3.0)),
        "new": bool(rng.random() < 0.3),
        "kind": str(rng.choice(["tea", "coffee", "mate"])),
        "tags": tuple(sorted({f"t{n}" for n in rng.integers(9, size=2).tolist()})),
        "look": tuple(rng.normal(size=2).tolist()),
    }
    return Features.of({name: value for name, value in values.items() if rng.random() < share})


def features_of(
    schema: tuple[Feature, ...], offers: list[Features], *, n_places: int, at_once: int = 1
) -> ItemFeatures:
    features = ItemFeatures.initial(schema, n_places=n_places)
    for start in range(0, len(offers), at_once):
        part = offers[start : start + at_once]
        places = np.arange(start, start + len(part), dtype=np.int32)
        free = np.arange(start + len(part), n_places, dtype=np.int32)
        features = features.change(places, part, free=free)
    return features


@pytest.mark.parametrize("at_once", [1, 7, 300])
def test_rows_are_what_the_kernel_takes_and_centred_of_the_mean_length(at_once: int) -> None:
    rng = np.random.default_rng(1)
    offers = [offer(rng) for _ in range(300)]
    features = features_of(SCHEMA, offers, n_places=310, at_once=at_once)
    rows = features.rows
    assert rows.shape == (310, content_width(SCHEMA)) == (310, 1 + 1 + 3 + 3 + 2)
    assert np.array_equal(validated_features(rows, n_items=310), rows)
    assert not rows[300:].any()
    assert np.abs(rows[:300].mean(axis=0)).max() < 0.05
    assert 0.25 < math.sqrt((rows[:300] ** 2).sum(axis=1).mean()) <= 0.5


def test_the_order_of_items_matters_little_once_there_are_many() -> None:
    rng = np.random.default_rng(2)
    offers = [offer(rng) for _ in range(256)]
    rows = features_of(SCHEMA, offers, n_places=256).rows
    backwards = features_of(SCHEMA, offers[::-1], n_places=256).rows[::-1]
    assert np.abs(rows - backwards).max() < 0.15
    assert np.corrcoef(rows.ravel(), backwards.ravel())[0, 1] > 0.99


def test_items_that_came_first_are_encoded_as_if_they_came_last() -> None:
    """Against an encoder that knew all of the items before it encoded one: nothing here was clamped."""
    rng = np.random.default_rng(3)
    schema = (Feature("price", Numeric()), Feature("kind", Categorical(("tea", "coffee"))))
    offers = [Features.of({"price": float(rng.uniform(5.0, 9.0)), "kind": "tea"}) for _ in range(64)]
    grown = features_of(schema, offers, n_places=64)
    encoded = np.array([grown.encoder.encode(one).context for one in offers])
    np.testing.assert_allclose(grown.encoded, encoded, atol=1e-9)


def test_a_feature_that_all_items_share_says_nothing() -> None:
    offers = [Features.of({"kind": "tea", "new": True}) for _ in range(20)]
    assert np.abs(features_of(SCHEMA, offers, n_places=20).rows).max() < 1e-12


def test_what_is_missing_is_average() -> None:
    rng = np.random.default_rng(4)
    before = features_of(SCHEMA, [offer(rng) for _ in range(100)], n_places=101)
    features = before.change(np.array([100], dtype=np.int32), [NO_FEATURES], free=NOWHERE)
    assert not features.rows[100].any()
    assert np.array_equal(features.rows[:100], before.rows[:100])
    assert features.taken == before.taken == 100, "an item without any feature is no value"


def test_what_is_sent_again_is_no_further_value() -> None:
    rng = np.random.default_rng(5)
    offers = [offer(rng) for _ in range(10)]
    once = features_of(SCHEMA, offers, n_places=10)
    again = once.change(np.arange(10, dtype=np.int32), offers, free=NOWHERE)
    assert again.taken == once.taken == 10
    assert np.allclose(again.rows, once.rows, atol=1e-9)
    assert [one.missing for one in again.encoder.records] == [one.missing for one in once.encoder.records]


def test_one_wild_price_changes_little_for_others() -> None:
    rng = np.random.default_rng(6)
    offers = [offer(rng, share=1.0) for _ in range(100)]
    ordinary = features_of(SCHEMA, offers, n_places=100).rows
    wild = [*offers[:50], Features.of({"price": 1e12}), *offers[51:]]
    rows = np.delete(features_of(SCHEMA, wild, n_places=100).rows, 50, axis=0)
    assert np.abs(rows - np.delete(ordinary, 50, axis=0)).max() < 0.1


def test_places_and_features_that_come_later_change_nothing_of_the_others() -> None:
    rng = np.random.default_rng(7)
    before = features_of(SCHEMA, [offer(rng) for _ in range(40)], n_places=40)
    wider = before.with_places(50)
    assert np.array_equal(wider.rows[:40], before.rows)
    assert not wider.rows[40:].any()
    grown = wider.with_schema((Feature("late", Boolean()), *SCHEMA)).rows
    assert not grown[:, 0].any()
    share = math.sqrt(len(SCHEMA) - 1 + 4.0), math.sqrt(len(SCHEMA) + 4.0)
    short = np.linalg.norm(before.rows, axis=1) < 0.9
    np.testing.assert_allclose(grown[:40, 1:][short], before.rows[short] * share[0] / share[1], atol=1e-9)
