"""Many requests in one call: each is answered as by itself, recorded together, and nobody waits for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.bandits.harness import NAME, SETTINGS, Worker, request, running_worker
from tests.contracts.harness import MemoryStores, RedisStores, run
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.bandits.batches import CHOSEN_AT_ONCE, Asked
from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.bandits import BanditName, Item
from topk_bandit.domain.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    UnavailableError,
)
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.domain.slates import Recommendation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    from topk_bandit.store.log import RecordOutcome, Store, Written


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.fixture(params=["memory", "valkey"])
def stores(request: pytest.FixtureRequest, server: RunningServer) -> Stores:
    return MemoryStores() if request.param == "memory" else RedisStores(server.url)


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Worker]:
    """Run a worker whose bandit has learned a little."""
    async with running_worker(store) as worker:
        await worker.bandits.create_bandit(NAME, SETTINGS)
        await worker.bandits.upsert_items(NAME, [Item(f"i{n}") for n in range(8)])
        for number in range(6):
            slate = await worker.recommender.recommend(NAME, request(f"before {number}"))
            await worker.recommender.reward(NAME, slate.recommendation_id, float(number % 2))
        await worker.models.follow(NAME)
        worker.hooks.store_calls.clear()
        yield worker


def asked(*ids: str, **more: Any) -> list[Asked]:  # noqa: ANN401 - as `request` takes it
    return [Asked(request(one, context=(1.0, number / 7), **more)) for number, one in enumerate(ids)]


def slates_of(outcomes: Sequence[Recommendation | Exception]) -> list[Recommendation]:
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    return [one for one in outcomes if isinstance(one, Recommendation)]


def test_each_slate_is_what_its_request_alone_would_get(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            model = await worker.models.follow(NAME)
            wanted = asked(*(f"r{number}" for number in range(100)))
            slates = slates_of(await worker.recommender.recommend_all(NAME, wanted))
            for one, slate in zip(wanted, slates, strict=True):
                assert replace(slate, deadline_ms=0) == choose_slate(model, one.request)
                assert slate.deadline_ms > 0
            assert len({slate.slate for slate in slates}) > 1
            counted = worker.hooks.store_calls
            assert (counted["record_recommendations"], counted["record_recommendation"]) == (1, 0)
            repeated = slates_of(await worker.recommender.recommend_all(NAME, wanted))
            assert repeated == slates
            record = await store.get_bandit(NAME)
            assert record.pending == 100
            assert await worker.models.follow(NAME) is not model
            for slate in slates:
                await worker.recommender.reward(NAME, slate.recommendation_id, 1.0)

    run(stores, scenario)


def test_what_is_wrong_with_one_stops_no_other(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            wanted = [
                *asked("a", "b"),
                Asked(request("short", context=(1.0,))),
                Asked(request("few", candidates=["i0", "gone", "lost"])),
                Asked(request("strict", candidates=["i0", "i1", "gone"]), strict_candidates=True),
                Asked(request("ahead"), min_model_version=10**6),
                Asked(request("before 1")),
                Asked(request("before 1", context=(3.0, 3.0))),
                *asked("c"),
                *asked("c"),
            ]
            outcomes = await worker.recommender.recommend_all(NAME, wanted)
            kinds = [type(one) for one in outcomes]
            assert kinds == [
                Recommendation,
                Recommendation,
                InvalidArgumentError,
                NotReadyError,
                NotFoundError,
                NotReadyError,
                Recommendation,
                ConflictError,
                Recommendation,
                Recommendation,
            ]
            assert outcomes[-1] == outcomes[-2]
            with pytest.raises(NotFoundError):
                await worker.recommender.recommend_all(BanditName("shop", "none"), asked("a"))

    run(stores, scenario)


class Changing:
    """A store whose items change just before slates are recorded together."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._store, self._worker = store, worker

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    async def record_recommendations(self, *given: Any, **named: Any) -> Written[Sequence[RecordOutcome | Exception]]:  # noqa: ANN401
        await self._store.change_items(NAME, upserted=[Item("i0", available=False)], retired=[])
        return await self._store.record_recommendations(*given, **named)


