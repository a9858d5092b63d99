"""Channels to a service in this process, in the place of gRPC's: calls are handed over as bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

__all__ = ["AsyncLocalChannel", "LocalChannel"]


class LocalChannel:
    """Has what generated stubs and the client use of a `grpc.Channel`."""

    def __init__(self, begin: Callable[..., Future[bytes]]) -> None:
        self._begin = begin

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> _Method:
        """Return what calls the method at a path; its failures are `topk_bandit.client.http_calls.HttpError`."""

        def call(request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: ANN401 - as gRPC's
            answering = self._begin(path, request_serializer(request), tuple(metadata), timeout)
            return response_deserializer(answering.result())

        return _Method(call)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class _Method:
    """A method, called and waited for."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def with_call(self, request: Any, *, timeout: float, metadata: Any) -> tuple[Any, None]:  # noqa: ANN401 - as gRPC's
        """Return the answer, and None in place of the call."""
        return self._call(request, timeout=timeout, metadata=metadata), None


class AsyncLocalChannel:
    """Has what generated stubs and the client use of a `grpc.aio.Channel`."""

    def __init__(self, begin: Callable[..., Future[bytes]]) -> None:
        self._begin = begin

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what calls the method at a path; its failures are `topk_bandit.client.http_calls.HttpError`."""

        async def call(request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: ANN401, ASYNC109 - as gRPC's
            answering = self._begin(path, request_serializer(request), tuple(metadata), timeout)
            return response_deserializer(await asyncio.wrap_future(answering))

        return call

    async def close(self, _grace: float | None = None) -> None:
        """Do nothing: there is no connection."""
