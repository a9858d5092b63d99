"""A TCP proxy that can lose replies, or be slow: a request is carried out, and its sender hears of it never or late."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from topk_bandit.store.data_versions import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from topk_bandit.store.redis.scripts import Script

__all__ = ["LossyProxy", "lossy_proxy"]


class LossyProxy:
    """Passes bytes on between its clients and one server.

    Attributes
    ----------
    port
        Where clients connect.
    lost
        How many replies were lost, each with its connection.
    delay_seconds
        How long each reply is held back.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.lost = 0
        self.delay_seconds = 0.0
        self._server_port = server_port
        self._marks: tuple[bytes, ...] = ()
        self._losses = 0
        self._connections: set[asyncio.Task[None]] = set()

    def lose(self, script: Script, *, replies: int) -> None:
        """Lose the next replies of a script, once it has run."""
        sent = script.at(NEWEST)
        self._marks = (sent.digest.encode(), sent.source.encode())
        self._losses = replies

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Carry one connection, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            with suppress(asyncio.CancelledError, OSError):
                await self._carry(client, to_client, server, to_server)
        finally:
            to_client.close()
            to_server.close()

    async def _carry(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        asked = b""
        reading = {asyncio.create_task(client.read(1 << 16)): client, asyncio.create_task(server.read(1 << 16)): server}
        try:
            while True:
                done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    source, part = reading.pop(task), task.result()
                    if not part:
                        return
                    if source is client:
                        asked += part
                        to_server.write(part)
                    elif self._loses(asked, part):
                        return
                    else:
                        asked = b""
                        await asyncio.sleep(self.delay_seconds)
                        to_client.write(part)
                    reading[asyncio.create_task(source.read(1 << 16))] = source
        finally:
            for task in reading:
                task.cancel()

    def _loses(self, request: bytes, reply: bytes) -> bool:
        marked = any(mark in request for mark in self._marks) and not reply.startswith(b"-NOSCRIPT")
        if not marked or self._losses == 0:
            return False
        self._losses -= 1
        self.lost += 1
        return True

    async def close(self) -> None:
        """End all connections."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


@asynccontextmanager
async def lossy_proxy(server_port: int) -> AsyncIterator[LossyProxy]:
    """Run a proxy until the end of the block."""
    proxy = LossyProxy(server_port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()
