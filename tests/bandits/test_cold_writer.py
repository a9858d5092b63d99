"""Events reach the cold log before they are trimmed, or their loss is counted."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, RecordedHooks, Shop, replayed, running_worker
from tests.contracts.harness import run, run_in_memory, whole_log

from topk_bandit.bandits.cold_writer import ColdEnd, ColdRetention, ColdWriter
from topk_bandit.bandits.log_retention import LogRetention, Trim
from topk_bandit.bandits.saved_snapshots import SavedSnapshots
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.event_keys import recommendation_key
from topk_bandit.store.log import Snapshot
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.log import Store, TextSlice

EVENTS = 16
ALL = 1 << 40


class ColdHooks(RecordedHooks):
    def cold_written(self, events: int) -> None:
        self.counts["written"] += events

    def cold_failed(self) -> None:
        self.counts["failed"] += 1

    def cold_missed(self, events: int) -> None:
        self.counts["missed"] += events


class OwnModels:
    """One bandit of a worker, and up to where a snapshot stands for it."""

    def __init__(self, model: Model) -> None:
        self.model, self.position = model, model.version

    def find_own(self) -> dict[BanditName, Model]:
        return {NAME: self.model}

    def find_snapshot_position(self, name: BanditName) -> int:
        assert name == NAME
        return self.position


class Side:
    """A worker's writer and snapshots on a folder."""

    def __init__(self, store: Store, folder: Path, model: Model, *, most_bytes: int = ALL) -> None:
        self.store, self.hooks, self.written = store, ColdHooks(), dict[BanditName, ColdEnd]()
        self.cold = ColdLog(folder)
        self.retention = ColdRetention(LogRetention(0.0, most_bytes), self.written, owns=lambda _bandit: True)
        self.models = OwnModels(model)
        self.writer = ColdWriter(
            store,
            self.cold,
            models=self.models,  # type: ignore[arg-type]
            written=self.written,
            hooks=self.hooks,
            clock_ms=lambda: 0,
        )

    async def save(self, model: Model) -> int:
        """Save a snapshot; return where the log begins after that."""
        with ThreadPoolExecutor(1) as executor, pytest.MonkeyPatch.context() as patched:
            patched.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
            how = {"limits": LIMITS, "hooks": self.hooks, "retention": self.retention}
            await SavedSnapshots(NAME, self.store, executor, **how).save_if_due(model)  # type: ignore[arg-type]
        self.models.position = model.version
        return (await self.store.read_log(NAME, start=1, limit=0)).first_position

    def count_undone(self) -> int:
        return len(list(self.cold.folder.rglob("*.undone")))

    def read(self, incarnation: str) -> list[tuple[int, int, object]]:
        found: list[tuple[int, int, object]] = []
        for file in self.cold.list_files(NAME, incarnation):
            _, *lines = gzip.decompress(file.path.read_bytes()).decode().splitlines()
            found += [(one["position"], one["at_ms"], one["event"]) for one in map(json.loads, lines)]
        return found


def as_lines(texts: tuple[EventText, ...]) -> list[tuple[int, int, object]]:
    return [(one.position, one.at_ms, json.loads(one.text)) for one in texts]


@pytest.fixture(autouse=True)
def _short_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.bandits.cold_writer.FILE_EVENTS", EVENTS)


Traded: TypeAlias = "tuple[tuple[EventText, ...], list[Model]]"


@pytest.fixture(scope="module")
def before() -> tuple[Stores, Traded]:
    """Return a shop that has traded in memory, of which each test takes a copy."""
    return run_in_memory(traded)


async def traded(store: Store, stores: Stores) -> Traded:
    """Let a shop trade; return its events and the models at its last two checkpoints, the older one saved."""
    async with running_worker(store) as worker:
        shop = Shop(worker, stores, np.random.default_rng(5))
        await shop.create()
        await shop.trade(90)
        live = await worker.models.follow(NAME)
    log = await whole_log(store, NAME)
    texts = (await store.read_texts(NAME, start=1, limit=len(log))).events
    models = [one for one in replayed(live.incarnation, log) if one.since_checkpoint == 0][-2:]
    first = Snapshot(models[0].version, encode_model(models[0]))
    assert await store.save_snapshot(NAME, first, incarnation=live.incarnation)
    return texts, models


