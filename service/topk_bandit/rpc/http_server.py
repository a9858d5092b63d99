"""The HTTP server: the Connect protocol's unary calls, as JSON or binary, for curl, browsers and Connect's clients.

Each call passes the same guard and reaches the same services as one over gRPC. A body that is too large, too slow or of
an unknown kind is refused before it is parsed. The server keeps nothing between two calls.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import TYPE_CHECKING, Any, cast

import grpc
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.bodies import PACKINGS, BrokenBodyError, TooLargeError, UnknownPackingError, read_body
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_ids import ID_HEADERS, call_of, metadata_of
from topk_bandit.rpc.faces import CALLS
from topk_bandit.rpc.http_answers import (
    JSON,
    PROTO,
    problem,
    refusal,
    success,
    unknown_packing,
    wrong_kind,
    wrong_method,
)
from topk_bandit.rpc.json_messages import with_json
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from topk_bandit.domain.calls import Call
    from topk_bandit.rpc.faces import Face
    from topk_bandit.rpc.services import Services
    from topk_bandit.rpc.tls import ServerCertificate

    Guarded = Callable[[bytes, Any, Call], Awaitable[bytes]]

__all__ = ["HttpServer"]

_library_log = logging.getLogger(f"{__name__}.library")

SLOWEST_BODY_SECONDS = 10.0
IDLE_SECONDS = 20.0
"""Also for a connection on which nothing was asked yet."""

UNREAD_SECONDS = 20.0
"""Who takes nothing of an answer for so long has no connection any more."""

LINGER_SECONDS = 1.0
"""How long the rest of a body that nobody wants is thrown away, so that its sender can read why."""

MOST_TOLD = 200
_PREFLIGHT_SECONDS = "7200"
_ALLOWED_HEADERS = (
    "Content-Type, Connect-Protocol-Version, Connect-Timeout-Ms, Authorization, X-Request-Id, Traceparent"
)
_EXPOSED_HEADERS = "Retry-After, X-Request-Id, Traceparent"


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for what a client sent that is no HTTP: the library would repeat it, and with it a secret."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_library_log.addFilter(_is_ours)


class HttpServer:
    """One HTTP server; lives on the event loop that it is made on.

    Parameters
    ----------
    address
        ``host:port``, port 0 for a free one.
    services
        What is served.
    face
        Which of its calls, and which pages.
    max_message_bytes
        The largest body accepted, also after it was decompressed.
    max_connections
        How many connections may be open; further ones are closed at once.
    origins
        Origins whose pages may call from a browser; "*" for all.
    tls
        None serves plain text.
    reuse_port
        Whether other processes may listen on the same port, each getting a share of the connections.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self,
        address: str,
        *,
        services: Services,
        face: Face = CALLS,
        max_message_bytes: int,
        max_connections: int,
        origins: Collection[str] = (),
        tls: ServerCertificate | None = None,
        reuse_port: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._tls, self._reuse_port = tls, reuse_port
        self._max_bytes = max_message_bytes
        self._max_connections = max_connections
        self._origins = frozenset(origins)
        self._clock = clock
        self._in_flight = services.guard.in_flight
        self._access = services.guard.access
        self._methods = {path: answers for path, answers in _methods_of(services).items() if face.serves(path)}
        self._documents = face.documents()
        self._manager: web.Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and serve; return the port.

        Raises
        ------
        ConfigurationError
            The address can't be listened on.
        """
        loop = asyncio.get_running_loop()
        manager = self._manager = web.Server(self._answer, handler_cancellation=True)
        host, _, port = self._address.rpartition(":")
        try:
            self._listener = await loop.create_server(
                lambda: self._connect(manager),
                host.strip("[]"),
                int(port),
                ssl=None if self._tls is None else self._tls.context,
                reuse_port=self._reuse_port or None,
            )
        except OSError as error:
            raise ConfigurationError(f"can't listen on {self._address}: {error.strerror}") from error
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def drain(self, grace: float) -> None:
        """Accept no more connections, let the calls under way finish within `grace` seconds, and stop."""
        if self._listener is None or self._manager is None:
            return
        self._listener.close()
        self._manager.pre_shutdown()
        await self._manager.shutdown(grace)

    def _connect(self, manager: web.Server) -> asyncio.Protocol:
        """Return what serves a new connection."""
        if len(manager.connections) >= self._max_connections:
            return _Closing()
        return _Connection(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which it takes for no log at all
            logger=_library_log,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
        )

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        response = await self._respond(request)
        origin = request.headers.get("Origin")
        if origin is not None and self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
        if self._origins:
            response.headers.add("Vary", "Origin")
        return response

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        method = self._methods.get(request.path)
        if method is None and request.path in self._documents:
            return self._show(request)
        if method is None:
            return problem(grpc.StatusCode.UNIMPLEMENTED, "there is no such method", http_status=404)
        if request.method == "OPTIONS":
            return self._preflight(request)
        if request.method != "POST":
            return wrong_method("calls are made with POST", allowed="POST, OPTIONS")
        call = call_of((name, shown) for name in ID_HEADERS for shown in request.headers.getall(name, ()))
        guarded = method.get(request.headers.get(hdrs.CONTENT_TYPE, "")) or method.get(request.content_type)
        response = wrong_kind() if guarded is None else await self._call(request, guarded, call)
        response.headers.update(metadata_of(call))
        return response

    def _show(self, request: web.BaseRequest) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            return wrong_method("this is for reading", allowed="GET, HEAD")
        return self._documents[request.path].answer(request)

    async def _call(self, request: web.BaseRequest, guarded: Guarded, call: Call) -> web.Response:
        try:
            context = _context_of(request, clock=self._clock)
            # A stranger's body is thrown away: the guard refuses the call without it.
            known = self._access.find(context) is not None
            payload = await self._read(request) if known else b""
            answer = await _in_time(guarded(payload, context, call), context.time_remaining())
        except _RefusedError as refused:
            return refused.response
        except grpc.aio.AbortError:
            return refusal(context.status)
        except TimeoutError:
            return problem(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is up")
        return success(request, answer)

    async def _read(self, request: web.BaseRequest) -> bytes:
        """Return the body; after one that is refused the connection ends, so that its rest need not be read."""
        packing, told = request.headers.get("Content-Encoding", ""), request.content_length
        try:
            body = read_body(request.content, packing, most=self._max_bytes, told=told)
            return await _in_time(body, None if request.content.is_eof() else SLOWEST_BODY_SECONDS)
        except UnknownPackingError:
            response = unknown_packing(PACKINGS)
        except TooLargeError:
            response = problem(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a body may have {self._max_bytes} bytes")
        except TimeoutError:
            response = problem(grpc.StatusCode.DEADLINE_EXCEEDED, "the body did not arrive in time")
        except (BrokenBodyError, web.RequestPayloadError):
            response = problem(grpc.StatusCode.INVALID_ARGUMENT, "the body is not what its headers say")
        response.force_close()
        raise _RefusedError(response)

    def _allows(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins

    def _preflight(self, request: web.BaseRequest) -> web.Response:
        if not self._allows(request.headers.get("Origin", "")):
            return web.Response(status=403)
        allowed = {
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": _PREFLIGHT_SECONDS,
        }
        return web.Response(status=204, headers=allowed)


class _Closing(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


class _Connection(web.RequestHandler):
    """A connection on which what is no HTTP is refused as a bad call is: the log has no line of it.

    It ends if nothing of an answer is taken: whoever asks and never reads would have it for good, and keep others out.
    """

    __slots__ = ("_look", "_outlet", "_untaken")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear of each byte that is not taken at once."""
        super().connection_made(transport)
        self._outlet = cast("asyncio.Transport", transport)
        self._outlet.set_write_buffer_limits(high=0)
        self._look: asyncio.TimerHandle | None = None

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
        super().connection_lost(exc)

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
        told = " ".join((message or "").split())[:MOST_TOLD].encode("ascii", "replace").decode()
        response = problem(grpc.StatusCode.INVALID_ARGUMENT, f"the request can't be read: {told}")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - the logger's own
        """Log what is ours to mend, which a body that is broken behind what was read of it is not."""
        if not isinstance(named.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **named)


