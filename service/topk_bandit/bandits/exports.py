"""A log in pages, for those who take it elsewhere.

A page is bounded in events and in bytes, so that reading a log of any length takes no more memory than one page and
holds up no call. Where to go on is a position of one incarnation, which is the same whoever answers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.operators import EventPage

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.log import Store, TextSlice

__all__ = ["PAGE_BYTES", "read_page"]

PAGE_BYTES = 1 << 20
"""A page ends with the event that makes it larger."""

# They are read and checked on the event loop, where slates are waiting, and by a script in the store: less than a
# millisecond of work in each.
_EVENTS_PER_READ = 32


async def read_page(store: Store, name: BanditName, *, start: int, limit: int, incarnation: str = "") -> EventPage:
    """Return up to `limit` events from a position on.

    Parameters
    ----------
    start
        0 begins with the oldest event that is left.
    incarnation
        Of the log that the reader has begun to read; empty for one who begins.

    Raises
    ------
    NotFoundError
        There is no such bandit.
    NotReadyError
        LOG_TRIMMED: the log begins after `start`. LOG_REPLACED: the bandit was created anew.
    """
    part = await store.read_texts(name, start=1, limit=0)
    if incarnation and part.incarnation != incarnation:
        raise NotReadyError("LOG_REPLACED", f"{name} was created anew: its log is another one")
    position = start or part.first_position
    if position < part.first_position:
        problem = f"the log begins at {part.first_position}: what was before is trimmed"
        raise NotReadyError("LOG_TRIMMED", problem, first_position=part.first_position)
    events = await _read_events(store, name, position, limit)
    return EventPage(part.incarnation, tuple(events), position + len(events), part.log_position)


async def _read_events(store: Store, name: BanditName, start: int, limit: int) -> list[EventText]:
    """Return up to `limit` events, fewer where they end or are large; the store is one part ahead of what is read."""
    events: list[EventText] = []
    size, first, end = 0, start, start + limit
    following: asyncio.Task[TextSlice] | None = _asked(store, name, first, end)
    try:
        while following is not None:
            asked, wanted = following, min(_EVENTS_PER_READ, end - first)
            first += wanted
            following = _asked(store, name, first, end) if first < end else None
            part = await asked
            for told in part.events:
                events.append(told)
                size += len(told.text)
                if size >= PAGE_BYTES:
                    return events
            if len(part.events) < wanted:
                return events
        return events
    finally:
        if following is not None:
            await _left(following)


def _asked(store: Store, name: BanditName, first: int, end: int) -> asyncio.Task[TextSlice]:
    """Begin to read a part of what is wanted."""
    return asyncio.create_task(store.read_texts(name, start=first, limit=min(_EVENTS_PER_READ, end - first)))


async def _left(asked: asyncio.Task[TextSlice]) -> None:
    """Await what nobody wants: a call of the store that is cancelled would take its connection with it."""
    await asyncio.wait({asked})
    if not asked.cancelled():
        asked.exception()
