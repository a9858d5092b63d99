"""The HTTP server: the Connect protocol's unary calls, as JSON or binary, for curl, browsers and Connect's clients.

Each call passes the same guard and reaches the same services as one over gRPC. A body that is too large, too slow or of
an unknown kind is refused before it is parsed. The server keeps nothing between two calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import grpc
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hosts import is_loopback
from topk_bandit.rpc.access import RULES
from topk_bandit.rpc.bodies import (
    MOST_GROWTH,
    PACKINGS,
    SMALL_BYTES,
    BrokenBodyError,
    TooLargeError,
    UnknownPackingError,
    read_body,
)
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_ids import ID_HEADERS, call_of, metadata_of
from topk_bandit.rpc.http_answers import (
    JSON,
    PROTO,
    problem,
    refusal,
    success,
    unknown_packing,
    unknown_path,
    written_refusal,
    written_success,
    wrong_kind,
    wrong_method,
)
from topk_bandit.rpc.http_connections import (
    HANDSHAKE_SECONDS,
    ClosedConnection,
    FastPathConnection,
    LibraryConnection,
)
from topk_bandit.rpc.http_interfaces import CALLS
from topk_bandit.rpc.json_messages import with_json
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from topk_bandit.domain.calls import Call
    from topk_bandit.rpc.http_answers import Written
    from topk_bandit.rpc.http_connections import Guarded
    from topk_bandit.rpc.http_interfaces import HttpInterface
    from topk_bandit.rpc.http_requests import FastPathRequest
    from topk_bandit.rpc.identities import ClientCertificate
    from topk_bandit.rpc.services import Services
    from topk_bandit.rpc.tls import ServerCertificate

__all__ = ["HttpServer"]

_log = logging.getLogger(__name__)

SLOWEST_BODY_SECONDS = 10.0
_PREFLIGHT_SECONDS = "7200"
_ALLOWED_HEADERS = (
    "Content-Type, Content-Encoding, Connect-Protocol-Version, Connect-Timeout-Ms, Authorization, X-Request-Id, "
    "Traceparent, Tracestate, Topk-Bandit-Name"
)
_EXPOSED_HEADERS = "Retry-After, X-Request-Id, Traceparent"


class HttpServer:
    """One HTTP server; lives on the event loop that it is made on.

    Parameters
    ----------
    address
        ``host:port``, port 0 for a free one.
    services
        What is served.
    interface
        Which of its calls, and which pages.
    max_message_bytes
        The largest body accepted, also after it was decompressed.
    max_connections
        How many connections may be open; further ones are closed at once.
    origins
        Origins whose pages may call from a browser; "*" for all.
    only_loopback
        Whether only requests that name this machine by its loopback are answered.
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
        interface: HttpInterface = CALLS,
        max_message_bytes: int,
        max_connections: int,
        origins: Collection[str] = (),
        only_loopback: bool = False,
        tls: ServerCertificate | None = None,
        reuse_port: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._tls, self._reuse_port = tls, reuse_port
        self._max_bytes = max_message_bytes
        self._size_problem = (
            f"a body may have {max_message_bytes} bytes, and become {MOST_GROWTH} times as large"
            f" or {SMALL_BYTES} bytes when it is unpacked"
        )
        self._max_connections = max_connections
        self._origins = frozenset(origins)
        self._only_loopback = only_loopback
        self._clock = clock
        self._access = services.guard.access
        self._methods = {path: answers for path, answers in _methods_of(services).items() if interface.serves(path)}
        self._documents = interface.documents()
        self._on_fast_path: set[FastPathConnection] = set()
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
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
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
        on_fast_path = tuple(self._on_fast_path)
        for one in on_fast_path:
            one.end()
        await asyncio.gather(self._manager.shutdown(grace), *(one.wait_ended(grace) for one in on_fast_path))

    def _connect(self, manager: web.Server) -> asyncio.Protocol:
        """Return what serves a new connection."""
        if self.open_connections() >= self._max_connections:
            return ClosedConnection()
        return FastPathConnection(self, self._on_fast_path, partial(LibraryConnection, manager))

    def open_connections(self) -> int:
        """Return how many connections are open."""
        return len(self._on_fast_path) + (0 if self._manager is None else len(self._manager.connections))

    def find(self, request: FastPathRequest) -> Guarded | None:
        """Return the call that a request on the fast path makes; None if the library is to answer it."""
        method = self._methods.get(request.path)
        if method is None or len(request.body) > self._max_bytes or self._is_strange(request.headers["host"]):
            return None
        return method.get(request.headers.get("content-type", ""))

    async def answer(self, request: FastPathRequest, guarded: Guarded, certificate: ClientCertificate) -> Written:
        """Return the answer to a request on the fast path."""
        headers = request.headers
        call = call_of((name, headers[name]) for name in ID_HEADERS if name in headers)
        shown = (headers["authorization"],) if "authorization" in headers else ()
        try:
            context = _context_of(headers, shown, certificate, clock=self._clock)
            outcome = await _outcome_of(guarded, request.body, context, call)
        except _RefusedError as refused:
            outcome = refused.response
        except Exception:  # noqa: BLE001 - nobody else would answer the caller
            # Every error of a call has become a status before.
            _log.exception("%s could not be answered", request.path)
            outcome = problem(grpc.StatusCode.INTERNAL, "internal error")
        more_headers = self._common_headers(call, headers)
        if isinstance(outcome, bytes):
            return await written_success(headers, outcome, more_headers)
        return written_refusal(outcome, more_headers)

    def _common_headers(self, call: Call, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the headers of an answer that do not depend on what it says."""
        return (*metadata_of(call), *self._sharing(headers.get("origin")))

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        refused = _refuse_unknown(request)
        response = await self._respond(request) if refused is None else refused
        for name, value in self._sharing(request.headers.get("Origin")):
            response.headers.add(name, value)
        return response

    def _sharing(self, origin: str | None) -> tuple[tuple[str, str], ...]:
        """Return the headers that say which pages may read an answer."""
        if not self._origins:
            return ()
        varies = ("Vary", "Origin")
        if origin is None or not self._allows(origin):
            return (varies,)
        return ("Access-Control-Allow-Origin", origin), ("Access-Control-Expose-Headers", _EXPOSED_HEADERS), varies

    def _is_strange(self, host: str) -> bool:
        return self._only_loopback and not is_loopback(host)

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        host = request.headers.get("Host", "")
        if self._is_strange(host):
            text = (
                f"without keys this service answers to loopback names alone, not to {host[:64]!r}: "
                "have a proxy send Host: localhost, or make keys"
            )
            return problem(grpc.StatusCode.PERMISSION_DENIED, text)
        method = self._methods.get(request.path)
        if method is None and request.path in self._documents:
            return self._show(request)
        if method is None:
            return unknown_path(request.path, self._methods)
        if request.method == "OPTIONS":
            return self._preflight(request)
        if request.method != "POST":
            return wrong_method(f"calls are made with POST, got {request.method}", allowed="POST, OPTIONS")
        call = call_of((name, shown) for name in ID_HEADERS for shown in request.headers.getall(name, ()))
        guarded = method.get(request.headers.get(hdrs.CONTENT_TYPE, "")) or method.get(request.content_type)
        if guarded is None:
            response = wrong_kind(request.headers.get(hdrs.CONTENT_TYPE, ""))
        else:
            response = await self._call(request, guarded, call)
        response.headers.update(metadata_of(call))
        return response

    def _show(self, request: web.BaseRequest) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            return wrong_method(f"this is for reading with GET, got {request.method}", allowed="GET, HEAD")
        return self._documents[request.path].answer(request)

    async def _call(self, request: web.BaseRequest, guarded: Guarded, call: Call) -> web.Response:
        try:
            shown = request.headers.getall("Authorization", ())
            context = _context_of(request.headers, shown, request.get_extra_info("peercert"), clock=self._clock)
            # A stranger's body is thrown away: the guard refuses the call without it.
            known = self._access.may_send(RULES[request.path], context)
            payload = await self._read(request) if known else b""
        except _RefusedError as refused:
            return refused.response
        outcome = await _outcome_of(guarded, payload, context, call)
        return success(request, outcome) if isinstance(outcome, bytes) else outcome

    async def _read(self, request: web.BaseRequest) -> bytes:
        """Return the body; after one that is refused the connection ends, so that its rest need not be read."""
        packing, length = request.headers.get("Content-Encoding", ""), request.content_length
        try:
            async with asyncio.timeout(None if request.content.is_eof() else SLOWEST_BODY_SECONDS):
                return await read_body(request.content, packing, most=self._max_bytes, declared_length=length)
        except UnknownPackingError:
            response = unknown_packing(PACKINGS)
        except TooLargeError:
            response = problem(grpc.StatusCode.RESOURCE_EXHAUSTED, self._size_problem)
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


class _RefusedError(Exception):
    """A request that is answered before it reaches a service."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response

    @classmethod
    def of_header(cls, message: str) -> _RefusedError:
        """Return the refusal of a header."""
        return cls(problem(grpc.StatusCode.INVALID_ARGUMENT, message))


def _refuse_unknown(request: web.BaseRequest) -> web.Response | None:
    """Return the refusal of a request by rules of HTTP that are not kept here; None if there are none."""
    expected = request.headers.get(hdrs.EXPECT, "100-continue").lower()
    if request.version not in {HttpVersion10, HttpVersion11}:
        refused = problem(grpc.StatusCode.UNIMPLEMENTED, "this is HTTP/1.1", http_status=505)
    elif expected != "100-continue":
        refused = problem(grpc.StatusCode.UNIMPLEMENTED, f"Expect can't be {expected[:64]!r}", http_status=417)
    else:
        return None
    refused.force_close()
    return refused


def _context_of(
    headers: Mapping[str, str], shown: Sequence[str], certificate: ClientCertificate, *, clock: Callable[[], float]
) -> CallContext:
    """Return the context of a request.

    Parameters
    ----------
    headers
        By their names in lower case.
    shown
        Each ``Authorization``.

    Raises
    ------
    _RefusedError
        Its headers are not what the Connect protocol has.
    """
    version = headers.get("connect-protocol-version", "1")
    if version != "1":
        raise _RefusedError.of_header(f"Connect-Protocol-Version {version[:10]!r} is not 1")
    metadata = tuple(("authorization", one) for one in shown)
    text = headers.get("connect-timeout-ms")
    if text is None:
        return CallContext(None, metadata, certificate, clock=clock)
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise _RefusedError.of_header(
            f"Connect-Timeout-Ms is not a whole number of up to ten digits, got {text[:20]!r}"
        )
    return CallContext(clock() + int(text) / 1e3, metadata, certificate, clock=clock)


async def _outcome_of(guarded: Guarded, body: bytes, context: CallContext, call: Call) -> bytes | web.Response:
    """Return what a call answers in its time, or its refusal; the timer is spared where there is all the time."""
    seconds = context.time_remaining()
    try:
        if seconds is None:
            return await guarded(body, context, call)
        async with asyncio.timeout(seconds):
            return await guarded(body, context, call)
    except grpc.aio.AbortError:
        return refusal(context.status)
    except TimeoutError:
        return problem(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is up")


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
