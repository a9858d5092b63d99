"""An item that is retired or unavailable is in no slate from the moment that the call that said so returned."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

import grpc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.faults.service import serving
from tests.long_forms import examples, usual_or_long
from tests.rpc.harness import channel_to
from tests.rpc.wire import recommend, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.service import Service
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow  # it runs whole services

CAPACITY = 200
KEEPS = ["appendfsync always"]
"""What a store has to be told so that it has everything after a kill."""
ALWAYS = ["base-0", "base-1", "base-2"]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with TemporaryDirectory(prefix="tkb-") as folder, serving(Path(folder), "--workers=2") as service:
        yield service


def opened(channel: grpc.Channel, name: str) -> BanditServiceStub:
    stub = BanditServiceStub(channel)
    made = bpb.Bandit(name=name, slate_size=3, item_capacity=CAPACITY, exploration={"uniform_share": 0.3})
    stub.CreateBandit(bpb.CreateBanditRequest(bandit=made), timeout=PATIENCE)
    upsert(stub, name, *ALWAYS)
    return stub


def upsert(stub: BanditServiceStub, name: str, *items: str, available: bool = True) -> None:
    changed = [bpb.Item(item_id=item, unavailable=not available) for item in items]
    stub.UpsertItems(bpb.UpsertItemsRequest(bandit=name, items=changed), timeout=PATIENCE)


def retire(stub: BanditServiceStub, name: str, *items: str) -> None:
    stub.RetireItems(bpb.RetireItemsRequest(bandit=name, item_ids=items), timeout=PATIENCE)


@dataclass
class Shelves:
    """Which items are out, and how often each was put back: what a call that starts now must not return.

    An item that is being put back is noted before the call that does so is made, one that is taken out after it.
    """

    out: set[str] = field(default_factory=set)
    returns: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def gone(self, *items: str) -> None:
        with self.lock:
            self.out |= set(items)

    def coming_back(self, *items: str) -> None:
        with self.lock:
            self.out -= set(items)
            self.returns.update(items)

    def now(self) -> dict[str, int]:
        """Return what is out, with how often it came back so far."""
        with self.lock:
            return {item: self.returns[item] for item in self.out}

    def still(self, before: dict[str, int]) -> set[str]:
        """Return what was out all the time since `before`."""
        with self.lock:
            return {item for item, count in before.items() if self.returns[item] == count}


class Visitors:
    """Threads with connections of their own that ask for slates, with and without candidates."""

    def __init__(self, service: Service, name: str, shelves: Shelves) -> None:
        self.violations: list[str] = []
        self.failures: list[str] = []
        self.slates = 0
        self._service = service
        self._name = name
        self._shelves = shelves
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._visit, args=(seed,)) for seed in range(8)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _visit(self, seed: int) -> None:
        rng = random.Random(seed)
        with channel_to(self._service.address) as channel:
            while not self._ended.is_set():
                out = self._shelves.now()
                present = [item for item in self._shelves.shown if item not in out]
                wanted = [*ALWAYS, *rng.sample(present, min(3, len(present)))] if rng.random() < 0.4 else []
                self._ask(channel, out, wanted)

    def _ask(self, channel: grpc.Channel, out: dict[str, int], wanted: list[str]) -> None:
        try:
            slate = recommend(channel, bandit=self._name, candidate_item_ids=wanted, timeout=PATIENCE)
        except grpc.RpcError as error:
            self.failures.append(f"{error.code()}: {error.details()}")
            return
        self.slates += 1
        wrong = self._shelves.still(out) & set(slate.item_ids)
        if wrong or slate.degraded:
            self.violations.append(f"{list(slate.item_ids)} while {sorted(wrong)} were out; {slate.degraded=}")


CHANGES = st.lists(st.sampled_from(["add", "retire", "hide", "show"]), min_size=15, max_size=25)
_numbers = iter(range(10_000))


@settings(max_examples=examples(4), phases=[Phase.generate])
@given(changes=CHANGES, seed=st.integers(0, 2**16))
def test_no_slate_holds_what_was_out_when_its_call_started(service: Service, changes: list[str], seed: int) -> None:
    name = f"tenants/acme/bandits/shelves-{next(_numbers)}"
    rng = random.Random(seed)
    shelves = Shelves()
    with channel_to(service.address) as one, channel_to(service.address) as other:
        stubs = [opened(one, name), BanditServiceStub(other)]
        with Visitors(service, name, shelves) as visitors:
            hidden: list[str] = []
            on: list[str] = []
            for number, change in enumerate(["add", *changes]):
                stub = stubs[number % 2]
                if change == "add" or not on:
                    new = [f"item-{number}-{n}" for n in range(4)]
                    upsert(stub, name, *new)
                    on += new
                    shelves.shown += new
                elif change == "show" and hidden:
                    shelves.coming_back(*hidden)
                    upsert(stub, name, *hidden)
                    on, hidden = on + hidden, []
                else:
                    chosen = [on.pop(rng.randrange(len(on))) for _ in range(min(2, len(on)))]
                    if change == "hide":
                        upsert(stub, name, *chosen, available=False)
                        hidden += chosen
                    else:
                        retire(stub, name, *chosen)
                    shelves.gone(*chosen)
                before = visitors.slates
                deadline = time.monotonic() + 0.05
                while visitors.slates < before + 8 and time.monotonic() < deadline:
                    time.sleep(0.002)
        assert visitors.violations == []
        assert visitors.failures == []
        assert visitors.slates > 50
        stubs[0].DeleteBandit(bpb.DeleteBanditRequest(name=name), timeout=PATIENCE)


def test_a_retired_candidate_is_passed_over_by_every_worker_at_once(service: Service) -> None:
    """Or refused, if candidates are strict; and so is a slate of before, whose request is sent again."""
    name = "tenants/acme/bandits/candidates"
    with channel_to(service.address) as channel:
        stub = opened(channel, name)
        for number in range(20):
            item = f"item-{number}"
            upsert(stub, name, item)
            wanted = {"bandit": name, "candidate_item_ids": [*ALWAYS[:2], item]}
            assert item in recommend(channel, **wanted, request_id=item).item_ids
            retire(stub, name, item)
            with channel_to(service.address) as fresh:
                gone = rpb.RecommendRequest(**wanted, request_id=item)
                assert refused(RecommenderServiceStub(fresh).Recommend, gone).reason == "ITEM_GONE"
                strict = rpb.RecommendRequest(**wanted, strict_candidates=True)
                assert refused(RecommenderServiceStub(fresh).Recommend, strict).code == "NOT_FOUND"
                answer = recommend(fresh, bandit=name, candidate_item_ids=[*ALWAYS, item])
                assert (set(answer.item_ids), answer.passed_over_count) == (set(ALWAYS), 1)


@pytest.mark.long_form
@pytest.mark.parametrize("change", usual_or_long(["retire"], long=["retire", "hide"]))
def test_no_degraded_slate_of_any_worker_holds_it(change: str) -> None:
    """The store is killed as soon as the change is answered, so that no worker can look at the log any more."""
    name = "tenants/acme/bandits/degraded"
    with (
        running_server(valkey_binary(), config=KEEPS) as server,
        two_services(server) as services,
        ExitStack() as stack,
    ):
        channels = [stack.enter_context(channel_to(service.address)) for service in services]
        stub = opened(channels[0], name)
        for number in range(2):
            item = f"item-{number}"
            for channel in channels:  # each service's worker then follows the bandit
                await_healthy(channel, name)
            upsert(stub, name, item)
            if change == "retire":
                retire(stub, name, item)
            else:
                upsert(stub, name, item, available=False)
            server.kill()
            slates = [recommend(channel, bandit=name) for channel in channels * 8]
            server.start()
            assert all(slate.degraded for slate in slates)
            assert not any(item in slate.item_ids for slate in slates)


def await_healthy(channel: grpc.Channel, name: str) -> None:
    until(lambda: not recommend(channel, bandit=name).degraded, what="recording")


@contextmanager
def two_services(server: RunningServer) -> Iterator[list[Service]]:
    """Two services of a worker each on one store: both follow what they are asked for, as they have no owner."""
    with TemporaryDirectory(prefix="tkb-") as folder, ExitStack() as stack:
        yield [
            stack.enter_context(serving(Path(folder) / place, f"--redis-url={server.url}"))
            for place in ("one", "other")
        ]


def test_a_change_returns_once_every_worker_knows_of_it() -> None:
    """One worker is frozen while the other is told, and then loses the store before it can look at the log again."""
    name = "tenants/acme/bandits/frozen"
    with (
        running_server(valkey_binary(), config=KEEPS) as server,
        two_services(server) as (late, told),
        channel_to(late.address) as of_late,
        channel_to(told.address) as of_told,
    ):
        upsert(opened(of_told, name), name, "item")
        for channel in (of_late, of_told):
            await_healthy(channel, name)
        with stopped(late.worker_pids[0]):
            stub = BanditServiceStub(of_told)
            retirement = stub.RetireItems.future(
                bpb.RetireItemsRequest(bandit=name, item_ids=["item"]), timeout=PATIENCE
            )
            with pytest.raises(grpc.FutureTimeoutError):
                retirement.result(timeout=0.5)
        assert retirement.result(timeout=PATIENCE).item_count == len(ALWAYS)
        server.kill()
        slates = [recommend(of_late, bandit=name) for _ in range(16)]
        server.start()
        assert all(slate.degraded for slate in slates)
        assert {item for slate in slates for item in slate.item_ids} == set(ALWAYS)
        await_healthy(of_late, name)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
