"""The door at which the other workers of a service ask: a socket in a folder of the service's own."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_ids import call_of
from topk_bandit.rpc.sibling_frames import Answer, Asked, read_frame, write_frame
from topk_bandit.rpc.siblings import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.rpc.services import Services

__all__ = ["SiblingDoor"]


class SiblingDoor:
    """Answers what siblings ask; lives on the event loop that it is made on.

    Parameters
    ----------
    path
        Of the socket. Who can open it may do everything.
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
        # Their context is one of `CallContext`, which has what is asked of gRPC's.
        self._methods: list[Any] = [services.guard.guard_method(method, handlers[method]).call for method in METHODS]
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

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
        """Refuse further calls, let those under way finish within `grace` seconds, and stop."""
        self._in_flight.close()
        await self._in_flight.finish(timeout=grace)
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await self._in_flight.settle(timeout=grace)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer all that comes on a connection, until it ends."""
        self._writers.add(writer)
        try:
            while True:
                asked = Asked.unpack(await read_frame(reader))
                task = asyncio.create_task(self._answer(asked, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, OSError):
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method >= len(METHODS):  # it only wants to know whether anybody is there
            write_frame(writer, Answer(asked.number, is_message=True, payload=b"").pack())
            return
        seconds = asked.deadline_in
        context = CallContext(None if seconds is None else self._clock() + seconds, clock=self._clock)
        call = call_of((("x-request-id", asked.request_id), ("traceparent", asked.traceparent)))
        try:
            payload = await self._methods[asked.method](asked.payload, context, call)
            answer = Answer(asked.number, is_message=True, payload=payload)
        except grpc.aio.AbortError:
            answer = Answer(asked.number, is_message=False, payload=context.status.SerializeToString())
        if not writer.is_closing():
            write_frame(writer, answer.pack())
