"""The states that a follower draws, each reached the way it is drawn."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from tests.bandits.harness import (
    LIMITS,
    NAME,
    CountingThreads,
    RecordedHooks,
    Shop,
    assert_same,
    rebuilt,
    request,
    running_worker,
)
from tests.contracts.harness import MemoryStores, home_of, run
from tests.waiting import until_async

from topk_bandit.bandits import follower as module
from topk_bandit.bandits.follower import EVENTS_AT_ONCE, SHORT_TAIL, Follower, FollowerState
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.store.events import Rewarded
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contracts.harness import RedisStores, Stores

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store


class Walker(Follower):
    """A follower that writes down its states, without repetitions."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        self.walk: list[str] = []
        self.hooks = RecordedHooks()
        home = home_of(store)
        assert home is not None
        assert home.clock is not None
        super().__init__(
            NAME,
            store,
            executor,
            limits=LIMITS,
            hooks=self.hooks,
            retention=AS_SNAPSHOTS_ALLOW,
            clock_ms=home.clock.read_ms,
            worker_id="walker",
            announce_seconds=0.2,
        )

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "state" and self.walk[-1:] != [value.value]:  # type: ignore[attr-defined]
            self.walk.append(value.value)  # type: ignore[attr-defined]


@contextmanager
def walking(store: Store) -> Iterator[Walker]:
    with ThreadPoolExecutor(1) as executor:
        yield Walker(store, executor)


@contextmanager
def unfoldable_rewards() -> Iterator[None]:
    """Let no reward be folded, as if the log held one of a slate that was never recommended."""

    def refuse(model: Model, logged: LoggedEvent) -> Model:
        if isinstance(logged.event, Rewarded):
            raise CorruptDataError(f"event {logged.position} is spoiled")
        return fold(model, logged)

    fold = module.fold
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "fold", refuse)
        yield


