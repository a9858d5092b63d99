"""The server for the other workers of a service, at a socket in a folder of the service's own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_ids import call_of
from topk_bandit.rpc.peer_frames import Answer, Asked, read_frame, write_frame
from topk_bandit.rpc.peers import GIVEN_UP, METHODS, PASSED_ON

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.rpc.services import Services

__all__ = ["PeerServer"]

_SETTLE_SECONDS = 0.5
"""How long what goes on without a caller may take after a drain, and the last answers to be sent."""


class PeerServer:
    """Answers what peers ask; lives on the event loop that it is made on.

    Parameters
    ----------
    path
        The socket's path. Whoever can open it may do everything.
    services
        What is served; its guard admits all calls.
    clock
        Seconds, monotonic.
    """

    def __init__(self, path: str, *, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._in_flight = services.guard.in_flight
        handlers = services.handlers()
        # Their context is a `CallContext`, which has the needed part of gRPC's. Who asks all waits a second at most.
        self._methods: list[Any] = [
            services.guard.guard_method(method, handlers[method], may_wait=method in PASSED_ON).call
            for method in METHODS
        ]
        self._listener: asyncio.Server | None = None
        self._under_way: dict[asyncio.StreamWriter, dict[int, asyncio.Task[Answer]]] = {}

    async def start(self) -> None:
        """Listen.

        Raises
        ------
        ConfigurationError
            There can be no such socket: its path is too long, for example.
        """
        try:
            self._listener = await asyncio.start_unix_server(self._serve, self._path)
        except OSError as error:
            raise ConfigurationError(f"workers can't ask each other at {self._path}: {error}") from error

    async def drain(self, grace: float) -> None:
        """Refuse further calls, let those under way finish within `grace` seconds, and stop.

        A connection ends after the answers to all that was begun: a peer begins again what it has no answer to.
        """
        self._in_flight.close()
        await self._in_flight.finish(timeout=grace)
        if self._listener is not None:
            self._listener.close()
        answering = {task for tasks in self._under_way.values() for task in tasks.values()}
        await asyncio.gather(*answering, return_exceptions=True)
        closing = [asyncio.create_task(self._close(writer)) for writer in list(self._under_way)]
        await self._in_flight.settle(timeout=_SETTLE_SECONDS)
        if closing:
            await asyncio.wait(closing, timeout=_SETTLE_SECONDS)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """End a connection once its peer has taken what was sent."""
        self._end(writer)
        with suppress(OSError):
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer all that comes on a connection, until it ends."""
        tasks = self._under_way[writer] = {}
        try:
            while True:
                asked = Asked.unpack(await read_frame(reader))
                if asked.method != GIVEN_UP:
                    task = tasks[asked.number] = asyncio.create_task(self._answer(asked))
                    task.add_done_callback(partial(self._send_answer, asked.number, writer))
                elif asked.number in tasks:
                    tasks[asked.number].cancel()
        except (asyncio.IncompleteReadError, OSError):
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        """End a connection, and cancel its calls that need not run to their end."""
        writer.close()
        for task in self._under_way.pop(writer, {}).values():
            task.cancel()

    def _send_answer(self, number: int, writer: asyncio.StreamWriter, task: asyncio.Task[Answer]) -> None:
        """Send what became of a call; each gets an answer, since the peer counts those that it waits for."""
        self._under_way.get(writer, {}).pop(number, None)
        is_answered = not task.cancelled() and task.exception() is None
        answer = task.result() if is_answered else Answer(number, is_message=False, payload=b"")
        if not writer.is_closing():
            write_frame(writer, answer.pack())

    async def _answer(self, asked: Asked) -> Answer:
        if asked.method >= len(METHODS):  # it only wants to know whether anybody is there
            return Answer(asked.number, is_message=True, payload=b"")
        context = CallContext(None, clock=self._clock)
        call = call_of((("x-request-id", asked.request_id), ("traceparent", asked.traceparent)))
        try:
            payload = await self._methods[asked.method](asked.payload, context, call)
        except grpc.aio.AbortError:
            return Answer(asked.number, is_message=False, payload=context.status.SerializeToString())
        return Answer(asked.number, is_message=True, payload=payload)