def _untaken_bytes(outlet: asyncio.Transport) -> int:
    """Return what was written and not taken yet; where it can be asked, with what the system holds of it."""
    count, held = outlet.get_write_buffer_size(), bytes(4)
    with suppress(OSError):
        held = ioctl(outlet.get_extra_info("socket").fileno(), TIOCOUTQ, held)
    return count + int.from_bytes(held, sys.byteorder)


class _RefusedError(Exception):
    """A request that is answered before it reaches a service."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response

    @classmethod
    def of_header(cls, told: str) -> _RefusedError:
        """Return the refusal of a header."""
        return cls(problem(grpc.StatusCode.INVALID_ARGUMENT, told))


def _context_of(request: web.BaseRequest, *, clock: Callable[[], float]) -> CallContext:
    """Return the context of a request.

    Raises
    ------
    _RefusedError
        Its headers are not what the Connect protocol has.
    """
    version = request.headers.get("Connect-Protocol-Version", "1")
    if version != "1":
        raise _RefusedError.of_header(f"Connect-Protocol-Version {version[:10]!r} is not 1")
    metadata = tuple(("authorization", shown) for shown in request.headers.getall("Authorization", ()))
    certificate = request.get_extra_info("peercert")
    text = request.headers.get("Connect-Timeout-Ms")
    if text is None:
        return CallContext(None, metadata, certificate, clock=clock)
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise _RefusedError.of_header("Connect-Timeout-Ms is not a whole number of up to ten digits")
    return CallContext(clock() + int(text) / 1e3, metadata, certificate, clock=clock)


async def _in_time(work: Awaitable[bytes], seconds: float | None) -> bytes:
    """Return what comes of `work`; the timer is spared where there is all the time."""
    if seconds is None:
        return await work
    async with asyncio.timeout(seconds):
        return await work


def _methods_of(services: Services) -> Mapping[str, Mapping[str, Guarded]]:
    """Return what answers each kind of body, by the path of each method."""
    handlers, guard = services.handlers(), services.guard
    described = {f"/{service.full_name}/{method.name}": method for service in DESCRIPTORS for method in service.methods}
    return {
        path: {
            PROTO: guard.guard_method(path, handler).call,
            JSON: guard.guard_method(path, with_json(handler, described[path])).call,
        }
        for path, handler in handlers.items()
    }
