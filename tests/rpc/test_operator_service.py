"""What operators ask, over a socket and the real use cases."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.rpc.whole import served

from topk_bandit.client import FailedPrecondition, InvalidArgument, ModelSource, NotFound, categorical, numeric
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.client import AsyncClient


def run(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served(MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)) as client:
            await scenario(client)

    asyncio.run(main())


async def trade(client: AsyncClient, count: int) -> list[str]:
    """Make a bandit, and reward slates with the place of their first item; return the recommendations."""
    await client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
    ids = [f"i{number}" for number in range(6)]
    await client.upsert_items("home", ids)
    given = []
    for number in range(count):
        slate = await client.recommend("home", [1.0, number / count], candidates=ids[:5])
        await client.reward("home", slate.id, float(ids.index(slate.items[0])))
        given.append(slate.id)
    return given


def test_an_explanation_has_the_request_and_parts_that_add_up() -> None:
    async def scenario(client: AsyncClient) -> None:
        given = await trade(client, 20)
        await client.top_slates("home", [1.0, 0.5])  # has the model learn all of it
        told = await client.explain("home", given[14])
        assert told.recommendation.id == given[14]
        assert (told.context, told.features, told.candidates) == ((1.0, 0.7), {}, ("i0", "i1", "i2", "i3", "i4"))
        assert told.model_source is ModelSource.REPLAYED
        assert told.log_position > told.recommendation.model_version
        reasons = told.reasons
        assert reasons is not None
        assert reasons.chosen_again
        assert [one.item_id for one in reasons.items] == list(told.recommendation.items)
        assert [one.position for one in reasons.items] == [1, 2]
        parts = reasons.offset + reasons.context + sum(one.own for one in reasons.items) + reasons.pairs[0].value
        assert abs(parts - told.recommendation.mean) < 1e-9
        assert reasons.shown.upper_bound > reasons.shown.mean
        assert len(reasons.next_best) == 10
        assert all(set(one.slate) <= set(told.candidates or ()) for one in reasons.next_best)
        scores = [one.score for one in reasons.next_best]
        assert scores == sorted(scores, reverse=True)
        with pytest.raises(NotFound):
            await client.explain("home", "f" * 32)
        with pytest.raises(InvalidArgument, match="recommendation_id: is required"):
            await client.explain("home", "")

    run(scenario)


def test_features_are_told_as_the_shop_named_them() -> None:
    async def scenario(client: AsyncClient) -> None:
        schema = [categorical("country", values=["DE", "FR"]), numeric("basket")]
        await client.create_bandit("cart", slate_size=2, item_capacity=5, context_schema=schema)
        await client.upsert_items("cart", ["a", "b", "c"])
        slate = await client.recommend("cart", features={"country": "FR", "basket": 34.5})
        told = await client.explain("cart", slate.id)
        assert (told.context, told.features) == ((), {"country": "FR", "basket": 34.5})
        top = await client.top_slates("cart", features={"country": "FR"}, limit=4)
        assert (len(top.slates), len({one.slate for one in top.slates})) == (4, 4)
        assert (await client.top_slates("cart")).model_version == top.model_version

    run(scenario)


def test_top_slates_follow_the_rewards() -> None:
    async def scenario(client: AsyncClient) -> None:
        await trade(client, 40)
        top = await client.top_slates("home", [1.0, 0.5], limit=3)
        assert len(top.slates) == 3
        means = [one.mean for one in top.slates]
        assert means == sorted(means, reverse=True)
        assert top.slates[0].slate[0] in {"i4", "i5"}
        for bad in (-1, 101):
            with pytest.raises(InvalidArgument, match="limit"):
                await client.top_slates("home", [1.0, 0.5], limit=bad)
        with pytest.raises(InvalidArgument, match="context"):
            await client.top_slates("home", [1.0])
        await client.retire_items("home", [f"i{number}" for number in range(5)])
        with pytest.raises(FailedPrecondition) as raised:
            await client.top_slates("home", [1.0, 0.5])
        assert raised.value.reason == "TOO_FEW_ITEMS"

    run(scenario)
