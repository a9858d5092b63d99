"""Connections of the HTTP server: requests in the common form are answered on a fast path, others by the library.

A connection begins on the fast path. With the first request in another form it is handed to the library, which keeps
it: so each has one reader, and there is no doubt where a request ends.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import TYPE_CHECKING, Any, Protocol, cast

import grpc
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError

from topk_bandit.rpc.http_answers import problem
from topk_bandit.rpc.http_requests import MOST_BYTES, NotYet, read_fast_path_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.domain.calls import Call
    from topk_bandit.rpc.http_answers import Written
    from topk_bandit.rpc.http_requests import FastPathRequest
    from topk_bandit.rpc.identities import ClientCertificate

    Guarded = Callable[[bytes, Any, Call], Awaitable[bytes]]

__all__ = ["HANDSHAKE_SECONDS", "Calls", "ClosedConnection", "FastPathConnection", "LibraryConnection"]

_library_log = logging.getLogger(f"{__name__}.library")

HANDSHAKE_SECONDS = 5.0
"""So long may it take until TLS is spoken, as with gRPC."""

IDLE_SECONDS = 20.0
"""Also for a connection on which nothing was asked yet."""

UNREAD_SECONDS = 20.0
"""A connection is closed if its caller reads nothing of an answer for so many seconds."""

LINGER_SECONDS = 1.0
"""How long the rest of a body that nobody wants is thrown away, so that its sender can read why."""

PATIENCE_SECONDS = 0.1
"""After so many seconds an incomplete request is handed to aiohttp, which waits for the rest of it."""

_CANCEL_SECONDS = 0.5
"""So much longer than its time may it take to cancel a call, and to end a connection."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for what a client sent that is no HTTP: the library would repeat it, and with it a secret."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_library_log.addFilter(_is_ours)


class Calls(Protocol):
    """What answers requests on the fast path."""

    def find(self, request: FastPathRequest) -> Guarded | None:
        """Return the call that a request makes; None if the library is to answer it."""

    async def answer(self, request: FastPathRequest, guarded: Guarded, certificate: ClientCertificate) -> Written:
        """Return the answer to a request; it raises nothing but cancellation."""


