"""Events of a worker's own are folded without being read, and the model is the one that reading gives."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bandits.harness import (
    LIMITS,
    NAME,
    SETTINGS,
    RecordedHooks,
    Shop,
    assert_same,
    rebuilt,
    replayed,
    request,
    running_worker,
    settles,
)
from tests.contracts.harness import MemoryStores, RedisStores, run, whole_log
from tests.long_forms import examples
from tests.servers import running_server, valkey_binary
from tests.store.proxy import lossy_proxy
from tests.waiting import until_async

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.follower import Follower
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.own_events import MOST_BYTES, MOST_EVENTS, LogEnd, OwnEvents
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.slates import RewardOutcome, RewardReceipt
from topk_bandit.store.events import EventSkipped, Lapsed, LoggedEvent
from topk_bandit.store.log import Appended, Skip
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.timing import time_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bandits.harness import Worker
    from tests.contracts.harness import Stores
    from tests.servers import RunningServer

    from topk_bandit.bandits.model import Model
    from topk_bandit.store.log import Store

END = LogEnd("first", 1, 7, "c7")


def appended_at(position: int, count: int = 1, *, before: str = "", n_bytes: int = 100, **other: object) -> Appended:
    """Return what a call returns that has appended so many events behind the one whose checksum is `before`."""
    events = tuple(LoggedEvent(position + n, 1000, Lapsed(f"r{position + n}")) for n in range(count))
    whole = Appended("first", 1, before or f"c{position - 1}", events, f"c{events[-1].position}", n_bytes)
    return replace(whole, **other)  # type: ignore[arg-type]


def own_events(*appended: Appended) -> OwnEvents:
    own = OwnEvents()
    for one in appended:
        own.hold(one)
    return own


def positions(own: OwnEvents, end: LogEnd = END) -> list[int] | None:
    part = own.after(end)
    if part is None:
        return None
    assert part.log_position == ([end.position, *(logged.position for logged in part.events)])[-1]
    return [logged.position for logged in part.events]


def test_what_follows_the_last_fold_is_a_slice_of_the_log_in_whatever_order_it_was_returned() -> None:
    own = own_events(appended_at(9, 2), appended_at(8), appended_at(11))
    part = own.after(END)
    assert part is not None
    assert [logged.position for logged in part.events] == [8, 9, 10, 11]
    assert (part.incarnation, part.revision, part.log_position, part.checksum) == ("first", 1, 11, "c11")
    own.drop(through=10)
    assert positions(own, LogEnd("first", 1, 10, "c10")) == [11]
    own.drop(through=11)
    assert positions(own, LogEnd("first", 1, 11, "c11")) == []


@pytest.mark.parametrize(
    "odd",
    [
        appended_at(7),  # it was folded already, or it is another log's
        appended_at(9),  # something of another worker stands between
        appended_at(8, before="d7"),  # what was folded is not there any more
        appended_at(8, incarnation="second"),
        appended_at(8, revision=2),  # an event may have been passed over, or settings were changed
        appended_at(8, before="-"),
        appended_at(8, n_bytes=MOST_BYTES + 1),
        appended_at(8, MOST_EVENTS + 1),
    ],
)
def test_the_log_is_read_where_it_may_have_something_else(odd: Appended) -> None:
    assert positions(own_events(odd)) is None


def test_what_two_calls_say_of_one_place_is_of_two_logs() -> None:
    assert positions(own_events(appended_at(8), appended_at(8, checksum="d8"))) is None
    assert positions(own_events(appended_at(8), appended_at(8))) == [8]


def test_a_place_that_a_call_under_way_may_fill_is_waited_for() -> None:
    own = own_events(appended_at(8), appended_at(10))
    own.begin()
    assert positions(own) == [8]
    own.end()
    assert positions(own) is None
    own.hold(appended_at(9))
    assert positions(own) == [8, 9, 10]


def test_another_log_is_begun_anew() -> None:
    own = own_events(appended_at(20))
    assert positions(own) is None
    own.forget()
    assert positions(own) == []


@dataclass
class Pair:
    """A follower of a log that two write to: what one of them gets back of its writes, the follower gets too."""

    store: Store
    follower: Follower
    hooks: RecordedHooks
    rng: random.Random
    late: list[Appended] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    looks: int = 0

    async def open_shop(self) -> None:
        await self.store.create_bandit(NAME, SETTINGS, incarnation="first", quota=1)
        await self.store.change_items(NAME, upserted=[Item(f"i{n}") for n in range(6)], retired=[])
        await self.follower.load()

    async def act(self, act: str, fate: str) -> None:
        """Do something, as the follower's worker unless `fate` says otherwise."""
        if act == "recommend":
            self.take(await self.recommend(), fate)
        elif act == "reward" and self.open:
            chosen = self.open.pop(self.rng.randrange(len(self.open)))
            written = await self.store.record_reward(NAME, chosen, self.rng.random())
            self.take(written.appended[0], fate)
        elif act == "items":
            item = Item(f"i{self.rng.randrange(8)}", available=self.rng.random() < 0.7)
            await self.store.change_items(NAME, upserted=[item], retired=[])
        elif act == "reset":
            await self.store.reset_bandit(NAME, request_id=f"{self.rng.random()}")
        elif act == "expire":
            await self.store.expire_due(NAME, limit=2)

    async def recommend(self) -> Appended | None:
        # A worker that is behind decides with what it has; the store refuses it only after a change of items.
        model = self.follower.model
        if model is None or model.items_position != (await self.store.get_bandit(NAME)).items_position:
            model = await self.follower.follow()
        return await self.record(model)

    async def record(self, model: Model) -> Appended | None:
        asked = request(f"r{self.rng.random()}", context=(self.rng.random(), 0.5))
        slate = choose_slate(model, asked)
        written = await self.store.record_recommendation(
            NAME, asked, slate, incarnation=model.incarnation, items_position=model.items_position
        )
        self.open.append(slate.recommendation_id)
        assert written.appended[0] is not None
        return written.appended[0]

    def take(self, appended: Appended | None, fate: str) -> None:
        if appended is not None and fate == "returned":
            self.follower.own.hold(appended)
        elif appended is not None and fate == "returned late":
            self.late.append(appended)

    async def look(self) -> None:
        """Look as a worker does that heard of nothing else's writes; hold the model to the log's prefix."""
        self.rng.shuffle(self.late)
        for _ in range(self.rng.randint(0, len(self.late))):
            self.follower.own.hold(self.late.pop())
        self.looks += 1
        model = await self.follower.follow(reads=False)
        prefix = (await whole_log(self.store, NAME))[: model.version]
        assert digests_of(model) == digests_of(replayed("first", prefix, limits=LIMITS)[-1])


