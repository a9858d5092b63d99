"""Storefronts that keep a ledger of what the service promised them, and a reader that keeps the whole log."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from tests.contracts.harness import whole_log
from tests.waiting import PATIENCE

from topk_bandit.client import Client, ClientError, RewardOutcome
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.store.events import Recommended, Rewarded
from topk_bandit.store.redis.bandits import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.events import LoggedEvent

__all__ = ["MOST_UNREAD_SLATES", "Customers", "Scribe", "assert_each_counts_once", "shopping", "writing"]

HASTY_SECONDS = 0.3
PATIENT_SECONDS = 30.0
MOST_UNREAD_SLATES = 60
"""With what becomes of them they are far fewer events than a log keeps when it is trimmed."""


class Customers:
    """Threads that ask for slates and post rewards, through whatever happens to the service.

    Parameters
    ----------
    waits
        Whether they are to wait, since so many slates were given out.

    Attributes
    ----------
    given
        Ids of slates of which the service did not say that they may not be recorded.
    acknowledged
        Rewards by recommendation id that the service said it took, now or before.
    sent
        All rewards that were ever posted.
    named
        What these say of single items, by the items' ids; half of them say nothing.
    """

    def __init__(
        self, address: str, bandit: str, *, threads: int, context_dim: int, waits: Callable[[int], bool]
    ) -> None:
        self.given: set[str] = set()
        self.acknowledged: dict[str, float] = {}
        self.sent: dict[str, float] = {}
        self.named: dict[str, dict[str, float]] = {}
        self.surprises: list[str] = []
        self._address = address
        self._bandit = bandit
        self._context_dim = context_dim
        self._waits = waits
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._shop, args=(seed,)) for seed in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _shop(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        unanswered: list[str] = []
        with Client(self._address, tenant="shop") as client:
            while not self._ended.wait(float(rng.random()) * 0.03):
                if self._waits(len(self.given)):
                    continue
                try:
                    self._visit(client, rng, unanswered)
                except ClientError:
                    continue
                except Exception as error:  # noqa: BLE001 - told by the test, which owns this thread
                    self.surprises.append(repr(error))

    def _visit(self, client: Client, rng: np.random.Generator, unanswered: list[str]) -> None:
        if unanswered and rng.random() < 0.5:
            chosen = unanswered.pop()  # posted before without an answer: half are posted again, the others never
            self._post(client, chosen, unanswered, rng)
            return
        context = rng.normal(size=self._context_dim).tolist()
        slate = client.recommend(self._bandit, context, timeout=_patience(rng))
        if not slate.id:
            return
        if not slate.degraded:
            self.given.add(slate.id)
        self.sent[slate.id] = float(rng.normal())
        self.named[slate.id] = {slate.items[0]: self.sent[slate.id]} if self.sent[slate.id] > 0.0 else {}
        self._post(client, slate.id, unanswered, rng)

    def _post(self, client: Client, chosen: str, unanswered: list[str], rng: np.random.Generator) -> None:
        try:
            reward, named, patience = self.sent[chosen], self.named[chosen], _patience(rng)
            outcome = client.reward(self._bandit, chosen, reward, item_values=named, timeout=patience).outcome
        except ClientError:
            unanswered.append(chosen)
            raise
        if outcome not in {RewardOutcome.ACCEPTED, RewardOutcome.DUPLICATE}:
            self.surprises.append(f"{chosen}: {outcome}")
        self.acknowledged[chosen] = self.sent[chosen]


def _patience(rng: np.random.Generator) -> float:
    """Return how long a customer waits: some leave while they are served, others wait until they are."""
    return HASTY_SECONDS if rng.random() < 0.5 else PATIENT_SECONDS


@contextmanager
def shopping(
    address: str,
    bandit: str,
    *,
    threads: int = 4,
    context_dim: int = 1,
    waits: Callable[[int], bool] = lambda _slates: False,
) -> Iterator[Customers]:
    customers = Customers(address, bandit, threads=threads, context_dim=context_dim, waits=waits)
    customers.start()
    try:
        yield customers
    finally:
        customers.stop()


class Scribe:
    """Copies a bandit's log while it grows, before the older part is trimmed away; nothing that was read may change.

    Parameters
    ----------
    may_lose
        Whether the store may lose the log's end, with what others have read of it.
    """

    def __init__(self, url: str, name: BanditName, *, may_lose: bool) -> None:
        self.events: list[LoggedEvent] = []
        self.problem = ""
        self._url = url
        self._name = name
        self._may_lose = may_lose
        self._slates = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._copy()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def finish(self) -> list[LoggedEvent]:
        """Read to the end once more, and return the whole log."""
        self.stop()
        assert self.problem == "", self.problem
        asyncio.run(self._read_all())
        return self.events

    def is_behind(self, slates: int) -> bool:
        """Return whether so many slates were given out that the log could be trimmed before it is copied."""
        return slates > self._slates + MOST_UNREAD_SLATES

    async def _copy(self) -> None:
        while not self._ended.is_set() and not self.problem:
            try:
                await self._follow()
            except TopkBanditError:
                await asyncio.sleep(0.02)

    async def _follow(self) -> None:
        store = await RedisStore.connect(self._url, timeout=PATIENT_SECONDS)
        try:
            while not self._ended.is_set() and not self.problem:
                await self._read(store)
                await asyncio.sleep(0.05)
        finally:
            await store.close()

    async def _read_all(self) -> None:
        store = await RedisStore.connect(self._url, timeout=PATIENCE)
        try:
            await self._read(store)
            assert self.problem == "", self.problem
            kept = await whole_log(store, self._name)
            assert self.events[kept[0].position - 1 :] == kept
        finally:
            await store.close()

    async def _read(self, store: RedisStore) -> None:
        """Read from the last event that is known on, which must still be the same unless the log may lose its end."""
        while True:
            last = self.events[-1:]
            part = await store.read_log(self._name, start=max(len(self.events), 1), limit=500)
            if list(part.events[: len(last)]) == last:
                self._add(part.events[len(last) :])
                if len(self.events) == part.log_position:
                    return
            elif self._may_lose:
                self.events.pop()
            else:
                self.problem = f"event {len(self.events)} was {last} and is {part.events[:1]} in {part.log_position}"
                return

    def _add(self, events: Sequence[LoggedEvent]) -> None:
        self.events.extend(events)
        self._slates += sum(isinstance(logged.event, Recommended) for logged in events)


@contextmanager
def writing(url: str, name: BanditName, *, may_lose: bool = False) -> Iterator[Scribe]:
    scribe = Scribe(url, name, may_lose=may_lose)
    scribe.start()
    try:
        yield scribe
    finally:
        scribe.stop()


def assert_each_counts_once(customers: Customers, events: Sequence[LoggedEvent]) -> int:
    """Check that rewards are in a log once, all that were acknowledged and none that was not sent; return how many."""
    rewards = [logged.event for logged in events if isinstance(logged.event, Rewarded)]
    rewarded = {event.recommendation_id: event.value for event in rewards}
    assert customers.surprises == []
    assert counted([event.recommendation_id for event in rewards]) == {}
    assert customers.acknowledged.items() <= rewarded.items()
    assert rewarded.items() <= customers.sent.items()
    for event in rewards:
        named = zip(event.shown.slate, event.item_values or (), strict=event.item_values is not None)
        known = {item_id: value for item_id, value in named if value is not None}
        assert known == customers.named[event.recommendation_id]
    return len(rewarded)


def counted(values: list[str]) -> dict[str, int]:
    """Return what is there more than once."""
    return {value: count for value, count in Counter(values).items() if count > 1}