def test_files_and_log_have_each_event_once_and_in_order(stores: Stores, tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        texts, (older, newer) = await traded(store, stores)
        sides = [Side(store, tmp_path, older) for _ in range(2)]  # two owners, as while a worker takes over
        for side in sides:
            await side.writer.go_round()
        written = older.version // EVENTS * EVENTS
        assert [side.hooks.counts["written"] for side in sides] == [written, 0]
        first = await sides[1].save(newer)
        assert first == written, "the newest event that is written stays, to know the log by"
        left = (await store.read_texts(NAME, start=first, limit=10_000)).events
        assert sides[0].read(older.incarnation) + as_lines(left[1:]) == as_lines(texts)
        await Side(store, tmp_path, newer).writer.go_round()  # one that is started anew
        found = sides[0].read(older.incarnation)
        assert found == as_lines(texts[: len(found)])
        assert len(found) == newer.version // EVENTS * EVENTS

    run(stores, scenario)


class Undone:
    """A store in which a log has other events from a position on, as after a restore to the time before."""

    def __init__(self, store: Store, since: int, last: int = ALL, **other: object) -> None:
        self._store, self._since, self._last, self._other = store, since, last, other

    def _change(self, event: EventText) -> EventText:
        return event if event.position < self._since else replace(event, at_ms=event.at_ms + 1)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        part = await self._store.read_texts(name, start=start, limit=max(0, min(limit, self._last - start + 1)))
        end = {"log_position": min(self._last, part.log_position)}
        return replace(part, events=tuple(map(self._change, part.events)), **{**end, **self._other})


class Finalized(Undone):
    """A store that writes events otherwise, as after an upgrade was finalized."""

    def _change(self, event: EventText) -> EventText:
        assert event.text.startswith(b'{"v":')
        return replace(event, text=b'{"v":9' + event.text[6:])


def test_events_that_are_written_otherwise_are_the_same_and_another_bandits_log_says_nothing(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (_, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older)
        side.models.position = newer.version
        await side.writer.go_round()
        written = newer.version // EVENTS * EVENTS
        for other in (Finalized(store, 1), Undone(store, 1, incarnation="another")):
            anew = Side(other, tmp_path, older)  # type: ignore[arg-type]
            anew.models.position = newer.version + 1
            await anew.writer.go_round()
            how = {"incarnation": older.incarnation, "at_ms": 1 << 50, "behind": newer.version}
            assert (await anew.retention.find_trim(other, NAME, **how)).through == written - 1  # type: ignore[arg-type]
            assert anew.count_undone() == 0
        assert "undone" not in caplog.text
        # What all of it is written of is not counted as lost where bytes ask for its end.
        small = Side(store, tmp_path, older, most_bytes=1)
        small.models.position = written
        await small.writer.go_round()
        trim = await small.retention.find_trim(
            store, NAME, incarnation=older.incarnation, at_ms=1 << 50, behind=written
        )
        assert trim == Trim(written, unwritten=0)

    run(stores, scenario)


@pytest.mark.parametrize("grown", [False, True])
def test_what_a_restore_undid_is_set_aside_and_what_came_after_is_written(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture, *, grown: bool
) -> None:
    """Whether the log has grown beyond the end of the files by then, or not yet."""
    stores, (texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older)
        side.models.position = newer.version
        await side.writer.go_round()
        written = newer.version // EVENTS * EVENTS
        kept = written - EVENTS - 5  # in the last file but one
        last = len(texts) if grown else written - 3
        restored = Undone(store, kept + 1, last)
        # Before the writer has looked, nothing is trimmed that is only in files of what was undone.
        trim = side.retention.find_trim
        how = {"incarnation": older.incarnation, "at_ms": 1 << 50}
        assert (await trim(store, NAME, behind=older.version, **how)).through == min(older.version, written - 1)
        assert (await trim(restored, NAME, behind=older.version, **how)).through == 0
        side.models.position = last
        anew = Side(restored, tmp_path, older)  # type: ignore[arg-type]
        anew.models.position = last
        await anew.writer.go_round()
        assert f"{written - kept} events of the cold log are of a log that was undone" in caplog.text
        found = anew.read(older.incarnation)
        now = (await restored.read_texts(NAME, start=1, limit=len(texts))).events
        assert found == as_lines(now[: len(found)])
        assert kept <= len(found) == kept + (last - kept) // EVENTS * EVENTS
        assert anew.count_undone() == 2
        await anew.writer.go_round()
        assert anew.count_undone() == 2
        ready = WholeLogs(restored, anew.cold)  # type: ignore[arg-type]
        for one in (now[kept - 1], now[kept], now[-1]):
            names = [json.loads(one.text).get("recommendation_id")]
            for key in map(recommendation_key, filter(None, names)):
                assert one in [event async for event in ready.find(NAME, key)]

    run(stores, scenario)


def test_a_damaged_file_is_reported_once_and_events_after_it_are_written(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older)
        await side.writer.go_round()
        damaged = side.cold.list_files(NAME, older.incarnation)[-1]
        damaged.path.write_bytes(b"damaged")
        anew = Side(store, tmp_path, newer)
        for _ in range(2):
            await anew.writer.go_round()
        assert caplog.text.count(f"{damaged.path} is damaged") == 1
        written = anew.cold.list_files(NAME, older.incarnation)
        assert [file.first for file in written] == [1 + EVENTS * number for number in range(len(written))]
        assert written[-1].last == newer.version // EVENTS * EVENTS
        assert as_lines(texts[damaged.last :])[: written[-1].last - damaged.last] == [
            (one.position, one.at_ms, json.loads(one.text))
            for file in written
            if file.first > damaged.last
            for one in file.read()
        ]

    run(stores, scenario)


def test_copies_of_a_bandit_have_ends_of_their_own(before: tuple[Stores, Traded], tmp_path: Path) -> None:
    """An archive that is taken in as another bandit has the incarnation of its source."""
    stores, (_, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older)
        side.models.position = newer.version
        await side.writer.go_round()
        copy = replace(NAME, bandit="copy")
        trim = await side.retention.find_trim(
            store, NAME, incarnation=older.incarnation, behind=older.version, at_ms=1 << 50
        )
        assert trim.through > 0
        assert await side.retention._find_end(store, copy, older.incarnation) == 0

    run(stores, scenario)


def test_nothing_is_trimmed_that_is_not_written_and_a_failure_is_said_once(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path / "mount", older)
        for _ in range(3):
            await side.writer.go_round()
        assert side.hooks.counts["failed"] == 3
        assert caplog.text.count("can't be written") == 1
        assert await side.save(newer) == 1
        assert side.hooks.counts["missed"] == 0
        (tmp_path / "mount").mkdir()
        await side.writer.go_round()
        assert caplog.text.count("is written again") == 1
        found = side.read(older.incarnation)
        assert found == as_lines(texts[: len(found)])
        assert len(found) == newer.version // EVENTS * EVENTS

    run(stores, scenario)


def test_a_damaged_event_is_reported_once_and_nothing_is_written_from_there(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older)

        async def fail(*_: object, **__: object) -> None:
            raise CorruptDataError("a bit flipped")

        with pytest.MonkeyPatch.context() as damaged:
            damaged.setattr(store, "read_texts", fail)
            for _ in range(3):
                await side.writer.go_round()
        assert (side.hooks.counts["failed"], side.hooks.counts["written"]) == (3, 0)
        assert caplog.text.count("an event is damaged") == 1
        assert await side.save(newer) == 1
        await side.writer.go_round()
        found = side.read(older.incarnation)
        assert found == as_lines(texts[: len(found)])
        assert found

    run(stores, scenario)


def test_beyond_the_bytes_that_may_stay_events_go_and_are_counted(
    before: tuple[Stores, Traded], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores, (texts, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        sampled = [len(one.text) for one in texts[max(0, older.version - 128) : older.version]]
        most_bytes = round(20 * sum(sampled) / len(sampled) + 1)
        side = Side(store, tmp_path / "gone", older, most_bytes=most_bytes)
        await side.writer.go_round()
        assert await side.save(newer) == older.version - 20 + 1
        assert side.hooks.counts["missed"] == older.version - 20
        assert f"{older.version - 20} events are trimmed that the cold log does not have" in caplog.text

    run(stores, scenario)


def test_a_worker_that_does_not_own_a_bandit_trims_nothing_of_it(before: tuple[Stores, Traded], tmp_path: Path) -> None:
    stores, (_, (older, newer)) = deepcopy(before[0]), before[1]

    async def scenario(store: Store) -> None:
        side = Side(store, tmp_path, older, most_bytes=1)
        side.retention = replace(side.retention, owns=lambda _bandit: False)
        assert await side.save(newer) == 1

    run(stores, scenario)


def test_a_worker_writes_what_its_own_snapshots_stand_for_and_asks_for_no_bandit(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(5))
            await shop.create()
            await shop.trade(60)
            live = await worker.models.follow(NAME)
            behind = (await store.get_bandit(NAME)).snapshot_position
            assert worker.models.find_snapshot_position(NAME) == behind > EVENTS
            side = Side(store, tmp_path, live)
            writer = ColdWriter(
                store, side.cold, models=worker.models, written=side.written, hooks=side.hooks, clock_ms=lambda: 0
            )
            with monkeypatch.context() as asked:
                asked.setattr(store, "get_bandit", None)
                await writer.go_round()
        first = (await store.read_log(NAME, start=1, limit=0)).first_position
        found = side.read(live.incarnation)
        texts = as_lines((await store.read_texts(NAME, start=first, limit=behind - first + 1)).events)
        assert found == texts[: len(texts) // EVENTS * EVENTS]

    run(stores, scenario)
