"""Calls of the asynchronous client over HTTP, in the place of a gRPC channel."""

from __future__ import annotations

import asyncio
import io
import os
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc

from topk_bandit.client.http_calls import CLOSED_HERE, HttpError, HttpTarget, headers_of, message_in, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from topk_bandit.client.values import Tls

__all__ = ["AsyncHttpChannel"]

_LARGE_BYTES = 2**20
"""What is larger is sent in parts, between which other calls have their turn."""

_IDLE_SECONDS = 15.0
"""A connection that was idle for so long is not used again: before the service closes it, after 20."""


class AsyncHttpChannel:
    """Connections to one service; has what generated stubs use of a `grpc.aio.Channel`.

    Raises
    ------
    ValueError
        The target can't be called.
    """

    connects_anew = True
    """Whether a call that is sent again, since none answered in time, goes over another connection of the channel."""

    def __init__(self, target: str, tls: Tls | None) -> None:
        self._target = HttpTarget.parse(target, tls)
        self._tls = tls_context(tls) if self._target.is_encrypted else None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what calls the method at a path; its failures are `HttpError`."""

        async def call(request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: ANN401 - as gRPC's
            headers = headers_of(metadata, timeout=timeout)
            answer = await self._post(path, request_serializer(request), headers, timeout)
            return message_in(*answer, response_deserializer)

        return call

    async def _post(self, path: str, payload: bytes, headers: dict[str, str], seconds: float) -> tuple[int, str, bytes]:
        data = payload if len(payload) <= _LARGE_BYTES else io.BytesIO(payload)
        try:
            async with self._opened().post(
                self._target.base + path,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as answer:
                return answer.status, answer.headers.get("Content-Type", ""), await answer.read()
        except TimeoutError:
            raise HttpError(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is up") from None
        except (aiohttp.ClientError, OSError) as error:
            if self._closed:
                raise HttpError(grpc.StatusCode.CANCELLED, CLOSED_HERE) from None
            raise HttpError(grpc.StatusCode.UNAVAILABLE, _describe(error)) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise HttpError(grpc.StatusCode.CANCELLED, CLOSED_HERE)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS, ssl=self._tls or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    async def close(self, _grace: float | None = None) -> None:
        """Let go of all connections; calls under way fail."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # so that the transports close


def _describe(error: Exception) -> str:
    """Return what went wrong; of a connection that can't be made, in the operating system's words."""
    number = getattr(error, "errno", None)
    return f"{error}: {os.strerror(number)}" if isinstance(number, int) else str(error) or type(error).__name__
