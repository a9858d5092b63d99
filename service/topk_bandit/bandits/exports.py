"""A log in pages, for those who take it elsewhere.

A page is bounded in events and in bytes, so that reading a log of any length takes no more memory than one page and
holds up no call. Where to go on is a position of one incarnation, which is the same whoever answers.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.operators import EventPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.log import TextSlice

__all__ = ["PAGE_BYTES", "ReadsTexts", "read_page"]

PAGE_BYTES = 1 << 20
"""A page ends with the event that makes it larger."""

# A script in the store reads them, for which all other calls of the store wait: half a millisecond of work.
_EVENTS_PER_READ = 128


class ReadsTexts(Protocol):
    """A store, or logs that reach back into files."""

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """See `Store.read_texts`."""


async def read_page(logs: ReadsTexts, name: BanditName, *, start: int, limit: int, incarnation: str = "") -> EventPage:
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
    position = start or (await logs.read_texts(name, start=1, limit=0)).first_position
    parts = await _read_parts(logs, name, position, position + limit)
    log = parts[0]
    if incarnation and log.incarnation != incarnation:
        raise NotReadyError("LOG_REPLACED", f"{name} was created anew: its log is another one")
    if position < log.first_position:
        problem = f"the log begins at {log.first_position}: what was before is trimmed"
        raise NotReadyError("LOG_TRIMMED", problem, first_position=log.first_position)
    events = _page_of(parts)
    return EventPage(log.incarnation, events, position + len(events), log.log_position)


async def _read_parts(logs: ReadsTexts, name: BanditName, start: int, end: int) -> list[TextSlice]:
    """Return a log in parts from `start` to before `end`, one at least, until they are a page or the log ends.

    Reading is one part ahead of what is returned.
    """
    parts: list[TextSlice] = []
    size, first = 0, start
    following: asyncio.Task[TextSlice] | None = _begin_read(logs, name, first, end)
    try:
        while following is not None:
            asked, wanted = following, min(_EVENTS_PER_READ, end - first)
            first += wanted
            following = _begin_read(logs, name, first, end) if first < end else None
            part = await asked
            if parts and part.incarnation != parts[0].incarnation:
                break
            parts.append(part)
            size += sum(len(event.text) for event in part.events)
            if size >= PAGE_BYTES or len(part.events) < wanted:
                break
        return parts
    finally:
        if following is not None:
            await _await_unwanted(following)


def _page_of(parts: Sequence[TextSlice]) -> tuple[EventText, ...]:
    """Return the events of parts up to the one that fills a page."""
    events: list[EventText] = []
    size = 0
    for event in chain.from_iterable(part.events for part in parts):
        events.append(event)
        size += len(event.text)
        if size >= PAGE_BYTES:
            break
    return tuple(events)


def _begin_read(logs: ReadsTexts, name: BanditName, first: int, end: int) -> asyncio.Task[TextSlice]:
    """Begin to read a part of what is wanted."""
    return asyncio.create_task(logs.read_texts(name, start=first, limit=min(_EVENTS_PER_READ, end - first)))


async def _await_unwanted(asked: asyncio.Task[TextSlice]) -> None:
    """Await what nobody wants: a call of the store that is cancelled would take its connection with it."""
    await asyncio.wait({asked})
    if not asked.cancelled():
        asked.exception()
