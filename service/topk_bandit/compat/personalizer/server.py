"""The listener: Personalizer's paths, on aiohttp. It keeps nothing between two calls."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from topk_bandit.client import ClientError
from topk_bandit.compat.personalizer.errors import PersonalizerError, error_of
from topk_bandit.compat.personalizer.messages import multi_slot_call, rank_call, reward_value, slot_rewards
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hosts import is_loopback

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from topk_bandit.compat.personalizer.loop import Loop

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["PersonalizerServer"]

_log = logging.getLogger(__name__)
_library_log = logging.getLogger(f"{__name__}.library")

MAX_BODY_BYTES = 1024 * 1024
SLOWEST_BODY_SECONDS = 10.0
DRAIN_SECONDS = 5.0
KEY_HEADER = "Ocp-Apim-Subscription-Key"
_BASE = "/personalizer"
_VERSION = r"/{version:v1\.[01](?:-preview(?:\.[0-9])?)?}"
_VERSION_OF_QUERY = "2022-09-01-preview"
_EVENT = "{event_id:[^/]+}"
"""aiohttp's own pattern of a path segment leaves out braces, and .NET writes ids in braces."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for what a client sent that can't be read: the library would repeat it, and with it a secret."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


_library_log.addFilter(_is_ours)


class _Connection(web.RequestHandler):
    """A connection whose answer to what can't be read does not repeat it: that may be a secret."""

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
        response = _problem(PersonalizerError(400, "BadRequest", "the request can't be read"))
        response.force_close()
        return response


class PersonalizerServer:
    """One listener; lives on the event loop that it is made on.

    Parameters
    ----------
    key
        What calls show in the header ``Ocp-Apim-Subscription-Key``; None looks at no key.
    """

    def __init__(self, loop: Loop, *, key: str | None) -> None:
        self._loop, self._key = loop, key
        self._only_loopback = False
        self._listener: asyncio.Server | None = None
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        for path, handler in (
            ("/rank", self._rank),
            (f"/events/{_EVENT}/reward", self._reward),
            (f"/events/{_EVENT}/activate", self._activate),
            ("/multislot/rank", self._rank_slots),
            (f"/multislot/events/{_EVENT}/reward", self._reward_slots),
            (f"/multislot/events/{_EVENT}/activate", self._activate_slots),
        ):
            app.router.add_post(_BASE + _VERSION + path, handler)
            app.router.add_post(_BASE + path, handler)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_library_log, handler_cancellation=True, shutdown_timeout=DRAIN_SECONDS
        )

    async def start(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen and serve, in plain text without `tls`; return the port.

        Raises
        ------
        ConfigurationError
            The address can't be listened on.
        """
        self._only_loopback = self._key is None and is_loopback(host)
        await self._runner.setup()
        server, loop = cast("web.Server", self._runner.server), asyncio.get_running_loop()

        def connect() -> _Connection:
            return _Connection(server, loop=loop, access_log=None, logger=_library_log)  # type: ignore[arg-type]

        try:
            self._listener = await loop.create_server(connect, host, port, ssl=tls)
        except OSError as error:
            raise ConfigurationError(f"can't listen on {host}:{port}: {error.strerror}") from error
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Let the calls under way finish, and stop."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_key(request)
            _check_version(request)
            return await handler(request)
        except PersonalizerError as refused:
            return _problem(refused)
        except ClientError as error:
            return _problem(error_of(error))
        except web.HTTPException as error:
            return _problem(_of_http(error, request))
        except Exception:  # noqa: BLE001, whose text is for the operators alone
            _log.exception("a call failed")
            return _problem(PersonalizerError(500, "InternalServerError", "the call failed; the log says why"))

    def _check_key(self, request: web.Request) -> None:
        if self._only_loopback and not is_loopback(request.headers.get("Host", "")):
            raise PersonalizerError(403, "403", "without a key only loopback names are answered")
        shown = request.headers.get(KEY_HEADER, "").encode()
        if self._key is not None and not hmac.compare_digest(shown, self._key.encode()):
            raise PersonalizerError(401, "401", f"the header {KEY_HEADER} has no key that is known")

    async def _rank(self, request: web.Request) -> web.Response:
        return web.json_response(await self._loop.rank(rank_call(await _read(request))), status=201)

    async def _rank_slots(self, request: web.Request) -> web.Response:
        return web.json_response(await self._loop.rank_slots(multi_slot_call(await _read(request))), status=201)

    async def _reward(self, request: web.Request) -> web.Response:
        await self._loop.reward(_event_id(request), reward_value(await _read(request)))
        return web.Response(status=204)

    async def _reward_slots(self, request: web.Request) -> web.Response:
        await self._loop.reward_slots(_event_id(request), slot_rewards(await _read(request)))
        return web.Response(status=204)

    async def _activate(self, request: web.Request) -> web.Response:
        await self._loop.activate(_event_id(request))
        return web.Response(status=204)

    async def _activate_slots(self, request: web.Request) -> web.Response:
        await self._loop.activate_slots(_event_id(request))
        return web.Response(status=204)


def _check_version(request: web.Request) -> None:
    """Refuse a path that has no version, unless the query names the version."""
    match = request.match_info
    if (
        match.http_exception is None
        and "version" not in match
        and request.query.get("api-version") != _VERSION_OF_QUERY
    ):
        problem = f"must be {_VERSION_OF_QUERY}, or the path has a version"
        raise PersonalizerError(400, "BadRequest", f"api-version: {problem}")


def _event_id(request: web.Request) -> str:
    return request.match_info["event_id"]


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(SLOWEST_BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise PersonalizerError(408, "BadRequest", "the body did not arrive in time") from None
    except web.RequestPayloadError:
        raise PersonalizerError(400, "BadRequest", "the body is not what its headers say") from None


def _of_http(error: web.HTTPException, request: web.Request) -> PersonalizerError:
    code = {404: "ResourceNotFound", 413: "PayloadSizeExceeded"}.get(error.status, "BadRequest")
    asked = f", got {request.method} {request.path[:64]}: calls are such as POST /personalizer/v1.0/rank"
    return PersonalizerError(error.status, code, error.reason + (asked if error.status in {404, 405} else ""))


def _problem(error: PersonalizerError) -> web.Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    return web.json_response(error.body(), status=error.status, headers=headers)