@contextmanager
def pair_on(store: Store, seed: int) -> Iterator[Pair]:
    hooks = RecordedHooks()
    with ThreadPoolExecutor(1) as executor:
        follower = Follower(
            NAME,
            time_calls(store, hooks),
            executor,
            limits=LIMITS,
            hooks=hooks,
            clock_ms=lambda: 0,
            worker_id="own",
            announce_seconds=60.0,
            retention=AS_SNAPSHOTS_ALLOW,
        )
        yield Pair(store, follower, hooks, random.Random(seed))


ACTS = ("recommend", "recommend", "recommend", "reward", "reward", "items", "reset", "expire", "look", "look", "read")
FATES = ("returned", "returned", "returned", "returned late", "lost", "another's")


async def play(store: Store, acts: list[tuple[str, str]], seed: int) -> Pair:
    with pair_on(store, seed) as pair:
        await pair.open_shop()
        for act, fate in acts:
            if act == "look":
                await pair.look()
            elif act == "read":
                assert_same(await pair.follower.follow(), await rebuilt(store))
            else:
                await pair.act(act, fate)
        await pair.look()
        assert_same(await pair.follower.follow(), await rebuilt(store))
    return pair


@settings(max_examples=examples(30), deadline=None)
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(FATES)), max_size=40), seed=st.integers(0, 10**6))
def test_whatever_is_told_late_or_never_the_model_is_what_the_log_gives(acts: list[tuple[str, str]], seed: int) -> None:
    async def main() -> None:
        async with MemoryStores().connect() as store:
            await play(store, acts, seed)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_own_and_read_events_mix(stores: Stores, seed: int) -> None:
    async def scenario(store: Store) -> None:
        rng = random.Random(seed)
        acts = [(rng.choice(ACTS), rng.choice(FATES)) for _ in range(150)]
        pair = await play(store, acts, seed)
        assert pair.looks > 20

    run(stores, scenario)


