"""Studies that arrive from elsewhere, line by line as `topk_bandit.store.study_archives` has them.

A study is there once its last line has come, and its events were folded from the first to the last; until then no other
call finds it. Whoever sends goes on where an import stands, also at another worker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import ConflictError, CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.quotas import Quota
from topk_bandit.domain.studies import (
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
    DesignState,
)
from topk_bandit.store.arrivals import part_of
from topk_bandit.store.study_arriving import StudyArrival, take_lines
from topk_bandit.store.study_codec import settings_digest, shape_of
from topk_bandit.store.study_log import StudyRecord
from topk_bandit.studies.model import begin, fold
from topk_bandit.studies.pool import build_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.domain.studies import LoggedStudyEvent, StudyEvent, StudyName
    from topk_bandit.store.study_log import StudyStore
    from topk_bandit.studies.model import StudyModel

__all__ = ["LinesOfStudy", "StudyArrivals", "StudyReceipt"]

T = TypeVar("T")

EVENTS_PER_READ = 256


@dataclass(frozen=True, slots=True)
class LinesOfStudy:
    """Lines that are sent together, in order, from line `first_line` on; none ask how far an import is."""

    import_id: str
    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyReceipt:
    """With which line an import goes on, and the study that it made; None before that."""

    next_line: int
    made: StudyRecord | None = None


class StudyArrivals:
    """Takes in studies.

    Parameters
    ----------
    executor
        Where lines are read, and events folded.
    quotas
        How many studies a tenant may have.
    """

    def __init__(self, store: StudyStore, executor: Executor, *, quotas: Quotas) -> None:
        self._store = store
        self._executor = executor
        self._quotas = quotas

    async def take(self, name: StudyName, sent: LinesOfStudy) -> StudyReceipt:
        """Take in the lines that come next; the last one makes the study. A part that was taken is taken once.

        Raises
        ------
        InvalidArgumentError
            On ``lines[n]``: that one stands for nothing, or can't follow those before.
        ConflictError
            STUDY_ARRIVED: there is a study of this name, and this import did not make it. ARRIVAL_REPLACED: another
            import has begun, or this one went on meanwhile.
        NotReadyError
            IMPORT_GAP: the import goes on with another line; ``next_row`` says which.
        ExhaustedError
            STUDY_QUOTA.
        """
        made = await self._store.find_arrived(name, sent.import_id)
        if made is not None:
            return StudyReceipt(sent.first_line + len(sent.lines), made)
        arrival = await self._store.find_arrival(name)
        if not sent.lines:
            return StudyReceipt(arrival.next_line if arrival and arrival.import_id == sent.import_id else 0)
        part = part_of(sent.first_line, sent.lines)
        if arrival is None or (arrival.import_id, arrival.part) != (sent.import_id, part):
            arrival = await self._record(name, _expected(arrival, sent), sent, part)
        if not arrival.complete:
            return StudyReceipt(arrival.next_line)
        quota = self._quotas.limit(name.tenant, Quota.STUDIES)
        record = await self._standing(name, arrival, last=len(sent.lines) - 1)
        return StudyReceipt(arrival.next_line, await self._store.finish_arrival(record, arrival, quota=quota))

    async def _record(self, name: StudyName, before: StudyArrival, sent: LinesOfStudy, part: str) -> StudyArrival:
        arriving = await self._compute(partial(take_lines, before, sent.lines, part=part))
        if not await self._store.record_arrival(name, arriving, before=before):
            raise ConflictError("ARRIVAL_REPLACED", f"another import into {name} has begun, or this one went on")
        return arriving.arrival

    async def _standing(self, name: StudyName, arrival: StudyArrival, *, last: int) -> StudyRecord:
        """Return the study that has arrived, once its events are folded; or refuse to make it of the last line."""
        found: tuple[StudyRecord, StudyModel] | None = None
        try:
            while found is None or found[0].log_position < arrival.position:
                start = 1 if found is None else found[0].log_position + 1
                events = await self._store.read_arrived(name, start=start, limit=EVENTS_PER_READ)
                found = await self._compute(partial(_folded, name, arrival.incarnation, found, events))
            await self._compute(partial(build_pool, found[1].settings))
        except (CorruptDataError, InvalidArgumentError) as error:
            raise InvalidArgumentError(f"lines[{last}]", str(error)) from None
        return found[0]

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _expected(arrival: StudyArrival | None, sent: LinesOfStudy) -> StudyArrival:
    """Return what the lines follow, or refuse them."""
    if arrival is None or sent.first_line == 0:
        arrival = StudyArrival(sent.import_id)
    if arrival.import_id != sent.import_id:
        raise ConflictError("ARRIVAL_REPLACED", "another import of the study has begun")
    if sent.first_line != arrival.next_line:
        problem = f"the import goes on with line {arrival.next_line}"
        raise NotReadyError("IMPORT_GAP", problem, next_row=arrival.next_line)
    return arrival


def _folded(
    name: StudyName,
    incarnation: str,
    found: tuple[StudyRecord, StudyModel] | None,
    events: Sequence[LoggedStudyEvent],
) -> tuple[StudyRecord, StudyModel]:
    """Return a study, and its model, with the events that come next."""
    if not events:
        raise CorruptDataError("a study without events can't be")
    if found is None:
        model = begin(incarnation, events[0])
        found, events = (_created(name, model), model), events[1:]
    record, model = found
    for logged in events:
        model = fold(model, logged)
        record = _ended(record, logged.event)
    counts = len(model.questions), len(model.answers), len(model.imported)
    asked, answered, imported = counts
    return replace(record, asked=asked, answered=answered, imported=imported, log_position=model.version), model


def _created(name: StudyName, model: StudyModel) -> StudyRecord:
    return StudyRecord(
        name=name,
        incarnation=model.incarnation,
        settings_digest=settings_digest(model.settings),
        shape=shape_of(model.settings),
        created_ms=model.last.at_ms,
        attempt=1,
        state=DesignState.DESIGNING,
        progress=None,
        failure=None,
        asked=0,
        answered=0,
        imported=0,
        log_position=1,
    )


def _ended(record: StudyRecord, event: StudyEvent) -> StudyRecord:
    """Return the study after an event about its design; other events leave it as it is."""
    match event:
        case DesignRestarted(attempt):
            return replace(record, attempt=attempt, state=DesignState.DESIGNING, progress=None, failure=None)
        case DesignChosen(design=design):
            figures = DesignProgress(design.steps, design.log_det, design.gap, design.target_gap)
            return replace(record, state=DesignState.READY, progress=figures)
        case DesignCancelled():
            return replace(record, state=DesignState.CANCELLED)
        case DesignFailed():
            return replace(record, state=DesignState.FAILED, failure=event)
        case _:
            return record
