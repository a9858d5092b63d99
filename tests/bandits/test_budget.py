"""Models in bounded memory: what one may take, who leaves when there are too many, and how they come back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from tests.bandits.harness import (
    HOUR_MS,
    NAME,
    SETTINGS,
    Archive,
    Shop,
    assert_same,
    rebuilt,
    replayed,
    request,
    running_worker,
    settles,
)
from tests.contracts.harness import RedisStores, run
from tests.long_forms import usual_or_long
from tests.waiting import until_async

from topk_bandit.bandits.budget import MIB, MemoryBudget, ModelSizes
from topk_bandit.bandits.cached_model import LONGEST_PAUSE_LOOKS
from topk_bandit.bandits.follower import SHORT_TAIL
from topk_bandit.bandits.model_cache import VISIT_SECONDS
from topk_bandit.domain.bandits import BanditName, Item
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.slates import RewardOutcome
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import Expired
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.embedded import EmbeddedStore
    from topk_bandit.store.log import Store

A, B, C = (BanditName("shop", bandit) for bandit in "abc")
SOON = MemoryBudget(idle_seconds=0.3)


def rests(worker: Worker, name: BanditName = NAME) -> bool:
    return worker.models.peek_model(name) is None


async def pass_time_until_it_rests(worker: Worker, stores: Stores) -> None:
    """Let time go on: when a worker has seen the last event, and counts from there, only it knows."""

    async def is_at_rest() -> bool:
        await stores.pass_time(100)
        return rests(worker)

    await until_async(is_at_rest, what="the model rests")


def test_who_was_used_least_recently_leaves_first() -> None:
    sizes = ModelSizes(most_bytes=100)
    for name in (A, B, C):
        sizes.touch(name)
    assert sizes.resize(A, 40) == []
    assert sizes.resize(B, 30) == []
    sizes.touch(A)
    assert sizes.resize(C, 31) == [B]
    assert sizes.total_bytes == 101
    sizes.remove(B)
    assert sizes.total_bytes == 71
    assert sizes.resize(C, 300) == [C], "it was used before the other"
    sizes.touch(C)
    assert sizes.resize(C, 1000) == [A], "who was used last stays, however large"


def test_who_left_counts_no_more() -> None:
    sizes = ModelSizes(most_bytes=100)
    sizes.touch(A)
    sizes.resize(A, 60)
    sizes.remove(A)
    sizes.remove(A)
    assert sizes.resize(A, 60) == []
    assert sizes.total_bytes == 0


def test_rows_follow_from_the_memory() -> None:
    small, large = (MemoryBudget(model_bytes=mib * MIB).limits(context_dim=64, slate_size=12) for mib in (8, 32))
    assert 2 * small.rows < large.rows < 4 * small.rows, "the rows' memory is about quadratic"
    with pytest.raises(InvalidArgumentError):
        MemoryBudget(model_bytes=1000).limits(context_dim=64, slate_size=12)


def test_a_model_stays_within_its_bound(stores: Stores) -> None:
    """A bound so tight that rows are forgotten: every model of the bandit's life is within it."""
    budget = MemoryBudget(model_bytes=MIB // 2)
    limits = Limits.within(budget.model_bytes * 3 // 8, context_dim=2, slate_size=3, pending_rows=16)

    async def scenario(store: Store) -> None:
        async with running_worker(store, limits=limits, budget=budget) as worker:
            shop, archive = Shop(worker, stores, np.random.default_rng(2)), Archive(store)
            await shop.create()
            await shop.trade(5 * limits.rows // 2, archive=archive)
            model = await worker.models.follow(NAME)
            assert model.state.observations > limits.rows
            models = replayed(model.incarnation, archive.events, limits=limits)
            assert max(one.memory_bytes for one in models) <= budget.model_bytes
            assert max(one.state.memory_bytes for one in models) > 0.8 * limits_bytes(limits), "the bound is no guess"
            stats = await worker.bandits.stats(NAME)
            assert (stats.memory_bytes, stats.memory_limit_bytes) == (model.memory_bytes, budget.model_bytes)

    def limits_bytes(limits: Limits) -> float:
        return 8.0 * (limits.rows**2 + 16 * limits.rows)

    assert limits.rows < 200
    run(stores, scenario)


def test_a_model_that_another_worker_owns_rests_though_its_log_grows(stores: Stores) -> None:
    times = [0.0]

    async def scenario(store: Store) -> None:
        visits = running_worker(
            store, look_seconds=0.02, now=lambda: times[-1], owns=lambda bandit: bandit != str(NAME)
        )
        async with visits as visitor, running_worker(store) as owner:
            shop = Shop(owner, stores, np.random.default_rng(4))
            await shop.create()
            await visitor.recommender.recommend(NAME, request("a visit"))
            times.append(VISIT_SECONDS - 0.1)
            await shop.trade(4)
            assert not rests(visitor)
            times.append(VISIT_SECONDS)

            async def rests_though_the_log_grows() -> bool:
                await shop.trade(1)
                times.append(times[-1] + 0.02)
                return rests(visitor)

            await until_async(rests_though_the_log_grows, what="the visitor's model rests")
            assert visitor.hooks.rests == ["idle"]
            assert not rests(owner)

    run(stores, scenario)


def test_a_model_whose_log_is_damaged_is_kept_though_nobody_asks_for_it(embedded: EmbeddedStore) -> None:
    times = [0.0]

    async def scenario(store: Store) -> None:
        turned = running_worker(store, budget=SOON, look_seconds=0.02, now=lambda: times[-1])
        async with turned as worker:
            shop = Shop(worker, stores, np.random.default_rng(4))
            await shop.create()
            await shop.trade(4)
            with redis.Redis.from_url(stores.url) as client:
                client.xtrim(log, maxlen=1)
                client.xdel(log, *[entry for entry, _ in client.xrange(log)])

            def failed() -> int:
                return worker.hooks.failed_folds

            times.append(0.02)
            await until_async(failed, what="its learner stands still")
            before = failed()
            times.append(2.0 * SOON.idle_seconds)
            await until_async(lambda: failed() > before + 1, what="it is looked at all the same")
            assert not rests(worker)

    stores = RedisStores(embedded.url)
    log = KeySpace(stores.prefix).bandit(NAME).log
    run(stores, scenario)


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.parametrize(
    ("stores", "rounds"),
    [("memory", 40), ("embedded", usual_or_long(40, long=700))],
    indirect=["stores"],
)
def test_a_model_that_was_away_is_the_one_that_stayed(stores: Stores, rounds: int) -> None:
    """One worker lets its model rest and takes it up again and again; another keeps it, and both follow one log."""

    times = [0.0]

    async def scenario(store: Store) -> None:
        turned = running_worker(store, budget=SOON, look_seconds=0.05, now=lambda: times[-1])
        async with turned as resting, running_worker(store) as staying:
            shop, archive = Shop(staying, stores, np.random.default_rng(4)), Archive(store)
            await shop.create()
            for part in range(4):
                await shop.trade(rounds // 4, archive=archive)
                await resting.recommender.recommend(NAME, request(f"awake {part}"))
                assert_same(await resting.models.follow(NAME), await staying.models.follow(NAME))
                times.append(times[-1] + 2.0 * SOON.idle_seconds)
                await until_async(lambda: rests(resting), what="the model rests")
            assert resting.hooks.rests == ["idle"] * 4
            assert resting.hooks.forgotten_bandits == [str(NAME)] * 4
            assert staying.hooks.rests == []
            await archive.look()
            truth = replayed((await store.get_bandit(NAME)).incarnation, archive.events)[-1]
            assert_same(await resting.models.follow(NAME), truth)

    run(stores, scenario)


def test_too_many_models_replace_each_other(stores: Stores) -> None:
    """There is space for no more than one; whoever is asked for is there, and none differs for it."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as reference:
            for name in (A, B, C):
                await reference.bandits.create_bandit(name, SETTINGS)
                await reference.bandits.upsert_items(name, [Item(f"i{n}") for n in range(5)])
                for number in range(30):
                    shown = await reference.recommender.recommend(name, request(f"r{number}"))
                    await reference.recommender.reward(name, shown.recommendation_id, float(number))
            async with running_worker(store, budget=MemoryBudget(worker_bytes=1)) as worker:
                for turn in range(4):
                    for name in (A, B, C):
                        shown = await worker.recommender.recommend(name, request(f"turn {turn}"))
                        assert len(shown.slate) == 3
                        assert [one for one in (A, B, C) if not rests(worker, one)] == [name]
                assert worker.hooks.rests == ["memory"] * 11
                for name in (A, B, C):
                    assert_same(await worker.models.follow(name), await reference.models.follow(name))

    run(stores, scenario)


@pytest.mark.slow
def test_a_long_tail_is_folded_after_the_first_answer(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(700)
            while not await a_long_tail_of_no_item_changes(store):
                shown = await shop.recommend()
                await worker.recommender.reward(NAME, shown.recommendation_id, 1.0)
                await worker.models.follow(NAME)
            live = await worker.models.follow(NAME)
        async with running_worker(store) as other:
            first = await other.recommender.recommend(NAME, request("first"))
            assert first.model_version == await saved(store) < live.version
            await until_async(lambda: settles(other), what="the tail is folded")
            second = await other.recommender.recommend(NAME, request("second"))
            assert second.model_version > live.version
            assert other.hooks.learned_rewards == [], "what others heard before is not heard again"

    async def a_long_tail_of_no_item_changes(store: Store) -> bool:
        record = await store.get_bandit(NAME)
        return record.items_position < await saved(store) < record.log_position - SHORT_TAIL - 10

    async def saved(store: Store) -> int:
        return (await store.load_snapshots(NAME))[0].position

    run(stores, scenario)


@pytest.mark.slow
def test_an_item_that_was_retired_meanwhile_is_in_no_slate(stores: Stores) -> None:
    """Also not in one that can't be recorded: a model is not used before the store was asked about its items."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(700)
            await worker.bandits.retire_items(NAME, ["i3"])
            for _ in range(SHORT_TAIL):
                await worker.recommender.recommend(NAME, request())
        async with running_worker(store) as other:
            model = await other.models.get_model(NAME)
            assert "i3" in model.items.retired
            assert model.items_position == (await store.get_bandit(NAME)).items_position

    run(stores, scenario)


@pytest.mark.parametrize("default_reward", [None, 0.5])
def test_what_became_overdue_at_rest_is_closed_at_the_return(stores: Stores, default_reward: float | None) -> None:
    async def scenario(store: Store) -> None:
        settings = replace(SETTINGS, reward_wait_ms=HOUR_MS, default_reward=default_reward)
        async with running_worker(store, budget=SOON, look_seconds=0.05) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create(settings)
            shown = [await shop.recommend() for _ in range(5)]
            await pass_time_until_it_rests(worker, stores)
            await stores.pass_time(HOUR_MS)
            assert (await store.get_bandit(NAME)).pending == 5, "nobody looks after a bandit at rest"
            late = await worker.recommender.reward(NAME, shown[0].recommendation_id, 9.0)
            assert late.outcome is RewardOutcome.LATE
            assert rests(worker), "a reward alone brings no model back"
            await worker.models.get_model(NAME)

            async def closed() -> bool:
                return (await store.get_bandit(NAME)).pending == 0 and await settles(worker)

            await until_async(closed, what="what is overdue is closed")
            stats = await worker.bandits.stats(NAME)
            assert (stats.expirations, stats.late_rewards, stats.pending) == (5, 1, 0)
            assert stats.defaults == (0 if default_reward is None else 5)
            assert_same(await worker.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_the_default_is_the_one_that_held_when_the_deadline_passed(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create(replace(SETTINGS, reward_wait_ms=1, default_reward=0.25))
            await shop.recommend()
        await stores.pass_time(5)
        async with running_worker(store) as other:
            await other.bandits.update_bandit(NAME, lambda settings: replace(settings, default_reward=9.0))
            part = await store.read_log(NAME, start=1, limit=100)
            expired = [logged.event for logged in part.events if isinstance(logged.event, Expired)]
            assert [event.default_reward for event in expired] == [0.25]

    run(stores, scenario)


def test_a_bandit_that_trickles_rewards_stays(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, budget=SOON, look_seconds=0.05) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            shown = [await shop.recommend() for _ in range(10)]
            for one in shown:
                await stores.pass_time(100)
                await worker.recommender.reward(NAME, one.recommendation_id, 1.0)
            assert not rests(worker)
            await pass_time_until_it_rests(worker, stores)

    run(stores, scenario)


def test_a_bandit_that_nothing_happens_to_costs_little(embedded: EmbeddedStore) -> None:
    """Looks get rarer, and a change is heard of before the next one."""
    stores = RedisStores(embedded.url)

    async def scenario(store: Store) -> None:
        async with (
            running_worker(store) as busy,
            running_worker(store, look_seconds=0.01) as idle,
            running_worker(store, look_seconds=6000.0) as rare,
        ):
            shop = Shop(busy, stores, np.random.default_rng(1))
            await shop.create()
            waiting = await shop.recommend()
            await idle.models.follow(NAME)
            entry, loop = idle.models._entries[NAME], asyncio.get_running_loop()
            longest = LONGEST_PAUSE_LOOKS * 0.01
            await until_async(lambda: entry._pause_seconds == longest, what="looks have become rare")
            before, began = idle.hooks.store_calls.total(), loop.time()
            await until_async(lambda: idle.hooks.store_calls.total() > before + 6, what="it was looked at three times")
            assert loop.time() - began > 0.5, "at first three looks took 0.03 s"
            await rare.models.follow(NAME)
            await busy.recommender.reward(NAME, waiting.recommendation_id, 1.0)
            await until_async(
                lambda: idle.hooks.learned_rewards == rare.hooks.learned_rewards == [1.0], what="both have learned it"
            )

    run(stores, scenario)


def test_a_deadline_is_noticed_though_looks_have_become_rare(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_bandit.bandits.cached_model.LONGEST_PAUSE_LOOKS", 1e9)

    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=0.1) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create(replace(SETTINGS, reward_wait_ms=500, default_reward=0.5))
            shown = await shop.recommend()
            entry = worker.models._entries[NAME]

            async def knows_the_deadline() -> bool:
                await stores.pass_time(1)  # for it to be asked for, where none was known yet
                return entry.next_deadline_ms == shown.deadline_ms

            await until_async(knows_the_deadline, what="the deadline is known")
            entry._pause_seconds = 1e6
            await stores.pass_time(500)
            await until_async(lambda: worker.hooks.expirations == 1, what="the slate is closed")

    run(stores, scenario)


@pytest.mark.slow
def test_a_frame_that_does_not_verify_is_counted(embedded: EmbeddedStore) -> None:
    stores = RedisStores(embedded.url)

    async def scenario(store: Store) -> None:
        live = await traded(store)
        saved = (await store.load_snapshots(NAME))[0]
        slots = KeySpace(stores.prefix).bandit(NAME).snapshots
        async with running_worker(store) as other:
            frames = [await store._link.call("GET", slot) for slot in slots]
            newest = next(slot for slot, frame in zip(slots, frames, strict=True) if saved.payload in frame)
            spoiled = bytearray(frames[slots.index(newest)])
            spoiled[len(spoiled) // 2] ^= 1
            await store._link.call("SET", newest, bytes(spoiled))
            assert_same(await other.models.follow(NAME), live)
            assert other.hooks.failed_snapshots == 1

    async def traded(store: Store) -> Model:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(700)
            assert len(await store.load_snapshots(NAME)) == 2
            return await worker.models.follow(NAME)

    run(stores, scenario)


@pytest.mark.slow
def test_learning_goes_on_when_a_snapshot_can_not_be_saved(embedded: EmbeddedStore) -> None:
    stores = RedisStores(embedded.url)

    async def scenario(store: Store) -> None:
        slot = KeySpace(stores.prefix).bandit(NAME).snapshots[1]
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(20)
            await store._link.call("LPUSH", slot, "not a snapshot")
            await shop.trade(480)
            model = await worker.models.follow(NAME)
            assert worker.hooks.failed_snapshots > 0
            assert (await store.get_bandit(NAME)).snapshot_position == 0
            assert_same(model, await rebuilt(store))
            await store._link.call("DEL", slot)
            await shop.trade(200)
            assert (await store.get_bandit(NAME)).snapshot_position > model.version

    run(stores, scenario)
