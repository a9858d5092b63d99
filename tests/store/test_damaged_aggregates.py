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
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError, NotFoundError, NotReadyError
from topk_bandit.domain.studies import StudyName
from topk_bandit.store.events import EventSkipped
from topk_bandit.store.log import RecordStatus, Skip, Snapshot
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis
    from tests.servers import RunningServer

    from topk_bandit.store.log import RecordOutcome
    from topk_bandit.store.redis.bandits import RedisStore
    from topk_bandit.store.redis.keys import BanditKeys

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
            written = await store.record_recommendation(
                bandit("one", "b"), request(), recommendation("r"), incarnation="one-b", items_position=2
            )
            outcome = written.answer
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


LOST: dict[str, tuple[Callable[[Any, BanditKeys], object], str]] = {
    "its record": (
        lambda client, keys: client.delete(keys.meta),
        "its record is gone, and 6 other keys of it are left",
    ),
    "a number": (lambda client, keys: client.hset(keys.meta, "revision", "many"), "its record can't be read: "),
    "its log": (lambda client, keys: client.delete(keys.log), "its log is gone"),
    "its log's end": (
        lambda client, keys: client.xdel(keys.log, "3-0"),
        "its log does not end at its newest event, 3",
    ),
    "its snapshots": (
        lambda client, keys: client.delete(*keys.snapshots),
        "its log begins at 3, and its snapshots are",
    ),
    "a kind": (lambda client, keys: (client.delete(keys.items), client.set(keys.items, "")), "is a string, and should"),
}


async def two_snapshots(store: RedisStore, name: BanditName, incarnation: str) -> None:
    """Give a bandit a slate, and snapshots that its log is trimmed behind."""
    await store.create_bandit(name, SETTINGS, incarnation=incarnation, quota=9)
    await store.change_items(name, upserted=ITEMS, retired=[])
    await store.record_recommendation(name, request(), recommendation("r"), incarnation=incarnation, items_position=2)
    for position in (2, 3):
        snapshot, behind = Snapshot(position, b"model"), 2 if position == 3 else 0
        assert await store.save_snapshot(name, snapshot, incarnation=incarnation, behind=behind)


async def damaged(store: RedisStore) -> dict[str, str]:
    return {str(found.name): found.problem async for found in store.find_damaged()}


@pytest.mark.parametrize("lost", LOST)
def test_a_damaged_bandit_is_found_among_others(valkey: RunningServer, lost: str) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        for number in range(40):  # more than are looked at together
            await store.create_bandit(bandit("one", f"n{number}"), SETTINGS, incarnation=f"n{number}", quota=99)
        bad, good = bandit("two", "bad"), bandit("two", "good")
        for name in (bad, good):
            await two_snapshots(store, name, name.bandit)
        assert await damaged(store) == {}
        damage, problem = LOST[lost]
        with valkey.client() as client:
            damage(client, KeySpace(stores.prefix).bandit(bad))
        found = await damaged(store)
        assert list(found) == ["tenants/two/bandits/bad"]
        assert problem in found[str(bad)]
        await store.delete_bandit(bad)
        assert await damaged(store) == {}
        with valkey.client() as client:
            assert keys_of(client, stores, "bad") == []
            assert keys_of(client, stores, "good")

    run(stores, scenario)


def test_a_log_that_lost_its_end_goes_on_once_what_is_gone_is_passed_over(valkey: RunningServer) -> None:
    stores, name = RedisStores(valkey.url), bandit("one", "cut")

    async def scenario(store: RedisStore) -> None:
        await store.create_bandit(name, SETTINGS, incarnation="first", quota=9)
        await store.change_items(name, upserted=ITEMS, retired=[])
        for one in ("a", "b"):
            await recommend(store, one)
        with valkey.client() as client:
            client.xdel(KeySpace(stores.prefix).bandit(name).log, "3-0", "4-0")
        for position in (3, 4):
            with pytest.raises(CorruptDataError):
                await recommend(store, "c")
            with pytest.raises(CorruptDataError):
                await store.record_reward(name, "a", 1.0)
            assert list(await damaged(store)) == [str(name)]
            await store.skip_event(name, Skip(position, EventSkipped("gone", 1), 1, "first", position - 2, 2))
        assert await damaged(store) == {}
        assert (await recommend(store, "c")).position == 5
        assert (await store.record_reward(name, "a", 1.0)).answer.log_position == 6

    async def recommend(store: RedisStore, one: str) -> RecordOutcome:
        written = await store.record_recommendation(
            name, request(), recommendation(one), incarnation="first", items_position=2
        )
        return written.answer

    run(stores, scenario)


def test_a_bandit_without_its_record_keeps_its_place_until_it_is_deleted(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        bad = bandit("one", "bad")
        await two_snapshots(store, bad, "first")
        with valkey.client() as client:
            client.delete(KeySpace(stores.prefix).bandit(bad).meta)
            # Its reservation has lapsed long ago: what dangles would be released for the next bandit.
            client.hset(KeySpace(stores.prefix).bandits("one").reservations, "bad", "first 1")
        assert await store.list_bandits("one", after="", limit=9) == ()
        with pytest.raises(NotFoundError):
            await store.get_bandit(bad)
        with pytest.raises(ExhaustedError):
            await store.create_bandit(bandit("one", "other"), SETTINGS, incarnation="other", quota=1)
        with pytest.raises(NotReadyError, match="delete that first") as refused:
            await store.create_bandit(bad, SETTINGS, incarnation="anew", quota=1)
        assert refused.value.reason == "BANDIT_DAMAGED"
        assert list(await damaged(store)) == [str(bad)]
        await store.delete_bandit(bad)
        with pytest.raises(NotFoundError):
            await store.delete_bandit(bad)
        await store.create_bandit(bad, SETTINGS, incarnation="anew", quota=1)
        assert await store.list_items(bad) == ()

    run(stores, scenario)


def test_a_study_without_its_record_is_deleted_before_another_takes_its_place(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)

    async def scenario(store: RedisStore) -> None:
        studies, bad = store.studies(), StudyName("one", "a")
        await studies.create_study(bad, study_settings(), incarnation="first", quota=2)
        with valkey.client() as client:
            client.delete(KeySpace(stores.prefix).study(bad).meta)
        with pytest.raises(NotReadyError) as refused:
            await studies.create_study(bad, study_settings(), incarnation="anew", quota=2)
        assert refused.value.reason == "STUDY_DAMAGED"
        await studies.delete_study(bad)
        with pytest.raises(NotFoundError):
            await studies.delete_study(bad)
        await studies.create_study(bad, study_settings(), incarnation="anew", quota=2)

    run(stores, scenario)
