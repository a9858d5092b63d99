"""By when slates have earned what they end up with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALMOST_ALL", "HALF", "NINE_TENTHS", "RewardTimes"]

HALF, NINE_TENTHS, ALMOST_ALL = 0.5, 0.9, 0.99
"""The parts of a slate's reward whose time is shown."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RewardTimes:
    """How much of what slates end up with has come by when, for slates whose wait is over.

    Attributes
    ----------
    slates
        How many slates with a reward it is known of.
    points
        Delays in milliseconds, ascending, each with the share that has come by then. The last share is 1; others are
        more where rewards are taken back later. Empty while nothing is known.
    wait_ms
        How long slates wait now.
    """

    slates: int
    points: tuple[tuple[int, float], ...]
    wait_ms: int

    def came_by(self, part: float) -> int | None:
        """Return the first delay from which on the share is at least a part, and no more beyond 1 than it may lack."""
        by_ms, most = None, 1.0 - part + _ROUNDING
        for delay_ms, share in reversed(self.points):
            if abs(share - 1.0) > most:
                break
            by_ms = delay_ms
        return by_ms
