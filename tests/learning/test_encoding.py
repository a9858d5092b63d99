"""Named features as a vector: against a plain reading of the rules, and under every garbage that a shop can send."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector, width_of
from topk_bandit.learning.encoding import Encoder
from topk_bandit.learning.feature_records import COUNTS, FeatureRecord, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCHEMA = (
    Feature("age", Numeric(0.0, 100.0)),
    Feature("basket", Numeric()),
    Feature("price", Numeric(log_scale=True)),
    Feature("member", Boolean()),
    Feature("country", Categorical(("DE", "FR"))),
    Feature("page", Categorical(buckets=5)),
    Feature("tags", LabelSet(("new", "sale", "vegan"))),
    Feature("user", Vector(3, 2.0)),
)
BLOCKS = dict(
    zip(
        [feature.name for feature in SCHEMA],
        np.split(np.arange(width_of(SCHEMA)), np.cumsum([feature.kind.width for feature in SCHEMA])),
        strict=False,
    )
)
UNIT = 1.0 / math.sqrt(7.0 + 2.0**2)
"""What blocks are multiplied by: seven of weight 1 and one of weight 2."""


def shopper(rng: np.random.Generator) -> Features:
    return Features.of(
        {
            "age": float(rng.integers(18, 90)),
            "basket": float(40.0 + 15.0 * rng.normal()),
            "price": float(rng.lognormal(3.0, 1.0)),
            "member": bool(rng.random() < 0.5),
            "country": str(rng.choice(["DE", "FR", "PL"])),
            "page": f"/page/{rng.integers(50)}",
            "tags": tuple(str(tag) for tag in rng.choice(["new", "sale", "vegan", "odd"], rng.integers(4))),
            "user": tuple(5.0 * rng.normal(size=3)),
        }
    )


def without(features: Features, *names: str) -> Features:
    return Features(tuple((name, value) for name, value in features.values if name not in names))


def having(features: Features, **values: object) -> Features:
    return Features.of({**dict(features.values), **values})  # type: ignore[arg-type]


def learned(requests: Sequence[Features], schema: tuple[Feature, ...] = SCHEMA) -> Encoder:
    encoder = Encoder.initial(schema)
    for one in requests:
        encoder = encoder.observe(one)
    return encoder


@pytest.fixture(scope="module")
def requests() -> list[Features]:
    rng = np.random.default_rng(0)
    return [shopper(rng) for _ in range(300)]


@pytest.fixture(scope="module")
def encoder(requests: list[Features]) -> Encoder:
    return learned(requests)


def test_each_kind_is_encoded_as_the_rules_say(encoder: Encoder, requests: list[Features]) -> None:
    first = [dict(one.values) for one in requests[:256]]
    baskets, prices = (np.array([one[name] for one in first]) for name in ("basket", "price"))
    low, high = np.quantile(baskets, [0.16, 0.84])
    low_log, high_log = np.quantile(np.log(prices), [0.16, 0.84])
    length = np.median([np.linalg.norm(one["user"]) for one in first])
    features = Features.of(
        {
            "age": 75.0,
            "basket": 50.0,
            "price": 30.0,
            "member": False,
            "country": "FR",
            "tags": ("vegan", "new", "new", "other"),
            "user": (1.0, -2.0, 2.0),
        }
    )
    context, marks = encoder.encode(features)
    expected = np.zeros(width_of(SCHEMA))
    expected[BLOCKS["age"][0]] = (75.0 - 50.0) / (50.0 / math.sqrt(3.0))
    expected[BLOCKS["basket"][0]] = (50.0 - np.median(baskets)) / ((high - low) / 2.0 / 0.994)
    expected[BLOCKS["price"][0]] = (math.log(30.0) - np.median(np.log(prices))) / ((high_log - low_log) / 2.0 / 0.994)
    expected[BLOCKS["member"][0]] = -1.0
    expected[BLOCKS["country"][1]] = 1.0
    expected[BLOCKS["page"][-1]] = 1.0
    expected[BLOCKS["tags"][[0, 2, 3]]] = 1.0 / math.sqrt(3.0)
    expected[BLOCKS["user"][:3]] = 2.0 * np.array([1.0, -2.0, 2.0]) / length
    np.testing.assert_allclose(context, UNIT * expected, rtol=1e-12, atol=1e-15)
    in_range = Mark.IN_RANGE
    assert marks == (in_range, in_range, in_range, in_range, in_range, Mark.MISSING, Mark.UNKNOWN, in_range)


def test_hashed_texts_have_one_place_each_and_always_the_same(encoder: Encoder) -> None:
    block = BLOCKS["page"]
    places = {}
    for n in range(100):
        context = encoder.encode(Features.of({"page": f"/{n}"})).context[block]
        assert sorted(context.tolist()) == [0.0] * 5 + [UNIT]
        places[f"/{n}"] = int(np.argmax(context))
    assert set(places.values()) == set(range(5))
    # Written down: what was learned of a bucket must be found again by every later version.
    assert [places[f"/{n}"] for n in range(6)] == [0, 4, 0, 0, 3, 3]


@pytest.mark.parametrize(
    ("values", "name", "mark"),
    [
        ({"age": 101.0}, "age", Mark.CLAMPED),
        ({"age": 100.0}, "age", Mark.IN_RANGE),
        ({"basket": 1e4}, "basket", Mark.CLAMPED),
        ({"basket": -1e100}, "basket", Mark.CLAMPED),
        ({"price": 0.0}, "price", Mark.CLAMPED),
        ({"price": -3.0}, "price", Mark.CLAMPED),
        ({"country": "PL"}, "country", Mark.UNKNOWN),
        ({"user": (1e100, 0.0, -1e100)}, "user", Mark.CLAMPED),
        ({"user": (0.0, 0.0, 0.0)}, "user", Mark.IN_RANGE),
        ({}, "country", Mark.MISSING),
    ],
)
def test_odd_values_are_marked_and_counted(encoder: Encoder, values: dict[str, object], name: str, mark: Mark) -> None:
    features, place = having(Features(), **values), list(BLOCKS).index(name)
    assert encoder.encode(features).marks[place] is mark
    before, after = (one.records[place].stats(name) for one in (encoder, encoder.observe(features)))
    counts = [(one.clamped_count, one.unknown_count, one.missing_count) for one in (before, after)]
    grown = [later - earlier for earlier, later in zip(*counts, strict=True)]
    assert grown == [mark is Mark.CLAMPED, mark is Mark.UNKNOWN, mark is Mark.MISSING]


@pytest.mark.parametrize(
    ("name", "clamped", "wild"),
    [
        ("age", (101.0, 500.0, -400.0), (600.0, -1e100)),
        ("basket", (400.0, -200.0), (1e6, -1e100)),
        ("price", (1e3, 0.1, 0.0), (1e9, 1e-9)),
        ("user", ((30.0, 30.0, 30.0),), ((1e3, 0.0, -1e3), (1e100, 0.0, -1e100))),
    ],
)
def test_what_is_too_far_out_to_be_true_counts_as_missing(
    encoder: Encoder, name: str, clamped: Sequence[object], wild: Sequence[object]
) -> None:
    missing = encoder.encode(Features()).context
    for values, is_missing in ((clamped, False), (wild, True)):
        for value in values:
            context, marks = encoder.encode(having(Features(), **{name: value}))
            assert marks[list(BLOCKS).index(name)] is Mark.CLAMPED
            assert np.array_equal(context, missing) == is_missing, value


GARBAGE: dict[str, st.SearchStrategy[object]] = {
    "age": st.floats(-1e100, 1e100),
    "basket": st.floats(-1e100, 1e100),
    "price": st.floats(-1e100, 1e100),
    "member": st.booleans(),
    "country": st.text(max_size=5),
    "page": st.text(max_size=5),
    "tags": st.lists(st.sampled_from(["new", "sale", "vegan", "x", "y"]), max_size=8).map(tuple),
    "user": st.tuples(*[st.floats(-1e100, 1e100)] * 3),
}


@given(st.fixed_dictionaries({}, optional=GARBAGE))
def test_no_request_is_longer_than_a_few_ordinary_ones(values: dict[str, object]) -> None:
    encoder = _USED
    context, _ = encoder.encode(having(Features(), **values))
    assert np.isfinite(context).all()
    assert np.linalg.norm(context) <= 3.0
    for name, block in BLOCKS.items():
        assert np.linalg.norm(context[block]) <= 4.0 * UNIT * (1.0 + 1e-12), name


@given(st.lists(st.fixed_dictionaries({}, optional=GARBAGE), min_size=1, max_size=20))
def test_whatever_is_seen_first_later_contexts_stay_short(garbage: list[dict[str, object]]) -> None:
    requests = [having(Features(), **values) for values in garbage]
    encoder = learned([*requests, *_ORDINARY[:60]])
    for features in (*requests, *_ORDINARY[60:70]):
        context = encoder.encode(features).context
        assert np.isfinite(context).all()
        assert np.linalg.norm(context) <= 3.0


def test_ordinary_requests_have_a_length_of_about_one(encoder: Encoder) -> None:
    rng = np.random.default_rng(5)
    squares = [float(np.square(encoder.encode(shopper(rng)).context).sum()) for _ in range(400)]
    assert 0.8 < np.mean(squares) < 1.2


@pytest.mark.parametrize("norm", [5e-324, 1e-310, 5e-309, 1e-301, 1e-299, 1e-150])
def test_the_shortest_vectors_are_encoded_as_numbers(norm: float) -> None:
    """What they would have to be multiplied by is infinite."""
    encoder = Encoder.initial((Feature("user", Vector(2)),))
    for number in range(20):
        features = Features.of({"user": (norm, 0.0) if number % 2 else (0.0, -norm)})
        encoder = encoder.observe(features)
        encoded = encoder.encode(features).context
        assert np.isfinite(encoded).all()
        assert np.linalg.norm(encoded) < 10.0
    assert np.isfinite(encoder.encode(Features.of({"user": (1.0, 1.0)})).context).all()


@pytest.mark.parametrize("wildest", [-1e9, -1e100])
def test_a_few_wild_values_among_the_first_change_little(wildest: float) -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=64)
    wild = values.copy()
    wild[[3, 40]] = 1e4, wildest
    schema = (Feature("x", Numeric()),)
    (plain,), (record,) = (
        learned([Features.of({"x": float(one)}) for one in kind], schema).records for kind in (values, wild)
    )
    assert abs(record.centre - plain.centre) < 0.1
    assert abs(record.scale / plain.scale - 1.0) < 0.25


@pytest.mark.parametrize(
    "unit", [lambda x: x, lambda x: 100.0 * x, lambda x: 1e9 + x, lambda x: -x], ids=["dollars", "cents", "ids", "debt"]
)
def test_the_unit_of_a_number_makes_no_difference(unit: Callable[[float], float]) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=100)
    schema = (Feature("x", Numeric()),)
    converted = [Features.of({"x": unit(float(one))}) for one in values]
    plain = [Features.of({"x": float(one)}) for one in values]
    ours, theirs = learned(converted, schema), learned(plain, schema)
    sign = math.copysign(1.0, unit(1.0) - unit(0.0))
    for one, other in zip(converted, plain, strict=True):
        np.testing.assert_allclose(
            ours.encode(one).context * [sign, 1.0], theirs.encode(other).context, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("value", [0.0, 7.0, 1e9])
def test_a_constant_number_encodes_as_zero_and_takes_nothing_from_others(value: float) -> None:
    rng = np.random.default_rng(6)
    alone, both = (Feature("x", Numeric()),), (Feature("x", Numeric()), Feature("one", Numeric()))
    values = rng.normal(size=70).tolist()
    encoder = learned([Features.of({"x": one, "one": value}) for one in values], both)
    context = encoder.encode(Features.of({"x": 0.5, "one": value})).context
    plain = learned([Features.of({"x": one}) for one in values], alone).encode(Features.of({"x": 0.5})).context
    np.testing.assert_allclose(context, [*plain, 0.0, 0.0], rtol=1e-12)
    wild = encoder.encode(Features.of({"x": 0.5, "one": value + 1e6})).context
    np.testing.assert_allclose(wild, [*plain, 0.0, 0.0], rtol=1e-12)


def test_a_number_that_begins_to_vary_late_is_scaled_then() -> None:
    record = FeatureRecord.first(Numeric())
    for number in [3.0] * COUNTS[-1]:
        record = record.learn(number, is_norm=False)
    assert record.is_constant
    assert record.learns
    for number in np.random.default_rng(0).normal(size=COUNTS[-1]).tolist():
        record = record.learn(number, is_norm=False)
    assert 0.9 < record.scale < 1.1
    assert not record.learns
    assert not record.sample.size


def test_centre_and_scale_are_taken_at_few_counts_and_then_for_good() -> None:
    rng, schema = np.random.default_rng(7), (Feature("x", Numeric()),)
    encoder, changes = Encoder.initial(schema), []
    for n in range(1, 1500):
        after = encoder.observe(Features.of({"x": float(rng.normal() + 0.001 * n)}))
        if not after.encodes_alike(encoder):
            changes.append(n)
        encoder = after
    assert tuple(changes) == COUNTS
    assert encoder.records[0].stats("x").frozen


def rows_of(encoder: Encoder, requests: Sequence[Features], shared: float) -> np.ndarray:
    contexts = np.array([encoder.encode(one).context for one in requests])
    return np.column_stack([contexts, np.full(len(contexts), shared)])


@pytest.mark.parametrize("shared", [0.0625, 1.0, 16.0])
def test_recoded_contexts_are_those_of_the_same_features(requests: list[Features], shared: float) -> None:
    requests = [without(one, "basket") if n % 5 == 0 else one for n, one in enumerate(requests)]
    before, after = learned(requests[:100]), learned(requests)
    assert not after.encodes_alike(before)
    in_range = [one for one in requests if Mark.CLAMPED not in (*before.encode(one).marks, *after.encode(one).marks)]
    assert len(in_range) > 200
    recoded = after.recode(rows_of(before, in_range, shared), np.ones(len(in_range)), before, shared=shared)
    np.testing.assert_allclose(recoded, rows_of(after, in_range, shared), rtol=1e-10, atol=1e-12)


def test_the_first_few_requests_are_recoded_to_what_they_were(requests: list[Features]) -> None:
    encoder, seen = Encoder.initial(SCHEMA), np.zeros((0, width_of(SCHEMA) + 1))
    for features in requests[:20]:
        after = encoder.observe(features)
        seen = after.recode(seen, np.ones(len(seen)), encoder, shared=1.0)
        encoder, seen = after, np.vstack([seen, rows_of(after, [features], 1.0)])
    in_range = [n for n, one in enumerate(requests[:20]) if Mark.CLAMPED not in encoder.encode(one).marks]
    assert len(in_range) > 12
    np.testing.assert_allclose(seen[in_range], rows_of(encoder, requests[:20], 1.0)[in_range], rtol=1e-9, atol=1e-11)


def test_sums_of_contexts_are_recoded_as_the_sums_of_recoded_ones(requests: list[Features]) -> None:
    before, after = learned(requests[:100]), learned(requests)
    in_range = [one for one in requests if Mark.CLAMPED not in (*before.encode(one).marks, *after.encode(one).marks)]
    rows = rows_of(before, in_range[:40], 2.0)
    weights = np.random.default_rng(1).normal(size=(12, 40))
    recoded = after.recode(weights @ rows, np.full(12, 7.0), before, shared=2.0)
    np.testing.assert_allclose(
        recoded, weights @ after.recode(rows, np.ones(40), before, shared=2.0), rtol=1e-9, atol=1e-11
    )


def test_rows_from_another_world_are_cut_when_they_are_recoded() -> None:
    schema = (Feature("x", Numeric()),)
    tests = [Features.of({"x": float(one)}) for one in np.random.default_rng(0).normal(size=20)]
    real = [Features.of({"x": 1e6 + float(one)}) for one in np.random.default_rng(1).normal(size=1100)]
    before, after = learned(tests, schema), learned([*tests, *real], schema)
    recoded = after.recode(rows_of(before, tests, 1.0), np.ones(20), before, shared=1.0)
    assert np.linalg.norm(recoded[:, :-1], axis=1).max() <= 3.0


def test_a_grown_schema_keeps_what_rows_say_and_adds_zeros(encoder: Encoder, requests: list[Features]) -> None:
    kinds = {feature.name: feature.kind for feature in SCHEMA}
    grown = (
        Feature("device", Categorical(("phone",))),
        *(feature for feature in SCHEMA if feature.name != "country"),
        Feature("country", replace(kinds["country"], values=("PL", "DE", "FR"))),
    )
    after = encoder.with_schema(grown)
    recoded = after.recode(rows_of(encoder, requests[:50], 1.0), np.ones(50), encoder, shared=1.0)
    smaller = math.sqrt(11.0 / 12.0)
    for features, row in zip(requests[:50], recoded, strict=True):
        again = after.encode(features).context
        np.testing.assert_array_equal(row[:3], 0.0)
        np.testing.assert_allclose(row[3:-6], again[3:-5], rtol=1e-12, atol=1e-15)
        expected = encoder.encode(features).context[BLOCKS["country"]] * smaller
        np.testing.assert_allclose(row[-6:-1], [0.0, *expected], rtol=1e-12)


_rng = np.random.default_rng(9)
_ORDINARY = [shopper(_rng) for _ in range(80)]
_USED = learned(_ORDINARY)
