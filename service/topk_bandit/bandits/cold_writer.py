"""Writes to the cold log what snapshots stand for, and says up to where it is written.

A worker writes the events of the bandits that it owns, a file once enough of them have come. That is on a thread of
its own, and no call and no fold waits for it: a disk that is full, slow or gone holds up nothing. What is trimmed is
decided where snapshots are saved, by what this has noted.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from topk_bandit.bandits.log_retention import Trim, estimate_event_bytes
from topk_bandit.domain.errors import CorruptDataError, TopkBanditError
from topk_bandit.store.whole_logs import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.bandits.log_retention import LogRetention
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.cold_log import ColdFile, ColdLog
    from topk_bandit.store.log import Store

__all__ = ["ColdEnd", "ColdRetention", "ColdWriter"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

FILE_EVENTS = 4096
FILE_BYTES = 4 << 20
"""A file is written once there are so many events for it, or about so many bytes of JSON, and holds no more."""

EVENTS_PER_READ = 256
ROUND_SECONDS = 5.0
SWEEP_SECONDS = 3600.0


class ColdEnd(NamedTuple):
    """Up to which event a bandit's incarnation is written; None where nothing is."""

    incarnation: str
    newest: EventText | None

    @property
    def position(self) -> int:
        """Of that event; 0 where there is none."""
        return 0 if self.newest is None else self.newest.position


class ColdWriter:
    """Writes the events of a worker's own bandits, round after round.

    Parameters
    ----------
    models
        Knows the bandits that this worker owns, and up to where snapshots stand for them.
    keep_seconds
        After how long files are removed; None for never.
    clock_ms
        This machine's clock, by which files are old.
    written
        Where it notes up to which event each bandit is written.
    """

    def __init__(
        self,
        store: Store,
        cold: ColdLog,
        *,
        models: ModelCache,
        written: dict[BanditName, ColdEnd],
        hooks: Hooks,
        clock_ms: Callable[[], int],
        keep_seconds: float | None = None,
    ) -> None:
        self._store = store
        self._cold = cold
        self._models = models
        self._hooks = hooks
        self._clock_ms = clock_ms
        self._keep_seconds = keep_seconds
        self._written = written
        self._seen: dict[BanditName, tuple[str, int]] = {}
        self._damaged: set[str] = set()
        self._fails = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cold-log")

    async def run(self) -> None:
        """Go round until cancelled."""
        rounds = 0
        try:
            while True:
                await self.go_round()
                if rounds % round(SWEEP_SECONDS / ROUND_SECONDS) == 0:
                    await self._sweep()
                rounds += 1
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def go_round(self) -> None:
        """Write what has come of each bandit; a failure is counted, and logged once until a file is written again."""
        own = self._models.find_own()
        for notes in (self._written, self._seen):
            for gone in notes.keys() - own.keys():
                del notes[gone]
        self._damaged &= {model.incarnation for model in own.values()}
        for name, model in own.items():
            try:
                await self._write_due(name, model.incarnation)
            except OSError as error:
                self._note_failure(error)
            except CorruptDataError as error:
                problem = f"an event is damaged, and the cold log does not go on from it: {error}"
                self._note_damage(name, model.incarnation, problem)
            except TopkBanditError as error:
                _log.debug("events can't be read for the cold log: %s", error, extra={"bandit": str(name)})

    async def _write_due(self, name: BanditName, incarnation: str) -> None:
        behind = self._models.find_snapshot_position(name)
        if self._seen.get(name, (incarnation, 0)) == (incarnation, behind):
            return
        end = await self._find_end(name, incarnation)
        first = (await self._store.read_log(name, start=1, limit=0)).first_position
        start = max(first, end + 1)
        while await self._is_due(name, start, behind):
            events = await self._read_file(name, start, behind, incarnation)
            if not events:
                return
            end = await self._on_disk(partial(self._cold.append, name, incarnation, events))
            if end == events[-1].position:
                self._written[name] = ColdEnd(incarnation, events[-1])
            self._hooks.cold_written(len(events))
            self._note_success()
            start = end + 1
        self._seen[name] = incarnation, behind

    async def _find_end(self, name: BanditName, incarnation: str) -> int:
        """Return up to where the log is written, and note the event there; files have no others after that.

        A log that was restored, or whose end was lost, goes on otherwise than what files have of its end.
        """
        file = await self._on_disk(partial(self._cold.find_newest, name, incarnation))
        known = self._written.get(name)
        if file is None or known is None or (known.incarnation, known.position) != (incarnation, file.last):
            newest = None if file is None else await self._read_last(name, incarnation, file)
            known = self._written[name] = ColdEnd(incarnation, newest)
        if file is None or known.newest is None or await holds(self._store, name, incarnation, known.newest):
            return 0 if file is None else file.last
        after = await self._find_last_held(name, incarnation)
        undone = await self._on_disk(partial(self._cold.set_aside, name, incarnation, after=after))
        where = {"bandit": str(name)}
        _log.warning("%d events of the cold log are of a log that was undone; set aside", undone, extra=where)
        del self._written[name]
        return await self._find_end(name, incarnation)

    async def _read_last(self, name: BanditName, incarnation: str, file: ColdFile) -> EventText | None:
        """Return the last event of a file; None if it is damaged, where the next file tells what is written."""
        try:
            return (await self._on_disk(file.read))[-1]
        except (CorruptDataError, OSError) as error:
            self._note_damage(name, incarnation, f"a file of the cold log: {error}; what comes after it is written")
            return None

    async def _find_last_held(self, name: BanditName, incarnation: str) -> int:
        """Return the position of the last event in files that the log has; 0 if it has none of them."""
        for file in (await self._on_disk(partial(self._cold.list_files, name, incarnation)))[::-1]:
            try:
                events = await self._on_disk(file.read)
            except CorruptDataError:
                continue
            held, undone = 0, len(events)  # the log has those before the one, and not those from the other on
            while held < undone:
                middle = (held + undone) // 2
                if await holds(self._store, name, incarnation, events[middle]):
                    held = middle + 1
                else:
                    undone = middle
            if held:
                return events[held - 1].position
        return 0

    async def _is_due(self, name: BanditName, start: int, end: int) -> bool:
        """Return whether the events from `start` to `end` are enough for a file."""
        n_events = end - start + 1
        if n_events <= 0:
            return False
        return n_events >= FILE_EVENTS or (
            n_events * await estimate_event_bytes(self._store, name, end=end) >= FILE_BYTES
        )

    async def _read_file(self, name: BanditName, start: int, end: int, incarnation: str) -> list[EventText]:
        """Return the events of the next file, none if the log was begun anew or is trimmed there by now."""
        events: list[EventText] = []
        size = 0
        last = min(end, start + FILE_EVENTS - 1)
        while start + len(events) <= last and size < FILE_BYTES:
            at = start + len(events)
            part = await self._store.read_texts(name, start=at, limit=min(EVENTS_PER_READ, last - at + 1))
            if part.incarnation != incarnation or not part.events:
                return []
            events += part.events
            size += sum(len(event.text) for event in part.events)
        return events

    async def _sweep(self) -> None:
        if self._keep_seconds is None:
            return
        before_ms = self._clock_ms() - round(self._keep_seconds * 1000)
        try:
            await self._on_disk(partial(self._cold.remove_older, before_ms))
        except OSError as error:
            self._note_failure(error)

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _note_failure(self, error: OSError) -> None:
        self._hooks.cold_failed()
        if not self._fails:
            _log.warning("the cold log in %s can't be written: %s", self._cold.folder, error.strerror or error)
        self._fails = True

    def _note_damage(self, name: BanditName, incarnation: str, problem: str) -> None:
        self._hooks.cold_failed()
        if incarnation not in self._damaged:
            _log.warning("%s", problem, extra={"bandit": str(name)})
        self._damaged.add(incarnation)

    def _note_success(self) -> None:
        if self._fails:
            _log.warning("the cold log in %s is written again", self._cold.folder)
        self._fails = False


