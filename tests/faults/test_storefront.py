"""A storefront with fallbacks and an outbox: its pages never break, and no reward is lost, whoever is killed when."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from tests.faults.load import MOST_UNREAD_SLATES, counted, writing
from tests.faults.service import Service, held, serving
from tests.faults.storefront import BANDIT, OWN, TENANT, reward_of
from tests.long_forms import usual_or_long
from tests.servers import free_port
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, Outbox, Source
from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.events import Rewarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Self

    from topk_bandit.store.events import LoggedEvent

ROOT = Path(__file__).resolve().parents[2]
NAME = BanditName(TENANT, BANDIT)
DEADLINE = 0.15
ALLOWED = 0.02
FAULT_SECONDS = usual_or_long(1.0, long=25.0)
FAULT_PAGES = 20
ROUNDS = usual_or_long(1, long=5)
KILLS = usual_or_long(3, long=50)
REWARDS = 10

Earned = tuple[float, tuple[str, ...]]
"""A reward, and the slate that it is for."""


@dataclass
class Pages:
    """What a storefront's pages were given, and how long they waited for it."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    sources: dict[str, Counter[Source]] = field(default_factory=dict)
    rewarded: dict[str, Earned] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def note(self, fault: str, seconds: float, source: Source) -> None:
        self.seconds.setdefault(fault, []).append(seconds)
        self.sources.setdefault(fault, Counter())[source] += 1

    def report(self) -> str:
        return "\n".join(map(self._line, self.seconds))

    def _line(self, fault: str) -> str:
        shown = ", ".join(f"{source} {count}" for source, count in sorted(self.sources[fault].items()))
        return f"{fault}: {summary(self.seconds[fault])}; {shown}"


def summary(seconds: list[float]) -> str:
    waited = np.array(seconds) * 1000.0
    late = int(np.sum(waited > (DEADLINE + ALLOWED) * 1000.0))
    median, tail, worst = np.percentile(waited, [50, 99, 100])
    return f"median {median:.1f} ms, p99 {tail:.1f}, worst {worst:.1f}, {late} of {len(waited)} beyond +20 ms"


class Storefront:
    """Two threads that show pages, with one client and one outbox.

    While nothing is wrong a page waits until it has a slate; while something is, as long as a page may.
    """

    def __init__(self, address: str, path: Path, *, waits: Callable[[int], bool]) -> None:
        self.pages = Pages()
        self.client = Client(address, tenant=TENANT, timeout=5.0)
        self.outbox = Outbox(path, self.client)
        self._fault = "none"
        self._shown = ["none", "none"]
        self._waits = waits
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._show, args=(number,)) for number in range(2)]

    def begin(self, fault: str) -> None:
        """Return once no page waits for its slate as if nothing were wrong."""
        self._fault = fault
        until(lambda: set(self._shown) == {fault}, what="all pages know what is wrong")

    def _show(self, number: int) -> None:
        while not self._ended.wait(0.005):
            self._shown[number] = self._fault
            if self._waits(len(self.pages.rewarded)):
                continue
            try:
                self._show_one(self._shown[number])
            except Exception as error:  # noqa: BLE001 - told by the test, which owns this thread
                self.pages.surprises.append(repr(error))

    def _show_one(self, fault: str) -> None:
        began, patience = time.monotonic(), PATIENCE if fault == "none" else DEADLINE
        slate = self.client.recommend(BANDIT, [1.0], fallback=OWN, fallback_size=2, timeout=patience)
        self.pages.note(fault, time.monotonic() - began, slate.source)
        assert len(slate.items) == 2
        shown = slate.items[::-1]
        if self.outbox.activate(BANDIT, slate.id, shown=shown):
            self.outbox.reward(BANDIT, slate.id, reward_of(slate.id))
            self.pages.rewarded[slate.id] = (reward_of(slate.id), shown)

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.outbox.close()
        self.client.close()


@contextmanager
def killed(service: Service, folder: Path) -> Iterator[None]:
    service.kill_everything()
    yield
    service.start()


@contextmanager
def paused(service: Service, folder: Path) -> Iterator[None]:
    with frozen(service):
        yield


@contextmanager
def frozen(service: Service) -> Iterator[None]:
    """Hold the supervisor first: it would replace a worker that does not answer."""
    [worker] = service.worker_pids
    with held(service.pid, worker):
        yield


@contextmanager
def slow(service: Service, folder: Path) -> Iterator[None]:
    """Let the worker run for a tenth of the time, in pieces longer than a page waits."""
    [worker] = service.worker_pids
    ended = threading.Event()

    def hold() -> None:
        while not ended.is_set():
            with held(worker):
                ended.wait(0.27)
            ended.wait(0.03)

    holder = threading.Thread(target=hold)
    with held(service.pid):
        holder.start()
        yield
        ended.set()
        holder.join()


@contextmanager
def full(service: Service, folder: Path) -> Iterator[None]:
    with redis.Redis(unix_socket_path=f"{folder}/valkey.sock", protocol=2) as store:
        store.config_set("maxmemory", 1)
        yield
        store.config_set("maxmemory", 0)


