"""Listen to one channel until it is to stop, across lost connections.

What is published while no connection listens is lost, so None is yielded each time that listening begins anew. An error
of a connection is logged, once while it lasts, and never raised.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from redis.asyncio import Redis
    from redis.asyncio.client import PubSub

    from topk_bandit.store.redis.outage import Outage

__all__ = ["Subscription"]

_LOST = (RedisError, RedisClusterException, OSError)
_FIRST_DELAY = 0.05
_LONGEST_DELAY = 1.0
_IDLE = 2.0


class Subscription:
    """One listener to one channel.

    Parameters
    ----------
    connect
        Returns a fresh client for each attempt.
    silence
        Receives what fails and what succeeds.
    """

    def __init__(self, connect: Callable[[], Redis], *, channel: str, silence: Outage) -> None:
        self._connect = connect
        self._channel = channel
        self._silence = silence
        self._closed = asyncio.Event()
        self._client: Redis | None = None

    async def messages(self) -> AsyncGenerator[bytes | None, None]:
        """Yield what is published, and None each time the channel is being listened to anew, until `close`."""
        delay = _FIRST_DELAY
        while not self._closed.is_set():
            try:
                async with aclosing(self._messages_of_one_connection()) as messages:
                    async for message in messages:
                        delay = _FIRST_DELAY
                        self._silence.note_success()
                        yield message
            except _LOST as error:
                if not self._closed.is_set():
                    self._silence.note_failure(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._closed.wait()
            delay = min(2 * delay, _LONGEST_DELAY)

    async def close(self) -> None:
        """Let the generator end."""
        self._closed.set()
        if self._client is not None:
            await self._client.connection_pool.disconnect()

    async def _messages_of_one_connection(self) -> AsyncGenerator[bytes | None, None]:
        self._client = client = self._connect()
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(self._channel)
                while not self._closed.is_set():
                    message = await _next_message(pubsub)
                    if message["type"] in ("subscribe", "message"):
                        yield message["data"] if message["type"] == "message" else None
        finally:
            self._client = None
            await client.aclose()


async def _next_message(pubsub: PubSub) -> dict[str, Any]:
    """Return the next message; a connection that stays silent after a ping is lost."""
    message: dict[str, Any] | None = await pubsub.get_message(timeout=_IDLE)
    if message is None:
        await pubsub.ping()
        message = await pubsub.get_message(timeout=_IDLE)
    if message is None:
        raise RedisConnectionError("the server stays silent")
    return message