@dataclass(frozen=True, slots=True)
class ColdRetention:
    """What stays of a log of which a cold log has to have what is trimmed, up to the bytes that may stay.

    Attributes
    ----------
    asked
        What stays by time and bytes alone.
    written
        What `ColdWriter` notes of this worker's own bandits. Of others it is not known here, and the owner trims.
    owns
        Whether this worker owns a bandit, by its full name.
    """

    asked: LogRetention
    written: Mapping[BanditName, ColdEnd]
    owns: Callable[[str], bool]

    async def find_trim(self, store: Store, name: BanditName, *, incarnation: str, behind: int, at_ms: int) -> Trim:
        """See `Retention.find_trim`."""
        if not self.owns(str(name)):
            return Trim(0)
        trim = await self.asked.find_trim(store, name, incarnation=incarnation, behind=behind, at_ms=at_ms)
        written = await self._find_end(store, name, incarnation)
        if trim.through < written:
            return trim
        first = (await store.read_log(name, start=1, limit=0)).first_position
        try:
            large = await self.asked.find_large_end(store, name, behind=behind)
        except CorruptDataError:
            large = 0
        # The newest event that is written stays: a log that was restored to a time before it has another one there.
        return Trim(max(min(trim.through, written - 1), large, 0), unwritten=max(0, large - max(written, first - 1)))

    async def _find_end(self, store: Store, name: BanditName, incarnation: str) -> int:
        """Return up to which position the log is written."""
        known = self.written.get(name)
        newest = None if known is None or known.incarnation != incarnation else known.newest
        try:
            return newest.position if newest is not None and await holds(store, name, incarnation, newest) else 0
        except CorruptDataError:
            return 0
