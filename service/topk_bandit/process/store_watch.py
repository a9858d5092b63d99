"""Looks again and again whether the store is still what it was examined to be when the service started.

Somebody may change its settings, or its clock may jump, while the service runs. Each problem is one line of the log
when it is first seen and one when it is gone, and a metric meanwhile, beside what the store takes in memory. Nothing
is refused for it, and nothing changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Protocol

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.store.log import LARGEST_CLOCK_DIFFERENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.store.log import Store

__all__ = ["StoreHooks", "StoreWatch", "steady_seconds"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class StoreHooks(Protocol):
    """Where telemetry attaches. Hooks are cheap and don't raise."""

    def store_examined(self, problems: int, *, memory_bytes: int, memory_limit_bytes: int) -> None:
        """Note how many problems the store has, what it takes in memory, and what it may take."""

    def store_away(self) -> None:
        """Note that the store does not answer."""

    def store_clock_jumped(self) -> None:
        """Note that the store's clock went on by another time than has passed."""


def steady_seconds() -> float:
    """Return seconds that only ever grow by the time that passes, also while the machine sleeps if it can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class StoreWatch:
    """Looks at a store, one call after the other.

    Parameters
    ----------
    look_seconds
        How long it waits between two looks.
    wall, steady
        This machine's clock, and one that does not jump; seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        hooks: StoreHooks,
        look_seconds: float = LOOK_SECONDS,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._look_seconds = look_seconds
        self._wall = wall
        self._steady = steady
        self._known: tuple[str, ...] = ()
        self._ahead_of_steady = (-math.inf, math.inf)

    async def run(self) -> None:
        """Look until cancelled; a store that is away is looked at when it is back."""
        while True:
            try:
                await self.look()
            except UnavailableError:
                self._hooks.store_away()
                _log.debug("the store is away, and can't be looked at")
            except Exception:  # noqa: BLE001 - one look that fails must not stop the looking
                _log.exception("the store can't be looked at")
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Look once.

        Raises
        ------
        UnavailableError
            The store is away.
        """
        wall, steady = self._wall(), self._steady()
        report = await self._store.check()
        clock = report.clock_ms / 1e3
        problems = report.problems_between(wall, self._wall())
        self._note_problems(problems)
        self._hooks.store_examined(
            len(problems), memory_bytes=report.memory_bytes, memory_limit_bytes=report.memory_limit_bytes
        )
        self._note_clock(clock - self._steady(), clock - steady)

    def _note_problems(self, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self._known:
                _log.error("the store can't keep what it acknowledges any more: %s", problem)
        for problem in self._known:
            if problem not in problems:
                _log.warning("the store has no longer this problem: %s", problem)
        self._known = problems

    def _note_clock(self, least: float, most: float) -> None:
        """Note by how much the store's clock is ahead of the steady one, between two bounds."""
        before_least, before_most = self._ahead_of_steady
        jump = max(0.0, least - before_most) - max(0.0, before_least - most)
        self._ahead_of_steady = (least, most) if jump else (max(least, before_least), min(most, before_most))
        if abs(jump) > LARGEST_CLOCK_DIFFERENCE_SECONDS:
            _log.error("the store's clock has jumped by %+.1f s, and all deadlines with it", jump)
            self._hooks.store_clock_jumped()
