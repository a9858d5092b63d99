"""Where the store contract runs: a way to open stores on the same data, and to let the store's clock go on."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
import uuid
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import pytest
import redis.asyncio
from tests.contracts.clocks import ClockedLink, StoreClock
from tests.waiting import PATIENCE

from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.errors import UnavailableError
from topk_bandit.domain.operators import EventText
from topk_bandit.store.codec import encode_event
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.log import DEFAULT_RECORD_RETENTION_MS
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.redis import link as module
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.link import Link
from topk_bandit.store.redis.permissions import COMMANDS, OPTIONAL
from topk_bandit.store.redis.waits import waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store

__all__ = [
    "LEAST_RIGHTS",
    "RIGHTS_IN_A_CLUSTER",
    "MemoryStores",
    "RedisStores",
    "Stores",
    "dump",
    "home_of",
    "insist",
    "listening",
    "run",
    "waiting_little",
    "whole_log",
]

Answer = TypeVar("Answer")

LEAST_RIGHTS = (
    *("~test-*", "&test-*"),
    *(f"+{command.split()[0].lower()}" for command in COMMANDS),
    *(f"+{command.replace(' ', '|').lower()}" for command in OPTIONAL),
)
"""What a user of a store must be allowed, on what the tests write: it is enough for the whole contract."""

RIGHTS_IN_A_CLUSTER = ("+cluster|slots", "+command")
"""What the client library asks a cluster beside."""


class Stores(Protocol):
    """Opens stores on the same data, for one test."""

    births: Iterator[int]
    """Numbers for the ids that the test's own workers give: none comes twice on the same data."""

    clock: StoreClock | None
    """By what all that is about time goes, and stands still but for `pass_time`; None for a server's own."""

    def connect(self) -> AbstractAsyncContextManager[Store]: ...

    async def pass_time(self, milliseconds: int) -> None:
        """Let the store's clock go on by this much, or at least so much if it is a server's own."""
        ...


_homes: WeakKeyDictionary[Store, Stores] = WeakKeyDictionary()


def home_of(store: Store) -> Stores | None:
    """Return what opened a store, if something of these did."""
    return _homes.get(store)


class MemoryStores:
    """A store that all connections share."""

    def __init__(
        self, *, record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS, clock: StoreClock | None = None
    ) -> None:
        self.births = itertools.count()
        self.clock = clock or StoreClock()
        self._store = MemoryStore(clock_ms=self.clock.read_ms, record_retention_ms=record_retention_ms)
        _homes[self._store] = self

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Store]:
        yield self._store

    async def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds


