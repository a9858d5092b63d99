"""Features of items over the wire: what is taken and given back, and what is refused by the name of the feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import MemoryStores, run
from tests.rpc.whole import served

from topk_bandit.bandits.contexts import take_mask
from topk_bandit.client import InvalidArgument, Item, Kernel, NotFound, boolean, categorical, labels, numeric, vector
from topk_bandit.domain.bandits import ItemMask
from topk_bandit.domain.features import Boolean, Feature
from topk_bandit.rpc import converters
from topk_bandit.rpc.converters import item_upsert
from topk_bandit.rpc.json_reading import message_of
from topk_bandit.v1 import bandit_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.client import AsyncClient
    from topk_bandit.store.log import Store

SCHEMA = (
    numeric("price", unit="EUR", log=True),
    categorical("kind", values=["tea", "coffee"]),
    boolean("new"),
    labels("tags", values=["sale", "bio"]),
    vector("look", dimension=2),
)
WHOLE: dict[str, Any] = {"price": 2.5, "kind": "tea", "new": True, "tags": frozenset({"bio", "x"}), "look": (0.5, -1.0)}


def over_the_wire(scenario: Callable[[AsyncClient, Store], Awaitable[None]]) -> None:
    async def steps(store: Store) -> None:
        async with served(store) as client:
            await scenario(client, store)

    run(MemoryStores(), steps)


async def shop(client: AsyncClient) -> None:
    await client.create_bandit("home", slate_size=2, item_capacity=9, item_schema=SCHEMA)


async def listed(client: AsyncClient) -> list[Item]:
    return [item async for item in client.items("home")]


def test_items_come_back_with_the_features_that_they_were_sent_with() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        assert (await client.get_bandit("home")).item_schema == SCHEMA
        await client.upsert_items("home", [Item("a", features=WHOLE), Item("b", available=False), "c"])
        assert await listed(client) == [Item("a", features=WHOLE), Item("b", available=False), Item("c")]
        await client.upsert_items("home", {"a": {"price": 3.0, "kind": None, "tags": []}, "d": WHOLE})
        features = {item.item_id: item.features for item in await listed(client)}
        assert features == {"a": {"price": 3.0, "tags": frozenset()}, "b": {}, "c": {}, "d": WHOLE}
        given = await client.recommend("home")
        await client.reward("home", given.id, 1.0)
        stats = await client.stats("home")
        assert [one.name for one in stats.item_features] == [feature.name for feature in SCHEMA]
        assert [one.unknown_count for one in stats.item_features] == [0, 0, 0, 2, 0]
        assert all(0.0 <= one.share <= 1.0 for one in stats.item_features)
        assert stats.content_share > 0.0

    over_the_wire(scenario)


def test_a_mask_leaves_what_it_does_not_name() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.upsert_items("home", {"a": WHOLE, "b": WHOLE})
        assert await client.set_available("home", ["a", "b"], available=False) == 2
        assert await listed(client) == [Item(one, available=False, features=WHOLE) for one in "ab"]
        changed = {"price": 3.0, "kind": "coffee"}
        await client.upsert_items("home", {"a": changed, "b": {}}, mask=["features.price", "available"])
        left = {name: value for name, value in WHOLE.items() if name != "price"}
        assert await listed(client) == [Item("a", features={**WHOLE, "price": 3.0}), Item("b", features=left)]
        await client.upsert_items("home", [Item("a", available=False, features=changed)], mask=["features"])
        assert (await listed(client))[0] == Item("a", features=changed)

    over_the_wire(scenario)


def test_a_mask_makes_items_only_where_it_may() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.upsert_items("home", {"a": WHOLE})
        with pytest.raises(NotFound, match="home/items/b"):
            await client.set_available("home", ["a", "b"], available=False)
        assert await listed(client) == [Item("a", features=WHOLE)]
        await client.upsert_items("home", {"b": WHOLE}, mask=["available"], allow_missing=True)
        assert await listed(client) == [Item(one, features=WHOLE) for one in "ab"]

    over_the_wire(scenario)


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ([], "update_mask: is empty"),
        (["item_id"], "update_mask: names 'item_id'; it may name unavailable, features, or features.NAME"),
        (["features.a b"], "update_mask: names 'features.a b'"),
        (["features."], "update_mask: names 'features.'"),
        (
            ["features.prize"],
            "update_mask: features.prize is not in the schema, which has price, kind, new, tags, look: is it price",
        ),
    ],
)
def test_masks_that_name_no_part_are_refused(mask: list[str], problem: str) -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.upsert_items("home", {"a": WHOLE})
        with pytest.raises(InvalidArgument) as refused:
            await client.upsert_items("home", ["a"], mask=mask)
        assert problem in str(refused.value)
        assert refused.value.field == "update_mask"
        assert await listed(client) == [Item("a", features=WHOLE)]

    over_the_wire(scenario)


def test_a_page_of_large_items_has_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One item is always there, so that the pages come to an end."""
    monkeypatch.setattr(converters, "_MOST_PAGE_BYTES", 200)
    items = [Item(f"i{number}", features=WHOLE if number % 3 else {}) for number in range(9)]

    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.upsert_items("home", items)
        assert await listed(client) == items
        page = await client._run(client._operations.list_items("home", ""), None)
        assert 1 <= len(page.entries) < len(items)

    over_the_wire(scenario)


