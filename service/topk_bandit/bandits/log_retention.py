"""How much of a bandit's log stays behind its snapshots, before it is trimmed.

The older of two snapshots stands for all events before it, so that no model needs them. They stay for those who ask
what a slate was: for so long, and in so many bytes. Age counts from the newest event, by the store's clock, so that the
same log is trimmed at the same place whenever that is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from topk_bandit.bandits.budget import MIB
from topk_bandit.domain.errors import CorruptDataError

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store

__all__ = ["AS_SNAPSHOTS_ALLOW", "LogRetention", "Retention", "Trim", "estimate_event_bytes"]

SAMPLED_EVENTS = 128
"""So many of the newest events that may go say how large the others are."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Up to which position a log is trimmed, and how many of the events that go should have been kept elsewhere."""

    through: int
    unwritten: int = 0


class Retention(Protocol):
    """Decides how much of a log is trimmed when a snapshot is saved."""

    async def find_trim(self, store: Store, name: BanditName, *, incarnation: str, behind: int, at_ms: int) -> Trim:
        """Return up to where a log is trimmed, `behind` at most; 0 where nothing is.

        Parameters
        ----------
        incarnation
            The log's.
        behind
            The position of the snapshot that stands for what is trimmed.
        at_ms
            The time of the newest event.
        """


@dataclass(frozen=True, slots=True)
class LogRetention:
    """What stays of a log behind its snapshots, by time and bytes alone.

    Attributes
    ----------
    seconds
        How long an event stays at least.
    most_bytes
        What events behind the snapshots may take, about, as JSON; beyond that the oldest go, however young they are.
    """

    seconds: float = 0.0
    most_bytes: int = 256 * MIB

    async def find_old_end(self, store: Store, name: BanditName, *, behind: int, at_ms: int) -> int:
        """Return the newest position up to `behind` at which an event is too old at `at_ms`.

        It is before the log's first position where none is. This takes as many reads of one event as the number of
        events has bits.
        """
        if self.seconds <= 0.0:
            return behind
        last_ms = at_ms - round(self.seconds * 1000)
        old, young = (await store.read_log(name, start=1, limit=0)).first_position - 1, behind + 1
        while young - old > 1:
            middle = (old + young) // 2
            event = (await store.read_texts(name, start=middle, limit=1)).events
            if not event or event[0].at_ms <= last_ms:
                old = middle
            else:
                young = middle
        return old

    async def find_large_end(self, store: Store, name: BanditName, *, behind: int) -> int:
        """Return the position up to which events are more than may stay, of those up to `behind`; 0 for none."""
        size = await estimate_event_bytes(store, name, end=behind)
        return max(0, behind - int(self.most_bytes / max(1.0, size)))

    async def find_trim(self, store: Store, name: BanditName, *, incarnation: str, behind: int, at_ms: int) -> Trim:  # noqa: ARG002
        """See `Retention.find_trim`."""
        try:
            old = await self.find_old_end(store, name, behind=behind, at_ms=at_ms)
            large = 0 if old >= behind else await self.find_large_end(store, name, behind=behind)
            return Trim(max(old, large))
        except CorruptDataError:  # what can't be read of old events must not keep a snapshot from being saved
            return Trim(0)


AS_SNAPSHOTS_ALLOW = LogRetention()
"""Nothing stays behind the snapshots."""


async def estimate_event_bytes(store: Store, name: BanditName, *, end: int) -> float:
    """Return how many bytes an event of a log has as JSON in the mean of those up to `end`, 0 where none is left."""
    first = (await store.read_log(name, start=1, limit=0)).first_position
    start = max(first, end - SAMPLED_EVENTS + 1)
    events = (await store.read_texts(name, start=start, limit=max(0, end - start + 1))).events
    return sum(len(event.text) for event in events) / max(1, len(events))
