"""Measure how long each call of a store takes, in the one place that all calls pass.

Telemetry hears of every call but `close`, also of one that fails. A call's result and its errors are never changed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from topk_bandit.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from topk_bandit.domain.hooks import Hooks

__all__ = ["time_calls"]

S = TypeVar("S")


def time_calls(store: S, hooks: Hooks) -> S:
    """Return the store, with `Hooks.store_called` after each of its calls but `close`.

    Parameters
    ----------
    store
        A store whose coroutine methods are its calls.
    hooks
        Receive the name of each call, its seconds, and whether the store was away.
    """
    return cast("S", _Timed(store, hooks))


class _Timed:
    """Stands for a store: what is no coroutine method is the store's own."""

    def __init__(self, store: object, hooks: Hooks) -> None:
        self._store = store
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has by that name
        found = getattr(self._store, name)
        if name == "close" or not inspect.iscoroutinefunction(found):
            return found
        call = self._measure_calls(name, found)
        setattr(self, name, call)
        return call

    def _measure_calls(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def call(*given: object, **named: object) -> object:
            start, failed = time.perf_counter(), False
            try:
                return await method(*given, **named)
            except (UnavailableError, asyncio.CancelledError):  # after any other error the store has answered
                failed = True
                raise
            finally:
                self._hooks.store_called(name, time.perf_counter() - start, failed=failed)

        return call
