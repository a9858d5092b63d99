"""A bandit whose model is in memory: what follows it, and when to look at it next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.bandits.follower import Follower
    from topk_bandit.bandits.model import Model

__all__ = ["LONGEST_PAUSE_LOOKS", "Desk"]

LONGEST_PAUSE_LOOKS = 32
"""A bandit that nothing happens to is looked at so many times less often than one that is in use."""


class Desk:
    """One bandit's follower, the task that runs it, and the bell that wakes it. Times are seconds of one clock.

    Parameters
    ----------
    look_seconds
        How long to wait at least between two looks that no bell calls for.
    now
        The time.
    """

    def __init__(self, follower: Follower, *, look_seconds: float, now: float) -> None:
        self.follower = follower
        self.bell = asyncio.Event()
        self.turn = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.active_at = now
        self.expire_at = 0.0
        self.noted_position = -1
        self.note_at = 0.0
        self._look_seconds = look_seconds
        self._pause = look_seconds
        self._seen_version = 0

    def looked(self, model: Model, now: float) -> None:
        """Note a look: a log that grew is looked at again soon, one that did not after twice as long."""
        if model.version != self._seen_version:
            self._seen_version, self.active_at, self._pause = model.version, now, self._look_seconds
        else:
            self._pause = min(2.0 * self._pause, LONGEST_PAUSE_LOOKS * self._look_seconds)

    def pause(self, clock_ms: int) -> float:
        """Return how long to wait for the bell: not beyond the time when the oldest open slate is about to expire.

        Parameters
        ----------
        clock_ms
            This machine's clock, which may differ from the store's: then a deadline is noticed at the look after it.
        """
        model = self.follower.model
        oldest = next(iter(model.open.values()), None) if model else None
        if model is None or oldest is None:
            return self._pause
        due_seconds = (oldest.at_ms + model.settings.reward_wait_ms - clock_ms) / 1e3
        return min(self._pause, max(due_seconds, self._look_seconds))
