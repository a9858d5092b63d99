"""The protocol of a store of studies; its calls keep the promises of `topk_bandit.store.log`.

A study's log is the truth, and everything else is a fold over it. It begins with `StudyCreated`, is never trimmed, and
is bounded by the study's budget, by `MOST_IMPORTED`, by `MOST_LINKS` and by `MOST_ATTEMPTS` at its design. Beside the
log a store keeps only what became of imports, the progress of a design and its *lease*: which process designs, and
until when by the store's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.studies import (
        Answer,
        AnswersImported,
        DesignEnd,
        DesignFailed,
        DesignProgress,
        DesignState,
        LinkCreated,
        LinkRevoked,
        LoggedStudyEvent,
        StudyName,
        StudySettings,
        StudyShape,
    )
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.log import ImportOutcome, ImportPart, ImportProgress
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_restores import StudyRestore, StudyRestoreStep

__all__ = [
    "MOST_ATTEMPTS",
    "MOST_IMPORTED",
    "MOST_LINKS",
    "RESTORE_MS",
    "AnswerStatus",
    "AskOutcome",
    "AskStatus",
    "KnownLinks",
    "StudyLogSlice",
    "StudyRecord",
    "StudyStore",
]

RESTORE_MS = 7 * 24 * 3600 * 1000
"""For how long an import of a study is kept that nobody goes on with: seven days."""

MOST_ATTEMPTS = 100
"""How often a study's design is tried, so that a log can't grow without end."""

MOST_IMPORTED = 100_000
"""So many answers that were given elsewhere a study takes: as many as the largest budget, for the same reason."""


MOST_LINKS = 200
"""So many links a study has at most, revoked ones included."""


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as the store knows it now.

    Attributes
    ----------
    incarnation
        Different for each creation, so that a study deleted and created again is not taken for the old one.
    settings_digest
        Equal for equal settings.
    attempt
        Number of the newest attempt at the design, from 1; `state` says where it stands.
    progress
        How far it is, as last heard; None before anything was heard.
    failure
        Why it failed; None unless it did.
    asked, answered
        How many questions were asked and answered.
    imported
        How many answers that were given elsewhere are in the log.
    log_position
        Position of the newest event.
    link_events
        How many events of links are in the log.
    """

    name: StudyName
    incarnation: str
    settings_digest: str
    shape: StudyShape
    created_ms: int
    attempt: int
    state: DesignState
    progress: DesignProgress | None
    failure: DesignFailed | None
    asked: int
    answered: int
    imported: int
    log_position: int
    link_events: int = 0


class AskStatus(StrEnum):
    """What became of an attempt to ask questions."""

    ASKED = "asked"
    REPEATED = "repeated"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """The answer to `StudyStore.ask`.

    Attributes
    ----------
    status
        ASKED: appended now. REPEATED: the same request was answered before; nothing changed. STALE: questions were
        asked after those that the caller knew, or the study was created anew; nothing changed, and the caller must
        draw again.
    first, count
        Number of the request's first question and how many it has; 0 when STALE.
    """

    status: AskStatus
    first: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class KnownLinks:
    """How much of a study was known to a caller who decides about links: how much was asked, and of links recorded."""

    asked: int
    link_events: int


class AnswerStatus(StrEnum):
    """What became of one answer of a batch: only ACCEPTED changed anything."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StudyLogSlice:
    """Part of a study's log, and the study as of the same moment."""

    record: StudyRecord
    events: tuple[LoggedStudyEvent, ...]


