"""Tells for how long an event loop has had something to do, by when it last waited for anything."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WatchedSelector"]

_WAITED_SECONDS = 2e-3
"""Who waits for less has found something to do: a call that came before is handed over by another thread."""


class WatchedSelector(selectors.DefaultSelector):
    """A selector of an event loop.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._waited_at = clock()

    def busy_seconds(self) -> float:
        """Return how long ago the loop last waited."""
        return self._clock() - self._waited_at

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the selector does."""
        if timeout is not None and timeout <= 0.0:
            return super().select(timeout)
        begun = self._clock()
        found = super().select(timeout)
        now = self._clock()
        if now - begun >= _WAITED_SECONDS:
            self._waited_at = now
        return found
