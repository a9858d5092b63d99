"""Where the store contract runs: a way to open stores on the same data, and to let the store's clock go on."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.operators import EventText
from topk_bandit.store.codec import encode_event
from topk_bandit.store.log import DEFAULT_RECORD_RETENTION_MS
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.permissions import COMMANDS, OPTIONAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from topk_bandit.domain.bandits import BanditName, LoggedEvent
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.log import Store

__all__ = ["LEAST_RIGHTS", "MemoryStores", "RedisStores", "Stores", "dump", "listening", "run", "whole_log"]


LEAST_RIGHTS = (
    *("~test-*", "&test-*"),
    *(f"+{command.split()[0].lower()}" for command in COMMANDS),
    *(f"+{command.replace(' ', '|').lower()}" for command in OPTIONAL),
)
"""What a user of a store must be allowed, on what the tests write: it is enough for the whole contract."""


class Stores(Protocol):
    """Opens stores on the same data, for one test."""

    def connect(self) -> AbstractAsyncContextManager[Store]: ...

    async def pass_time(self, milliseconds: int) -> None:
        """Let the store's clock go on by at least this much."""
        ...


class MemoryStores:
    """A store that all connections share; its clock can be set forward."""

    def __init__(self, *, record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS) -> None:
        self._ahead_ms = 0
        self._store = MemoryStore(clock_ms=self._clock_ms, record_retention_ms=record_retention_ms)

    def _clock_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Store]:
        yield self._store

    async def pass_time(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds


class RedisStores:
    """Connections of their own to one server, under a prefix of the test's own.

    With `writers` each has a name of its own to write with, as each worker of a service has.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS,
        durability: Durability = IN_MEMORY,
        writers: bool = False,
    ) -> None:
        self.url = url
        self.prefix = f"test-{uuid.uuid4().hex[:12]}"
        self._timeout = timeout
        self._record_retention_ms = record_retention_ms
        self._durability = durability
        self._writers = writers

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RedisStore]:
        store = await RedisStore.connect(
            self.url,
            prefix=self.prefix,
            timeout=self._timeout,
            record_retention_ms=self._record_retention_ms,
            durability=self._durability,
            writer=uuid.uuid4().hex if self._writers else "",
        )
        try:
            yield store
        finally:
            await store.close()

    async def pass_time(self, milliseconds: int) -> None:
        await asyncio.sleep((milliseconds + 1) / 1000)


def run(stores: Stores, scenario: Callable[..., Awaitable[None]], *, connections: int = 1) -> None:
    """Run a scenario with that many stores on the same data."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            await scenario(*[await stack.enter_async_context(stores.connect()) for _ in range(connections)])

    asyncio.run(main())


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
            async with asyncio.timeout(20):
                return await anext(changes)

        assert await following() is None
        yield following
