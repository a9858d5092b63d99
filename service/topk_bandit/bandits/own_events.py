"""What this worker appended to a log itself, so that it can be folded without being read.

It is folded only if reading would have given it: it has to follow, by position and checksum, the very event that was
folded last, of the same incarnation and revision. Whatever does not is left to whoever reads the log, and so is what
takes too much space. Nothing but reads is saved: without any of this a model is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.store.log import LogSlice

if TYPE_CHECKING:
    from topk_bandit.store.log import Appended

__all__ = ["MOST_BYTES", "MOST_EVENTS", "LogEnd", "OwnEvents", "end_of"]

MOST_EVENTS = 1024
MOST_BYTES = 1 << 20
"""So many events, and so much of them, are held of one bandit at most: they wait for a fold, or for one before them."""


class LogEnd(NamedTuple):
    """Where a model stands in its log: at an event that is known by its checksum, in a bandit of such a revision."""

    incarnation: str
    revision: int
    position: int
    checksum: str


def end_of(part: LogSlice) -> LogEnd | None:
    """Return where a model stands that has folded a slice of its log to the slice's end; None for an empty one."""
    if not part.events:
        return None
    return LogEnd(part.incarnation, part.revision, part.events[-1].position, part.checksum)


class OwnEvents:
    """What one bandit's calls of this worker have appended, and how many of these calls are under way."""

    def __init__(self) -> None:
        self._held: dict[int, Appended] = {}
        self._newest = 0
        self._under_way = 0

    def begin(self) -> None:
        """Note that a call is sent that may append."""
        self._under_way += 1

    def end(self) -> None:
        """Note that such a call has ended; what it returned is held first."""
        self._under_way -= 1

    def hold(self, appended: Appended) -> None:
        """Hold what a call has appended; two that say different things of one place are of two logs."""
        first = appended.events[0].position
        known = self._held.setdefault(first, appended)
        self._newest = max(self._newest, appended.events[-1].position)
        if known != appended or self._takes_too_much():
            self._held.clear()

    def drop(self, *, through: int) -> None:
        """Let go of what was folded by now, however it came."""
        self._held = {first: one for first, one in self._held.items() if first > through}

    def forget(self) -> None:
        """Begin anew with another log."""
        self._held, self._newest = {}, 0

    def after(self, end: LogEnd) -> LogSlice | None:
        """Return what comes next in the log, as if it had been read: up to where another worker's events may be.

        It is None if the log has to be read: it goes on beyond that, and no call is under way that may return it; or it
        may be another log, since the store reported an event at a place that had been folded already.
        """
        if any(first <= end.position for first in self._held):
            return None
        chain: list[Appended] = []
        last = end
        while (one := self._held.get(last.position + 1)) is not None and _follows(one, last):
            chain.append(one)
            last = LogEnd(one.incarnation, one.revision, one.events[-1].position, one.checksum)
        if last.position < self._newest and not self._under_way:
            return None
        return LogSlice(
            incarnation=end.incarnation,
            first_position=end.position + 1,
            log_position=last.position,
            events=tuple(logged for one in chain for logged in one.events),
            revision=last.revision,
            checksum=last.checksum,
        )

    def _takes_too_much(self) -> bool:
        held = self._held.values()
        return sum(len(one.events) for one in held) > MOST_EVENTS or sum(one.n_bytes for one in held) > MOST_BYTES


def _follows(one: Appended, end: LogEnd) -> bool:
    return (one.incarnation, one.revision, one.before) == (end.incarnation, end.revision, end.checksum)
