"""Calls of the synchronous client over HTTP, in the place of a gRPC channel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import urllib3

from topk_bandit.client.http_calls import CLOSED_HERE, HttpError, HttpTarget, headers_of, message_in, tls_context
from topk_bandit.client.timely_connections import pool_manager

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from topk_bandit.client.values import Tls

__all__ = ["HttpChannel"]

_CONNECTIONS = 64
"""So many are kept open; threads that call beyond that open and close one for each call."""

_PART_BYTES = 65_536


class HttpChannel:
    """Connections to one service; has what generated stubs use of a `grpc.Channel`. Safe to share between threads.

    Raises
    ------
    ValueError
        The target can't be called.
    """

    connects_anew = True
    """Whether a call that is sent again, since none answered in time, goes over another connection of the channel."""

    def __init__(self, target: str, tls: Tls | None) -> None:
        self._target = HttpTarget.parse(target, tls)
        context = tls_context(tls) if self._target.is_encrypted else None
        self._pool = pool_manager(maxsize=_CONNECTIONS, retries=False, ssl_context=context)
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> _Method:
        """Return what calls the method at a path; its failures are `HttpError`."""

        def call(request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: ANN401 - as gRPC's
            headers = headers_of(metadata, timeout=timeout)
            return message_in(*self._post(path, request_serializer(request), headers, timeout), response_deserializer)

        return _Method(call, self._start)

    def _post(self, path: str, payload: bytes, headers: dict[str, str], seconds: float) -> tuple[int, str, bytes]:
        if self._closed:
            raise HttpError(grpc.StatusCode.CANCELLED, CLOSED_HERE)
        try:
            answer = self._pool.request(
                "POST",
                self._target.base + path,
                body=payload,
                headers=headers,
                timeout=urllib3.Timeout(total=max(seconds, 1e-3)),
                redirect=False,
                preload_content=False,
            )
            body = b"".join(iter(lambda: answer.read1(_PART_BYTES, decode_content=False), b""))
            answer.release_conn()
        except urllib3.exceptions.NewConnectionError as error:  # which the library takes for a kind of timeout
            raise HttpError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
        except (TimeoutError, urllib3.exceptions.TimeoutError):
            raise HttpError(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is up") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise HttpError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
        return answer.status, answer.headers.get("Content-Type", ""), body

    def _start(self, call: Callable[[], Any]) -> Future[Any]:
        if self._closed:
            raise ValueError("the client was closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(thread_name_prefix="topk-bandit-hedged")
        return self._threads.submit(call)

    def close(self) -> None:
        """Let go of all connections; calls under way go on to their end."""
        self._closed = True
        self._pool.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False)


class _Method:
    """A method, called and waited for, or in a thread of its own."""

    def __init__(self, call: Callable[..., Any], start: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        self._call = call
        self._start = start

    def with_call(self, request: Any, *, timeout: float, metadata: Any) -> tuple[Any, None]:  # noqa: ANN401 - as gRPC's
        """Return the answer, and None in place of the call."""
        return self._call(request, timeout=timeout, metadata=metadata), None

    def future(self, request: Any, *, timeout: float, metadata: Any) -> _Started:  # noqa: ANN401 - as gRPC's
        """Return a call that is under way."""
        return _Started(self._start(lambda: self._call(request, timeout=timeout, metadata=metadata)))


class _Started:
    """A call under way; has what is used of a `grpc.Future`."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def add_done_callback(self, callback: Callable[[_Started], None]) -> None:
        """Call `callback` when it has ended."""
        self._future.add_done_callback(lambda _: callback(self))

    def trailing_metadata(self) -> tuple[()]:
        """Return nothing: it is not read."""
        return ()

    def code(self) -> grpc.StatusCode:
        """Return how it ended."""
        error = self._future.exception()
        if error is None:
            return grpc.StatusCode.OK
        return error.code() if isinstance(error, HttpError) else grpc.StatusCode.UNKNOWN

    def result(self) -> Any:  # noqa: ANN401 - as gRPC's
        """Return the answer, or raise what went wrong."""
        return self._future.result()

    def cancel(self) -> None:
        """Let nobody wait for it: what was sent is answered in vain."""
        self._future.cancel()