class ClosedConnection(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


class _Watched(asyncio.BaseProtocol):
    """A connection that ends if nothing of an answer is taken.

    Whoever asks and never reads would have it for good, and keep others out.
    """

    _outlet: asyncio.Transport
    _look: asyncio.TimerHandle | None
    _untaken: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear of each byte that is not taken at once."""
        super().connection_made(transport)
        self._outlet = cast("asyncio.Transport", transport)
        self._look = None  # before the limits, which TLS may be at already
        # asyncio takes TLS for full once it holds as much as this, and a bare socket once it holds more.
        self._outlet.set_write_buffer_limits(high=0 if transport.get_extra_info("sslcontext") is None else 1, low=0)

    def pause_writing(self) -> None:
        """Begin to look whether anything is taken."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Need not look any more: all is taken."""
        super().resume_writing()
        self._stop_looking()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Need not look any more."""
        self._stop_looking()
        super().connection_lost(exc)  # type: ignore[arg-type]  # which it hands on

    def _await_reader(self) -> None:
        self._untaken = _untaken_bytes(self._outlet)
        self._look = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self._check_reader)

    def _check_reader(self) -> None:
        if _untaken_bytes(self._outlet) < self._untaken:
            self._await_reader()
        else:
            self._outlet.abort()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None


def _untaken_bytes(outlet: asyncio.Transport) -> int:
    """Return what was written and not taken yet; where it can be asked, with what the system holds of it."""
    count, held = outlet.get_write_buffer_size(), bytes(4)
    with suppress(OSError):
        held = ioctl(outlet.get_extra_info("socket").fileno(), TIOCOUTQ, held)
    return count + int.from_bytes(held, sys.byteorder)


class FastPathConnection(_Watched, asyncio.Protocol):
    """A connection on which requests on the fast path are answered, one after the other.

    Nothing is started for a request but the call itself: what is not whole yet is kept until the rest of it comes.

    Parameters
    ----------
    connections
        Has this connection in it for as long as it is one of these.
    to_library
        Makes the library's connection, if that is needed.
    """

    def __init__(
        self, calls: Calls, connections: set[FastPathConnection], to_library: Callable[[], LibraryConnection]
    ) -> None:
        self._calls = calls
        self._connections = connections
        self._to_library = to_library
        self._loop = asyncio.get_running_loop()
        self._held = b""
        self._call: asyncio.Task[None] | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._lost = self._loop.create_future()
        self._is_ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._connections.add(self)
        self._certificate: ClientCertificate = transport.get_extra_info("peercert")
        self._note_rest()
        self._rest = self._loop.call_at(self._rested, self._check_rest)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the call under way: its caller has left."""
        super().connection_lost(exc)
        self._forget()
        self._lost.set_result(None)
        if self._call is not None:
            self._call.cancel()

    def data_received(self, data: bytes) -> None:
        """Take in what was sent."""
        self._held = self._held + data if self._held else data
        if self._call is None and self._look is None:
            self._take()
        elif len(self._held) > MOST_BYTES:
            self._outlet.pause_reading()

    def resume_writing(self) -> None:
        """Go on: the last answer is taken."""
        super().resume_writing()
        self._go_on()

    def end(self) -> None:
        """Answer the call under way, if there is one, and no other."""
        self._is_ending = True
        if self._call is None:
            self._outlet.close()

    async def wait_ended(self, seconds: float) -> None:
        """Wait so long for the call under way, and cancel it then."""
        if self._call is not None:
            await asyncio.wait({self._call}, timeout=seconds + _CANCEL_SECONDS)
            self._outlet.close()
        # What was written may be on its way still, and TLS says goodbye.
        await asyncio.wait({self._lost}, timeout=_CANCEL_SECONDS)
        self._outlet.abort()

    def _take(self) -> None:
        request = read_fast_path_request(self._held)
        if request is NotYet.UNFINISHED:
            if self._impatience is None:
                self._impatience = self._loop.call_later(PATIENCE_SECONDS, self._leave)
            return
        guarded = None if isinstance(request, NotYet) else self._calls.find(request)
        if guarded is None or isinstance(request, NotYet):
            self._leave()
            return
        self._held = b""
        self._be_patient()
        self._call = self._loop.create_task(self._serve(request, guarded))

    async def _serve(self, request: FastPathRequest, guarded: Guarded) -> None:
        answer = await self._calls.answer(request, guarded, self._certificate)
        self._call = None
        self._note_rest()
        self._outlet.write(answer.sent)
        if answer.ends or self._is_ending:
            self._outlet.close()
        elif self._held:
            self._go_on()

    def _go_on(self) -> None:
        if self._held and self._call is None and self._look is None and not self._outlet.is_closing():
            self._outlet.resume_reading()
            self._take()

    def _leave(self) -> None:
        """Hand the connection to the library, with what was sent on it."""
        self._forget()
        library, held = self._to_library(), self._held
        self._outlet.set_protocol(library)
        library.connection_made(self._outlet)
        library.data_received(held)

    def _forget(self) -> None:
        self._be_patient()
        self._rest.cancel()
        self._connections.discard(self)

    def _be_patient(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    def _note_rest(self) -> None:
        self._rested = self._loop.time() + IDLE_SECONDS

    def _check_rest(self) -> None:
        """Close the connection if nothing was asked on it; looked at now and then, since a timer of each call costs."""
        if self._call is not None:
            self._note_rest()
        if self._loop.time() >= self._rested:
            self._outlet.close()
        else:
            self._rest = self._loop.call_at(self._rested, self._check_rest)


def _before_quotation(message: str) -> str:
    """Return a message of the library without what it repeats of the request: that may be a secret."""
    named = _NAME_OF_HEADER.sub(r"\1", message)
    return re.split(r"[:'\"\n]", named, maxsplit=1)[0].strip()


_NAME_OF_HEADER = re.compile(r"'(Content-Type|Content-Length|Host|Transfer-Encoding)'", re.IGNORECASE)
"""What the library quotes, and is no secret."""


class LibraryConnection(_Watched, web.RequestHandler):
    """A connection of the library, on which what is no HTTP is refused as a bad call is: the log has no line of it."""

    def __init__(self, manager: web.Server) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which it takes for no log at all
            logger=_library_log,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
        )

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return what is answered, after which the connection ends."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        reason = "its URL is none" if isinstance(exc, InvalidURLError) else _before_quotation(message or "")
        response = problem(grpc.StatusCode.INVALID_ARGUMENT, f"the request can't be read: {reason}")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - the logger's own
        """Log what is ours to mend, which a body that is broken behind what was read of it is not."""
        if not isinstance(named.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **named)
