"""Which data version is in force in a store, and who may put the next one in force."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.bandits.harness import NAME, SETTINGS, request, running_worker
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores
from tests.servers import running_server, valkey_binary

from topk_bandit.bandits.follower import FollowerState
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, NewerDataError, OutdatedError
from topk_bandit.store import data_versions
from topk_bandit.store.redis.programs import HEARD_WITHIN_MS, RETENTION_MS, Finalization

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis
    from tests.servers import RunningServer

    from topk_bandit.store.redis.bandits import RedisStore

LATER = data_versions.NEWEST + 1


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture
def stores(server: RunningServer) -> RedisStores:
    return RedisStores(server.unix_url, clock=StoreClock())


def become(monkeypatch: pytest.MonkeyPatch, newest: int) -> None:
    """Make programs that note themselves from here on those of a data version."""
    monkeypatch.setattr(data_versions, "NEWEST", newest)
    monkeypatch.setattr(data_versions, "OLDEST", max(data_versions.FIRST, newest - 1))


def test_the_first_program_of_a_store_decides_and_the_next_one_writes_for_it(
    stores: RedisStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with stores.connect() as old, stores.connect() as later:
            assert await old.programs("old", about="old").read() is None
            assert await old.programs("old", about="old").note() == old.data_version == LATER - 1
            become(monkeypatch, LATER)
            assert await later.programs("later", about="later").note() == later.data_version == LATER - 1

    asyncio.run(scenario())


def test_a_store_of_a_newer_program_has_its_version(stores: RedisStores, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        become(monkeypatch, LATER)
        async with stores.connect() as later, stores.connect() as old:
            assert await later.programs("later", about="later").note() == later.data_version == LATER
            become(monkeypatch, LATER - 1)
            with pytest.raises(OutdatedError, match=f"data version is {LATER}, and this program knows up to"):
                await old.programs("old", about="old").note()
            assert await later.programs("later", about="later").finalize() == Finalization(LATER, LATER)
            become(monkeypatch, LATER + 2)
            with pytest.raises(
                ConfigurationError, match=f"data version {LATER + 1} first, and run topk-bandit finalize"
            ):
                await old.programs("last", about="last").note()

    asyncio.run(scenario())


def test_nothing_is_finalized_while_an_older_worker_runs(stores: RedisStores, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with stores.connect() as store:
            olds = [store.programs(one, about=f"0.2.0 on {one}") for one in ("b", "a")]
            assert await olds[0].finalize() == Finalization(None, None)
            for old in olds:
                await old.note()
            become(monkeypatch, LATER)
            later = store.programs("later", about="later")
            await later.note()
            held = Finalization(LATER - 1, LATER - 1, ("0.2.0 on a", "0.2.0 on b"))
            assert await later.finalize() == held
            await olds[0].leave()
            assert (await later.finalize()).older == ("0.2.0 on a",)
            await stores.pass_time(HEARD_WITHIN_MS)
            await later.note()
            assert (await later.finalize()).older == ("0.2.0 on a",)
            await stores.pass_time(1)
            assert await later.finalize() == Finalization(LATER - 1, LATER)
            assert await later.read() == await later.note() == store.data_version == LATER

    asyncio.run(scenario())


def test_a_damaged_data_version_is_reported(stores: RedisStores, server: RunningServer) -> None:
    async def scenario() -> None:
        async with stores.connect() as store:
            programs = store.programs("one", about="one")
            await programs.note()
            with server.client() as client:
                client.hset(f"{stores.prefix}:programs", "data_version", "two")
            for call in (programs.note, programs.read, programs.finalize):
                with pytest.raises(CorruptDataError):
                    await call()

    asyncio.run(scenario())


def test_settings_that_are_sent_again_in_another_data_version_are_the_same(stores: RedisStores) -> None:
    async def scenario() -> None:
        async with stores.connect() as store:
            await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
            before = await store.get_bandit(NAME)
            with writing(store, LATER):
                assert await store.update_settings(NAME, SETTINGS, revision=before.revision) == before

    asyncio.run(scenario())


@contextmanager
def writing(store: RedisStore, version: int) -> Iterator[None]:
    """Have a store write a data version, as a newer program's does once it is in force."""
    before, store._link.data_version = store._link.data_version, version
    yield
    store._link.data_version = before


def test_a_worker_that_meets_a_newer_event_waits_and_takes_it_for_no_damage(stores: RedisStores) -> None:
    async def scenario() -> None:
        async with stores.connect() as store, running_worker(store, look_seconds=600.0) as worker:
            await worker.bandits.create_bandit(NAME, SETTINGS)
            await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(5)])
            slate = await worker.recommender.recommend(NAME, request("one"))
            model = await worker.models.follow(NAME)
            with writing(store, LATER):
                await store.record_reward(NAME, slate.recommendation_id, 1.0)
            with pytest.raises(NewerDataError, match=f"data of version {LATER}"):
                await worker.models.follow(NAME)
            again = await worker.recommender.recommend(NAME, request("two"))
            assert (again.model_version, again.degraded) == (model.version, False)
            follower = worker.models._entries[NAME].follower
            assert (follower.state, worker.hooks.failed_folds) == (FollowerState.LAGGING, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("copy", ["an older one", "one without the worker", "the same one", "one after a long silence"])
def test_a_store_that_lacks_a_worker_s_last_note_is_older(server: RunningServer, copy: str) -> None:
    now = StoreClock()
    stores = RedisStores(server.unix_url, clock=now)

    async def scenario(client: redis.Redis) -> None:
        async with stores.connect() as store:
            programs, key = store.programs("one", about="one"), f"{stores.prefix}:programs"
            assert await programs.note() == data_versions.NEWEST
            earlier = client.hget(key, "one")
            now.now_ms += 1_000
            await programs.note()
            assert not programs.is_older
            if copy == "an older one":
                client.hset(key, "one", earlier)
            elif copy != "the same one":
                client.hdel(key, "one")
            if copy == "one after a long silence":
                now.now_ms += RETENTION_MS
            await programs.note()
            assert programs.is_older == (copy in {"an older one", "one without the worker"})
            await programs.note()
            assert not programs.is_older

    with server.client() as client:
        asyncio.run(scenario(client))
