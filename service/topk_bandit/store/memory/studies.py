"""A store of studies in this process, for tests and as the reference for other stores.

It keeps the promises of `topk_bandit.store.study_log`: no method awaits between its first read and its last write, or
else what it writes is committed if what was read is unchanged. Its data end with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from topk_bandit.domain.studies import (
    DesignRestarted,
    DesignState,
    LoggedStudyEvent,
    QuestionAnswered,
    StudyCreated,
)
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.journaled_studies import JournaledStudies
from topk_bandit.store.memory.imports import Imports
from topk_bandit.store.memory.restores import PartialStudy, Restores
from topk_bandit.store.rules.studies import COMPARED, COUNTED, KnownStudy, Lease
from topk_bandit.store.study_codec import (
    decode_study_event,
    encode_answer,
    encode_study_event,
    settings_digest,
    shape_of,
)
from topk_bandit.store.study_log import RESTORE_MS, StudyLogSlice, StudyRecord
from topk_bandit.store.study_refusals import study_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from topk_bandit.domain.studies import StudyEvent, StudyName, StudySettings
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.journaled_studies import SoughtStudy
    from topk_bandit.store.rules.studies import StudyCommit
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_restores import StudyRestore, StudyRestoreStep

__all__ = ["MemoryStudies"]

_VALUES = ("attempt", "state", "progress", "failure")


@dataclass(slots=True)
class _Study:
    """A study, mutable; what leaves the store is a `StudyRecord`."""

    state: StudyRecord
    lease: Lease = field(default_factory=Lease)
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: dict[str, StudyRequest] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)
    imports: Imports = field(default_factory=Imports)
    restored_by: str = ""

    def record(self) -> StudyRecord:
        return replace(self.state, log_position=len(self.events))

    def known(self, sought: SoughtStudy, *, now_ms: int) -> KnownStudy:
        answers = {one: self.answers[one] for one in sought.questions if one in self.answers}
        request = None if sought.request_id is None else self.requests.get(sought.request_id)
        imported = None if sought.part is None else self.imports.at(*sought.part)
        return KnownStudy(self.record(), now_ms, self.lease, request, answers, imported)

    def is_as_known(self, known: KnownStudy, commit: StudyCommit) -> bool:
        return (
            all(getattr(self.state, name) == getattr(known.record, name) for name in COMPARED)
            and self.lease == known.lease
            and all(self.answers.get(one) == known.answers.get(one) for one in commit.answers)
            and (commit.part is None or self.state.imported == known.record.imported)
            and (commit.request is None or self.requests.get(commit.request.request_id) == known.request)
            and self.imports.is_as_known(known.imported, commit.part)
        )

    def take(self, known: KnownStudy, commit: StudyCommit, *, at_ms: int) -> int:
        """Take over a commit; return the position of its first event, 0 without any."""
        first = len(self.events) + 1
        for event in commit.events:
            self.append(event, at_ms=at_ms)
        self.state = self._changed(known.record, commit.record or known.record)
        if commit.lease is not None:
            until_ms = at_ms + commit.lease.until_ms if commit.lease.owner else 0
            self.lease = replace(commit.lease, until_ms=until_ms)
        if commit.request is not None:
            self.requests[commit.request.request_id] = commit.request
        self.answers |= commit.answers
        self.imports.take(commit.part, first=first)
        return first if commit.events else 0

    def _changed(self, before: StudyRecord, after: StudyRecord) -> StudyRecord:
        """Return the state with what differs between two records."""
        values = {name: getattr(after, name) for name in _VALUES if getattr(after, name) != getattr(before, name)}
        counts = {name: getattr(self.state, name) + getattr(after, name) - getattr(before, name) for name in COUNTED}
        return replace(self.state, **values, **counts)

    def append(self, event: StudyEvent, *, at_ms: int) -> None:
        as_read = decode_study_event(encode_study_event(event))  # where -0.0 is 0.0, for example
        self.events.append(LoggedStudyEvent(len(self.events) + 1, at_ms, as_read))


def _new_study(name: StudyName, incarnation: str, settings: StudySettings, *, now_ms: int) -> _Study:
    origin = incarnation, settings_digest(settings), shape_of(settings), now_ms
    study = _Study(StudyRecord(name, *origin, 1, DesignState.DESIGNING, None, None, 0, 0, 0, 0))
    study.append(StudyCreated(settings), at_ms=now_ms)
    return study


@final
class MemoryStudies(JournaledStudies):
    """A `StudyStore` in this process.

    Parameters
    ----------
    clock_ms
        The store's clock.
    before_commit
        As for `MemoryStore`.
    """

    def __init__(
        self, *, clock_ms: Callable[[], int], before_commit: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._clock_ms = clock_ms
        self._before_commit = before_commit
        self._studies: dict[StudyName, _Study] = {}
        self._restores: Restores[StudyName, StudyRestore, PartialStudy] = Restores(
            PartialStudy, clock_ms=clock_ms, retention_ms=RESTORE_MS
        )

    @property
    def data_version(self) -> int:
        """See `StudyStore.data_version`; what ends with this process is for no other program."""
        return NEWEST

    async def create_study(
        self, name: StudyName, settings: StudySettings, *, incarnation: str, quota: int
    ) -> StudyRecord:
        """See `StudyStore.create_study`."""
        if name not in self._studies:
            self._check_quota(name, quota)
            self._studies[name] = _new_study(name, incarnation, settings, now_ms=self._clock_ms())
        return await self._restart(name, settings_digest(settings))

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
        unfinished = [study for study in self._studies.values() if study.state.state is DesignState.DESIGNING]
        return tuple(study.state.name for study in sorted(unfinished, key=_began)[:limit])

    async def _read(self, name: StudyName, sought: SoughtStudy) -> KnownStudy:
        return self._study(name).known(sought, now_ms=self._clock_ms())

    async def _commit(self, known: KnownStudy, commit: StudyCommit, *, is_durable: bool) -> int | None:  # noqa: ARG002
        if self._before_commit is not None:
            await self._before_commit()
        study = self._study(known.record.name)
        return study.take(known, commit, at_ms=self._clock_ms()) if study.is_as_known(known, commit) else None

    async def read_study(self, name: StudyName, *, start: int, limit: int) -> StudyLogSlice:
        """See `StudyStore.read_study`."""
        study = self._study(name)
        events = study.events[start - 1 : start - 1 + limit] if start > 0 else ()
        return StudyLogSlice(study.record(), tuple(events))

    async def scan_requests(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[StudyRequest]]:  # noqa: ARG002
        """See `StudyStore.scan_requests`; all at once."""
        study = self._studies.get(name)
        return 0, [] if study is None else list(study.requests.values())

    async def scan_imports(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:  # noqa: ARG002
        """See `StudyStore.scan_imports`; all at once."""
        study = self._studies.get(name)
        return 0, [] if study is None else study.imports.archived()

    async def find_restore(self, name: StudyName) -> StudyRestore | None:
        """See `StudyStore.find_restore`."""
        partial = self._restores.find(name)
        return partial.restore if partial else None

    async def record_restore(self, name: StudyName, step: StudyRestoreStep, *, before: StudyRestore) -> bool:
        """See `StudyStore.record_restore`."""
        return self._restores.take(name, step, before=before)

    async def read_restored_log(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """See `StudyStore.read_restored_log`."""
        partial = self._restores.find(name)
        return () if partial is None else partial.events[start - 1 : start - 1 + limit]

    async def finish_restore(self, record: StudyRecord, restore: StudyRestore, *, quota: int) -> StudyRecord:
        """See `StudyStore.finish_restore`."""
        if (made := await self.find_restored_record(record.name, restore.import_id)) is not None:
            return made
        self._check_quota(record.name, quota)
        partial = self._restores.find(record.name)
        if partial is None or partial.restore != restore:
            raise study_refusal("arrival_replaced", record.name)
        self._restores.drop(record.name)
        self._studies[record.name] = _make_restored(record, partial)
        return self._studies[record.name].record()

    async def find_restored_record(self, name: StudyName, import_id: str) -> StudyRecord | None:
        """See `StudyStore.find_restored_record`."""
        study = self._studies.get(name)
        if study is not None and study.restored_by != import_id:
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


def _make_restored(record: StudyRecord, partial: PartialStudy) -> _Study:
    """Return the study of a record, with what is restored of it."""
    answered = (one.event for one in partial.events)
    answers = {one.question: encode_answer(one.answer) for one in answered if isinstance(one, QuestionAnswered)}
    return _Study(
        replace(record, answered=len(answers)),
        events=partial.events,
        requests={one.request_id: one for one in partial.requests},
        answers=answers,
        imports=Imports.of(partial.imports.values()),
        restored_by=partial.restore.import_id,
    )


def _began(study: _Study) -> int:
    return next(
        logged.at_ms for logged in reversed(study.events) if isinstance(logged.event, StudyCreated | DesignRestarted)
    )