class RedisStores:
    """Connections of their own to one server, under a prefix of the test's own.

    With a `clock` all that is about time goes by it, else by the server's. With `writers` each connection has a name of
    its own to write with, as each worker of a service has. Without a `timeout` a call fails only where it hangs.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = PATIENCE,
        record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS,
        durability: Durability = IN_MEMORY,
        writers: bool = False,
        clock: StoreClock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        # Nothing but the names of keys depends on it.
        self.prefix = f"test-{uuid.uuid4().hex[:12]}"
        self.births = itertools.count()
        self._timeout = timeout
        self._record_retention_ms = record_retention_ms
        self._durability = durability
        self._writers = itertools.count() if writers else None
        self.clock = clock
        self._monotonic = monotonic

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RedisStore]:
        # One that may not take long may have to try again, where the machine is slow.
        link = await (self._open_link() if self._timeout >= PATIENCE else insist(self._open_link))
        writer = "" if self._writers is None else f"writer-{next(self._writers)}"
        store = RedisStore(link, prefix=self.prefix, record_retention_ms=self._record_retention_ms, writer=writer)
        _homes[store] = self
        try:
            yield store
        finally:
            await store.close()

    async def _open_link(self) -> Link:
        how = {"timeout": self._timeout, "monotonic": self._monotonic, "durability": self._durability}
        if self.clock is None:
            link = await Link.open(self.url, **how)
        else:
            link = await ClockedLink.open(self.url, **how)
            link.clock = self.clock
        link.data_version = NEWEST  # as in a store that this program used first
        return link

    async def pass_time(self, milliseconds: int) -> None:
        if self.clock is None:
            await asyncio.sleep((milliseconds + 1) / 1000)
            return
        self.clock.now_ms += milliseconds
        async with redis.asyncio.from_url(self._url_of_all_rights(), protocol=2) as client:
            keys = [key async for key in client.scan_iter(f"{self.prefix}:*", count=1000)]
            async with client.pipeline(transaction=False) as asked:
                for key in keys:
                    asked.pexpiretime(key)
                ends = await asked.execute()
            # A server drops what has expired by its own clock.
            if gone := [key for key, end in zip(keys, ends, strict=True) if 0 <= end <= self.clock.now_ms]:
                await client.unlink(*gone)

    def _url_of_all_rights(self) -> str:
        return re.sub("//[^/]*@", "//", self.url)


async def insist(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call until the store is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except UnavailableError:
                await asyncio.sleep(0.05)


@contextmanager
def waiting_little(*commands: str) -> Iterator[None]:
    """Have stores wait in vain for less than they may, by these commands, until the end of the block."""

    def with_little_time(durability: Durability, *, timeout: float) -> tuple[Any, ...]:
        every = waits(durability, timeout=timeout)
        return tuple((*one[:-1], 50) if one[0] in commands else one for one in every)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "waits", with_little_time)
        yield


def run(stores: Stores, scenario: Callable[..., Awaitable[None]], *, connections: int = 1) -> None:
    """Run a scenario with that many stores on the same data."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            await scenario(*[await stack.enter_async_context(stores.connect()) for _ in range(connections)])

    asyncio.run(main())


def run_in_memory(life: Callable[[Store, Stores], Awaitable[Answer]]) -> tuple[Stores, Answer]:
    """Return a store in memory after what happens in it, of which tests may take copies, and what that returns."""
    stores, returned = MemoryStores(), list[Answer]()

    async def scenario(store: Store) -> None:
        returned.append(await life(store, stores))

    run(stores, scenario)
    return stores, returned[0]


async def whole_log(store: Store, name: BanditName) -> list[LoggedEvent]:
    """Return all events that are kept, read in pages, and as JSON too."""
    events: list[LoggedEvent] = []
    start = (await store.read_log(name, start=0, limit=1)).first_position
    while True:
        page = await store.read_log(name, start=start + len(events), limit=500)
        texts = await store.read_texts(name, start=start + len(events), limit=500)
        written = tuple(
            EventText(one.position, one.at_ms, encode_event(one.event, store.data_version)) for one in page.events
        )
        assert (texts.incarnation, texts.first_position) == (page.incarnation, page.first_position)
        # The log may have grown meanwhile.
        assert texts.log_position >= page.log_position
        assert texts.events[: len(written)] == written
        if not page.events:
            assert start + len(events) == page.log_position + 1
            return events
        events.extend(page.events)


async def dump(store: Store, name: BanditName) -> tuple[Any, ...]:
    """Return everything that can be seen of a bandit, to compare it with later."""
    part = await store.read_log(name, start=0, limit=1)
    return (
        await store.get_bandit(name),
        await store.list_items(name),
        (part.incarnation, part.first_position, part.log_position),
        await whole_log(store, name),
        await store.load_snapshots(name),
        await store.list_bandits(name.tenant, after="", limit=1000),
    )


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Callable[[], Coroutine[Any, Any, BanditName | None]]]:
    """Listen to a store's changes from here on; yields a function that waits for the next one."""
    async with aclosing(store.changes()) as changes:  # type: ignore[type-var]

        async def following() -> BanditName | None:
            async with asyncio.timeout(PATIENCE):
                return await anext(changes)

        assert await following() is None
        yield following
