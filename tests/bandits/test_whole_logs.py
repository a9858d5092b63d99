"""Files of the cold log and the store are read as one log: each event once, in order, found by its names."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import NAME, Shop, Worker, request, running_worker, worker_status
from tests.contracts.harness import run

from topk_bandit.bandits.exports import read_page
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.errors import NotFoundError, NotReadyError, UnavailableError
from topk_bandit.domain.operators import EventText, ModelSource
from topk_bandit.domain.quotas import Quotas
from topk_bandit.domain.statistics import LogReach
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.event_keys import group_key, recommendation_key
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.contracts.harness import Stores

    from topk_bandit.store.cold_log import ColdFile
    from topk_bandit.store.log import Store

EVENTS_OF_A_FILE = 16


async def traded(
    store: Store, stores: Stores, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[EventText], ColdLog, int]:
    """Let a shop trade with visitors; return all its events, files of its first ones, and where the store begins."""
    monkeypatch.setattr("topk_bandit.bandits.saved_snapshots.EVENTS_BETWEEN_SNAPSHOTS", 1)
    cold = ColdLog(folder)
    every: list[EventText] = []
    async with running_worker(store) as worker:
        shop = Shop(worker, stores, np.random.default_rng(5))
        await shop.create()
        while True:
            for number in range(4):
                visitor = f"visitor {(len(every) + number) % 7}"
                asked = replace(request(f"asked {len(every)} {number}"), group_key=visitor)
                given = await worker.recommender.recommend(NAME, asked)
                await worker.recommender.reward(NAME, given.recommendation_id, 0.5 * number)
            await worker.models.follow(NAME)
            part = await store.read_texts(NAME, start=len(every) + 1, limit=1000)
            every += part.events
            if part.first_position > 60:
                break
            assert part.events
    incarnation, first = part.incarnation, part.first_position
    for start in range(0, first + 10, EVENTS_OF_A_FILE):
        cold.append(NAME, incarnation, every[start : start + EVENTS_OF_A_FILE])
    return every, cold, first


def files_of(cold: ColdLog) -> list[ColdFile]:
    (folder,) = cold.folder.glob("*/*/*")
    return cold.list_files(NAME, folder.name)


def operators(worker: Worker, executor: Executor, cold: ColdLog | None) -> Operators:
    return Operators(
        worker.store,
        worker.models,
        executor,
        logs=WholeLogs(worker.store, cold),
        quotas=TenantQuotas(worker.store, Quotas()),
        clock_ms=lambda: 0,
        worker=worker_status,
    )


async def found(logs: WholeLogs, name: str, kind: Callable[[str], object] = recommendation_key) -> list[EventText]:
    return [event async for event in logs.find(NAME, kind(name))]  # type: ignore[arg-type]


def test_a_log_is_read_from_files_and_store_as_one(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, first = await traded(store, stores, tmp_path, monkeypatch)
        logs = WholeLogs(store, cold)
        for start in (1, 2, 16, 17, first - 1, first, first + 1, len(every), len(every) + 1):
            for limit in (1, 15, 16, 40, 10_000):
                part = await logs.read_texts(NAME, start=start, limit=limit)
                assert list(part.events) == every[start - 1 : start - 1 + limit], (start, limit)
                assert part.first_position == (1 if start < first else first)
        pages, at = list[EventText](), 0
        while page := (await read_page(logs, NAME, start=at, limit=50)).events:
            pages += page
            at = pages[-1].position + 1
        assert pages == every
        assert await logs.find_reach(NAME) == LogReach(1, every[0].at_ms, first, 0)
        alone = WholeLogs(store, None)
        assert await alone.find_reach(NAME) == LogReach(first, every[first - 1].at_ms, first, 0)
        assert (await alone.read_texts(NAME, start=1, limit=9)).events == ()

    run(stores, scenario)


def test_files_behind_a_gap_are_looked_up_and_not_read_on_from(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, first = await traded(store, stores, tmp_path, monkeypatch)
        gone = files_of(cold)[1]
        gone.path.unlink()
        logs = WholeLogs(store, cold)
        assert await logs.find_reach(NAME) == LogReach(
            gone.last + 1, every[gone.last].at_ms, first, gone.last - gone.first + 1
        )
        with pytest.raises(NotReadyError, match=f"begins at {gone.last + 1}"):
            await read_page(logs, NAME, start=gone.last, limit=9)
        assert (await read_page(logs, NAME, start=gone.last + 1, limit=1000)).events == tuple(every[gone.last :])
        left = [event for event in every if not gone.first <= event.position <= gone.last]
        ids = {json.loads(event.text).get("recommendation_id", "") for event in left} - {""}
        for name in ids:
            wanted = [event for event in left if name.encode() in event.text]
            assert await found(logs, name) == wanted[::-1]

    run(stores, scenario)


def test_events_are_found_by_their_names_wherever_they_are(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, first = await traded(store, stores, tmp_path, monkeypatch)
        monkeypatch.setattr("topk_bandit.store.whole_logs.EVENTS_PER_READ", 5)
        files = files_of(cold)
        for kept in (len(files), 2, 0):  # whatever files lack is in the store alone, if it is anywhere
            for file in files[kept:]:
                file.path.unlink(missing_ok=True)
            end = files[kept - 1].last if kept else 0
            there = [event for event in every if event.position <= end or event.position >= first]
            logs = WholeLogs(store, cold)
            for visitor in range(7):
                wanted = [event for event in there if f'"group_key":"visitor {visitor}"' in event.text.decode()]
                assert await found(logs, f"visitor {visitor}", group_key) == wanted[::-1]
            for event in every[::9]:
                name = json.loads(event.text).get("recommendation_id")
                if name:
                    assert await found(logs, name) == [one for one in there if name.encode() in one.text][::-1]
            assert await found(logs, "nothing") == []

    run(stores, scenario)


def test_a_slate_that_left_the_store_is_explained_from_its_file(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, first = await traded(store, stores, tmp_path, monkeypatch)
        old = next(one for one in every if b'"recommended"' in one.text)
        given = json.loads(old.text)["recommendation"]
        async with running_worker(store) as worker:
            with ThreadPoolExecutor(1) as executor:
                explanation = await operators(worker, executor, cold).explain_recommendation(
                    NAME, given["recommendation_id"]
                )
                assert (explanation.position, explanation.at_ms) == (old.position, old.at_ms)
                assert list(explanation.recommendation.slate) == given["slate"]
                assert explanation.source is ModelSource.REPLAYED, "files and store have all events"
                assert explanation.reasons is not None
                assert explanation.reasons.chosen_again
                assert explanation.problem == ""
                monkeypatch.setattr("topk_bandit.bandits.replays.MOST_FROM_FILES", 3)
                late = next(one for one in every[40:] if b'"recommended"' in one.text)
                late_id = json.loads(late.text)["recommendation"]["recommendation_id"]
                explanation = await operators(worker, executor, cold).explain_recommendation(NAME, late_id)
                assert (explanation.source, explanation.reasons) == (ModelSource.TRIMMED, None)
                assert "more than 3: topk-bandit log dump" in explanation.problem
                monkeypatch.setattr("topk_bandit.bandits.replays.MOST_FROM_FILES", 1000)
                explanation = await operators(worker, executor, cold).explain_recommendation(
                    NAME, given["recommendation_id"]
                )
                assert explanation.reasons is not None
                with pytest.raises(NotFoundError):
                    await operators(worker, executor, cold).explain_recommendation(NAME, "0" * 32)
                with pytest.raises(NotReadyError, match=f"the log begins at {first}, and what is left"):
                    await operators(worker, executor, None).explain_recommendation(NAME, given["recommendation_id"])
                damaged = files_of(cold)[0].path
                whole = damaged.read_bytes()
                damaged.write_bytes(whole[:-5])
                with pytest.raises(NotReadyError, match="is damaged"):  # the slate itself is in it
                    await operators(worker, executor, cold).explain_recommendation(NAME, given["recommendation_id"])
                explanation = await operators(worker, executor, cold).explain_recommendation(NAME, late_id)
                assert explanation.reasons is None
                assert "is damaged" in explanation.problem
                damaged.write_bytes(whole)
                files_of(cold)[1].path.unlink()
                explanation = await operators(worker, executor, cold).explain_recommendation(
                    NAME, given["recommendation_id"]
                )
                assert explanation.source is ModelSource.TRIMMED
                assert explanation.problem.startswith(
                    f"the model that decided is of version {given['model_version']}, the oldest snapshot is of version "
                )
                assert explanation.problem.endswith("and the log can be read from event 33 on")
                with pytest.raises(NotReadyError, match="16 are in no file of the cold log, as where services have"):
                    await operators(worker, executor, cold).explain_recommendation(NAME, "0" * 32)

    run(stores, scenario)


def test_files_that_can_not_be_read_are_an_outage_and_stats_go_on(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, first = await traded(store, stores, tmp_path, monkeypatch)
        logs, file = WholeLogs(store, cold), files_of(cold)[0]
        file.path.write_bytes(b"damaged")
        with pytest.raises(NotReadyError, match=f"cold log: {file.path.relative_to(cold.folder)} is damaged"):
            await logs.read_texts(NAME, start=1, limit=9)
        assert (await logs.find_reach(NAME)).first_position == first

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(cold, "list_files", refuse)
        with pytest.raises(UnavailableError, match="can't be read: Permission denied"):
            await logs.read_texts(NAME, start=1, limit=9)
        assert await logs.find_reach(NAME) == LogReach(first, every[first - 1].at_ms, first, 0)

    run(stores, scenario)


def test_readers_of_several_files_at_once_get_their_own(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: Store) -> None:
        every, cold, _ = await traded(store, stores, tmp_path, monkeypatch)
        logs = WholeLogs(store, cold)
        starts = [1, 40, 20, 2, 17, 33]
        parts = await asyncio.gather(*(logs.read_texts(NAME, start=start, limit=9) for start in starts))
        assert [list(part.events) for part in parts] == [every[start - 1 : start + 8] for start in starts]

    run(stores, scenario)
