"""A slow call is sent once more, over another connection; the first answer counts."""

from __future__ import annotations

import asyncio
import math
import queue
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AsyncHedged", "Hedged", "checked_delay"]


def checked_delay(after: float | None) -> float | None:
    """Return the delay before a second attempt, None for none, or raise `ValueError`."""
    if after is not None and not 0.0 < after < math.inf:
        raise ValueError(f"hedge_after must be a positive number of seconds, not {after!r}")
    return after


class AsyncHedged:
    """Two asynchronous calls for one; the losing one is cancelled.

    Parameters
    ----------
    first, second
        The same method on two channels.
    after
        Seconds that the first has alone.
    """

    def __init__(self, first: Any, second: Any, *, after: float) -> None:
        self._first = first
        self._second = second
        self._after = after

    async def with_call(self, request: Any, *, timeout: float, metadata: Any) -> tuple[Any, Any]:
        """Return the first answer, and its call if that was the first one; or raise the last error."""
        first = self._first(request, timeout=timeout, metadata=metadata)
        attempts = {_start_attempt(first, call=first)}
        try:
            done, _ = await asyncio.wait(attempts, timeout=self._after)
            if not done and timeout > self._after:
                with suppress(grpc.aio.UsageError):  # the client was closed meanwhile: the first attempt reports it
                    second = self._second(request, timeout=timeout - self._after, metadata=metadata)
                    attempts.add(_start_attempt(second, call=None))
            return await _first_answer(attempts)
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.wait(attempts)


def _start_attempt(answering: Any, *, call: Any) -> asyncio.Task[tuple[Any, Any]]:
    async def await_call() -> tuple[Any, Any]:
        return await answering, call

    return asyncio.create_task(await_call())


async def _first_answer(attempts: Iterable[asyncio.Task[tuple[Any, Any]]]) -> tuple[Any, Any]:
    pending = set(attempts)
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for attempt in sorted(done, key=_has_failed):
            if not (_has_failed(attempt) and pending):
                return attempt.result()


def _has_failed(attempt: asyncio.Task[Any]) -> bool:
    return attempt.cancelled() or attempt.exception() is not None


class Hedged:
    """Two calls for one; the losing one is cancelled.

    Parameters
    ----------
    first, second
        The same method on two channels.
    after
        Seconds that the first has alone.
    """

    def __init__(self, first: Any, second: Any, *, after: float) -> None:
        self._first = first
        self._second = second
        self._after = after

    def with_call(self, request: Any, *, timeout: float, metadata: Any) -> tuple[Any, Any]:
        """Return the first answer, and its call if that was the first one; or raise the last error."""
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        attempts = [self._first.future(request, timeout=timeout, metadata=metadata)]
        attempts[0].add_done_callback(ended.put)
        try:
            done = _next(ended, seconds=self._after)
            if done is None and timeout > self._after:
                with suppress(ValueError):  # the client was closed meanwhile: the first attempt reports it
                    attempts.append(self._second.future(request, timeout=timeout - self._after, metadata=metadata))
                    attempts[1].add_done_callback(ended.put)
            done = ended.get() if done is None else done
            if done.code() is not grpc.StatusCode.OK and len(attempts) == 2:
                done = ended.get()
            return done.result(), done if done is attempts[0] else None
        finally:
            for attempt in attempts:
                attempt.cancel()


def _next(ended: queue.SimpleQueue[Any], *, seconds: float) -> Any:
    try:
        return ended.get(timeout=seconds)
    except queue.Empty:
        return None
