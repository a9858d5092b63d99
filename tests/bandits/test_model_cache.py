"""Models that are followed in the background: what happens though nobody asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import (
    NAME,
    SETTINGS,
    RecordedHooks,
    Shop,
    assert_same,
    rebuilt,
    request,
    running_worker,
    settles,
)
from tests.contracts.harness import RedisStores, run
from tests.waiting import PATIENCE, until_async

from topk_bandit.bandits.cached_model import CachedModel
from topk_bandit.domain.calls import CURRENT_CALL, Call, SpanIds
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.store.events import Expired

if TYPE_CHECKING:
    from tests.contracts.harness import Stores

    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.log import Store


def test_what_one_worker_takes_in_the_other_learns(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as near, running_worker(store) as far:
            shop = Shop(near, stores, np.random.default_rng(1))
            await shop.create()
            await far.models.get_model(NAME)
            for value in (1.0, -2.0):
                await near.recommender.reward(NAME, (await shop.recommend()).recommendation_id, value)
            await until_async(lambda: settles(far), what="the other worker has learned it")
            assert_same(await far.models.get_model(NAME), await rebuilt(store))
            assert far.hooks.learned_rewards == [1.0, -2.0]

    run(stores, scenario)


def test_what_is_followed_in_the_background_is_of_no_call(stores: Stores) -> None:
    class Witness(RecordedHooks):
        def followed(self, bandit: str, lag_events: int, waiting_seconds: float) -> None:
            super().followed(bandit, lag_events, waiting_seconds)
            seen.append(CURRENT_CALL.get())

    seen: list[Call | None] = []
    call = Call("r-1", SpanIds("t" * 32, "s" * 16, sampled=False))

    async def scenario(store: Store) -> None:
        async with running_worker(store) as near, running_worker(store, hooks=Witness()) as far:
            shop = Shop(near, stores, np.random.default_rng(1))
            await shop.create()
            CURRENT_CALL.set(call)
            await far.models.get_model(NAME)
            assert call in seen
            CURRENT_CALL.set(None)
            seen.clear()
            await near.recommender.reward(NAME, (await shop.recommend()).recommendation_id, 1.0)
            await until_async(lambda: settles(far), what="the other worker has learned it")
            assert seen
            assert call not in seen

    run(stores, scenario)


def test_what_is_overdue_is_closed_once_by_whoever_looks_first(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as one, running_worker(store) as other:
            shop = Shop(one, stores, np.random.default_rng(1))
            await shop.create(replace(SETTINGS, reward_wait_ms=1, default_reward=0.5))
            shown = [(await worker.recommender.recommend(NAME, request())) for worker in (one, other) * 5]
            await stores.pass_time(1000)  # more than from one look for deadlines to the next

            async def closed() -> bool:
                return (await store.get_bandit(NAME)).pending == 0 and await settles(one) and await settles(other)

            await until_async(closed, what="all are closed")
            part = await store.read_log(NAME, start=1, limit=100)
            expired = [logged.event for logged in part.events if isinstance(logged.event, Expired)]
            assert sorted(one.recommendation_id for one in expired) == sorted(one.recommendation_id for one in shown)
            assert one.hooks.expirations + other.hooks.expirations == 10
            assert_same(await one.models.get_model(NAME), await other.models.get_model(NAME))
            assert (await one.bandits.stats(NAME)).defaults == 10
            late = await one.recommender.reward(NAME, shown[0].recommendation_id, 1.0)
            assert late.outcome is RewardOutcome.LATE

    run(stores, scenario)


def test_the_next_deadline_is_known_from_the_store(stores: Stores) -> None:
    """The model does not have it: the first slate given out may have waited for longer than any log goes back."""

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=0.02) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            shown = [await shop.recommend() for _ in range(2)]
            entry = worker.models._entries[NAME]
            for number, deadline_ms in ((0, shown[0].deadline_ms), (1, shown[1].deadline_ms), (2, None)):
                for one in shown[:number]:
                    await worker.recommender.reward(NAME, one.recommendation_id, 1.0)

                async def is_known(wanted_ms: int | None = deadline_ms) -> bool:
                    await stores.pass_time(20)
                    return entry.next_deadline_ms == wanted_ms

                await until_async(is_known, what="the next deadline is known")

    run(stores, scenario)


def test_a_long_pause_ends_at_the_next_deadline(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.bandits.cached_model.LONGEST_PAUSE_LOOKS", 1e9)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await Shop(worker, stores, np.random.default_rng(1)).create()
            model = await worker.models.follow(NAME)
            follower = worker.models._entries[NAME].follower
            entry = CachedModel(follower, look_seconds=0.5, now=0.0)
            for _ in range(20):
                entry.record_look(model, now=0.0)
            entry.next_deadline_ms = 5_000
            async with asyncio.timeout(PATIENCE):  # the pause is days
                assert not await entry.wait(clock_ms=4_500)

    run(stores, scenario)


@pytest.mark.slow
def test_a_worker_can_be_stopped_at_any_moment_of_its_start(embedded: EmbeddedStore) -> None:
    """Connecting to the store may swallow a cancellation, which must then be repeated."""
    stores = RedisStores(embedded.url)

    async def scenario(store: Store) -> None:
        for microseconds in range(0, 12_000, 100):
            async with asyncio.timeout(PATIENCE), running_worker(store):
                await asyncio.sleep(microseconds / 1e6)

    run(stores, scenario)
