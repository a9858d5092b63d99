"""Nested JSON as named features: names that a schema takes, schemas below their capacity, values of its kinds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.compat.personalizer.features import extend_schema, fit_features, flatten
from topk_bandit.domain.features import Boolean, Categorical, Feature, LabelSet, Numeric, Vector, width_of

if TYPE_CHECKING:
    from topk_bandit.domain.features import FeatureKind

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
objects = st.lists(st.dictionaries(st.text(max_size=80), values, max_size=6), max_size=4)


@pytest.mark.slow
@given(objects)
def test_any_json_makes_a_schema_within_bounds_that_takes_its_own_values(objects: list[dict[str, Any]]) -> None:
    flat = flatten(objects)
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,64}", name) for name in flat)
    contexts = extend_schema((), flat, buckets=16)
    items = extend_schema((), flat, buckets=8, spare=1, most_numbers=64)
    assert width_of(contexts) <= 256
    assert width_of(items) - len(items) <= 64
    own = {one.name: flat[one.name] for one in contexts}
    sets = {one.name for one in contexts if isinstance(one.kind, LabelSet)}
    fitted = {name: frozenset(value) if name in sets else value for name, value in own.items()}
    assert fit_features(flat, contexts) == {
        name: tuple(value) if isinstance(value, list) else value for name, value in fitted.items()
    }
    assert extend_schema(contexts, flat, buckets=16) == contexts


def test_paths_become_names() -> None:
    assert flatten([{"user": {"age": 31, "name": None}}, {"user": {"city": "Köln"}}, {"size": True, "_id": 7}]) == {
        "user.age": 31.0,
        "user.city": "Köln",
        "size": True,
    }
    assert flatten([{"a": [{"b": 1}, {"c": ["x", "y", "x"]}], "v": [1, 0.5], "mixed": [1, "x"], "none": []}]) == {
        "a.b": 1.0,
        "a.c": ["x", "y", "x"],
        "v": [1.0, 0.5],
        "mixed": [1.0, "x"],
    }
    assert flatten([{"a": [[1]], "b": [{"x": 1}, 3], "c": 1}]) == {"c": 1.0}
    [first], [second] = (flatten([{"n" * 70 + one: 1}]) for one in "ab")
    assert first != second


def test_different_paths_have_different_names() -> None:
    flat = flatten(
        [{"цвет": "красный", "цена": 5, "颜色": "红", "价格": 7, "größe": 1, "gr--e": 2, "a b": 3, "a-b": 4}]
    )
    assert sorted(map(str, flat.values())) == sorted(map(str, ["красный", 5.0, "红", 7.0, 1.0, 2.0, 3.0, 4.0]))
    again = flatten([{"seen": [{"price": 1}, {"price": 2}]}, {"seen": {"price": 3}}, {"seen.price": 4}])
    assert again == {"seen.price": 1.0, "seen.price.2": 2.0, "seen.price.3": 3.0, "seen.price.4": 4.0}
    first, second = flatten([{"a": "x" * 300, "b": "x" * 299 + "y"}]).values()
    assert first != second
    assert len(first) == len(second) == 256


@given(
    st.sets(
        st.lists(st.text(min_size=1, max_size=70).filter(lambda one: one[0] != "_"), min_size=1, max_size=3).map(tuple),
        max_size=6,
    )
)
def test_no_value_is_lost_to_another_of_its_name(paths: set[tuple[str, ...]]) -> None:
    objects = [nested(path, float(number)) for number, path in enumerate(sorted(paths))]
    assert sorted(flatten(objects).values()) == [float(number) for number in range(len(paths))]


def nested(path: tuple[str, ...], value: float) -> dict[str, Any]:
    return {path[0]: nested(path[1:], value) if len(path) > 1 else value}


def test_a_schema_grows_in_the_order_of_the_names_up_to_its_capacity() -> None:
    known = (Feature("z", Numeric()),)
    grown = extend_schema(known, {"b": "text", "a": True, "z": "another kind"}, buckets=16)
    assert grown == (*known, Feature("a", Boolean()), Feature("b", Categorical(buckets=16)))
    kinds = {"a": [1.0, 2.0], "b": ["x", "y"], "c": [1.0, "x"], "d": [True], "e": ["x", ""], "f": 1e101, "g": [1e101]}
    assert extend_schema((), kinds, buckets=16) == (Feature("a", Vector(2)), Feature("b", LabelSet(buckets=16)))
    assert len(extend_schema((), {f"n{n:03}": 1.0 for n in range(100)}, buckets=16)) == 64
    assert len(extend_schema((), {f"t{n:03}": "x" for n in range(100)}, buckets=16)) == 15


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        (3.0, Categorical(("3",)), "3"),
        (True, Categorical(("true",)), "true"),
        ("3.5", Numeric(), 3.5),
        ("three", Numeric(), None),
        ("inf", Numeric(), None),
        (True, Numeric(), None),
        ("x", LabelSet(("x",)), frozenset({"x"})),
        (3.0, LabelSet(("x",)), None),
        ("true", Boolean(), True),
        ([1.0, 2.0], Vector(3), None),
        (["2", 1.0], Vector(2), (2.0, 1.0)),
        (["x"], Categorical(("x",)), None),
    ],
)
def test_values_of_another_kind_are_read_where_that_says_the_same(
    value: object, kind: FeatureKind, read: object
) -> None:
    found = fit_features({"f": value, "unknown": 1.0}, (Feature("f", kind), Feature("missing", Numeric())))
    assert found == ({} if read is None else {"f": read})
