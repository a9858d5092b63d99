"""A log in pages, as those read it who take it elsewhere.

A page is bounded in events and in bytes, so that reading a log of any length takes no more memory than one page and
holds up no call. Where to go on is a position of one incarnation, which is the same whoever answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.operators import EventPage
from topk_bandit.store.codec import encode_event

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName, LoggedEvent
    from topk_bandit.store.log import Store

__all__ = ["PAGE_BYTES", "read_page"]

PAGE_BYTES = 1 << 20
"""A page ends with the event that makes it larger."""

# They are decoded and written as JSON on the event loop, where slates are waiting: a millisecond or two of work.
_EVENTS_PER_READ = 16


async def read_page(
    store: Store, name: BanditName, *, start: int, limit: int, incarnation: str = ""
) -> tuple[EventPage, tuple[bytes, ...]]:
    """Return up to `limit` events from a position on, and the JSON of each.

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
    part = await store.read_log(name, start=1, limit=0)
    if incarnation and part.incarnation != incarnation:
        raise NotReadyError("LOG_REPLACED", f"{name} was created anew: its log is another one")
    position = start or part.first_position
    if position < part.first_position:
        problem = f"the log begins at {part.first_position}: what was before is trimmed"
        raise NotReadyError("LOG_TRIMMED", problem, first_position=part.first_position)
    events, texts = await _read_events(store, name, position, limit)
    page = EventPage(part.incarnation, tuple(events), position + len(events), part.log_position)
    return page, tuple(texts)


async def _read_events(store: Store, name: BanditName, start: int, limit: int) -> tuple[list[LoggedEvent], list[bytes]]:
    """Return up to `limit` events, fewer where they end or are large, and the JSON of each."""
    events: list[LoggedEvent] = []
    texts: list[bytes] = []
    size = 0
    while len(events) < limit:
        wanted = min(_EVENTS_PER_READ, limit - len(events))
        part = await store.read_log(name, start=start + len(events), limit=wanted)
        for logged in part.events:
            events.append(logged)
            texts.append(encode_event(logged.event, store.data_version))
            size += len(texts[-1])
            if size >= PAGE_BYTES:
                return events, texts
        if len(part.events) < wanted:
            break
    return events, texts