def recommender_on(
    store: Any,  # noqa: ANN401 - whatever stands for a store
    worker: Worker,
    quotas: Quotas = Quotas(),  # noqa: B008 - nothing changes it
    hooks: Hooks | None = None,
) -> Recommender:
    return Recommender(
        store,
        worker.models,
        worker.recommender._executor,
        quotas=TenantQuotas(worker.store, quotas),
        hooks=hooks or Hooks(),
        new_id=lambda: "made",
    )


def test_no_slate_holds_an_item_that_was_taken_out_meanwhile(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            recommender = recommender_on(Changing(store, worker), worker)
            slates = slates_of(await recommender.recommend_all(NAME, asked(*(f"r{n}" for n in range(30)))))
            assert all("i0" not in slate.slate for slate in slates)
            assert len({slate.recommendation_id for slate in slates}) == 30

    run(stores, scenario)


class Away:
    """A store that is away, but for what is asked first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        async def refuse(*_: object, **__: object) -> None:
            raise UnavailableError("away", nothing_sent=True)

        return refuse if name.startswith(("record_", "find_")) else getattr(self._store, name)


def test_while_the_store_is_away_each_slate_is_degraded() -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            recommender = recommender_on(Away(store), worker)
            slates = slates_of(await recommender.recommend_all(NAME, asked("a", "b", "c")))
            assert [(slate.degraded, slate.recommendation_id) for slate in slates] == [(True, "")] * 3

    run(MemoryStores(), scenario)


def test_what_is_left_when_the_callers_time_is_up_is_not_tried() -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            left = iter([5.0, 1.0, *[0.0] * 1000])
            wanted = asked(*(f"r{number}" for number in range(5 * CHOSEN_AT_ONCE)))
            outcomes = await worker.recommender.recommend_all(NAME, wanted, time_left=lambda: next(left))
            kinds = Counter(type(one) for one in outcomes[2 * CHOSEN_AT_ONCE :])
            slates_of(outcomes[: 2 * CHOSEN_AT_ONCE])
            assert kinds == {UnavailableError: 3 * CHOSEN_AT_ONCE}
            assert (await store.get_bandit(NAME)).pending == 2 * CHOSEN_AT_ONCE

    run(MemoryStores(), scenario)


def test_each_slate_counts_for_the_quota_of_open_ones() -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            recommender = recommender_on(store, worker, quotas=Quotas({Quota.OPEN_SLATES: 4}))
            wanted = asked("a", "b", "c", "d", "e", "f")
            outcomes = await recommender.recommend_all(NAME, wanted)
            assert [type(one) for one in outcomes] == [Recommendation] * 4 + [QuotaError] * 2
            assert (await store.get_bandit(NAME)).pending == 4

    run(MemoryStores(), scenario)


def test_a_request_that_is_repeated_is_answered_beyond_the_quota() -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            first = slates_of(await worker.recommender.recommend_all(NAME, asked("a", "b")))
            full = recommender_on(store, worker, quotas=Quotas({Quota.OPEN_SLATES: 1}))
            again = await full.recommend_all(NAME, [*asked("a", "b"), *asked("new")])
            assert list(again[:2]) == first
            assert isinstance(again[2], QuotaError)

    run(MemoryStores(), scenario)


class Held(Hooks):
    """Holds the thread that chooses slates until it is let go."""

    def __init__(self) -> None:
        self.chosen = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.goes_on = threading.Event()

    def decided(self, recommendation: Recommendation, seconds: float) -> None:  # noqa: ARG002 - as hooks take it
        if threading.current_thread() is not threading.main_thread():
            self.loop.call_soon_threadsafe(self.chosen.set)
            assert self.goes_on.wait(PATIENCE)


def test_others_are_answered_while_a_batch_is_chosen() -> None:
    async def scenario(store: Store) -> None:
        async with opened(store) as worker:
            held = Held()
            recommender = recommender_on(store, worker, hooks=held)
            batch = asyncio.create_task(recommender.recommend_all(NAME, asked(*(f"r{n}" for n in range(100)))))
            try:
                await held.chosen.wait()
                for number in range(20):
                    assert (await recommender.recommend(NAME, request(f"other {number}"))).recommendation_id
                assert not batch.done()
            finally:
                held.goes_on.set()
            slates_of(await batch)

    run(MemoryStores(), scenario)
