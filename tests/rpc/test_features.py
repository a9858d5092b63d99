"""Named features over the wire: what is taken, and what is refused by the name of the feature, all state unchanged."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import MemoryStores, run
from tests.rpc.whole import served

from topk_bandit.client import (
    AlreadyExists,
    Feature,
    InvalidArgument,
    boolean,
    categorical,
    labels,
    numeric,
    vector,
)
from topk_bandit.domain.features import Categorical

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.client import AsyncClient
    from topk_bandit.store.log import Store

SCHEMA = (
    numeric("basket", unit="EUR", log=True),
    numeric("age", minimum=0.0, maximum=100.0),
    categorical("country", values=["DE", "FR"]),
    categorical("page", buckets=8),
    boolean("member"),
    labels("tags", values=["new", "sale"]),
    vector("user", dimension=2, weight=2.0),
)
WHOLE: dict[str, Any] = {
    "basket": 12.5,
    "age": 31,
    "country": "DE",
    "page": "/home",
    "member": True,
    "tags": {"new", "odd"},
    "user": [0.5, -1.0],
}


def over_the_wire(scenario: Callable[[AsyncClient, Store], Awaitable[None]]) -> None:
    async def steps(store: Store) -> None:
        async with served(store) as client:
            await scenario(client, store)

    run(MemoryStores(), steps)


async def shop(client: AsyncClient, schema: tuple[Feature, ...] | None = SCHEMA) -> None:
    await client.create_bandit("home", slate_size=2, item_capacity=9, context_schema=schema)
    await client.upsert_items("home", ["a", "b", "c"])


def test_a_bandit_learns_from_named_features_and_tells_of_them() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        for n in range(20):
            given = await client.recommend("home", features=WHOLE | {"age": 20 + n, "country": "DE" if n else "PL"})
            await client.reward("home", given.id, float(n))
        await client.recommend("home", features={"age": 1000.0})
        await client.recommend("home")
        stats = {one.name: one for one in (await client.stats("home")).context_features}
        assert list(stats) == [feature.name for feature in SCHEMA]
        assert (stats["age"].clamped_count, stats["age"].missing_count, stats["age"].frozen) == (1, 1, True)
        assert (stats["country"].unknown_count, stats["country"].missing_count) == (1, 2)
        assert (stats["basket"].scale, stats["basket"].frozen) == (0.0, False)
        assert stats["basket"].centre == pytest.approx(math.log(12.5))
        assert stats["tags"].unknown_count == 20
        assert stats["user"].scale == pytest.approx(math.hypot(0.5, 1.0))
        assert stats["basket"].share == 0.0, "a number that never varies tells nothing"
        assert 0.0 < stats["age"].share < sum(one.share for one in stats.values()) < 1.0

    over_the_wire(scenario)


def test_a_schema_comes_back_as_it_was_given_and_can_grow() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        bandit = await client.get_bandit("home")
        assert bandit.context_schema == SCHEMA
        assert bandit.context_dimension == 2 + 2 + 4 + 9 + 2 + 4 + 3
        grown = (
            boolean("new"),
            *(f for f in SCHEMA if f.name != "country"),
            categorical("country", values=["FR", "PL", "DE"]),
        )
        changed = await client.update_bandit("home", context_schema=grown)
        assert changed.context_schema == grown
        assert changed.context_dimension == bandit.context_dimension + 3
        await client.recommend("home", features={"new": True, "country": "PL"})
        with pytest.raises(InvalidArgument) as refused:
            await client.update_bandit("home", context_schema=SCHEMA)
        assert refused.value.field == "bandit.context_schema"
        assert (await client.get_bandit("home")).context_schema == grown

    over_the_wire(scenario)


def test_a_bandit_without_a_schema_tells_of_long_contexts() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
        await client.upsert_items("home", ["a", "b", "c"])
        for n in range(20):
            await client.recommend("home", [1.0, 1e5 if n == 12 else 0.5])
        (stats,) = (await client.stats("home")).context_features
        assert (stats.name, stats.clamped_count) == ("", 1)
        assert stats.scale == pytest.approx(math.hypot(1.0, 0.5))

    over_the_wire(scenario)


@dataclass
class Basket:
    basket: float | None
    country: str


@pytest.mark.parametrize(
    "features",
    [{"basket": None, "country": "FR"}, {"country": "FR"}, Basket(None, "FR"), {"country": "FR", "page": ""}],
)
def test_what_is_none_or_empty_text_is_missing(features: object) -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        first = await client.recommend("home", features={"country": "FR"}, request_id="r")
        again = await client.recommend("home", features=features, request_id="r")
        assert again == first
        with pytest.raises(AlreadyExists, match="features"):
            await client.recommend("home", features={"country": "DE"}, request_id="r")

    over_the_wire(scenario)


BAD_FEATURES: list[tuple[Any, str]] = [
    ({"height": 1.0}, 'features["height"]'),
    ({"age": "old"}, 'features["age"]'),
    ({"age": True}, 'features["age"]'),
    ({"age": math.nan}, 'features["age"]'),
    ({"age": -math.inf}, 'features["age"]'),
    ({"age": 1e101}, 'features["age"]'),
    ({"age": [1.0]}, 'features["age"]'),
    ({"age": object()}, 'features["age"]'),
    ({"member": 2}, 'features["member"]'),
    ({"country": ["DE"]}, 'features["country"]'),
    ({"country": "x" * 257}, 'features["country"]'),
    ({"tags": "{new}"}, 'features["tags"]'),
    ({"tags": ["new", ""]}, 'features["tags"][1]'),
    ({"tags": [f"t{n}" for n in range(257)]}, 'features["tags"]'),
    ({"user": [1.0, 2.0, 3.0]}, 'features["user"]'),
    ({"user": [1.0, math.nan]}, 'features["user"][1]'),
    ({"user": [0.0] * 300}, 'features["user"]'),
    ({"a b": 1.0}, "features"),
    ({"x" * 65: 1.0}, "features"),
    ({f"f{n}": 1.0 for n in range(65)}, "features"),
    ([1.0], "features"),
]


def test_bad_features_are_refused_by_name() -> None:
    async def scenario(client: AsyncClient, store: Store) -> None:
        await shop(client)
        for features, field in BAD_FEATURES:
            with pytest.raises(InvalidArgument) as refused:
                await client.recommend("home", features=features)
            assert refused.value.field == field, features
            assert len(refused.value.details.message) <= 200, features
            assert re.search("got|not|allowed|leave it out|use 1 to 64", str(refused.value)), features
        assert await _positions(store) == [2]

    over_the_wire(scenario)


async def _positions(store: Store) -> list[int]:
    return [record.log_position for record in await store.list_bandits("acme", after="", limit=9)]


def test_context_and_features_exclude_each_other() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.create_bandit("raw", slate_size=2, item_capacity=9)
        await client.upsert_items("raw", ["a", "b", "c"])
        for bandit, context, features, field in [
            ("home", [1.0], {"age": 1.0}, "features"),
            ("home", [1.0] * 26, None, "context"),
            ("raw", (), {"age": 1.0}, "features"),
        ]:
            with pytest.raises(InvalidArgument) as refused:
                await client.recommend(bandit, context, features=features)
            assert refused.value.field == field

    over_the_wire(scenario)


def test_a_map_of_twenty_thousand_entries_is_refused() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        with pytest.raises(InvalidArgument) as refused:
            await client.recommend("home", features={f"f{n}": 1.0 for n in range(20_000)})
        assert refused.value.field == "features"

    over_the_wire(scenario)


BAD_SCHEMAS: list[tuple[tuple[Feature, ...], str]] = [
    ((), ".features"),
    (tuple(boolean(f"f{n}") for n in range(65)), ".features"),
    ((boolean("a"), boolean("")), ".features[1].name"),
    ((boolean("a b"),), ".features[0].name"),
    ((boolean("ä"),), ".features[0].name"),
    ((boolean("x" * 65),), ".features[0].name"),
    ((boolean("a"), numeric("b"), numeric("a")), ".features[2].name"),
    ((numeric("a", minimum=1.0),), ".features[0].numeric.max"),
    ((numeric("a", maximum=1.0),), ".features[0].numeric.min"),
    ((numeric("a", minimum=2.0, maximum=1.0),), ".features[0].numeric.max"),
    ((numeric("a", minimum=1.0, maximum=1.0),), ".features[0].numeric.max"),
    ((numeric("a", minimum=math.nan, maximum=1.0),), ".features[0].numeric.min"),
    ((numeric("a", minimum=0.0, maximum=math.inf),), ".features[0].numeric.max"),
    ((numeric("a", minimum=0.0, maximum=1.0, log=True),), ".features[0].numeric.min"),
    ((numeric("a", unit="x" * 65),), ".features[0].numeric.unit"),
    ((numeric("a", unit="\n"),), ".features[0].numeric.unit"),
    ((categorical("a"),), ".features[0].categorical"),
    ((categorical("a", values=["x"], buckets=3),), ".features[0].categorical"),
    ((categorical("a", buckets=1),), ".features[0].categorical.buckets"),
    ((categorical("a", buckets=256),), ".features[0].categorical.buckets"),
    ((categorical("a", values=["x", "y", "x"]),), ".features[0].categorical.values[2]"),
    ((categorical("a", values=["x", ""]),), ".features[0].categorical.values[1]"),
    ((categorical("a", values=["x\x00"]),), ".features[0].categorical.values[0]"),
    ((categorical("a", values=["x" * 129]),), ".features[0].categorical.values[0]"),
    ((categorical("a", values=[str(n) for n in range(10**5)]),), ".features[0].categorical.values"),
    ((categorical("a", values=[str(n) for n in range(255)]),), ""),
    ((labels("a", buckets=-1),), ".features[0].labels.buckets"),
    ((vector("a", dimension=0),), ".features[0].vector.dimension"),
    ((vector("a", dimension=256),), ".features[0].vector.dimension"),
    ((vector("a", dimension=2, weight=-1.0),), ".features[0].vector.weight"),
    ((vector("a", dimension=2, weight=5e-324),), ".features[0].vector.weight"),
    ((vector("a", dimension=2, weight=math.nan),), ".features[0].vector.weight"),
    ((vector("a", dimension=200), vector("b", dimension=200)), ""),
]


def test_bad_schemas_are_refused_by_field() -> None:
    async def scenario(client: AsyncClient, store: Store) -> None:
        for schema, field in BAD_SCHEMAS:
            with pytest.raises(InvalidArgument) as refused:
                await shop(client, schema)
            assert refused.value.field == f"bandit.context_schema{field}", schema
            if any(kind in field for kind in (".numeric", ".categorical", ".labels", ".vector")):
                assert str(refused.value).endswith(f'(feature "{schema[0].name}")'), schema
        assert await _positions(store) == []
        await shop(client)
        for schema, field in BAD_SCHEMAS:
            with pytest.raises(InvalidArgument) as refused:
                await client.update_bandit("home", context_schema=schema)
            assert refused.value.field == f"bandit.context_schema{field}", schema
        assert await _positions(store) == [2]

    over_the_wire(scenario)


def test_the_widest_schema_is_taken() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client, (categorical("a", values=[str(n) for n in range(254)]),))
        assert (await client.get_bandit("home")).context_dimension == 256
        given = await client.recommend("home", features={"a": "7"})
        await client.reward("home", given.id, 1.0)

    over_the_wire(scenario)


def test_more_buckets_are_refused_with_the_reason() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        more = tuple(replace(f, kind=Categorical(buckets=9)) if f.name == "page" else f for f in SCHEMA)
        with pytest.raises(InvalidArgument, match="its values would be taken for others") as refused:
            await client.update_bandit("home", context_schema=more)
        assert refused.value.field == "bandit.context_schema.features[3]"

    over_the_wire(scenario)