@contextmanager
def away(service: Service, folder: Path) -> Iterator[None]:
    """The store hangs; the service answers."""
    with held(service.store_pid, service.pid):
        yield


FAULTS: list[Callable[[Service, Path], object]] = [killed, paused, slow, full, away]


def create(service: Service) -> None:
    with service.client(tenant=TENANT) as client:
        client.create_bandit(BANDIT, slate_size=2, item_capacity=6, requires_activation=True)
        client.upsert_items(BANDIT, OWN)
        client.recommend(BANDIT, [1.0])


def until_it_serves(shop: Storefront) -> None:
    heard = len(shop.pages.rewarded)
    until(lambda: len(shop.pages.rewarded) > heard + REWARDS, what="slates come")


def until_pages_come(shop: Storefront, fault: str) -> None:
    """Wait for pages, which must not wait for the fault to end."""
    before = len(shop.pages.seconds.get(fault, ()))
    until(lambda: len(shop.pages.seconds.get(fault, ())) >= before + FAULT_PAGES, what="pages come")


def rewards_in(events: list[LoggedEvent]) -> dict[str, Earned]:
    """Return what is in the log, where each reward must be once, for what was shown in place of the slate."""
    rewards = [logged.event for logged in events if isinstance(logged.event, Rewarded)]
    assert counted([one.recommendation_id for one in rewards]) == {}
    return {one.recommendation_id: (one.value, one.shown.slate) for one in rewards}


@pytest.mark.long_form
@pytest.mark.timeout(3600)
def test_pages_never_break_and_rewards_arrive_once(folder: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with serving(folder, f"--listen={address}", "--store-timeout-seconds=1") as service:
        create(service)
        with (
            writing(f"unix://{folder}/valkey.sock", NAME) as scribe,
            Storefront(address, tmp_path / "rewards.db", waits=scribe.is_behind) as shop,
        ):
            for fault in FAULTS * ROUNDS:
                until_it_serves(shop)
                shop.begin(fault.__name__)
                with fault(service, folder):
                    time.sleep(FAULT_SECONDS)
                    until_pages_come(shop, fault.__name__)
                shop.begin("none")
            until_it_serves(shop)
            shop.stop()
            until(lambda: shop.outbox.flush(0.2) == 0, what="rewards are delivered")
            refused = shop.outbox.status().refused
            events = scribe.finish()
    print(shop.pages.report())
    assert shop.pages.surprises == []
    assert refused == {}
    assert rewards_in(events) == shop.pages.rewarded
    assert len(shop.pages.rewarded) > REWARDS * len(FAULTS) * ROUNDS
    assert {fault.__name__ for fault in FAULTS} <= set(shop.pages.seconds)
    assert shop.pages.sources["killed"][Source.FALLBACK] > 0


@pytest.mark.long_form
@pytest.mark.timeout(3600)
def test_no_reward_is_lost_when_the_storefront_is_killed(
    shared_service: Service, shared_folder: Path, tmp_path: Path
) -> None:
    rng, path = np.random.default_rng(5), tmp_path / "rewards.db"
    promised: dict[str, Earned] = {}
    create(shared_service)
    with writing(f"unix://{shared_folder}/valkey.sock", NAME) as scribe:
        for kill in range(KILLS):
            # What is written while the service is frozen stays in the outbox.
            meanwhile = frozen(shared_service) if kill % 3 == 1 else nullcontext()
            promised |= shown_until_killed(shared_service.address, path, float(rng.uniform(0.05, 0.6)), meanwhile)
            known = len(promised) + MOST_UNREAD_SLATES
            until(lambda known=known: not scribe.is_behind(known), what="all is copied")
        with shared_service.client(tenant=TENANT) as client, Outbox(path, client) as outbox:
            left = outbox.status().pending
            until(lambda: outbox.flush(0.2) == 0, what="rewards are delivered")
            refused = outbox.status().refused
        events = scribe.finish()
    delivered = rewards_in(events)
    print(f"{KILLS} kills, {len(promised)} rewards promised, {len(delivered)} delivered, {left} of them after the last")
    assert refused == {}
    assert promised.items() <= delivered.items()
    # A reward may be on disk although its storefront did not live to say so.
    assert len(delivered) - len(promised) <= KILLS
    assert all(value == reward_of(one) for one, (value, _) in delivered.items())
    assert len(promised) >= KILLS


def shown_until_killed(
    address: str, path: Path, seconds: float, meanwhile: AbstractContextManager[None]
) -> dict[str, Earned]:
    """Run a storefront; kill it so long after its first promise, and return the rewards that it was promised."""
    command = [sys.executable, "-m", "tests.faults.storefront", address, str(path), str(MOST_UNREAD_SLATES)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(seconds / 2)
        with meanwhile:
            time.sleep(seconds / 2)
            process.kill()
            lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    kept = [line.split() for line in lines if line.endswith("\n")]
    return {one: (float(value), tuple(shown)) for one, value, *shown in kept}
