"""Quotas of what a tenant has in the store, over the wire and the real use cases, with either store."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import MemoryStores, RedisStores
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary
from tests.waiting import until_async

from topk_bandit.client import (
    AsyncClient,
    PastObservation,
    ResourceExhausted,
    RetryPolicy,
    RewardOutcome,
)
from topk_bandit.domain.quotas import Quota, Quotas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    Scenario = Callable[[AsyncClient], Awaitable[None]]

ONCE = RetryPolicy(initial_backoff=1000.0, max_backoff=1000.0)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


@pytest.fixture(params=["memory", "valkey"])
def stores(request: pytest.FixtureRequest, server: RunningServer) -> Stores:
    return MemoryStores() if request.param == "memory" else RedisStores(server.url)


@asynccontextmanager
async def opened(stores: Stores, quotas: Quotas) -> AsyncIterator[AsyncClient]:
    async with stores.connect() as store, served(store, quotas=quotas, retry=ONCE) as client:
        await client.create_bandit("home", slate_size=2, item_capacity=9)
        await client.upsert_items("home", ["a", "b", "c", "d"])
        yield client


def run(stores: Stores, quotas: Quotas, scenario: Scenario) -> None:
    async def session() -> None:
        async with opened(stores, quotas) as client:
            await scenario(client)

    asyncio.run(session())


async def refused(call: Callable[[int], Awaitable[object]]) -> ResourceExhausted:
    """Call until it is refused, with another number each time: what is there is measured now and then."""
    numbers, refusals = itertools.count(), list[ResourceExhausted]()

    async def is_refused() -> bool:
        try:
            await call(next(numbers))
        except ResourceExhausted as error:
            refusals.append(error)
        return bool(refusals)

    await until_async(is_refused, what="a call is refused")
    return refusals[0]


async def let_in(call: Callable[[], Awaitable[object]]) -> None:
    """Call until it is let in."""

    async def is_let_in() -> bool:
        await call()
        return True

    await until_async(is_let_in, what="a call is let in")


def test_open_slates_are_limited_and_rewards_free_places(stores: Stores) -> None:
    async def scenario(client: AsyncClient) -> None:
        given = []

        async def ask(number: int) -> None:
            given.append(await client.recommend("home", request_id=f"r{number}"))

        error = await refused(ask)
        assert (error.reason, error.quota, error.retry_after) == ("OPEN_SLATE_QUOTA", "open_slates", 1.0)
        assert error.numbers["limit"] == 5
        assert error.numbers["used"] >= 5
        assert error.details.message.startswith("the quota open_slates of tenants/acme is used up: ")
        assert await client.recommend("home", request_id="r0") == given[0]  # asked for once more
        for slate in given:
            assert (await client.reward("home", slate.id, 1.0)).outcome is RewardOutcome.ACCEPTED
        await let_in(lambda: client.recommend("home"))

    run(stores, Quotas({Quota.OPEN_SLATES: 5}), scenario)


def test_items_are_limited_over_all_bandits(stores: Stores) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.create_bandit("other", slate_size=2, item_capacity=9)
        await client.upsert_items("other", ["a", "b"])  # which are others than those of home
        with pytest.raises(ResourceExhausted) as full:
            await client.upsert_items("other", ["c", "d"])
        assert (full.value.reason, full.value.retry_after) == ("ITEM_QUOTA", None)
        assert full.value.numbers == {"limit": 7, "used": 6}
        assert (await client.stats("other")).item_count == 2
        await client.upsert_items("home", ["a", "b", "c", "d"])  # that are there
        await client.upsert_items("other", ["a", "c"])
        with pytest.raises(ResourceExhausted):
            await client.upsert_items("home", ["e"])
        await client.retire_items("home", ["a"])
        await let_in(lambda: client.upsert_items("home", ["e"]))

    run(stores, Quotas({Quota.ITEMS: 7}), scenario)


@pytest.mark.slow
def test_bytes_are_limited_for_whatever_makes_logs_longer_but_rewards(server: RunningServer) -> None:
    async def scenario(client: AsyncClient) -> None:
        first = await client.recommend("home")
        error = await refused(lambda _: client.recommend("home"))
        assert (error.reason, error.quota, error.retry_after) == ("LOG_QUOTA", "log_bytes", 10.0)
        assert error.numbers["used"] > error.numbers["limit"] == 100_000
        row = PastObservation(["a", "b"], 1.0)
        for call in (
            client.import_observations("home", [row], import_id="year"),
            client.upsert_items("home", ["e"]),
        ):
            with pytest.raises(ResourceExhausted) as full:
                await call
            assert full.value.reason == "LOG_QUOTA"
        assert (await client.reward("home", first.id, 1.0)).outcome is RewardOutcome.ACCEPTED
        await client.retire_items("home", ["d"])
        await client.update_bandit("home", uniform_share=0.5)
        await client.delete_bandit("home")
        await client.create_bandit("home", slate_size=2, item_capacity=9)
        await let_in(lambda: client.upsert_items("home", ["a", "b"]))

    run(RedisStores(server.url), Quotas({Quota.LOG_BYTES: 100_000}), scenario)


def test_tenants_have_quotas_of_their_own(stores: Stores) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.create_bandit("other", slate_size=1, item_capacity=2)
        with pytest.raises(ResourceExhausted) as full:
            await client.create_bandit("third", slate_size=1, item_capacity=2)
        assert (full.value.reason, full.value.numbers) == ("BANDIT_QUOTA", {"limit": 2, "used": 2})
        for number in range(10):
            await client.recommend("home", request_id=f"r{number}")

    run(
        stores,
        Quotas({Quota.BANDITS: 1, Quota.OPEN_SLATES: 1}, {"acme": {Quota.BANDITS: 2, Quota.OPEN_SLATES: 99}}),
        scenario,
    )
