"""A bandit or a study whose keys are damaged: it hides no other, its own calls say so, and it can be deleted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import RedisStores, run
from tests.contracts.samples import ITEMS, SETTINGS, recommendation, request
from tests.contracts.study_samples import study_settings
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.domain.studies import StudyName
from topk_bandit.store.log import RecordStatus
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from tests.servers import RunningServer

    from topk_bandit.store.redis.bandits import RedisStore

DAMAGES: dict[str, Callable[[Any, str], object]] = {
    "another type": lambda client, key: (client.delete(key), client.set(key, "text")),
    "garbage": lambda client, key: client.hset(key, "settings", b"\xff{"),
    "a number that is none": lambda client, key: client.hset(key, "log_position", "many"),
    "no incarnation": lambda client, key: client.hdel(key, "incarnation"),
}


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


def bandit(tenant: str, name: str) -> BanditName:
    return BanditName(tenant, name)


def keys_of(client: redis.Redis, stores: RedisStores, name: str) -> list[bytes]:
    return [key for key in client.scan_iter(f"{stores.prefix}:*") if f"/{name}}}".encode() in key]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bandit_hides_no_other_and_is_deleted(
    valkey: RunningServer, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        for tenant, name in (("one", "a"), ("one", "b"), ("one", "c"), ("two", "d")):
            await store.create_bandit(bandit(tenant, name), SETTINGS, incarnation=f"{tenant}-{name}", quota=3)
            await store.change_items(bandit(tenant, name), upserted=ITEMS, retired=[])
        bad = bandit("one", "a")
        with valkey.client() as client:
            DAMAGES[damage](client, KeySpace(stores.prefix).bandit(bad).meta)
            for _ in range(2):
                listed = await store.list_bandits("one", after="", limit=9)
                assert [record.name.bandit for record in listed] == ["b", "c"]
            first = await store.list_bandits("one", after="", limit=1)
            assert [record.name.bandit for record in first] == ["b"]
            assert await store.list_tenants(after="", limit=9) == ("one", "two")
            assert (await store.measure("one")).items == 3 * len(ITEMS)
            outcome = await store.record_recommendation(
                bandit("one", "b"), request(), recommendation("r"), incarnation="one-b", items_position=2
            )
            assert outcome.status is RecordStatus.RECORDED
            with pytest.raises(CorruptDataError):
                await store.get_bandit(bad)
            assert caplog.text.count("a bandit is damaged") == 1
            await store.delete_bandit(bad)
            assert keys_of(client, stores, "a") == []
        with pytest.raises(NotFoundError):
            await store.delete_bandit(bad)
        made = await store.create_bandit(bad, SETTINGS, incarnation="anew", quota=3)
        assert made == await store.get_bandit(bad)
        assert len(await store.list_bandits("one", after="", limit=9)) == 3

    with caplog.at_level(logging.ERROR, logger="topk_bandit"):
        run(stores, scenario)


@pytest.mark.parametrize("damage", ["another type", "no incarnation"])
def test_a_damaged_study_hides_no_other_and_is_deleted(valkey: RunningServer, damage: str) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        studies, (bad, good) = store.studies(), (StudyName("one", name) for name in "ab")
        for name in (bad, good):
            await studies.create_study(name, study_settings(), incarnation="first", quota=2)
        with valkey.client() as client:
            DAMAGES[damage](client, KeySpace(stores.prefix).study(bad).meta)
            listed = await studies.list_studies("one", after="", limit=9)
            assert [record.name for record in listed] == [good]
            await studies.delete_study(bad)
            assert keys_of(client, stores, "a") == []
        await studies.create_study(bad, study_settings(), incarnation="anew", quota=2)
        assert len(await studies.list_studies("one", after="", limit=9)) == 2

    run(stores, scenario)
