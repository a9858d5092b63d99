"""Refuse calls at once while a server does not answer, so that callers do not wait for it one after the other.

One call at a time is let through to probe the server. The breaker never sends or repeats a call itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Breaker"]


class Breaker:
    """Remembers that a server could not be reached.

    After a failure all calls are refused for `cooldown` seconds; then one call is let through to probe, while the
    others are still refused, until the server answered.

    Parameters
    ----------
    cooldown
        Seconds.
    monotonic
        A clock that never goes back, in seconds.
    """

    def __init__(self, *, cooldown: float, monotonic: Callable[[], float]) -> None:
        self._cooldown = cooldown
        self._monotonic = monotonic
        self._closes_at: float | None = None
        self._probing = False

    def admit(self) -> None:
        """Let a call through, or raise `UnavailableError`; each call let through ends with one of the methods below."""
        if self._closes_at is None:
            return
        if self._probing or self._monotonic() < self._closes_at:
            problem = "the store could not be reached a moment ago"
            raise UnavailableError(problem, retry_after=self._cooldown, nothing_sent=True)
        self._probing = True

    def note_answer(self) -> None:
        """Note that the server answered, whatever it said."""
        self._closes_at = None
        self._probing = False

    def note_failure(self) -> None:
        """Note that the server could not be reached."""
        self._closes_at = self._monotonic() + self._cooldown
        self._probing = False

    def note_abandoned(self) -> None:
        """Note that a call ended before it was clear whether the server answers."""
        self._probing = False
