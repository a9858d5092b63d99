"""Calls of an event loop's coroutines: from other threads, and so that who closes a client cancels no caller."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.client.errors import Cancelled, ErrorDetails, client_closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["LoopClosedError", "answer_of", "inside_loop", "on_this_loop"]

T = TypeVar("T")

# Between two looks whether the loop is still there.
_LOOK_SECONDS = 0.5


class LoopClosedError(Exception):
    """The event loop of an asynchronous client is closed: nothing can be sent any more."""


def inside_loop(function: Callable[..., T]) -> Callable[..., T]:
    """Return what belongs to the event loop that it is called in as a function whose error outside of one says so."""

    def call(*arguments: Any, **options: Any) -> T:  # noqa: ANN401, whatever `function` takes
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            problem = "an AsyncClient over gRPC belongs to one event loop: make it inside that, in a coroutine"
            raise RuntimeError(problem) from None
        return function(*arguments, **options)

    return call


def on_this_loop(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Return the coroutine function of the running event loop as one that other threads may call."""
    loop = asyncio.get_running_loop()

    def call(*arguments: Any) -> Any:  # noqa: ANN401, whatever `function` takes and returns
        work = function(*arguments)
        try:
            return _result(asyncio.run_coroutine_threadsafe(work, loop), loop)
        except concurrent.futures.CancelledError:
            raise Cancelled(ErrorDetails("CANCELLED", "the event loop ends")) from None
        except (LoopClosedError, RuntimeError):
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # the loop never began it
            if loop.is_closed():
                raise LoopClosedError from None
            raise

    return call


def _result(running: concurrent.futures.Future[Any], loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401
    """Wait for what was given to a loop; of what is left when it closes nothing more is heard."""
    while not concurrent.futures.wait([running], timeout=_LOOK_SECONDS).done:
        if loop.is_closed():
            raise LoopClosedError
    return running.result()


async def answer_of(call: Awaitable[T]) -> T:
    """Return a call's answer.

    Raises
    ------
    Cancelled
        The call was cancelled and this task was not: its channel was closed, which must not look as if someone had
        cancelled whoever awaits it.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise client_closed() from None
