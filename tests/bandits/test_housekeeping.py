"""Bandits that nobody asks for: their slates are closed in time, and closed records are forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.bandits.harness import NAME, running_worker
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores, run, whole_log
from tests.contracts.samples import HOUR_MS, recommendation
from tests.contracts.samples import SETTINGS as PLAIN
from tests.contracts.samples import request as plain_request
from tests.servers import running_server, valkey_binary
from tests.waiting import until_async

from topk_bandit.bandits.housekeeping import Housekeeper
from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Expired
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RunningServer

    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.store.redis.bandits import RedisStore

RETENTION_MS = 150
RESTING = 1000
MANY = 600


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary(), append_only=False) as server:
        yield server


async def fill(store: RedisStore, name: BanditName, *, slates: int, wait_ms: int = HOUR_MS) -> None:
    """Give a bandit slates, of which all but one have had a reward."""
    await store.create_bandit(name, replace(PLAIN, reward_wait_ms=wait_ms), incarnation="first", quota=9)
    for number in range(slates):
        given = recommendation(f"r{number}")
        await store.record_recommendation(name, plain_request(), given, incarnation="first", items_position=0)
        if number:
            await store.record_reward(name, given.recommendation_id, 1.0)


def test_bandits_that_rest_are_closed_and_forgotten_in_time(server: RunningServer) -> None:
    idle, damaged = BanditName("one", "idle"), BanditName("one", "damaged")

    async def scenario(store: RedisStore) -> None:
        for name in (damaged, idle):
            await fill(store, name, slates=MANY if name is idle else 3)
        keys = KeySpace(stores.prefix).bandit(idle)
        with server.client() as client:
            client.set(KeySpace(stores.prefix).bandit(damaged).log, "text")
            assert client.hlen(keys.recommendations) == 1, "of all others only the least is left"
            assert client.hlen(keys.closed[0]) > MANY / 30
            await stores.pass_time(HOUR_MS)
            async with running_worker(store) as worker:
                housekeeper = Housekeeper(store, worker.models, pause_seconds=0.0)
                await housekeeper.go_round()
                assert isinstance((await whole_log(store, idle))[-1].event, Expired)
                for _ in range(2):  # one slice ends, and is forgotten when it has been kept for long enough
                    await stores.pass_time(2 * RETENTION_MS)
                    await housekeeper.go_round()
                assert worker.models.peek_model(idle) is None, "nothing was loaded for it"
            assert client.hlen(keys.recommendations) == 0
            assert [client.hgetall(key) for key in keys.closed] == [{b"0": b""}] * len(keys.closed)

    stores = RedisStores(server.url, record_retention_ms=RETENTION_MS, clock=StoreClock())
    run(stores, scenario)


def test_a_round_touches_only_what_has_something_due(server: RunningServer) -> None:
    """Of many that rest: what has nothing due costs a share of a message, and not a call."""
    names = [BanditName(f"t{number % 7}", f"b{number}") for number in range(RESTING)]

    async def scenario(store: RedisStore) -> None:
        await asyncio.gather(*(store.create_bandit(name, PLAIN, incarnation="first", quota=RESTING) for name in names))
        with server.client() as client:
            for name in names[:3]:
                given = recommendation("r0")
                await store.record_recommendation(name, plain_request(), given, incarnation="first", items_position=0)
            await stores.pass_time(HOUR_MS)
            async with running_worker(store) as worker:
                before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
                await Housekeeper(worker.store, worker.models).go_round()
                assert worker.hooks.store_calls["expire_due"] == 3
                # Three are closed, the worker's own calls aside.
                assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 10
        for name in names[:3]:
            assert isinstance((await whole_log(store, name))[-1].event, Expired)

    stores = RedisStores(server.url, clock=StoreClock())
    run(stores, scenario)


def test_rounds_follow_each_other(server: RunningServer) -> None:
    async def scenario(store: RedisStore) -> None:
        idle = BanditName("one", "idle")
        async with running_worker(store) as worker:
            keeping = asyncio.create_task(Housekeeper(store, worker.models, round_seconds=0.05).run())
            await fill(store, idle, slates=1, wait_ms=1)

            async def is_closed() -> bool:
                return isinstance((await whole_log(store, idle))[-1].event, Expired)

            await until_async(is_closed, what="the slate is closed")
            keeping.cancel()

    run(RedisStores(server.url), scenario)


def test_a_bandit_that_is_followed_is_left_to_its_follower(server: RunningServer) -> None:
    async def scenario(store: RedisStore) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            await fill(store, NAME, slates=1, wait_ms=1)
            closed: list[BanditName] = []

            async def close(name: BanditName) -> None:
                closed.append(name)

            # The follower closes slates by the same method, at times of its own.
            noting = cast("ModelCache", SimpleNamespace(peek_model=worker.models.peek_model, expire=close))

            async def is_overdue() -> bool:
                return [name async for name in store.find_overdue()] == [NAME]

            await until_async(is_overdue, what="the slate is overdue")
            await Housekeeper(store, noting, pause_seconds=0.0).go_round()
            assert closed == [NAME]
            await worker.models.get_model(NAME)
            await Housekeeper(store, noting, pause_seconds=0.0).go_round()
            assert closed == [NAME]

    run(RedisStores(server.url), scenario)