@pytest.mark.slow
def test_a_short_log_is_loaded_to_its_end_and_followed(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with walking(store) as walker:
                assert (walker.state, walker.model) == (FollowerState.LOADING, None)
                await walker.load()
                assert walker.walk == ["loading", "current"]
                await shop.trade(20)
                assert walker.state is FollowerState.CURRENT, "nobody looked at the log"
                assert_same(await walker.follow(), await rebuilt(store))
                assert walker.walk == ["loading", "current", "lagging", "current"]

    run(stores, scenario)


def test_only_refits_many_events_and_changes_of_items_are_folded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes of it is the same: that of a replay."""
    monkeypatch.setattr(module, "EVENTS_AT_ONCE", 4)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with CountingThreads() as threads:
                walker = Walker(store, threads)
                await walker.load()

                async def follows_in_a_thread() -> bool:
                    before = threads.works
                    assert_same(await walker.follow(), await rebuilt(store))
                    return threads.works > before

                while (await walker.follow()).events_before_refit <= 5:  # each of the first rewards may bring one
                    await shop.trade(1)
                for count, in_a_thread in ((EVENTS_AT_ONCE, True), (1, False), (4, False), (5, True)):
                    for _ in range(count):
                        await shop.recommend()
                    assert await follows_in_a_thread() == in_a_thread
                took_threads, refits = [], []
                for value in range(20):
                    chosen, before = await shop.recommend(), walker.hooks.counts["refits"]
                    await worker.recommender.reward(NAME, chosen.recommendation_id, float(value))
                    took_threads.append(await follows_in_a_thread())
                    refits.append(walker.hooks.counts["refits"] > before)
                assert any(refits)
                assert not all(took_threads)
                assert not any(refit and not thread for refit, thread in zip(refits, took_threads, strict=True))
                change = asyncio.create_task(worker.bandits.upsert_items(NAME, [Item("another")]))
                while not change.done():  # it waits for a follower that says nothing, but for a while alone
                    await stores.pass_time(1000)
                    await asyncio.sleep(0.01)
                await change
                assert await follows_in_a_thread()

    stores = MemoryStores()
    run(stores, scenario)


@pytest.mark.parametrize("too_small", ["EVENTS_TIMES_ROWS_AT_ONCE", "ROWS_AT_ONCE", "SLATE_SIZE_AT_ONCE"])
def test_many_rows_and_large_slates_are_folded_in_a_thread(too_small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            for value in range(20):
                chosen = await shop.recommend()
                await worker.recommender.reward(NAME, chosen.recommendation_id, float(value))
            with CountingThreads() as threads:
                walker = Walker(store, threads)
                await walker.load()
                for works in (0, 1):
                    if works:
                        monkeypatch.setattr(module, too_small, 1)
                    before = threads.works
                    await shop.recommend()
                    await walker.follow()
                    assert threads.works - before == works

    stores = MemoryStores()
    run(stores, scenario)


@pytest.mark.slow
def test_a_long_tail_lags_until_it_is_followed(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(700)
            while not await ends_in_a_long_tail_without_items(store):
                await worker.recommender.recommend(NAME, request())
                await worker.models.follow(NAME)
            with walking(store) as walker:
                model = await walker.load()
                assert model is walker.model
                assert model.version == (await store.load_snapshots(NAME))[0].position
                assert walker.walk == ["loading", "lagging"]
                await stores.pass_time(50)
                log_position = (await store.get_bandit(NAME)).log_position
                assert walker.hooks.lags[-1][0] == log_position - model.version
                await walker.follow()
                assert walker.hooks.lags[-1] == (0, 0.0)
                assert walker.hooks.folded_events == log_position - model.version
                unsaved, age, n_bytes = walker.hooks.backed_by[-1]
                assert unsaved == walker.model.version - (await store.load_snapshots(NAME))[0].position
                [saved] = (await store.read_log(NAME, start=walker.model.version - unsaved, limit=1)).events
                assert age == (stores.clock.now_ms - saved.at_ms) / 1e3 > 0.0
                assert n_bytes == len((await store.load_snapshots(NAME))[0].payload)
                assert walker.walk == ["loading", "lagging", "current"]

    async def ends_in_a_long_tail_without_items(store: Store) -> bool:
        record = await store.get_bandit(NAME)
        saved = (await store.load_snapshots(NAME))[0].position
        return record.items_position < saved < record.log_position - SHORT_TAIL

    run(stores, scenario)


@pytest.mark.slow
def test_a_log_that_was_trimmed_beyond_a_lagging_model_is_not_taken_for_another_one(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with walking(store) as walker:
                loaded = await walker.load()
                await shop.trade(700)
                assert (await store.read_log(NAME, start=1, limit=1)).first_position > loaded.version + 1
                assert_same(await walker.follow(), await worker.models.follow(NAME))
                assert (walker.hooks.counts["logs replaced"], walker.hooks.counts["lost events"]) == (0, 0)
                assert walker.walk == ["loading", "current", "lagging", "current"]

    run(stores, scenario)


def test_an_event_that_can_not_be_folded_breaks_a_follower_and_leaves_its_model(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            shown = await shop.recommend()
            with walking(store) as walker:
                before = await walker.load()
                await worker.recommender.reward(NAME, shown.recommendation_id, 1.0)
                with unfoldable_rewards():
                    for attempts in (1, 2):
                        with pytest.raises(CorruptDataError, match="is spoiled"):
                            await walker.follow()
                        assert (walker.model, walker.hooks.failed_folds) == (before, attempts)
                        assert walker.hooks.lags[-1][0] == 1, "the lag is known though nothing can be folded"
                    await stores.pass_time(50)
                    with pytest.raises(CorruptDataError):
                        await walker.follow()
                    assert walker.hooks.lags[-1][1] == 0.05
                assert walker.walk == ["loading", "current", "lagging", "broken"]
                assert_same(await walker.follow(), await rebuilt(store))
                assert walker.walk[-2:] == ["broken", "current"]
                assert walker.hooks.lags[-1] == (0, 0.0)

    run(stores, scenario)


Entries = list[tuple[bytes, dict[bytes, bytes]]]


def changed(written: Entries, at: int) -> Entries:
    """Return a log of which one event's reward has changed."""
    entry_id, fields = written[at]
    spoilt = {**fields, b"event": fields[b"event"].replace(b"1.25", b"9.25")}
    assert spoilt != fields
    return [*written[:at], (entry_id, spoilt), *written[at + 1 :]]


def lacking(written: Entries, at: int) -> Entries:
    """Return a log of which one event is gone."""
    return [*written[:at], *written[at + 1 :]]


@pytest.mark.parametrize("later", [0, 3])
@pytest.mark.parametrize(
    ("spoil", "problem"), [(changed, "does not match its checksum"), (lacking, "gap after position|no event at")]
)
def test_an_event_that_changed_at_rest_breaks_a_follower_until_it_is_as_it_was(
    stores: RedisStores, spoil: Callable[[Entries, int], Entries], problem: str, later: int
) -> None:
    """What is before it is folded, lag is counted from the log's end, and slates are chosen."""

    def write_log(client: redis.Redis, key: str, entries: Entries) -> None:
        client.delete(key)
        for entry_id, fields in entries:
            client.xadd(key, fields, id=entry_id)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            shown = await shop.recommend()
            with walking(store) as walker, walking(store) as other, redis.Redis.from_url(stores.url) as client:
                await walker.load()
                await shop.recommend()
                await worker.recommender.reward(NAME, shown.recommendation_id, 1.25)
                for _ in range(later):
                    await shop.recommend()
                await stores.pass_time(50)
                written = client.xrange(key)
                write_log(client, key, spoil(written, len(written) - later - 1))
                assert (await other.load()).version == len(written) - later - 1
                for one, attempts in ((walker, 1), (walker, 2), (other, 2)):
                    with pytest.raises(CorruptDataError, match=problem):
                        await one.follow()
                    assert one.model is not None
                    assert (one.model.version, one.hooks.failed_folds) == (len(written) - later - 1, attempts)
                    assert one.model.open_slates == 2
                    assert (one.state, one.hooks.lags[-1][0]) == (FollowerState.BROKEN, later + 1)
                    assert one.hooks.lags[-1][1] == 0.05
                write_log(client, key, written)
                for one in (walker, other):
                    assert_same(await one.follow(), await rebuilt(store))
                    assert one.state is FollowerState.CURRENT

    key = KeySpace(stores.prefix).bandit(NAME).log
    run(stores, scenario)


def test_a_log_without_its_beginning_breaks_a_follower_that_loads_it(stores: RedisStores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await Shop(worker, stores, np.random.default_rng(1)).create()
            with walking(store) as walker, redis.Redis.from_url(stores.url) as client:
                client.xdel(log_key, client.xrange(log_key, count=1)[0][0])
                with pytest.raises(CorruptDataError, match="the log has a gap after position 1"):
                    await walker.load()
                assert (walker.walk, walker.model, walker.hooks.failed_folds) == (["loading", "broken"], None, 1)

    log_key = KeySpace(stores.prefix).bandit(NAME).log
    run(stores, scenario)


@pytest.mark.slow
def test_what_is_learned_is_told_and_how_far_the_newest_snapshot_is_behind(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            await shop.trade(20)
            before = await worker.models.follow(NAME)
            unsaved, age, n_bytes = worker.hooks.backed_by[-1]
            assert (unsaved, age, n_bytes) == (before.version, 0.0, 0)
            folded, defaults = worker.hooks.folded_events, worker.hooks.counts["defaults"]
            await shop.trade(580)
            model = await worker.models.follow(NAME)
            hooks, stats = worker.hooks, await worker.bandits.stats(NAME)
            assert hooks.folded_events - folded == model.version - before.version
            assert hooks.counts["defaults"] - defaults == stats.defaults > 0
            assert hooks.counts["refits"] > 0
            assert hooks.counts["snapshots"] > 0
            assert hooks.backed_by[-1][0] == model.version - stats.snapshot_position
            assert hooks.backed_by[-1][2] == len((await store.load_snapshots(NAME))[0].payload)

    run(stores, scenario)


def test_wild_rewards_are_reported_once_each_and_logged_ever_less_often(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            for value in [*shop.rng.random(30).tolist(), *[1e6, -1e6] * 5]:
                chosen = await shop.recommend()
                await worker.recommender.reward(NAME, chosen.recommendation_id, value)
                await worker.models.follow(NAME)
            assert worker.hooks.doubts == {"reward": 10}
        async with running_worker(store) as later:
            await later.models.follow(NAME)
            assert later.hooks.doubts == {}, "they were reported when they came"

    run(stores, scenario)
    said = [record.getMessage() for record in caplog.records if "are not learned" in record.getMessage()]
    assert [int(one.split(" ", 1)[0]) for one in said] == [1, 2, 4, 8]


def test_a_broken_log_is_said_and_slates_are_still_chosen(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: Store) -> None:
        async with running_worker(store, look_seconds=0.05) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            shown = await shop.recommend()
            with unfoldable_rewards():
                await worker.recommender.reward(NAME, shown.recommendation_id, 1.0)
                with pytest.raises(CorruptDataError):
                    await worker.models.follow(NAME)
                again = await worker.recommender.recommend(NAME, request("again"))
                assert (len(again.slate), again.observations) == (3, 0)
                await until_async(lambda: "a log can't be followed" in caplog.text, what="the log has it")
            assert worker.hooks.failed_folds >= 2
            assert_same(await worker.models.follow(NAME), await rebuilt(store))

    run(stores, scenario)


def test_who_knows_of_newer_items_has_not_announced_its_own(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.0]
    monkeypatch.setattr(module, "_now", lambda: times[-1])

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with walking(store) as walker:
                model = await walker.load()
                assert walker.has_announced
                await store.change_items(NAME, upserted=[], retired=["i1"])
                times.append(0.41)  # twice the time between two announcements, and more
                assert not walker.has_announced
                assert not await walker.announce_items(model)
                assert not walker.has_announced
                await walker.follow()
                assert walker.has_announced

    run(stores, scenario)


def test_a_follower_that_has_left_does_not_come_back(stores: Stores) -> None:
    """Not even when a call that began before ends only after it."""

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            shop = Shop(worker, stores, np.random.default_rng(1))
            await shop.create()
            with walking(store) as resting, walking(store) as leaving:
                for walker, leave in ((resting, resting.rest), (leaving, leaving.leave)):
                    await walker.load()
                    leave()
                    await shop.trade(3)
                    assert_same(await walker.follow(), await rebuilt(store))
                    assert not walker.is_present
                assert resting.walk == ["loading", "current", "resting"]
                assert leaving.walk == ["loading", "current", "absent"]

    run(stores, scenario)


def test_without_a_bandit_nothing_is_loaded(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        with walking(store) as walker:
            with pytest.raises(NotFoundError):
                await walker.load()
            assert (walker.walk, walker.model) == (["loading"], None)

    run(stores, scenario)
