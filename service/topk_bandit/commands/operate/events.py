"""A bandit's log as lines of JSON, page by page from a service that runs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from topk_bandit.store.event_lines import event_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topk_bandit.client import Client, EventPage, ExportedEvent

__all__ = ["export_log", "line", "tail_log"]

LOOK_SECONDS = 0.5


def export_log(client: Client, bandit: str, *, first: int | None) -> Iterator[ExportedEvent]:
    """Yield the events of a log up to the one that is the newest by now; a page is read while the last one is used."""
    with ThreadPoolExecutor(1) as ahead:
        page = client.export_events(bandit, start=first or 0)
        end = page.log_position
        while page.events and page.events[-1].position < end:
            following = ahead.submit(client.export_events, bandit, page.next_cursor)
            yield from page.events
            page = following.result()
        yield from (event for event in page.events if event.position <= end)


def tail_log(
    client: Client,
    bandit: str,
    *,
    first: int | None,
    count: int | None,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[str]:
    """Yield lines of a log as its events come, at most `count` of them."""
    start = client.export_events(bandit, limit=1).log_position + 1 if first is None else first
    return islice((line(event) for page in _pages(client, bandit, start, sleep) for event in page.events), count)


def _pages(client: Client, bandit: str, start: int, sleep: Callable[[float], object]) -> Iterator[EventPage]:
    page = client.export_events(bandit, start=start)
    while True:
        yield page
        if not page.events:
            sleep(LOOK_SECONDS)
        page = client.export_events(bandit, page.next_cursor)


def line(event: ExportedEvent) -> str:
    """Return the line of an event."""
    return event_line(event.position, event.at_ms, event.event_json)