def test_a_log_that_only_this_worker_writes_to_is_not_read(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        with pair_on(store, 3) as pair:
            await pair.open_shop()
            await pair.follower.follow()
            reads = pair.hooks.store_calls["read_log"]
            for _ in range(30):
                await pair.act(pair.rng.choice(["recommend", "reward"]), "returned")
                await pair.look()
            assert pair.follower.model is not None
            assert pair.follower.model.version > 20
            assert pair.hooks.store_calls["read_log"] == reads
            # After what another wrote it is read once, and then not any more.
            await pair.act("recommend", "another's")
            await pair.act("reward", "returned")
            await pair.look()
            assert pair.hooks.store_calls["read_log"] == reads + 1
            await pair.act("recommend", "returned")
            await pair.look()
            assert pair.hooks.store_calls["read_log"] == reads + 1
            assert_same(await pair.follower.follow(), await rebuilt(store))

    run(stores, scenario)


def test_an_event_that_is_passed_over_is_noticed_by_the_next_own_one(stores: Stores) -> None:
    """The log's end stays as it was, so that positions and checksums show nothing."""

    async def scenario(store: Store) -> None:
        with pair_on(store, 4) as pair:
            await pair.open_shop()
            for act in ("recommend", "reward", "recommend"):
                await pair.act(act, "returned")
                await pair.look()
            known = await store.get_bandit(NAME)
            skip = Skip(
                known.log_position - 1,
                EventSkipped("a bit flipped", 1),
                at_ms=known.created_ms,
                incarnation="first",
                revision=known.revision,
                items_position=known.items_position,
            )
            assert await store.skip_event(NAME, skip)
            await pair.act("recommend", "returned")
            await pair.look()
            assert_same(pair.follower.model, await rebuilt(store))  # type: ignore[arg-type]
            assert pair.hooks.counts["logs replaced"] == 1

    run(stores, scenario)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


@pytest.mark.parametrize("returned", [False, True], ids=["silent", "returned"])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_log_that_came_back_shorter_is_not_gone_on_with(server: RunningServer, more: int, *, returned: bool) -> None:
    """A failover gives the log of a moment before, and others are the first to write to it, up to the same place."""

    async def scenario(store: Store) -> None:
        with pair_on(store, 5) as pair, server.client() as client:
            await pair.open_shop()
            for act in ("recommend", "recommend", "reward"):
                await pair.act(act, "returned")
                await pair.look()
            keys = [key for key in KeySpace(stores.prefix).bandit(NAME).all if client.exists(key)]
            kept, opened = {key: client.dump(key) for key in keys}, list(pair.open)
            for _ in range(3):
                await pair.act("recommend", "returned")
            if returned:
                await pair.look()
            for key, value in kept.items():
                client.restore(key, 0, value, replace=True)  # type: ignore[arg-type]
            pair.open = opened
            for _ in range(more):
                await pair.act("recommend", "another's")
            await pair.act("recommend", "returned")
            await pair.look()
            assert_same(await pair.follower.follow(), await rebuilt(store))

    stores = RedisStores(server.url)
    run(stores, scenario)


def test_a_bandit_that_was_deleted_and_created_again_is_another(stores: Stores) -> None:
    async def scenario(store: Store) -> None:
        with pair_on(store, 6) as pair:
            await pair.open_shop()
            await pair.act("recommend", "returned")
            await store.delete_bandit(NAME)
            await pair.follower.follow(reads=False)
            await store.create_bandit(NAME, SETTINGS, incarnation="second", quota=1)
            await store.change_items(NAME, upserted=[Item(f"i{n}") for n in range(6)], retired=[])
            pair.take(await pair.record(await rebuilt(store)), "returned")
            model = await pair.follower.follow(reads=False)
            assert model.incarnation == "second"
            assert_same(model, await rebuilt(store))

    run(stores, scenario)


def test_a_reply_that_was_lost_has_the_log_read(server: RunningServer) -> None:
    """The client library sends the call again, which finds its effect there and returns nothing."""

    async def main() -> None:
        async with lossy_proxy(server.port) as proxy:
            stores = RedisStores(f"redis://127.0.0.1:{proxy.port}", writers=True)
            # Looks that nobody asks for are too rare to learn of anything.
            async with stores.connect() as store, running_worker(store, look_seconds=600.0) as worker:
                shop = Shop(worker, stores, np.random.default_rng(1))
                await shop.create()
                shown = [await shop.recommend() for _ in range(4)]
                await until_settled([worker])
                for one in shown:
                    proxy.lose(scripts.COMMIT, replies=1)
                    receipt = await worker.recommender.reward(NAME, one.recommendation_id, 1.0)
                    assert receipt == RewardReceipt(RewardOutcome.DUPLICATE, receipt.log_position)
                    await until_settled([worker])
                assert proxy.lost == len(shown)
                assert_same(await worker.models.get_model(NAME), await rebuilt(store))

    asyncio.run(main())


async def until_settled(workers: list[Worker]) -> None:
    for worker in workers:
        await until_async(lambda one=worker: settles(one), what="the worker has learned all")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_workers_that_know_their_own_writes_learn_all_by_themselves(server: RunningServer, count: int) -> None:
    stores = RedisStores(server.url, writers=True)

    async def scenario(*connections: Store) -> None:
        async with AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(running_worker(store)) for store in connections]
            shop = Shop(workers[0], stores, np.random.default_rng(1))
            await shop.create()
            for worker in workers:
                await worker.models.get_model(NAME)
            for number in range(160):
                shop.worker = workers[number % count]
                await shop.trade(1)
                if number % 20 == 0:
                    await until_settled(workers)
            await until_settled(workers)
            whole = await rebuilt(connections[0])
            for worker in workers:
                assert_same(await worker.models.get_model(NAME), whole)

    run(stores, scenario, connections=count)