class StudyStore(Protocol):
    """Studies and their logs."""

    @property
    def data_version(self) -> int:
        """The data version in force, which is what this store writes."""
        ...

    async def create_study(
        self, name: StudyName, settings: StudySettings, *, incarnation: str, quota: int
    ) -> StudyRecord:
        """Create a study, with `StudyCreated` as its first event.

        Creating it again with equal settings returns it as it is; if its design was cancelled or failed,
        `DesignRestarted` is appended first.

        Raises
        ------
        ConflictError
            STUDY_EXISTS: it exists with other settings.
        ExhaustedError
            STUDY_QUOTA: the tenant has `quota` studies already. STUDY_ATTEMPTS: its design was tried too often.
        """
        ...

    async def get_study(self, name: StudyName) -> StudyRecord:
        """Return a study, or raise `NotFoundError`."""
        ...

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """Return up to `limit` studies of `tenant` whose id sorts after `after` (by bytes), in order.

        One whose record is damaged is left out, and hides no other.
        """
        ...

    async def delete_study(self, name: StudyName) -> None:
        """Remove a study with everything that belongs to it, or raise `NotFoundError`."""
        ...

    async def unfinished_designs(self, *, limit: int) -> Sequence[StudyName]:
        """Return studies of all tenants whose design may be unfinished, those that began first first.

        Each unfinished design is among them once those before it are ended; one that ended may still be there for a
        while.
        """
        ...

    async def claim_design(self, name: StudyName, *, owner: str, lease_ms: int) -> StudyRecord | None:
        """Take the lease of an unfinished design that nobody else holds, or take it anew.

        Returns the study, None when somebody else holds the lease or the design has ended, or raises `NotFoundError`.
        """
        ...

    async def report_design(
        self, record: StudyRecord, *, owner: str, lease_ms: int, progress: DesignProgress | None
    ) -> bool:
        """Take the lease of a record's attempt anew, and note how far it is; None leaves that as it is.

        Returns False, and changes nothing, when the attempt has ended, when somebody else holds the lease, or when the
        study is gone or was created anew.
        """
        ...

    async def end_design(self, record: StudyRecord, end: DesignEnd) -> StudyRecord:
        """Append how a record's attempt ended, unless it has ended already; return the study as it is now.

        It does not matter which process holds the lease; the first of several ends counts. `NotFoundError` when the
        study is gone or was created anew.
        """
        ...

    async def ask(
        self, record: StudyRecord, *, request_id: str, count: int, lists: Sequence[int], asked: int
    ) -> AskOutcome:
        """Append `QuestionsAsked` with `lists`, if `asked` questions were asked so far.

        Without lists it is STALE while the budget has questions left: they were looked for before there was a design.

        A request id that was answered already is REPEATED when it asked for as many questions (`count`), whatever the
        other arguments say.

        Raises
        ------
        NotFoundError
            There is no such study.
        ConflictError
            REQUEST_ID_REUSED: the id was used with another count.
        NotReadyError
            DESIGN_UNFINISHED, DESIGN_CANCELLED or DESIGN_FAILED.
        ExhaustedError
            STUDY_BUDGET: so many questions are beyond the study's budget, or it has none left.
        """
        ...

    async def record_answers(
        self,
        record: StudyRecord,
        answers: Sequence[tuple[int, Answer]],
        *,
        respondents: Mapping[int, str] | None = None,
    ) -> Sequence[AnswerStatus]:
        """Append `QuestionAnswered` for each answer, by question, that is the first to its question.

        Who answers a question is named in `respondents`, or not at all.

        An equal answer to an answered question is DUPLICATE, another one a CONFLICT, and an answer to a question that
        was not asked UNKNOWN. `NotFoundError` when the study is gone or was created anew.
        """
        ...

    async def record_link(self, record: StudyRecord, event: LinkCreated | LinkRevoked, *, known: KnownLinks) -> bool:
        """Append an event of a link; False, and nothing changed, if others were recorded after those that are known.

        `NotFoundError` when the study is gone or was created anew.
        """
        ...

    async def record_link_answer(
        self, record: StudyRecord, *, request_id: str, list_number: int, answer: Answer, known: KnownLinks
    ) -> AskStatus:
        """Append `QuestionsAsked` about one list and `QuestionAnswered`, together.

        REPEATED: the request was there before; nothing changed. STALE as for `ask`, and if events of links were
        recorded after those that are known.

        Raises
        ------
        NotFoundError, NotReadyError, ExhaustedError
            As `ask` has them.
        """
        ...

    async def find_import(self, name: StudyName, import_id: str) -> ImportProgress:
        """Return how far an import of answers is, or raise `NotFoundError`."""
        ...

    async def record_import(self, record: StudyRecord, part: ImportPart, event: AnswersImported) -> ImportOutcome:
        """Append the answers of a part of an import; the same part again is REPEATED. None is ever STALE.

        Raises
        ------
        NotFoundError
            The study is gone or was created anew.
        ConflictError
            IMPORT_REUSED: the rows were recorded with another fingerprint, or in other parts.
        NotReadyError
            IMPORT_GAP: rows before them are missing.
        ExhaustedError
            STUDY_IMPORTED: the study would have more than `MOST_IMPORTED` answers from elsewhere.
        """
        ...

    async def read_study(self, name: StudyName, *, start: int, limit: int) -> StudyLogSlice:
        """Return a study with up to `limit` events from position `start` on; or raise `NotFoundError`.

        There may be fewer, but two at least, where events are long.
        """
        ...

    async def scan_requests(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[StudyRequest]]:
        """Return some of the requests that were given questions, and the cursor that the others come after.

        0 begins and ends. A request that is there from the first call to the last is returned at least once. A study
        that does not exist has none.
        """
        ...

    async def scan_imports(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:
        """Return some of the parts of imports that are recorded; as `scan_requests` does."""
        ...

    async def find_restore(self, name: StudyName) -> StudyRestore | None:
        """Return how far the import of a study of this name is, None if none has begun, or it has ended."""
        ...

    async def record_restore(self, name: StudyName, step: StudyRestoreStep, *, before: StudyRestore) -> bool:
        """Keep a restored part of a study, where no call but these finds it, if the import is as far as `before`.

        An import at its first line takes the place of any that has not ended; one that nobody goes on with is kept for
        `RESTORE_MS`. What is sent again, and was kept, is kept once. Returns False, and changes nothing, when the
        import is elsewhere, or another one.
        """
        ...

    async def read_restored_log(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """Return up to `limit` restored events, from position `start` on."""
        ...

    async def finish_restore(self, record: StudyRecord, restore: StudyRestore, *, quota: int) -> StudyRecord:
        """Make what is restored the study of a record, all at once; once it is, return the study that it is.

        Raises
        ------
        ConflictError
            STUDY_ARRIVED: there is a study of this name. ARRIVAL_REPLACED: the import is another one, or elsewhere.
        ExhaustedError
            STUDY_QUOTA: the tenant has `quota` studies already.
        """
        ...

    async def find_restored_record(self, name: StudyName, import_id: str) -> StudyRecord | None:
        """Return the study of this name that an import made, None without any; or raise `ConflictError` as above."""
        ...
