"""The wire over the real use cases and the reference store: the parts keep what they promise to each other."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.rpc.whole import served

from topk_bandit.client import (
    AlreadyExists,
    AsyncClient,
    InvalidArgument,
    Item,
    NotFound,
    ResourceExhausted,
    RewardOutcome,
)
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def service() -> AsyncIterator[AsyncClient]:
    store = MemoryStore(clock_ms=lambda: time.time_ns() // 1_000_000)
    try:
        async with served(store) as client:
            yield client
    finally:
        await store.close()


def run(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def session() -> None:
        async with service() as client:
            await scenario(client)

    asyncio.run(session())


async def opened(client: AsyncClient) -> None:
    await client.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=2, default_reward=0.0)
    await client.upsert_items("home", ["a", "b", "c", "d", Item("e", available=False)])


def test_a_slate_earns_its_reward() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        first = await client.recommend("home", [1.0, 0.5], request_id="r1")
        assert len(set(first.items)) == 2
        assert set(first.items) <= set("abcd")
        assert 0.0 < first.propensity <= 1.0
        assert await client.recommend("home", [1.0, 0.5], request_id="r1") == first
        assert (await client.reward("home", first.id, 1.0)).outcome is RewardOutcome.ACCEPTED
        assert (await client.reward("home", first.id, 1.0)).outcome is RewardOutcome.DUPLICATE
        stats = await client.stats("home")
        assert (stats.recommendation_count, stats.observation_count, stats.mean_reward) == (1, 1, 1.0)
        assert (stats.item_count, stats.available_item_count) == (5, 4)
        second = await client.recommend("home", [1.0, 0.5])
        assert second.observations == 1
        batch = await client.rewards("home", {second.id: 2.0, "none": 1.0})
        assert {one: receipt.outcome for one, receipt in batch.receipts.items()} == {second.id: RewardOutcome.ACCEPTED}
        assert list(batch.errors) == ["none"]

    run(scenario)


def test_a_retired_item_is_in_no_slate() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        assert await client.retire_items("home", ["a", "b"]) == 3
        slates = [await client.recommend("home", [1.0, 0.0]) for _ in range(5)]
        assert {item for slate in slates for item in slate.items} == {"c", "d"}
        assert [item.item_id async for item in client.items("home")] == ["c", "d", "e"]

    run(scenario)


def test_errors_of_the_use_cases_arrive_typed() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        with pytest.raises(InvalidArgument) as wrong_context:
            await client.recommend("home", [1.0])
        assert wrong_context.value.field == "context"
        with pytest.raises(InvalidArgument) as too_few:
            await client.recommend("home", [1.0, 0.0], candidates=["a", "e"])
        assert too_few.value.field == "candidate_item_ids"
        with pytest.raises(NotFound):
            await client.recommend("home", [1.0, 0.0], candidates=["a", "b", "zebra"])
        await client.recommend("home", [1.0, 0.0], request_id="r1")
        with pytest.raises(AlreadyExists) as reused:
            await client.recommend("home", [2.0, 0.0], request_id="r1")
        assert reused.value.reason == "REQUEST_ID_REUSED"
        with pytest.raises(AlreadyExists) as exists:
            await client.create_bandit("home", slate_size=3, item_capacity=6)
        assert exists.value.reason == "BANDIT_EXISTS"

    run(scenario)


def test_quotas_and_changes_of_settings() -> None:
    async def scenario(client: AsyncClient) -> None:
        await opened(client)
        await client.create_bandit("other", slate_size=1, item_capacity=1)
        with pytest.raises(ResourceExhausted) as full:
            await client.create_bandit("third", slate_size=1, item_capacity=1, timeout=0.5)
        assert full.value.reason == "BANDIT_QUOTA"
        changed = await client.update_bandit("home", uniform_share=0.5, default_reward=None)
        assert (changed.uniform_share, changed.default_reward, changed.constant_beta) == (0.5, None, 1.0)
        assert [bandit.name async for bandit in client.list_bandits()] == ["home", "other"]
        await client.delete_bandit("home")
        with pytest.raises(NotFound):
            await client.stats("home")

    run(scenario)
