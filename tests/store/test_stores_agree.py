"""A store in Valkey answers like the one in memory, whatever is asked of both in whatever order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import MemoryStores, RedisStores, whole_log
from tests.contracts.samples import PAST, recommendation, request, settings
from tests.long_forms import examples
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.bandits import Aggregation, BanditName, BanditSettings, Item
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.domain.slates import NOTHING_NAMED
from topk_bandit.store.events import Imported
from topk_bandit.store.log import Correctable, ImportPart, Snapshot, Written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from tests.servers import RunningServer

    from topk_bandit.store.log import Store

NAMES = [BanditName("shop", "a"), BanditName("shop", "b")]
SETTINGS = [
    settings(reward_wait_ms=wait, default_reward=default, item_capacity=3)
    for wait in (0, 10**9)
    for default in (None, 0.1)
]
SETTINGS += [replace(having, requires_activation=True) for having in SETTINGS]
SETTINGS += [
    settings(reward_wait_ms=wait, default_reward=0.1, item_capacity=3, reward_aggregation=kind)
    for wait, kind in (
        (0, Aggregation.LAST),
        (10**9, Aggregation.SUM),
        (10**9, Aggregation.MEAN),
        (10**9, Aggregation.MAX),
    )
]
SETTINGS += [
    replace(settings(reward_wait_ms=10**9, default_reward=default, reward_aggregation=kind), provisional_after_ms=after)
    for default, kind, after in (
        (0.1, Aggregation.SUM, 1),
        (None, Aggregation.LAST, 10**8),
        (0.1, Aggregation.FIRST, 10**8),
        (0.1, Aggregation.MEAN, 0),
    )
]
SETTINGS += [
    replace(having, default_item_value=0.5) for having in (SETTINGS[1], SETTINGS[9], SETTINGS[12], SETTINGS[-1])
]
names = st.sampled_from([NAMES[0], *NAMES])
some_settings = st.sampled_from(SETTINGS)
item_ids = st.sampled_from(["x", "y", "z", "w"])
keys = st.sampled_from(["r1", "r2", "r3"])
contexts = st.sampled_from([(0.0,), (-0.0,), (0.0,), (1.5,)])
values = st.sampled_from([0.0, -0.0, 1.0, 1 / 3])
of_items = st.sampled_from([{}, {}, {"pear": 1.0}, {"apple": -0.0, "pear": 1 / 3}, {"apple": 2.0}, {"x": 1.0}])
incarnations = st.sampled_from(["i1", "i2"])
positions = st.integers(0, 12)


@pytest.fixture(scope="module")
def valkey() -> Iterator[RunningServer]:
    with running_server(valkey_binary()) as server:
        yield server


class Agreement(RuleBasedStateMachine):
    """Asks two stores the same, and compares all that they answer."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # Stores need not forget at the same time, so that none does.
        how = {"clock": StoreClock(), "record_retention_ms": 10**15}
        self.served = RedisStores(self.url, **how)
        self.connections = [MemoryStores(**how).connect(), self.served.connect()]
        self.stores: list[Store] = [self.runner.run(one.__aenter__()) for one in self.connections]

    def teardown(self) -> None:
        try:
            for name in NAMES:
                self.look(name)
        finally:
            for connection in self.connections:
                self.runner.run(connection.__aexit__(None, None, None))
            self.runner.close()

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> None:
        mine, other = (self.runner.run(self.outcome(call, store)) for store in self.stores)
        assert repr(mine) == repr(other)

    async def outcome(self, call: Callable[[Store], Awaitable[Any]], store: Store) -> Any:  # noqa: ANN401
        try:
            answer = await call(store)
        except TopkBanditError as error:
            return type(error), str(error), getattr(error, "reason", None)
        return answer.answer if isinstance(answer, Written) else answer

    async def everything(self, store: Store, name: BanditName) -> Any:  # noqa: ANN401
        return (
            await store.get_bandit(name),
            await store.list_items(name),
            await whole_log(store, name),
            await store.load_snapshots(name),
            await store.list_bandits(name.tenant, after="", limit=1),
            (await store.measure(name.tenant))[:2],
        )

    @initialize(wanted=some_settings)
    def begin(self, wanted: BanditSettings) -> None:
        self.both(lambda store: store.create_bandit(NAMES[0], SETTINGS[-1], incarnation="i1", quota=2))
        self.both(lambda store: store.create_bandit(NAMES[1], wanted, incarnation="i1", quota=2))

    @rule(name=names, wanted=some_settings, incarnation=incarnations, quota=st.integers(0, 2))
    def create(self, name: BanditName, wanted: BanditSettings, incarnation: str, quota: int) -> None:
        self.both(lambda store: store.create_bandit(name, wanted, incarnation=incarnation, quota=quota))

    @rule(name=names, wanted=some_settings, revision=st.integers(1, 3))
    def update(self, name: BanditName, wanted: BanditSettings, revision: int) -> None:
        self.both(lambda store: store.update_settings(name, wanted, revision=revision))

    @rule(name=names, request_id=st.sampled_from(["one", "two"]))
    def reset(self, name: BanditName, request_id: str) -> None:
        self.both(lambda store: store.reset_bandit(name, request_id=request_id))

    @rule(name=st.sampled_from([NAMES[1], *[BanditName("shop", "absent")] * 4]))
    def delete(self, name: BanditName) -> None:
        self.both(lambda store: store.delete_bandit(name))

    @rule(
        name=names,
        upserted=st.lists(st.builds(Item, item_ids, st.booleans()), max_size=3),
        retired=st.lists(item_ids, max_size=2),
    )
    def items(self, name: BanditName, upserted: list[Item], retired: list[str]) -> None:
        self.both(lambda store: store.change_items(name, upserted=upserted, retired=retired))

    @rule(name=names, key=keys, context=contexts, aside=st.booleans())
    def recommend(self, name: BanditName, key: str, context: tuple[float, ...], *, aside: bool) -> None:
        async def decide(store: Store) -> Any:  # noqa: ANN401
            now = await store.get_bandit(name)
            return await store.record_recommendation(
                name,
                request(context=context),
                recommendation(key),
                incarnation=now.incarnation,
                items_position=now.items_position,
                aside=aside,
            )

        self.both(decide)

    @rule(name=names, key=keys, incarnation=incarnations, position=positions)
    def recommend_perhaps_too_late(self, name: BanditName, key: str, incarnation: str, position: int) -> None:
        self.both(
            lambda store: store.record_recommendation(
                name,
                request(context=(0.0,)),
                recommendation(key),
                incarnation=incarnation,
                items_position=position,
            )
        )

    @rule(name=names, key=keys, context=contexts)
    def find(self, name: BanditName, key: str, context: tuple[float, ...]) -> None:
        self.both(lambda store: store.find_recommendation(name, request(context=context), key))

    @rule(name=names, key=keys, value=values, other=values, aside=st.booleans())
    def recommend_and_reward(self, name: BanditName, key: str, value: float, other: float, *, aside: bool) -> None:
        self.recommend(name, key, (0.0,), aside=aside)
        self.reward(name, key, value)
        self.reward(name, key, other)

    @rule(name=names, key=keys, value=values, named=of_items)
    def reward(self, name: BanditName, key: str, value: float, named: Mapping[str, float] = NOTHING_NAMED) -> None:
        self.both(lambda store: store.record_reward(name, key, value, item_values=named))

    @rule(
        name=names,
        key=keys,
        value=values,
        reward_id=st.sampled_from(["", "a", "b", 'c "d"']),
        final=st.booleans(),
        named=of_items,
    )
    def reward_again(
        self, name: BanditName, key: str, value: float, reward_id: str, named: Mapping[str, float], *, final: bool
    ) -> None:
        self.both(
            lambda store: store.record_reward(name, key, value, reward_id=reward_id, final=final, item_values=named)
        )

    @rule(name=names, key=keys, slate=st.sampled_from([(), (), ("pear", "apple"), ("x", "y"), ("y", "z"), ("x",)]))
    def activate(self, name: BanditName, key: str, slate: tuple[str, ...]) -> None:
        self.both(lambda store: store.activate(name, key, slate))

    @rule(
        name=names,
        key=keys,
        value=st.none() | values,
        reward_id=st.sampled_from(["", "", "a", "b"]),
        back=st.integers(-2, 2),
        ahead=st.integers(0, 3),
        named=of_items,
    )
    def correct(
        self,
        name: BanditName,
        key: str,
        value: float | None,
        reward_id: str,
        back: int,
        ahead: int,
        named: Mapping[str, float],
    ) -> None:
        items = NOTHING_NAMED if value is None else named

        async def attempt(store: Store) -> Any:  # noqa: ANN401
            now = await store.get_bandit(name)
            last = now.log_position + ahead - 1 if ahead else 0
            version = max(now.log_position - back, 0)
            known = Correctable(now.incarnation, now.revision - (back == 2), version, last, recommendation().slate)
            return await store.correct_reward(name, key, value, reward_id=reward_id, item_values=items, known=known)

        self.both(attempt)

    @rule(
        name=names,
        import_id=st.sampled_from(["a", "b"]),
        first=st.integers(0, 3),
        count=st.integers(0, 2),
        fingerprint=st.sampled_from(["0a", "0a", "0b"]),
        behind=st.booleans(),
    )
    def import_rows(
        self, name: BanditName, import_id: str, first: int, count: int, fingerprint: str, *, behind: bool
    ) -> None:
        part = ImportPart(import_id, first, first + 1, fingerprint, count, clamped=count // 2)
        event = Imported(import_id, first, PAST[:count]) if count else None

        async def attempt(store: Store) -> Any:  # noqa: ANN401
            now = await store.get_bandit(name)
            position = now.items_position - behind
            return await store.record_import(name, part, event, incarnation=now.incarnation, items_position=position)

        self.both(attempt)
        self.both(lambda store: store.find_import_part(name, part))
        self.both(lambda store: store.find_import(name, import_id))

    @rule(milliseconds=st.sampled_from([1, 10**8, 10**9]))
    def wait(self, milliseconds: int) -> None:
        self.runner.run(self.served.pass_time(milliseconds))

    @rule(name=names)
    def expire(self, name: BanditName) -> None:
        self.both(lambda store: store.expire_due(name, limit=9))

    @rule(name=names, start=positions, limit=st.integers(1, 4))
    def read(self, name: BanditName, start: int, limit: int) -> None:
        self.both(lambda store: store.read_log(name, start=start, limit=limit))

    @rule(
        name=names,
        back=st.integers(-1, 2),
        payload=st.binary(max_size=3),
        incarnation=incarnations,
        trims=st.booleans(),
    )
    def snapshot(self, name: BanditName, back: int, payload: bytes, incarnation: str, *, trims: bool) -> None:
        async def save(store: Store) -> bool:
            now = await store.get_bandit(name)
            taken = Snapshot(max(0, now.log_position - back), payload)
            behind = now.snapshot_position if trims else 0
            return await store.save_snapshot(name, taken, incarnation=incarnation, behind=behind)

        self.both(save)
        self.both(lambda store: store.load_snapshots(name))

    @rule(name=names)
    def look(self, name: BanditName) -> None:
        self.both(lambda store: self.everything(store, name))


@pytest.mark.long_form
def test_stores_agree(valkey: RunningServer) -> None:
    class Machine(Agreement):
        url = valkey.unix_url

    run_state_machine_as_test(
        Machine, settings=how(max_examples=examples(36), stateful_step_count=60, deadline=None, derandomize=True)
    )
