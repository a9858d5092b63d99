"""When the service is left alone: pages do not wait for what failed again and again."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Breaker", "BreakerPolicy"]

_log = logging.getLogger("topk_bandit.client")


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a client stops to ask for slates that it has a fallback for, and how often it tries again.

    Attributes
    ----------
    failures
        So many in a row open the breaker: the fallback is shown at once.
    pause
        Seconds between two tries while it is open; the first one that is answered closes it.
    """

    failures: int = 5
    pause: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a policy that never asks."""
        if self.failures < 1:
            raise ValueError("failures must be at least 1")
        if not 0.0 < self.pause < math.inf:
            raise ValueError("pause must be a positive number of seconds")


class Breaker:
    """Counts failures in a row; safe to share between threads.

    Parameters
    ----------
    policy
        None lets every call through.
    clock
        Seconds, monotonic.
    """

    def __init__(self, policy: BreakerPolicy | None, *, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self.renew()
        self._failures = 0
        self._next_try = 0.0

    def renew(self) -> None:
        """Be free of whoever held the lock, of whom this process has nothing; see `topk_bandit.client.forks`."""
        self._lock = threading.Lock()

    def lets_through(self) -> bool:
        """Return whether to ask the service now; while it is open, that is true for one caller in each pause."""
        if self._policy is None:
            return True
        with self._lock:
            if self._failures < self._policy.failures:
                return True
            now = self._clock()
            if now < self._next_try:
                return False
            # A try whose task is cancelled is never heard of again: so the next one waits for the clock, not for it.
            self._next_try = now + self._policy.pause
            return True

    def note(self, *, answered: bool) -> None:
        """Hear how a call ended."""
        if self._policy is None:
            return
        with self._lock:
            before, self._failures = self._failures, 0 if answered else self._failures + 1
            if not answered:
                self._next_try = self._clock() + self._policy.pause
        _tell(self._policy, before=before, answered=answered)


def _tell(policy: BreakerPolicy, *, before: int, answered: bool) -> None:
    if answered and before >= policy.failures:
        _log.warning("the service answers again, after %d calls that it did not answer", before)
    elif not answered and before == policy.failures - 1:
        _log.warning(
            "the service did not answer %d calls in a row: own rankings are shown, and one call is tried each %g s",
            policy.failures,
            policy.pause,
        )
