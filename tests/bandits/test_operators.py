"""Models beside the fold of their log, and logs in pages."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from tests.bandits.harness import LIMITS, NAME, SETTINGS, Shop, replayed, running_worker, worker_status
from tests.contracts.harness import MemoryStores, run, whole_log

from topk_bandit.bandits import exports
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.exports import read_page
from topk_bandit.bandits.operators import MOST_LONG_CALLS, Operators
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import ExhaustedError, NotFoundError, NotReadyError
from topk_bandit.domain.quotas import Quotas
from topk_bandit.store.codec import decode_event
from topk_bandit.store.events import LoggedEvent
from topk_bandit.store.log import Snapshot
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store, TextSlice


async def trim(store: Store) -> list[int]:
    """Save the last two checkpoints as snapshots, which trims the log; return their positions."""
    record, log = await store.get_bandit(NAME), await whole_log(store, NAME)
    kept = [model for model in replayed(record.incarnation, log) if model.since_checkpoint == 0][-2:]
    for model in kept:
        snapshot, behind = Snapshot(model.version, encode_model(model)), (0 if model is kept[0] else kept[0].version)
        assert await store.save_snapshot(NAME, snapshot, incarnation=record.incarnation, behind=behind)
    return [model.version for model in kept]


def test_a_live_model_is_the_fold_of_its_log_whole_or_trimmed() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            with ThreadPoolExecutor(1) as executor:
                operators = Operators(
                    store,
                    worker.models,
                    executor,
                    logs=WholeLogs(store, None),
                    quotas=TenantQuotas(store, Quotas()),
                    clock_ms=lambda: 0,
                    worker=worker_status,
                )
                with pytest.raises(NotFoundError):
                    await operators.verify(NAME)
                shop = Shop(worker, stores, np.random.default_rng(21))
                await shop.create()
                await shop.trade(70)
                found = await operators.verify(NAME)
                live = await worker.models.follow(NAME)
                assert (found.difference, found.replayed_from, found.version) == ("", 0, live.version)
                assert (found.log_digest, found.posterior_digest, found.arithmetic) == digests_of(live)
                assert found.replayed_posterior_digest == found.posterior_digest
                older, _ = await trim(store)
                await shop.trade(10)
                found = await operators.verify(NAME)
                assert (found.difference, found.replayed_from) == ("", older)

    run(stores, scenario)


@pytest.mark.parametrize("part", ["log", "posterior"])
def test_a_model_that_is_something_else_is_told(part: str) -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=600.0) as worker:
            with ThreadPoolExecutor(1) as executor:
                operators = Operators(
                    store,
                    worker.models,
                    executor,
                    logs=WholeLogs(store, None),
                    quotas=TenantQuotas(store, Quotas()),
                    clock_ms=lambda: 0,
                    worker=worker_status,
                )
                shop = Shop(worker, stores, np.random.default_rng(22))
                await shop.create()
                await shop.trade(40)
                live = await worker.models.follow(NAME)
                state, tally = live.state, live.tally
                posterior = state.posterior.rescale(offset=1.0, amplitude=state.posterior.amplitude)
                other = {
                    "log": replace(live, tally=replace(tally, explored=tally.explored + 1)),
                    "posterior": replace(live, state=replace(state, posterior=posterior)),
                }[part]
                worker.models._entries[NAME].follower.model = other
                assert (await operators.verify(NAME)).difference == part

    run(stores, scenario)


def test_pages_of_any_size_have_every_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store, limits=LIMITS) as worker:
            shop = Shop(worker, stores, np.random.default_rng(23))
            await shop.create()
            await shop.trade(60)
        log = await whole_log(store, NAME)
        for limit in (1, 7, 128, 129, 1000):
            events, start = [], 0
            while True:
                page = await read_page(store, NAME, start=start, limit=limit)
                assert len(page.events) <= limit
                events += [LoggedEvent(one.position, one.at_ms, decode_event(one.text)) for one in page.events]
                start = page.next_position
                if not page.events:
                    break
            assert events == log
            assert start == page.log_position + 1
        monkeypatch.setattr(exports, "PAGE_BYTES", 2000)
        before = asyncio.all_tasks()
        sizes = [len(one.text) for one in (await read_page(store, NAME, start=0, limit=1000)).events]
        assert sum(sizes[:-1]) < 2000 <= sum(sizes)
        assert asyncio.all_tasks() == before  # what was asked for ahead is not left behind

    run(stores, scenario)


def test_a_reader_hears_that_its_log_was_trimmed_or_is_another() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(24))
            await shop.create()
            await shop.trade(80)
            older, _ = await trim(store)
            with pytest.raises(NotReadyError, match=f"begins at {older + 1}") as raised:
                await read_page(store, NAME, start=older, limit=9)
            assert (raised.value.reason, raised.value.numbers) == ("LOG_TRIMMED", {"first_position": older + 1})
            page = await read_page(store, NAME, start=0, limit=3)
            assert [logged.position for logged in page.events] == [older + 1, older + 2, older + 3]
            await worker.bandits.delete_bandit(NAME)
            await worker.bandits.create_bandit(NAME, SETTINGS)
            await worker.bandits.upsert_items(NAME, [Item("new")])
            with pytest.raises(NotReadyError) as raised:
                await read_page(store, NAME, start=1, limit=9, incarnation=page.incarnation)
            assert raised.value.reason == "LOG_REPLACED"

    run(stores, scenario)


class CreatedAnew:
    """A store in which a bandit is another one once a first part of its log was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_read = False

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        if self._is_read:
            await self._store.delete_bandit(name)
            await self._store.create_bandit(name, SETTINGS, incarnation="another", quota=9)
            await self._store.change_items(name, upserted=[Item("new")], retired=[])
        self._is_read = True
        return await self._store.read_texts(name, start=start, limit=limit)


def test_a_page_ends_where_its_log_is_another_one_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_EVENTS_PER_READ", 1)
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        record = await store.create_bandit(NAME, SETTINGS, incarnation="first", quota=9)
        await store.change_items(NAME, upserted=[Item("old")], retired=[])
        page = await read_page(cast("Store", CreatedAnew(store)), NAME, start=1, limit=2)
        assert page.incarnation == record.incarnation
        assert [event.position for event in page.events] == [1]

    run(stores, scenario)


def test_few_long_calls_at_once_and_others_are_refused() -> None:
    stores = MemoryStores()

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            with ThreadPoolExecutor(1) as executor:
                operators = Operators(
                    store,
                    worker.models,
                    executor,
                    logs=WholeLogs(store, None),
                    quotas=TenantQuotas(store, Quotas()),
                    clock_ms=lambda: 0,
                    worker=worker_status,
                )
                shop = Shop(worker, stores, np.random.default_rng(25))
                await shop.create()
                await shop.trade(10)
                calls = [operators.verify(NAME) for _ in range(MOST_LONG_CALLS + 3)]
                found = await asyncio.gather(*calls, return_exceptions=True)
                refused = [one for one in found if isinstance(one, ExhaustedError)]
                assert (len(refused), {one.reason for one in refused}) == (3, {"OPERATOR_CALLS"})
                assert {one.difference for one in found if not isinstance(one, BaseException)} == {""}
                assert (await operators.verify(NAME)).difference == ""

    run(stores, scenario)
