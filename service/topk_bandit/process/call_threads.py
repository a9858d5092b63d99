"""Threads that compute for a call know which one: what they log and measure is found with the rest of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["CallThreads"]

T = TypeVar("T")


class CallThreads(ThreadPoolExecutor):
    """Threads that run what they are given in the context that gave it to them, as `asyncio.to_thread` does."""

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:  # noqa: ANN401 - the work's own
        """Schedule `work`."""
        return super().submit(copy_context().run, work, *given, **named)
