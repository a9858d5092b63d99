"""A store of studies in this process, for tests and as the reference for other stores.

It keeps the promises of `topk_bandit.store.study_log`: no method awaits between its first read and its last write, so
that each is atomic on one event loop. It never writes to a disk, and its data end with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from topk_bandit.domain.studies import (
    AnswersImported,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
    DesignState,
    LoggedStudyEvent,
    QuestionAnswered,
    QuestionsAsked,
    StudyCreated,
)
from topk_bandit.store.archive_lines import ArchivedImport
from topk_bandit.store.log import ImportOutcome, ImportPart, ImportProgress, RecordStatus
from topk_bandit.store.memory.arriving import Arrivals, ArrivingStudy, progress_of, repeated_parts
from topk_bandit.store.study_archives import StudyRequest
from topk_bandit.store.study_codec import (
    decode_study_event,
    encode_answer,
    encode_study_event,
    settings_digest,
    shape_of,
)
from topk_bandit.store.study_log import (
    ARRIVAL_MS,
    MOST_ATTEMPTS,
    MOST_IMPORTED,
    AnswerStatus,
    AskOutcome,
    AskStatus,
    StudyLogSlice,
    StudyRecord,
    StudyStore,
)
from topk_bandit.store.study_refusals import study_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.domain.studies import Answer, DesignEnd, StudyEvent, StudyName, StudySettings
    from topk_bandit.store.study_arriving import StudyArrival, StudyArriving

__all__ = ["MemoryStudies"]


@dataclass(slots=True)
class _Study:
    """A study, mutable; what leaves the store is a `StudyRecord`."""

    name: StudyName
    incarnation: str
    settings: StudySettings
    created_ms: int
    attempt: int = 1
    state: DesignState = DesignState.DESIGNING
    progress: DesignProgress | None = None
    failure: DesignFailed | None = None
    lease: tuple[str, int] = ("", 0)
    asked: int = 0
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)
    imported: int = 0
    imports: dict[str, ImportProgress] = field(default_factory=dict)
    import_parts: dict[tuple[str, int], tuple[str, ImportOutcome]] = field(default_factory=dict)
    arrived: str = ""

    def record(self) -> StudyRecord:
        return StudyRecord(
            name=self.name,
            incarnation=self.incarnation,
            settings_digest=settings_digest(self.settings),
            shape=shape_of(self.settings),
            created_ms=self.created_ms,
            attempt=self.attempt,
            state=self.state,
            progress=self.progress,
            failure=self.failure,
            asked=self.asked,
            answered=len(self.answers),
            imported=self.imported,
            log_position=len(self.events),
        )

    def append(self, event: StudyEvent, *, at_ms: int) -> None:
        as_read = decode_study_event(encode_study_event(event))  # where -0.0 is 0.0, for example
        self.events.append(LoggedStudyEvent(len(self.events) + 1, at_ms, as_read))

    def restart(self, *, at_ms: int) -> None:
        if self.attempt >= MOST_ATTEMPTS:
            raise study_refusal("study_attempts", self.name, MOST_ATTEMPTS)
        self.attempt += 1
        self.state, self.progress, self.failure = DesignState.DESIGNING, None, None
        self.append(DesignRestarted(self.attempt), at_ms=at_ms)

    def end(self, end: DesignEnd, *, at_ms: int) -> None:
        self.lease = ("", 0)
        self.append(end, at_ms=at_ms)
        match end:
            case DesignChosen(design=design):
                self.state = DesignState.READY
                self.progress = DesignProgress(design.steps, design.log_det, design.gap, design.target_gap)
            case DesignCancelled():
                self.state = DesignState.CANCELLED
            case DesignFailed():
                self.state, self.failure = DesignState.FAILED, end

    def answer(self, question: int, answer: Answer, *, at_ms: int) -> AnswerStatus:
        packed = encode_answer(answer)
        if question in self.answers:
            return AnswerStatus.DUPLICATE if self.answers[question] == packed else AnswerStatus.CONFLICT
        if not 1 <= question <= self.asked:
            return AnswerStatus.UNKNOWN
        self.answers[question] = packed
        self.append(QuestionAnswered(question, answer), at_ms=at_ms)
        return AnswerStatus.ACCEPTED

    def recall_import(self, part: ImportPart) -> ImportOutcome | None:
        known = self.import_parts.get((part.import_id, part.first_row))
        next_row = self.imports.get(part.import_id, ImportProgress()).next_row
        if known is not None and known[0] == part.fingerprint:
            return known[1]
        if known is not None or part.first_row < next_row:
            raise study_refusal("import_reused", self.name, part.first_row)
        if part.first_row > next_row:
            raise study_refusal("import_gap", self.name, next_row)
        return None

    def take_import(self, part: ImportPart, event: AnswersImported, *, at_ms: int) -> ImportOutcome:
        self.append(event, at_ms=at_ms)
        self.imported += part.accepted
        before = self.imports.get(part.import_id, ImportProgress())
        self.imports[part.import_id] = ImportProgress(part.next_row, before.accepted + part.accepted)
        recorded = ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, len(self.events))
        repeated = replace(recorded, status=RecordStatus.REPEATED)
        self.import_parts[part.import_id, part.first_row] = part.fingerprint, repeated
        return recorded


@final
class MemoryStudies(StudyStore):
    """A `StudyStore` in this process.

    Parameters
    ----------
    clock_ms
        The store's clock.
    """

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._studies: dict[StudyName, _Study] = {}
        self._arrivals: Arrivals[StudyName, StudyArrival, ArrivingStudy] = Arrivals(
            ArrivingStudy, clock_ms=clock_ms, retention_ms=ARRIVAL_MS
        )

    async def create_study(
        self, name: StudyName, settings: StudySettings, *, incarnation: str, quota: int
    ) -> StudyRecord:
        """See `StudyStore.create_study`."""
        known = self._studies.get(name)
        now_ms = self._clock_ms()
        if known is None:
            self._check_quota(name, quota)
            known = self._studies[name] = _Study(name, incarnation, settings, now_ms)
            known.append(StudyCreated(settings), at_ms=now_ms)
        if settings_digest(known.settings) != settings_digest(settings):
            raise study_refusal("study_exists", name)
        if known.state in {DesignState.CANCELLED, DesignState.FAILED}:
            known.restart(at_ms=now_ms)
        return known.record()

    async def get_study(self, name: StudyName) -> StudyRecord:
        """See `StudyStore.get_study`."""
        return self._study(name).record()

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """See `StudyStore.list_studies`."""
        names = [name for name in self._studies if name.tenant == tenant and name.study.encode() > after.encode()]
        names.sort(key=lambda name: name.study.encode())
        return tuple(self._studies[name].record() for name in names[:limit])

    async def delete_study(self, name: StudyName) -> None:
        """See `StudyStore.delete_study`."""
        self._study(name)
        del self._studies[name]

    async def unfinished_designs(self, *, limit: int) -> Sequence[StudyName]:
        """See `StudyStore.unfinished_designs`."""
        unfinished = [study for study in self._studies.values() if study.state is DesignState.DESIGNING]
        return tuple(study.name for study in sorted(unfinished, key=_began)[:limit])

    async def claim_design(self, name: StudyName, *, owner: str, lease_ms: int) -> StudyRecord | None:
        """See `StudyStore.claim_design`."""
        study = self._study(name)
        return study.record() if self._take_lease(study, owner, lease_ms) else None

    async def report_design(
        self, record: StudyRecord, *, owner: str, lease_ms: int, progress: DesignProgress | None
    ) -> bool:
        """See `StudyStore.report_design`."""
        study = self._studies.get(record.name)
        if study is None or (study.incarnation, study.attempt) != (record.incarnation, record.attempt):
            return False
        if not self._take_lease(study, owner, lease_ms):
            return False
        study.progress = progress or study.progress
        return True

    async def end_design(self, record: StudyRecord, end: DesignEnd) -> StudyRecord:
        """See `StudyStore.end_design`."""
        study = self._same_study(record)
        if (study.attempt, study.state) == (record.attempt, DesignState.DESIGNING):
            study.end(end, at_ms=self._clock_ms())
        return study.record()

    async def ask(
        self, record: StudyRecord, *, request_id: str, count: int, lists: Sequence[int], asked: int
    ) -> AskOutcome:
        """See `StudyStore.ask`."""
        study = self._study(record.name)
        if study.incarnation != record.incarnation:
            return AskOutcome(AskStatus.STALE)
        if request_id in study.requests:
            wanted, first, given = study.requests[request_id]
            if wanted != count:
                raise study_refusal("request_id_reused", study.name)
            return AskOutcome(AskStatus.REPEATED, first, given)
        if study.state is not DesignState.READY:
            raise study_refusal(f"design_{study.state}", study.name)
        if study.asked != asked:
            return AskOutcome(AskStatus.STALE)
        if not lists or asked + len(lists) > study.settings.budget:
            raise study_refusal("study_budget", study.name, study.settings.budget)
        study.append(QuestionsAsked(request_id, tuple(lists)), at_ms=self._clock_ms())
        study.asked += len(lists)
        study.requests[request_id] = (count, asked + 1, len(lists))
        return AskOutcome(AskStatus.ASKED, asked + 1, len(lists))

    async def record_answers(
        self, record: StudyRecord, answers: Sequence[tuple[int, Answer]]
    ) -> Sequence[AnswerStatus]:
        """See `StudyStore.record_answers`."""
        study, now_ms = self._same_study(record), self._clock_ms()
        return [study.answer(question, answer, at_ms=now_ms) for question, answer in answers]

    async def find_import(self, name: StudyName, import_id: str) -> ImportProgress:
        """See `StudyStore.find_import`."""
        return self._study(name).imports.get(import_id, ImportProgress())

    async def record_import(self, record: StudyRecord, part: ImportPart, event: AnswersImported) -> ImportOutcome:
        """See `StudyStore.record_import`."""
        study = self._same_study(record)
        known = study.recall_import(part)
        if known is not None:
            return known
        if study.imported + part.accepted > MOST_IMPORTED:
            raise study_refusal("study_imported", study.name)
        return study.take_import(part, event, at_ms=self._clock_ms())

    async def read_study(self, name: StudyName, *, start: int, limit: int) -> StudyLogSlice:
        """See `StudyStore.read_study`."""
        study = self._study(name)
        events = study.events[start - 1 : start - 1 + limit] if start > 0 else ()
        return StudyLogSlice(study.record(), tuple(events))

    async def scan_requests(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[StudyRequest]]:  # noqa: ARG002
        """See `StudyStore.scan_requests`; all at once."""
        study = self._studies.get(name)
        told = study.requests if study is not None else {}
        return 0, [StudyRequest(request_id, *numbers) for request_id, numbers in told.items()]

    async def scan_imports(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:  # noqa: ARG002
        """See `StudyStore.scan_imports`; all at once."""
        study = self._studies.get(name)
        told = study.import_parts if study is not None else {}
        return 0, [
            ArchivedImport(*key, fingerprint, made.next_row, made.accepted, made.position)
            for key, (fingerprint, made) in told.items()
        ]

    async def find_arrival(self, name: StudyName) -> StudyArrival | None:
        """See `StudyStore.find_arrival`."""
        arriving = self._arrivals.find(name)
        return arriving.arrival if arriving else None

    async def record_arrival(self, name: StudyName, arriving: StudyArriving, *, before: StudyArrival) -> bool:
        """See `StudyStore.record_arrival`."""
        return self._arrivals.take(name, arriving, before=before)

    async def read_arrived(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """See `StudyStore.read_arrived`."""
        arriving = self._arrivals.find(name)
        return () if arriving is None else arriving.events[start - 1 : start - 1 + limit]

    async def finish_arrival(self, record: StudyRecord, arrival: StudyArrival, *, quota: int) -> StudyRecord:
        """See `StudyStore.finish_arrival`."""
        if (made := await self.find_arrived(record.name, arrival.import_id)) is not None:
            return made
        self._check_quota(record.name, quota)
        arriving = self._arrivals.find(record.name)
        if arriving is None or arriving.arrival != arrival:
            raise study_refusal("arrival_replaced", record.name)
        self._arrivals.drop(record.name)
        self._studies[record.name] = _make_arrived(record, arriving)
        return self._studies[record.name].record()

    async def find_arrived(self, name: StudyName, import_id: str) -> StudyRecord | None:
        """See `StudyStore.find_arrived`."""
        study = self._studies.get(name)
        if study is not None and study.arrived != import_id:
            raise study_refusal("arrived", name)
        return None if study is None else study.record()

    def _check_quota(self, name: StudyName, quota: int) -> None:
        used = sum(other.tenant == name.tenant for other in self._studies)
        if used >= quota:
            raise study_refusal("study_full", name, f"{used} {quota}")

    def _study(self, name: StudyName) -> _Study:
        study = self._studies.get(name)
        if study is None:
            raise study_refusal("no_study", name)
        return study

    def _same_study(self, record: StudyRecord) -> _Study:
        study = self._study(record.name)
        if study.incarnation != record.incarnation:
            raise study_refusal("no_study", record.name)
        return study

    def _take_lease(self, study: _Study, owner: str, lease_ms: int) -> bool:
        holder, until_ms = study.lease
        now_ms = self._clock_ms()
        if study.state is not DesignState.DESIGNING or (holder not in {"", owner} and now_ms < until_ms):
            return False
        study.lease = (owner, now_ms + lease_ms)
        return True


def _make_arrived(record: StudyRecord, arriving: ArrivingStudy) -> _Study:
    """Return the study of a record, with what has arrived of it."""
    [created] = (one.event for one in arriving.events if isinstance(one.event, StudyCreated))
    origin = record.incarnation, created.settings, record.created_ms
    study = _Study(record.name, *origin, arrived=arriving.arrival.import_id)
    study.attempt, study.state, study.progress = record.attempt, record.state, record.progress
    study.failure, study.asked, study.imported = record.failure, record.asked, record.imported
    study.events, answered = arriving.events, (one.event for one in arriving.events)
    study.answers = {one.question: encode_answer(one.answer) for one in answered if isinstance(one, QuestionAnswered)}
    study.requests = {one.request_id: (one.wanted, one.first, one.count) for one in arriving.requests}
    study.imports, study.import_parts = (
        progress_of(arriving.imports.values()),
        repeated_parts(arriving.imports.values()),
    )
    return study


def _began(study: _Study) -> int:
    return next(
        logged.at_ms for logged in reversed(study.events) if isinstance(logged.event, StudyCreated | DesignRestarted)
    )
