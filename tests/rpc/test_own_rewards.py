"""Slates that know the rewards that were posted before, over real sockets and a real store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from tests.contracts.harness import RedisStores
from tests.rpc.whole import served
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until_async

from topk_bandit.client import FailedPrecondition, RetryPolicy, RewardOutcome, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.servers import RunningServer

    from topk_bandit.client import AsyncClient

ONCE = RetryPolicy(initial_backoff=10.0 * PATIENCE, max_backoff=10.0 * PATIENCE)
"""The first pause is longer than any call may take: none is tried again."""


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), "--appendfsync", "always") as server:
        yield server


def run(valkey: RunningServer, scenario: Callable[[AsyncClient, AsyncClient], Awaitable[None]]) -> None:
    """Run a scenario with two services on one store; the second one reads a log only when it is asked to."""
    stores = RedisStores(valkey.url)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            connected = [await stack.enter_async_context(stores.connect()) for _ in range(2)]
            here = await stack.enter_async_context(served(connected[0], retry=ONCE))
            there = await stack.enter_async_context(served(connected[1], follows=False, retry=ONCE, worker="two"))
            await here.create_bandit("home", slate_size=2, item_capacity=6, context_dimension=2)
            await here.upsert_items("home", ["a", "b", "c", "d"])
            await there.recommend("home", [1.0, 0.0])
            await scenario(here, there)

    asyncio.run(main())


async def post(client: AsyncClient, recommendation_id: str, value: float) -> int:
    """Post a reward, and return its position."""
    receipt = await client.reward("home", recommendation_id, value)
    assert receipt.outcome is RewardOutcome.ACCEPTED
    assert receipt.log_position > 0
    return receipt.log_position


def test_each_slate_knows_all_rewards_posted_before(valkey: RunningServer) -> None:
    async def scenario(here: AsyncClient, there: AsyncClient) -> None:
        position = 0
        for number in range(40):
            asked, rewarded = (here, there) if number % 2 else (there, here)
            slate = await asked.recommend("home", [1.0, number / 40], min_model_version=position)
            assert slate.observations == number
            assert slate.model_version >= position
            position = await post(rewarded, slate.id, float(number % 3))
        batch = await here.rewards("home", {(await here.recommend("home", [1.0, 0.0])).id: 1.0})
        [receipt] = batch.receipts.values()
        last = await there.recommend("home", [1.0, 0.0], min_model_version=receipt.log_position)
        assert last.observations == 41

    run(valkey, scenario)


def test_many_calls_may_wait_for_one_version(valkey: RunningServer) -> None:
    async def scenario(here: AsyncClient, there: AsyncClient) -> None:
        for value in range(3):
            position = await post(here, (await here.recommend("home", [1.0, 0.0])).id, float(value))
        slates = await asyncio.gather(
            *(there.recommend("home", [1.0, n / 30], min_model_version=position) for n in range(30))
        )
        assert {slate.observations for slate in slates} == {3}

    run(valkey, scenario)


def test_a_version_beyond_the_log_is_refused(valkey: RunningServer) -> None:
    async def scenario(here: AsyncClient, there: AsyncClient) -> None:
        given = await here.recommend("home", [1.0, 0.0], request_id="mine")
        newest = (await here.stats("home")).log_position
        for client in (here, there):
            with pytest.raises(FailedPrecondition, match=f"ends at {newest}") as ahead:
                await client.recommend("home", [1.0, 0.0], min_model_version=newest + 1)
            assert ahead.value.reason == "MODEL_VERSION_AHEAD"
            again = await client.recommend("home", [1.0, 0.0], request_id="mine", min_model_version=newest + 1)
            assert again == given, "a repeated request is answered as before"
        assert (await here.stats("home")).log_position == newest
        assert await post(here, given.id, 1.0) == newest + 1
        slate = await there.recommend("home", [1.0, 0.0], min_model_version=newest + 1)
        assert (slate.model_version, slate.observations) == (newest + 1, 1)
        repeated = await there.recommend("home", [1.0, 0.0], request_id="mine", min_model_version=newest + 1)
        assert repeated.model_version < newest + 1

    run(valkey, scenario)


def test_no_degraded_slate_is_older_than_what_was_asked_for(valkey: RunningServer) -> None:
    async def scenario(here: AsyncClient, there: AsyncClient) -> None:
        position = await post(here, (await here.recommend("home", [1.0, 0.0])).id, 1.0)
        await here.recommend("home", [1.0, 0.0], min_model_version=position)
        valkey.kill()
        known = await here.recommend("home", [1.0, 0.0], min_model_version=position)
        assert (known.degraded, known.observations) == (True, 1)
        unknown = await there.recommend("home", [1.0, 0.0])
        assert (unknown.degraded, unknown.observations) == (True, 0)
        with pytest.raises(Unavailable):
            await there.recommend("home", [1.0, 0.0], min_model_version=position)
        with pytest.raises(Unavailable):
            await here.recommend("home", [1.0, 0.0], min_model_version=10**9)
        valkey.start()
        slates = []

        async def is_recorded() -> bool:
            slates.append(await there.recommend("home", [1.0, 0.0], min_model_version=position))
            return not slates[-1].degraded

        await until_async(is_recorded, what="the store is there again")
        assert slates[-1].observations == 1

    run(valkey, scenario)


def test_a_reward_posted_again_has_the_position_that_it_had(valkey: RunningServer) -> None:
    async def scenario(here: AsyncClient, there: AsyncClient) -> None:
        slate = await here.recommend("home", [1.0, 0.0])
        position = await post(here, slate.id, 1.0)
        again = await there.reward("home", slate.id, 1.0)
        assert (again.outcome, again.log_position) == (RewardOutcome.DUPLICATE, position)

    run(valkey, scenario)
