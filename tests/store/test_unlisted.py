"""Bandits that have lost their entry in a list: they are found among all keys of a store, and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import ITEMS, SETTINGS
from tests.contracts.study_samples import study_settings
from tests.servers import running_cluster, running_server, valkey_binary

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import ExhaustedError, NotFoundError
from topk_bandit.domain.studies import StudyName
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import RunningServer

    from topk_bandit.store.redis.bandits import RedisStore

LOST = BanditName("one/}", "lost, too")
NAMES = [LOST, BanditName("one/}", "b"), BanditName("two", "lost, too"), BanditName("studies", "c")]


@pytest.fixture(scope="module", params=["valkey", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    running = running_cluster if request.param == "cluster" else running_server
    with running(valkey_binary()) as server:
        yield server


LOSSES: dict[str, Callable[[Any, KeySpace], object]] = {
    "entry": lambda client, keys: client.zrem(keys.bandits(LOST.tenant).entries, LOST.bandit),
    "entry and reservation": lambda client, keys: (
        client.zrem(keys.bandits(LOST.tenant).entries, LOST.bandit),
        client.hdel(keys.bandits(LOST.tenant).reservations, LOST.bandit),
    ),
    "index": lambda client, keys: client.delete(*keys.bandits(LOST.tenant)),
    "tenant": lambda client, keys: client.zrem(keys.tenants, LOST.tenant),
}


async def unlisted(store: RedisStore) -> list[BanditName]:
    return [name async for name in store.find_unlisted()]


async def listed(store: RedisStore) -> list[BanditName]:
    tenants = await store.list_tenants(after="", limit=9)
    return [record.name for tenant in tenants for record in await store.list_bandits(tenant, after="", limit=9)]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_bandit_that_lists_have_lost_is_put_back_as_it_was(server: RunningServer, loss: str) -> None:
    stores = RedisStores(server.url)
    stores.prefix += "-[*?\\"

    async def scenario(store: RedisStore) -> None:
        for name in NAMES:
            await store.create_bandit(name, SETTINGS, incarnation="first", quota=2)
            await store.change_items(name, upserted=ITEMS, retired=[])
        await store.studies().create_study(StudyName("one/}", "d"), study_settings(), incarnation="first", quota=2)
        before = [await store.get_bandit(name) for name in NAMES]
        assert await unlisted(store) == []
        with server.client() as client:
            LOSSES[loss](client, KeySpace(stores.prefix))
        found = await unlisted(store)
        assert LOST in found
        assert set(found) == set(NAMES) - set(await listed(store))
        for name in found:
            await store.list_again(name)
        assert await unlisted(store) == []
        assert sorted(await listed(store)) == sorted(NAMES)
        assert [await store.get_bandit(name) for name in NAMES] == before
        with pytest.raises(ExhaustedError):  # it counts again
            await store.create_bandit(BanditName(LOST.tenant, "third"), SETTINGS, incarnation="first", quota=2)
        await store.delete_bandit(LOST)
        assert LOST not in await listed(store)
        await store.create_bandit(LOST, SETTINGS, incarnation="second", quota=2)

    run(stores, scenario)


def test_what_is_left_of_a_bandit_without_record_and_entry_is_found_and_deleted(server: RunningServer) -> None:
    stores = RedisStores(server.url)

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(LOST, SETTINGS, incarnation="first", quota=1)
        keys = KeySpace(stores.prefix)
        with server.client() as client:
            client.delete(keys.bandit(LOST).meta)
            client.delete(*keys.bandits(LOST.tenant))
            assert await unlisted(store) == [LOST]
            assert [damage async for damage in store.find_damaged()] == []
            await store.list_again(LOST)
            [damage] = [damage async for damage in store.find_damaged()]
            assert damage.name == LOST
            assert "its record is gone" in damage.problem
            await store.delete_bandit(LOST)
            assert client.exists(*keys.bandit(LOST).all) == 0
        with pytest.raises(NotFoundError):
            await store.delete_bandit(LOST)
        assert await unlisted(store) == []

    run(stores, scenario)
