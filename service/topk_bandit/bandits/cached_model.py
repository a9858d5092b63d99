"""One entry of the model cache: a follower, the lock and the task that use it, and when to look at the log next.

The pause between two looks is short while the log grows, doubles up to a limit while it does not, and ends at the next
deadline. Nothing here reads the log or ends the task.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.bandits.slate_rates import SlateRate

if TYPE_CHECKING:
    from topk_bandit.bandits.follower import Follower
    from topk_bandit.bandits.model import Model

__all__ = ["LONGEST_PAUSE_LOOKS", "CachedModel"]

LONGEST_PAUSE_LOOKS = 32
"""A bandit that nothing happens to is looked at so many times less often than one that is in use."""


class CachedModel:
    """One bandit's follower and its schedule. Times are seconds of one clock.

    Parameters
    ----------
    follower
        Holds the bandit's model.
    look_seconds
        The shortest pause between two looks at the log, unless `wake` is called.
    now
        The time.

    Attributes
    ----------
    lock
        Held by whoever loads or follows.
    task
        Looks at the log in the background.
    used_at
        When the bandit was asked for, or its log was seen to grow, the last time.
    asked_at
        When the bandit was asked for the last time.
    seen_at
        When the last look at the log began that found the bandit.
    expire_at
        When its overdue slates are closed next.
    next_deadline_ms
        The earliest open deadline by the store's clock, when overdue slates were closed last; None without any.
    rate
        How many slates a second the bandit gives out.
    damage
        Why the log could not be followed the last time; empty for no reason.
    must_read
        Whether the log may have events besides those that the store reports as appended; set by `wake`.
    """

    def __init__(self, follower: Follower, *, look_seconds: float, now: float) -> None:
        self.follower = follower
        self.lock = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.used_at = self.asked_at = self.seen_at = now
        self.expire_at = 0.0
        self.next_deadline_ms: int | None = None
        self.rate = SlateRate()
        self.must_read = True
        self.damage = ""
        self._woken = asyncio.Event()
        self._look_seconds = look_seconds
        self._pause_seconds = look_seconds
        self._seen_version = 0

    def wake(self, *, reads: bool = True) -> None:
        """Have the log looked at now, and read it unless all that is new is known: appended by this worker."""
        self.must_read = self.must_read or reads
        self._woken.set()

    async def wait(self, *, clock_ms: int) -> bool:
        """Wait until the log is to be looked at; return whether that is because of `wake`.

        Parameters
        ----------
        clock_ms
            This machine's clock, which may differ from the store's: then a deadline is noticed at the look after it.
        """
        if not self._woken.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._find_pause(clock_ms)):
                    await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def record_look(self, model: Model, *, now: float) -> None:
        """Set the next pause: the shortest after a look at a log that grew, else twice the last one."""
        self.seen_at = now
        if model.version != self._seen_version:
            self._seen_version, self.used_at, self._pause_seconds = model.version, now, self._look_seconds
        else:
            self._pause_seconds = min(2.0 * self._pause_seconds, LONGEST_PAUSE_LOOKS * self._look_seconds)

    def _find_pause(self, clock_ms: int) -> float:
        """Return how long to wait: not beyond the next deadline that was open."""
        if self.next_deadline_ms is None:
            return self._pause_seconds
        due_seconds = (self.next_deadline_ms - clock_ms) / 1e3
        return min(self._pause_seconds, max(due_seconds, self._look_seconds))
