"""Logs as they are in the files of the cold log and in the store, read as one.

Positions join them: what is before the store's first event is read from files, as far back as these follow each other.
So no event is missing and none is there twice. Files that are farther back, behind a gap, are only looked up by names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import CorruptDataError, NotReadyError, UnavailableError
from topk_bandit.domain.statistics import LogReach
from topk_bandit.store.event_keys import find_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.cold_log import ColdFile, ColdLog
    from topk_bandit.store.event_keys import EventKey
    from topk_bandit.store.log import Store, TextSlice

__all__ = ["WholeLogs", "holds"]

T = TypeVar("T")

EVENTS_PER_READ = 256
"""So many events of the store are looked at together for a name."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of a file that was read, kept for who reads on in it."""

    file: ColdFile
    events: Sequence[EventText]


class WholeLogs:
    """Reads the logs of a store and of a cold log; None means that there is no cold log.

    Files are read on a thread. Those that can't be read raise `UnavailableError`, damaged ones `NotReadyError`
    (COLD_LOG_DAMAGED), which names the file below the folder.
    """

    def __init__(self, store: Store, cold: ColdLog | None) -> None:
        self._store = store
        self._cold = cold
        self._newest: _Part | None = None

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """Return what `Store.read_texts` does, from an event on that may be in a file.

        The first position is that of the oldest event that can be read so, where `start` is before those of the store.
        """
        part = await self._store.read_texts(name, start=start, limit=limit)
        if self._cold is None or start >= part.first_position:
            return part
        files = _joined(await self._list_files(name, part.incarnation), part.first_position)
        if not files:
            return part
        events: list[EventText] = []
        for file in files:
            if len(events) < limit and file.first <= start + len(events) <= file.last:
                held = await self._read(file)
                events += held[start + len(events) - file.first :][: limit - len(events)]
        events = [event for event in events if event.position < part.first_position]
        if 0 < len(events) < limit:
            rest = await self._store.read_texts(name, start=part.first_position, limit=limit - len(events))
            events += rest.events if rest.incarnation == part.incarnation else ()
        return replace(part, first_position=files[0].first, events=tuple(events))

    async def find(self, name: BanditName, key: EventKey) -> AsyncIterator[EventText]:
        """Yield the events of a log that have a name, newest first.

        Those that files do not have are looked at one by one, the others by indices. Raises `NotFoundError` for a
        bandit that is not there.
        """
        log = await self._store.read_texts(name, start=1, limit=0)
        files = await self._list_files(name, log.incarnation)
        # Where a log was restored, or lost its end, the end of the files is of what was undone.
        last = files[-1].last if files and await self._goes_on(name, files[-1], log) else log.first_position - 1
        joined = _joined(files, last + 1)
        begin, end = (joined[0].first, last) if joined else (1, 0)
        async for event in self._look(name, key, first=max(log.first_position, end + 1), last=log.log_position):
            yield event
        below = last + 1  # a file that is being cut is there twice for a moment
        for event in await self._aside(lambda: [one for file in files[::-1] for one in file.find(key)[::-1]]):
            if event.position < below:
                yield event
                below = event.position
        async for event in self._look(name, key, first=log.first_position, last=min(begin, end + 1) - 1):
            yield event

    async def _goes_on(self, name: BanditName, file: ColdFile, log: TextSlice) -> bool:
        """Return whether a log goes on from where a file ends; of a damaged one that is not known."""
        try:
            return file.last < log.first_position or await holds(
                self._store, name, log.incarnation, (await self._read(file))[-1]
            )
        except NotReadyError:
            return False

    async def find_reach(self, name: BanditName) -> LogReach:
        """Return how far back a bandit's log can be read; where files can't be, the store alone counts."""
        log = await self._store.read_texts(name, start=1, limit=0)
        try:
            files = await self._list_files(name, log.incarnation)
            joined = _joined(files, log.first_position)
            if joined:
                begin_ms, begin = await self._aside(joined[0].read_begin_ms), joined[0].first
                return LogReach(begin, begin_ms, log.first_position, _count_missing(files, begin))
        except (UnavailableError, NotReadyError):
            files = []
        since_ms, first = await self._find_time(name, log.first_position), log.first_position
        return LogReach(first, since_ms, first, _count_missing(files, first))

    async def _find_time(self, name: BanditName, position: int) -> int | None:
        """Return the time of an event in the store, None where it can't be read."""
        try:
            found = (await self._store.read_texts(name, start=position, limit=1)).events
        except CorruptDataError:
            return None
        return found[0].at_ms if found else None

    async def _look(self, name: BanditName, key: EventKey, *, first: int, last: int) -> AsyncIterator[EventText]:
        """Yield the events of the store that have a name, from the last one back."""
        while last >= first:
            start = max(first, last - EVENTS_PER_READ + 1)
            part = await self._store.read_texts(name, start=start, limit=last - start + 1)
            for event in reversed(part.events):
                if key in find_keys(event.text):
                    yield event
            last = start - 1

    async def _list_files(self, name: BanditName, incarnation: str) -> list[ColdFile]:
        cold = self._cold
        return [] if cold is None else await self._aside(lambda: cold.list_files(name, incarnation))

    async def _read(self, file: ColdFile) -> Sequence[EventText]:
        part = self._newest
        if part is None or part.file != file:
            part = self._newest = _Part(file, await self._aside(file.read))
        return part.events

    async def _aside(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            where = f"{self._shorten(str(error.filename))}: " if error.filename else ""
            raise UnavailableError(f"the cold log can't be read: {where}{error.strerror or error}") from error
        except CorruptDataError as error:
            raise NotReadyError("COLD_LOG_DAMAGED", f"the cold log: {self._shorten(str(error))}") from error

    def _shorten(self, text: str) -> str:
        """Return a text with paths below the folder of the cold log."""
        return text if self._cold is None else text.replace(f"{self._cold.folder}/", "")


def _joined(files: Sequence[ColdFile], before: int) -> list[ColdFile]:
    """Return the files of the events right before a position, as far back as they follow each other."""
    run: list[ColdFile] = []
    for file in reversed(files):
        if file.last < before - 1:
            break
        if file.first < before:
            run.append(file)
            before = file.first
    return run[::-1]


def _count_missing(files: Sequence[ColdFile], before: int) -> int:
    """Return how many events before a position are in no file, though older ones are."""
    missing = 0
    for file in reversed(files):
        missing += max(0, before - 1 - file.last)
        before = min(before, file.first)
    return missing


async def holds(store: Store, name: BanditName, incarnation: str, event: EventText) -> bool:
    """Return whether a log has an event, or begins after its position; another bandit's log says nothing of it."""
    part = await store.read_texts(name, start=event.position, limit=1)
    if part.incarnation != incarnation or event.position < part.first_position:
        return True
    return any(_is_same(one, event) for one in part.events)


def _is_same(one: EventText, other: EventText) -> bool:
    """Return whether two texts are of one event: it is written otherwise once another data version is in force."""
    same_place = (one.position, one.at_ms) == (other.position, other.at_ms)
    return same_place and {*find_keys(one.text)} == {*find_keys(other.text)}