@pytest.mark.parametrize(("written", "meant"), [("isNew", "is_new"), ("hasBox", "hasBox"), ("Price", "Price")])
def test_a_mask_in_json_names_features_in_camel_case(written: str, meant: str) -> None:
    content = {"bandit": "tenants/acme/bandits/home", "items": [{"itemId": "a"}], "updateMask": f"features.{written}"}
    _, _, mask = item_upsert(message_of(content, pb.UpsertItemsRequest()))
    schema = tuple(Feature(name, Boolean()) for name in ("is_new", "hasBox", "Price", "has"))
    taken = take_mask(schema, mask)
    assert taken == ItemMask(availability=False, features=frozenset({meant}), creates=False)


def test_a_dataclass_tells_an_item_too() -> None:
    @dataclass
    class Tea:
        price: float
        kind: str | None = None

    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        await client.upsert_items("home", {"a": Tea(2.0), "b": Tea(3.0, "tea")})
        assert [item.features for item in await listed(client)] == [{"price": 2.0}, {"price": 3.0, "kind": "tea"}]

    over_the_wire(scenario)


@pytest.mark.parametrize(
    ("features", "field"),
    [
        ({"price": float("nan")}, 'items[1].features["price"]'),
        ({"price": "cheap"}, 'items[1].features["price"]'),
        ({"price": 1e101}, 'items[1].features["price"]'),
        ({"height": 1.0}, 'items[1].features["height"]'),
        ({"look": [1.0, 2.0, 3.0]}, 'items[1].features["look"]'),
        ({"a b": 1.0}, "items[1].features"),
        ({f"f{n}": 1.0 for n in range(65)}, "items[1].features"),
    ],
)
def test_features_that_do_not_fit_are_refused(features: dict[str, Any], field: str) -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await shop(client)
        with pytest.raises(InvalidArgument) as refused:
            await client.upsert_items("home", {"a": WHOLE, "b": features})
        assert refused.value.field == field
        assert await listed(client) == []

    over_the_wire(scenario)


def test_features_without_a_schema_are_refused() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await client.create_bandit("home", slate_size=2, item_capacity=9)
        with pytest.raises(InvalidArgument) as refused:
            await client.upsert_items("home", [Item("a", features=WHOLE)])
        assert refused.value.field == "items[0].features"
        assert (await client.get_bandit("home")).item_schema is None

    over_the_wire(scenario)


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ([], ""),
        ([vector("look", dimension=65)], ""),
        ([categorical("kind", buckets=60), vector("look", dimension=8)], ""),
        ([numeric("price"), numeric("price")], ".features[1].name"),
    ],
)
def test_schemas_that_can_not_be_are_refused(schema: list[Any], field: str) -> None:
    path = "bandit.item_schema.features" if not schema else f"bandit.item_schema{field}"

    async def scenario(client: AsyncClient, _: Store) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await client.create_bandit("home", slate_size=2, item_capacity=9, item_schema=schema)
        assert refused.value.field == path
        await shop(client)
        with pytest.raises(InvalidArgument) as refused:
            await client.update_bandit("home", item_schema=schema)
        assert refused.value.field == path

    over_the_wire(scenario)


def test_other_kernels_refuse_a_schema_of_items() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await client.create_bandit(
                "home", slate_size=2, item_capacity=9, item_schema=SCHEMA, kernel=Kernel.CONVOLUTIONAL
            )
        assert refused.value.field == "bandit.item_schema"

    over_the_wire(scenario)


def test_a_schema_of_items_can_grow_and_come_later() -> None:
    async def scenario(client: AsyncClient, _: Store) -> None:
        await client.create_bandit("home", slate_size=2, item_capacity=9)
        assert (await client.update_bandit("home", item_schema=SCHEMA[:2])).item_schema == SCHEMA[:2]
        await client.upsert_items("home", {"a": {"price": 1.0}, "b": {"price": 2.0}})
        assert (await client.update_bandit("home", item_schema=SCHEMA)).item_schema == SCHEMA
        await client.upsert_items("home", {"a": WHOLE})
        with pytest.raises(InvalidArgument) as refused:
            await client.update_bandit("home", item_schema=SCHEMA[1:])
        assert refused.value.field == "bandit.item_schema"

    over_the_wire(scenario)
