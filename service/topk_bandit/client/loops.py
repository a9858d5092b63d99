"""Calls of an event loop's coroutines from other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

from topk_bandit.client.errors import Cancelled, ErrorDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["LoopClosedError", "on_this_loop"]


class LoopClosedError(Exception):
    """The event loop of an asynchronous client is closed: nothing can be sent any more."""


def on_this_loop(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Return the coroutine function of the running event loop as one that other threads may call."""
    loop = asyncio.get_running_loop()

    def call(*arguments: Any) -> Any:  # noqa: ANN401, whatever `function` takes and returns
        work = function(*arguments)
        try:
            return asyncio.run_coroutine_threadsafe(work, loop).result()
        except concurrent.futures.CancelledError:
            raise Cancelled(ErrorDetails("CANCELLED", "the event loop ends")) from None
        except RuntimeError:
            work.close()  # if the loop never began it
            if loop.is_closed():
                raise LoopClosedError from None
            raise

    return call
