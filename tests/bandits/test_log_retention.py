"""Events that stay in the store behind the snapshots that stand for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, RecordedHooks, Shop, assert_same, replayed, running_worker
from tests.contracts.harness import run, run_in_memory, whole_log

from topk_bandit.bandits.contents import read_contents
from topk_bandit.bandits.log_retention import LogRetention
from topk_bandit.bandits.saved_snapshots import SavedSnapshots
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.archives import ArchivedBandit, read_line
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store


Traded: TypeAlias = "tuple[list[LoggedEvent], Sequence[EventText], list[Model]]"


@pytest.fixture(scope="module")
def before() -> tuple[Stores, Traded]:
    """Return a shop that has traded in memory, of which each test takes a copy."""
    return run_in_memory(traded)


async def traded(store: Store, stores: Stores) -> Traded:
    """Let a shop trade an hour a round; return its events, their texts and the models at the last two checkpoints."""
    async with running_worker(store) as worker:
        shop = Shop(worker, stores, np.random.default_rng(5))
        await shop.create()
        for _ in range(30):
            await shop.trade(4)
            await stores.pass_time(3_600_000)
        live = await worker.models.follow(NAME)
    events = await whole_log(store, NAME)
    texts = (await store.read_texts(NAME, start=1, limit=len(events))).events
    assert len(texts) == len(events)
    return events, texts, [one for one in replayed(live.incarnation, events) if one.since_checkpoint == 0][-2:]


async def save(store: Store, older: Model, newer: Model, retention: LogRetention) -> int:
    """Save a snapshot soon after an older one; return where the log begins after that."""
    await store.save_snapshot(NAME, Snapshot(older.version, encode_model(older)), incarnation=older.incarnation)
    with ThreadPoolExecutor(1) as executor, pytest.MonkeyPatch.context() as patched:
        patched.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
        hooks = RecordedHooks()
        await SavedSnapshots(NAME, store, executor, limits=LIMITS, hooks=hooks, retention=retention).save_if_due(newer)
    return (await store.read_log(NAME, start=1, limit=0)).first_position


@pytest.mark.parametrize("hours", [0.0, 3.0, 12.0, 10_000.0])
def test_events_stay_as_long_as_they_are_to(before: tuple[Stores, Traded], hours: float) -> None:
    stores, (events, _, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        first = await save(store, older, newer, LogRetention(hours * 3600.0))
        old = [
            one.position
            for one in events[: older.version]
            if hours == 0.0 or one.at_ms <= newer.last.at_ms - hours * 3_600_000
        ]
        assert first == max(old, default=0) + 1
        assert await whole_log(store, NAME) == events[first - 1 :]

    run(stores, scenario)


@pytest.mark.parametrize("kept", [1, 40])
def test_beyond_the_bytes_that_may_stay_the_oldest_go(before: tuple[Stores, Traded], kept: int) -> None:
    stores, (_, texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        sampled = [len(one.text) for one in texts[max(0, older.version - 128) : older.version]]
        most_bytes = round(kept * sum(sampled) / len(sampled) + 1)
        first = await save(store, older, newer, LogRetention(1e9, most_bytes))
        assert first == older.version - kept + 1

    run(stores, scenario)


def test_a_log_that_goes_back_behind_its_snapshots_makes_the_same_model_and_archive(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        events, _, (older, newer) = await traded(store, stores)
        seconds = (newer.last.at_ms - events[40].at_ms) / 1000.0
        assert 1 < await save(store, older, newer, LogRetention(seconds)) < older.version
        async with running_worker(store) as other:
            assert_same(await other.models.follow(NAME), replayed(older.incarnation, events)[-1])
            assert other.hooks.failed_snapshots == 0
        lines, place = await read_contents(store, NAME, None)
        head = read_line(lines[0])
        assert isinstance(head, ArchivedBandit)
        assert head.first_position == older.version + 1  # what is before could not be folded
        assert place is not None
        assert place.stage == "snapshot"
        lines, _ = await read_contents(store, NAME, place)
        assert lines

    run(stores, scenario)


def test_old_events_that_can_not_be_read_keep_no_snapshot_from_being_saved(
    before: tuple[Stores, Traded], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, (_, _, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        async def fail(*_: object, **__: object) -> None:
            raise CorruptDataError("an event is damaged")

        monkeypatch.setattr(store, "read_texts", fail)
        assert await save(store, older, newer, LogRetention(1.0)) == 1
        assert [kept.position for kept in await store.load_snapshots(NAME)] == [newer.version, older.version]

    run(stores, scenario)
