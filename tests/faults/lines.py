"""A line between callers, a service, and stores: slow, held, cut, or led elsewhere."""

from __future__ import annotations

import asyncio
import threading
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Self

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["CutLine", "Place", "RaggedLine", "SlowLine"]

SHORTEST_SECONDS = 1e-6
LARGEST_PIECE = 64
HEAD_BYTES = 120
"""So many bytes of a command, and no whole command, are passed on."""


class SlowLine:
    """A TCP proxy on a thread of its own.

    Attributes
    ----------
    port
        Where it listens.
    server_port
        Where connections lead to that are opened from now on.
    seconds
        What goes either way arrives so much later.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.server_port = server_port
        self.seconds = 0.0
        self._is_held = False
        self._kept: list[Callable[[], None]] = []
        self._sent = bytearray()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._sinks: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def sent(self) -> bytes:
        """What callers have sent while the line was held."""
        return bytes(self._sent)

    def hold(self) -> None:
        """Keep what comes from either side from now on."""
        self._is_held = True

    def release(self) -> None:
        """Pass on at once what was kept, and all that comes."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._is_held = False
        for passing_on in self._kept:
            passing_on()
        self._kept.clear()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._up.set()
        await self._stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for sink in self._sinks:
            sink.transport.abort()
        await asyncio.sleep(0.1)

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        self._sinks |= {to_client, to_server}
        await asyncio.gather(self._pass(client, to_server, is_sent=True), self._pass(server, to_client))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_sent: bool = False) -> None:
        due = 0.0
        try:
            while part := await source.read(1 << 16):
                if self._is_held and is_sent:
                    self._sent += part
                due = self._do(partial(sink.write, part), after=due)
        finally:
            self._do(sink.close, after=due)

    def _do(self, passing_on: Callable[[], None], *, after: float) -> float:
        """Do something in its time, and after what is due before it; return when."""
        loop = asyncio.get_running_loop()
        due = max(loop.time() + self.seconds, after + SHORTEST_SECONDS)
        if self._is_held:
            self._kept.append(passing_on)
        else:
            loop.call_at(due, passing_on)
        return due

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class RaggedLine(SlowLine):
    """A proxy that passes bytes on in small pieces, and ends connections inside of messages while that is asked for.

    Attributes
    ----------
    cuts
        How many connections it has ended.
    share
        Of so many of the reads, in the mean, the connection ends.
    """

    def __init__(self, server_port: int, rng: random.Random) -> None:
        super().__init__(server_port)
        self.cuts = 0
        self.share = 0.0
        self._rng = rng

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_sent: bool = False) -> None:  # noqa: ARG002
        try:
            while part := await source.read(1 << 16):
                is_cut = self._rng.random() < self.share
                whole = self._rng.randrange(len(part)) if is_cut else len(part)
                await self._pass_in_pieces(part[:whole], sink)
                if is_cut:
                    self.cuts += 1
                    return
        finally:
            sink.close()

    async def _pass_in_pieces(self, part: bytes, sink: asyncio.StreamWriter) -> None:
        while part:
            size = self._rng.randint(1, LARGEST_PIECE)
            sink.write(part[:size])
            part = part[size:]
            await asyncio.sleep(0)


class Place(Enum):
    """Where a line is cut: before a command, inside of it, behind it, or inside of its reply."""

    UNSENT = "unsent"
    HEAD_SENT = "head sent"
    CARRIED_OUT = "carried out"
    REPLY_BEGUN = "reply begun"


class CutLine(SlowLine):
    """A proxy that is cut at one command, and passes nothing on after that until it is mended.

    Attributes
    ----------
    is_cut
        Whether the command came, and all is done that is done before the cut.
    """

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port)
        self.is_cut = False
        self._mark = b""
        self._place = Place.UNSENT
        self._waiting: object = None

    def cut(self, mark: bytes, place: Place) -> None:
        """Have the line cut at the next command that holds a mark."""
        self._place, self._mark = place, mark

    def mend(self) -> None:
        """Pass on all that comes from now on; the connections that were open stay cut."""
        self._waiting, self.is_cut = None, False

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        self._sinks |= {to_client, to_server}
        line = object()
        await asyncio.gather(self._send(client, to_server, line), self._answer(server, to_client, line))

    async def _send(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, line: object) -> None:
        try:
            while part := await client.read(1 << 16):
                if self._mark and self._mark in part:
                    self._mark, self._waiting = b"", line
                    if self._place in {Place.UNSENT, Place.HEAD_SENT}:
                        begin = part.index(b"EVALSHA")
                        to_server.write(part[: begin if self._place is Place.UNSENT else begin + HEAD_BYTES])
                        self.is_cut = True
                if not self.is_cut:
                    to_server.write(part)
        finally:
            to_server.close()

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, line: object) -> None:
        try:
            while part := await server.read(1 << 16):
                if self._waiting is line and not self.is_cut:
                    to_client.write(part[: self._place is Place.REPLY_BEGUN])
                    self.is_cut = True
                elif not self.is_cut:
                    to_client.write(part)
        finally:
            to_client.close()
