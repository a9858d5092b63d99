"""A store of studies in Valkey answers like the one in memory, whatever is asked of both in whatever order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.contracts.clocks import StoreClock
from tests.contracts.harness import RedisStores
from tests.contracts.study_samples import CHOSEN, LINK, PROGRESS, answers, imported, study_settings
from tests.long_forms import examples
from tests.servers import running_server, valkey_binary

from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.domain.studies import DesignCancelled, DesignFailed, LinkRevoked, StudyName
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.study_log import KnownLinks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from tests.servers import RunningServer

    from topk_bandit.domain.studies import Answer
    from topk_bandit.store.study_log import StudyRecord, StudyStore

NAMES = [StudyName("shop", "a"), StudyName("shop", "b")]
names = st.sampled_from([NAMES[0], *NAMES])
budgets = st.sampled_from([3, 3, 3, 4])
incarnations = st.sampled_from(["i1", "i1", "i2"])
attempts = st.integers(1, 3)
owners = st.sampled_from(["one", "two"])
leases = st.sampled_from([0, 10**9])
ends = st.sampled_from([CHOSEN, DesignCancelled(1), DesignFailed(1, "study.items", "are alike")])
batches = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(answers())), max_size=4)


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
        clock = StoreClock()
        self.served = RedisStores(self.url, clock=clock)
        self.connection: AbstractAsyncContextManager[Any] = self.served.connect()
        opened = self.runner.run(self.connection.__aenter__())
        self.stores: list[StudyStore] = [MemoryStudies(clock_ms=clock.read_ms), opened.studies()]

    def teardown(self) -> None:
        try:
            for name in NAMES:
                self.look(name)
        finally:
            self.runner.run(self.connection.__aexit__(None, None, None))
            self.runner.close()

    def both(self, call: Callable[[StudyStore], Awaitable[Any]]) -> None:
        mine, other = (self.runner.run(self.outcome(call, store)) for store in self.stores)
        assert repr(mine) == repr(other)

    async def outcome(self, call: Callable[[StudyStore], Awaitable[Any]], store: StudyStore) -> Any:  # noqa: ANN401
        try:
            answer = await call(store)
        except TopkBanditError as error:
            return type(error), str(error), getattr(error, "reason", None)
        return list(answer) if isinstance(answer, tuple | list) else answer

    async def known(self, store: StudyStore, name: StudyName, incarnation: str, attempt: int) -> StudyRecord:
        return replace(await store.get_study(name), incarnation=incarnation, attempt=attempt)

    @initialize()
    def begin(self) -> None:
        self.create(NAMES[0], 3, "i1", 2)

    @rule(name=names, budget=budgets, incarnation=incarnations, quota=st.integers(1, 2))
    def create(self, name: StudyName, budget: int, incarnation: str, quota: int) -> None:
        wanted = study_settings(budget=budget)
        self.both(lambda store: store.create_study(name, wanted, incarnation=incarnation, quota=quota))

    @rule(name=st.sampled_from([NAMES[1], *[StudyName("shop", "absent")] * 4]))
    def delete(self, name: StudyName) -> None:
        self.both(lambda store: store.delete_study(name))

    @rule()
    def wait(self) -> None:
        self.runner.run(self.served.pass_time(10**9))

    @rule(name=names, owner=owners, lease_ms=leases)
    def claim(self, name: StudyName, owner: str, lease_ms: int) -> None:
        self.both(lambda store: store.claim_design(name, owner=owner, lease_ms=lease_ms))

    @rule(name=names, incarnation=incarnations, attempt=attempts, owner=owners, lease_ms=leases, begun=st.booleans())
    def report(
        self, *, name: StudyName, incarnation: str, attempt: int, owner: str, lease_ms: int, begun: bool
    ) -> None:
        async def report(store: StudyStore) -> bool:
            record = await self.known(store, name, incarnation, attempt)
            progress = PROGRESS if begun else None
            return await store.report_design(record, owner=owner, lease_ms=lease_ms, progress=progress)

        self.both(report)

    @rule(name=names, incarnation=incarnations, attempt=attempts, end=ends)
    def end(self, name: StudyName, incarnation: str, attempt: int, end: Any) -> None:  # noqa: ANN401
        async def end_design(store: StudyStore) -> Any:  # noqa: ANN401
            return await store.end_design(
                await self.known(store, name, incarnation, attempt), replace(end, attempt=attempt)
            )

        self.both(end_design)

    @rule(
        name=names,
        incarnation=incarnations,
        request=st.sampled_from(["r1", "r2", "r3"]),
        count=st.integers(1, 2),
        lists=st.lists(st.integers(0, 1), max_size=2),
        asked=st.integers(0, 3),
    )
    def ask(self, *, name: StudyName, incarnation: str, request: str, count: int, lists: list[int], asked: int) -> None:
        async def ask(store: StudyStore) -> Any:  # noqa: ANN401
            record = await self.known(store, name, incarnation, 1)
            return await store.ask(record, request_id=request, count=count, lists=lists, asked=asked)

        self.both(ask)

    @rule(name=names, incarnation=incarnations, batch=batches)
    def answer(self, name: StudyName, incarnation: str, batch: list[tuple[int, Answer]]) -> None:
        async def answer(store: StudyStore) -> Any:  # noqa: ANN401
            return await store.record_answers(await self.known(store, name, incarnation, 1), batch)

        self.both(answer)

    @rule(name=names, incarnation=incarnations, asked=st.integers(0, 3), so_far=st.integers(0, 2), ends=st.booleans())
    def link(self, *, name: StudyName, incarnation: str, asked: int, so_far: int, ends: bool) -> None:
        known, event = KnownLinks(asked, so_far), LinkRevoked("l1") if ends else LINK

        async def answer(store: StudyStore) -> Any:  # noqa: ANN401
            record = await self.known(store, name, incarnation, 1)
            told = await store.record_link(record, event, known=known)
            given: dict[str, Any] = {"list_number": 1, "answer": answers()[asked % 3], "known": known}
            return told, await store.record_link_answer(record, request_id=f"r{asked}", **given)

        self.both(answer)

    @rule(
        name=names,
        incarnation=incarnations,
        import_id=st.sampled_from(["a", "b"]),
        first_row=st.integers(0, 3),
        count=st.integers(1, 2),
        fingerprint=st.sampled_from(["ab", "ab", "cd"]),
    )
    def take(self, *, name: StudyName, incarnation: str, first_row: int, count: int, **how: str) -> None:
        async def take(store: StudyStore) -> Any:  # noqa: ANN401
            record = await self.known(store, name, incarnation, 1)
            return await store.record_import(record, *imported(first_row, count, **how))

        self.both(take)
        self.both(lambda store: store.find_import(name, how["import_id"]))

    @rule(name=names)
    def all_of_it(self, name: StudyName) -> None:
        self.end(name, "i1", 1, CHOSEN)
        for number, request in enumerate(["r1", "r2"]):
            self.ask(name=name, incarnation="i1", request=request, count=1, lists=[0], asked=number)
        self.answer(name, "i1", [(1, answers()[0])])

    @rule(name=names)
    def look(self, name: StudyName) -> None:
        self.both(lambda store: store.read_study(name, start=1, limit=99))
        self.both(lambda store: store.get_study(name))
        self.both(lambda store: store.list_studies(name.tenant, after="", limit=9))


@pytest.mark.long_form
def test_stores_agree(valkey: RunningServer) -> None:
    class Machine(Agreement):
        url = valkey.unix_url

    run_state_machine_as_test(
        Machine, settings=how(max_examples=examples(15), stateful_step_count=30, deadline=None, derandomize=True)
    )
