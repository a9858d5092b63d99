"""Which server Sentinel calls the primary now, and connections to that one alone.

Sentinel promotes a replica first and informs the old primary seconds later; until then that one takes writes that are
thrown away. So Sentinel is asked again and again, and what is connected to another server is cut.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

__all__ = ["PrimaryConnection", "PrimaryConnections", "PrimaryWatch", "Sentinels"]

LOOK_SECONDS = 0.2

PATIENCE_SECONDS = 0.1
"""How long all sentinels are waited for; one that hangs must not hold up every connection."""

_Address = tuple[str, int]
_Answer = tuple[int, _Address]


class Sentinels(Sentinel):
    """Several sentinels; the one that knows the newest configuration is believed."""

    def __init__(self, *given: Any, **options: Any) -> None:  # noqa: ANN401 - the client library's own
        super().__init__(*given, **options)  # type: ignore[no-untyped-call]
        self._asked: set[asyncio.Task[_Answer | None]] = set()

    async def discover_master(self, service_name: str) -> _Address:
        """Return the primary's address, as soon as it is promoted.

        Raises
        ------
        MasterNotFoundError
            No sentinel knows.
        """
        asked = {asyncio.create_task(_ask(sentinel, service_name)) for sentinel in self.sentinels}
        self._asked |= asked
        for task in asked:
            task.add_done_callback(self._asked.discard)
        try:
            known = await _answers(asked)
        finally:
            for task in asked:
                task.cancel()
        if not known:
            raise MasterNotFoundError(f"no sentinel knows a primary of {service_name!r}")
        return max(known)[1]

    async def close(self) -> None:
        """Close all connections, once nobody is asked any more: a cancelled question may still open one."""
        await asyncio.gather(*self._asked, return_exceptions=True)
        for sentinel in self.sentinels:
            await sentinel.aclose()


async def _answers(asked: set[asyncio.Task[_Answer | None]]) -> list[_Answer]:
    """Return what those know that answer soon; if none does, what the first knows that answers."""
    known: list[_Answer] = []
    done, left = await asyncio.wait(asked, timeout=PATIENCE_SECONDS)
    while True:
        known += [answer for answer in (task.result() for task in done) if answer is not None]
        if known or not left:
            return known
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)


async def _ask(sentinel: Redis, service: str) -> _Answer | None:
    """Return the number of a sentinel's configuration, and the address in it; None if it does not know or answer."""
    ask: Callable[..., Awaitable[Any]] = sentinel.execute_command
    try:
        state = await ask("SENTINEL MASTER", service)
        address = await ask("SENTINEL GET-MASTER-ADDR-BY-NAME", service)
    except (RedisError, OSError):
        return None
    host, port = address
    return int(state["config-epoch"]), (host.decode() if isinstance(host, bytes) else host, port)


class PrimaryConnections(SentinelConnectionPool):
    """Connections to the primary; when that becomes another server all are cut at once, and calls under way sent again.

    Some that went on with the old one would write and read another log than the rest.
    """

    _questions = 0
    _newest_answered = 0

    async def get_master_address(self) -> _Address:
        """Return the primary's address, and cut what is connected to another server."""
        self._questions += 1
        question = self._questions
        address: _Address = await self.sentinel_manager.discover_master(self.service_name)
        if question < self._newest_answered:
            # A question that was put later is answered already: this answer may be from before a failover.
            return cast("_Address", self.master_address)
        self._newest_answered = question
        before, self.master_address = self.master_address, address
        if before not in {None, address}:
            await self.disconnect()
        return address


class PrimaryConnection(SentinelManagedConnection):
    """A connection to the server that Sentinel names, if that says itself that it is a primary.

    Sentinel is asked whenever it connects. The client library asks only where the pool connects: a connection that
    breaks in the middle of a call would go back to the server that it was at.
    """

    async def connect(self) -> None:
        """Connect, in two attempts at most."""
        await self.retry.call_with_retry(self.connect_check_health, lambda _: asyncio.sleep(0))

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002 - as the library calls it
        """Connect, or raise ConnectionError."""
        if self.is_connected:
            return
        address: _Address = await self.connection_pool.get_master_address()
        self.host, self.port = address
        await super().connect_check_health(check_health=check_health, retry_socket_connect=False)
        await self.send_command("ROLE")
        role = await self.read_response()
        if role[0] != b"master" or self.connection_pool.master_address != address:
            await self.disconnect()
            raise RedisConnectionError("the server that Sentinel named is no primary")


class PrimaryWatch:
    """Asks Sentinel again and again which server is the primary.

    Parameters
    ----------
    client
        Whose connections go to the primary; they are `PrimaryConnections`.
    """

    def __init__(self, client: Redis) -> None:
        self._pool: Any = client.connection_pool
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with suppress(RedisError, OSError):
                await self._pool.get_master_address()
            await asyncio.sleep(LOOK_SECONDS)
