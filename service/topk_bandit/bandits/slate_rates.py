"""How many slates a second a bandit gives out, by all workers together, and which of them are learned from.

Each worker that answers for a bandit folds its whole log, and learning is most of that work. So of more slates than
`learned_per_second` says a part is set aside, chosen by a hash of their requests' ids: whatever a slate shows and
whoever asks for it, it is as probable to be learned from. See decision 65.
"""

from __future__ import annotations

import math
from hashlib import blake2b

__all__ = ["SlateRate", "is_set_aside"]

MEMORY_SECONDS = 10.0
"""Time in which what was measured comes to count for a third: longer than a burst that no fold needs to be spared."""

FEWEST_SECONDS = 1.0
"""Before so much time was measured no rate is known."""

_PLACES = float(1 << 64)
_PERSON = b"learned from"


def is_set_aside(incarnation: str, request_id: str, *, rate: float, most: int) -> bool:
    """Return whether a slate is not learned from: always the same of one request at one rate.

    Parameters
    ----------
    incarnation
        That of the bandit.
    rate
        Slates a second.
    most
        How many of them are learned from, on average.
    """
    if rate <= most:
        return False
    digest = blake2b(request_id.encode(), key=incarnation.encode()[:64], digest_size=8, person=_PERSON).digest()
    return int.from_bytes(digest) / _PLACES >= most / rate


class SlateRate:
    """The rate of a bandit's slates, of which newer ones count for more.

    It is measured by how its log grows, which each recorded slate shows, and by how many of the events that were
    folded meanwhile were slates: so it does not matter who recorded them, nor how far behind the model is. Calls that
    run at a time report their slates in any order: what grew is counted once, up to the farthest position.
    """

    def __init__(self) -> None:
        self._before: tuple[float, int, int, int] | None = None
        self._seconds = 0.0
        self._events = 0.0
        self._folded = 0.0
        self._slates = 0.0

    def observe(self, now: float, *, position: int, version: int, slates: int) -> None:
        """Note that the log ends at a position; the model has folded it up to `version`, and `slates` in all.

        Parameters
        ----------
        now
            A time in seconds, by a clock that never goes back.
        """
        if self._before is None or version < self._before[2] or slates < self._before[3]:
            # The log is another one, or was cut: what it grew by since is not known.
            self._before = now, position, version, slates
            return
        elapsed = now - self._before[0]
        if elapsed <= 0.0:
            return
        position = max(position, self._before[1])
        kept = math.exp(-elapsed / MEMORY_SECONDS)
        # What came in the time since counts as if it had come at one rate.
        weight = MEMORY_SECONDS * (1.0 - kept) / elapsed
        events, folded, shown = (
            after - before for after, before in zip((position, version, slates), self._before[1:], strict=True)
        )
        self._seconds = kept * self._seconds + weight * elapsed
        self._events = kept * self._events + weight * events
        self._folded = kept * self._folded + weight * folded
        self._slates = kept * self._slates + weight * shown
        self._before = now, position, version, slates

    @property
    def per_second(self) -> float:
        """Slates a second, 0 where nothing is known yet; as long as nothing was folded each event may be one."""
        if self._seconds < FEWEST_SECONDS:
            return 0.0
        return self._events / self._seconds * (self._slates / self._folded if self._folded > 0.0 else 1.0)
