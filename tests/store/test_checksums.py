"""Bytes that change at rest: in 500 events and 500 snapshots one byte each, at seeded places, and each is noticed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.harness import RedisStores, run, whole_log
from tests.contracts.samples import ITEMS, NAME, SETTINGS, recommendation, request, settings
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.log import Snapshot
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.servers import RunningServer

    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store

FLIPS = 500
Entries = list[tuple[bytes, dict[bytes, bytes]]]


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


async def fill_log(store: Store) -> None:
    """Write a log with events of the service and of the scripts."""
    await store.create_bandit(NAME, settings(reward_wait_ms=0), incarnation="first", quota=9)
    await store.record_recommendation(NAME, request(), recommendation("overdue"), incarnation="first", items_position=0)
    await store.expire_due(NAME, limit=5)
    await store.update_settings(NAME, SETTINGS, revision=1)
    for one in ("rewarded", "pending"):
        await store.record_recommendation(NAME, request(), recommendation(one), incarnation="first", items_position=0)
    await store.record_reward(NAME, "rewarded", 12.5)
    await store.change_items(NAME, upserted=ITEMS, retired=[])


def flip(value: bytes, rng: random.Random) -> bytes:
    """Return `value` with one bit turned."""
    place = rng.randrange(len(value))
    return value[:place] + bytes([value[place] ^ (1 << rng.randrange(8))]) + value[place + 1 :]


def flip_in(entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]], rng: random.Random) -> Entries:
    """Return the entries with one bit turned in one of their values: each byte is as likely as any other."""
    copy = [(entry_id, dict(fields)) for entry_id, fields in entries]
    places = [(at, field) for at, (_, fields) in enumerate(copy) for field, value in fields.items() for _ in value]
    at, field = rng.choice(places)
    copy[at][1][field] = flip(copy[at][1][field], rng)
    return copy


def write_log(client: Any, key: str, entries: Entries) -> None:  # noqa: ANN401 - a client of redis-py
    pipeline = client.pipeline()
    pipeline.delete(key)
    for entry_id, fields in entries:
        pipeline.xadd(key, fields, id=entry_id)
    pipeline.execute()


async def read_to_damage(store: Store) -> list[LoggedEvent]:
    """Return the events before the first that can't be read."""
    events: list[LoggedEvent] = []
    while True:
        try:
            part = await store.read_log(NAME, start=len(events) + 1, limit=99)
        except CorruptDataError:
            return events
        assert part.events, "nothing is damaged"
        events += part.events


def assert_is_prefix(events: list[LoggedEvent], log: list[LoggedEvent]) -> None:
    assert len(events) < len(log)
    assert events == log[: len(events)]


def test_no_flipped_bit_in_an_event_is_read(valkey: RunningServer) -> None:
    stores, rng = RedisStores(valkey.url), random.Random(16)
    key = KeySpace(stores.prefix).bandit(NAME).log

    async def scenario(store: Store) -> None:
        await fill_log(store)
        log = await whole_log(store, NAME)
        with valkey.client() as client:
            entries = client.xrange(key)
            for _ in range(FLIPS):
                spoilt = flip_in(entries, rng)
                write_log(client, key, spoilt)
                assert_is_prefix(await read_to_damage(store), log)
            write_log(client, key, entries)
        assert await whole_log(store, NAME) == log

    run(stores, scenario)


def test_events_that_changed_places_are_not_read(valkey: RunningServer) -> None:
    stores = RedisStores(valkey.url)
    key = KeySpace(stores.prefix).bandit(NAME).log

    async def scenario(store: Store) -> None:
        await fill_log(store)
        log = await whole_log(store, NAME)
        with valkey.client() as client:
            entries = client.xrange(key)
            (first, one), (second, other) = entries[1:3]
            write_log(client, key, [entries[0], (first, other), (second, one), *entries[3:]])
        assert await read_to_damage(store) == log[:1]
        with pytest.raises(CorruptDataError, match="checksum"):
            await store.read_log(NAME, start=2, limit=99)

    run(stores, scenario)


def test_no_flipped_bit_in_a_snapshot_is_read(valkey: RunningServer) -> None:
    stores, rng = RedisStores(valkey.url), random.Random(20)
    keys = KeySpace(stores.prefix).bandit(NAME)

    async def scenario(store: Store) -> None:
        await fill_log(store)
        saved = Snapshot(position=3, payload=rng.randbytes(300))
        assert await store.save_snapshot(NAME, saved, incarnation="first")
        assert list(await store.load_snapshots(NAME)) == [saved]
        with valkey.client() as client:
            (key,) = [one for one in keys.snapshots if client.exists(one)]
            written = client.get(key)
            for _ in range(FLIPS):
                client.set(key, flip(written, rng))
                assert list(await store.load_snapshots(NAME)) == []

    run(stores, scenario)
