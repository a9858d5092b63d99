"""What becomes of a study: its design, the questions that it asks, and the answers that it is given.

========== ======================================== ===================================
A design   is after its end                         and when its study is created again
========== ======================================== ===================================
designing  ready, cancelled or failed: the first    as it is
           end counts, and others change nothing
ready      (it has ended)                           as it is
cancelled  (it has ended)                           designing, with its next attempt
failed     (it has ended)                           designing, with its next attempt
========== ======================================== ===================================

Questions are asked once a design is ready, by one request after the other. The first answer to a question counts. A
question of a link is asked when its answer comes: so people who open a page and go leave nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from topk_bandit.domain.studies import (
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignProgress,
    DesignRestarted,
    DesignState,
    QuestionAnswered,
    QuestionsAsked,
)
from topk_bandit.store.log import ImportOutcome, RecordStatus
from topk_bandit.store.rules.decisions import appended
from topk_bandit.store.rules.imports import KnownImport, recall_part
from topk_bandit.store.study_codec import encode_answer
from topk_bandit.store.study_log import MOST_ATTEMPTS, MOST_IMPORTED, AnswerStatus, AskOutcome, AskStatus
from topk_bandit.store.study_refusals import study_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.studies import (
        Answer,
        AnswersImported,
        DesignEnd,
        LinkCreated,
        LinkRevoked,
        StudyEvent,
    )
    from topk_bandit.store.log import ImportPart
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_log import KnownLinks, StudyRecord

__all__ = [
    "COMPARED",
    "COUNTED",
    "KnownStudy",
    "Lease",
    "StudyCommit",
    "StudyDecision",
    "answer",
    "answer_by_link",
    "ask",
    "change_links",
    "claim",
    "end_design",
    "import_answers",
    "report",
    "restart",
]

COMPARED = ("incarnation", "attempt", "state", "asked", "link_events")
"""What of a study's record a commit compares: people who answer different questions do not wait for each other."""

COUNTED = ("asked", "answered", "imported", "link_events")
"""What of it a commit adds to, instead of replacing it."""

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Lease:
    """Which process designs, and until when by the store's clock; nobody without an owner."""

    owner: str = ""
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class KnownStudy:
    """What a store knows of a study, as of one moment.

    Attributes
    ----------
    now_ms
        The store's clock.
    lease
        The design's.
    request
        What the request that was asked for was given; None for one that is new.
    answers
        Those to the questions that were asked for, as they are kept; questions without one are left out.
    imported
        Of the import that was asked for; None if none was.
    """

    record: StudyRecord
    now_ms: int
    lease: Lease = field(default_factory=Lease)
    request: StudyRequest | None = None
    answers: Mapping[int, bytes] = field(default_factory=dict)
    imported: KnownImport | None = None


@dataclass(frozen=True, slots=True)
class StudyCommit:
    """What a decision changes, all of it or nothing, if what it was made from is as it was.

    A store compares the study's incarnation, attempt, state, how much was asked, how many events of links there are,
    and the lease; and of what was asked for the request, the answers, and the import with how many were imported.

    Attributes
    ----------
    events
        Appended in this order.
    record
        The study from then on, but for its log's position; None for the same.
    lease
        From then on; its `until_ms` is how long it holds. None for the same.
    request, answers
        To be kept.
    part
        A part of an import, and what became of it; None without any.
    """

    events: tuple[StudyEvent, ...] = ()
    record: StudyRecord | None = None
    lease: Lease | None = None
    request: StudyRequest | None = None
    answers: Mapping[int, bytes] = field(default_factory=dict)
    part: tuple[ImportPart, ImportOutcome] | None = None


@dataclass(frozen=True, slots=True)
class StudyDecision(Generic[Answer_co]):
    """An answer, and what has to be committed before it is given; None for what changes nothing."""

    answer: Answer_co
    commit: StudyCommit | None = None


def restart(known: KnownStudy, digest: str) -> StudyDecision[None]:
    """Decide what becomes of a study that is created again; see `StudyStore.create_study`."""
    record = known.record
    if record.settings_digest != digest:
        raise study_refusal("study_exists", record.name)
    if record.state not in {DesignState.CANCELLED, DesignState.FAILED}:
        return StudyDecision(None, StudyCommit())
    if record.attempt >= MOST_ATTEMPTS:
        raise study_refusal("study_attempts", record.name, MOST_ATTEMPTS)
    after = replace(record, attempt=record.attempt + 1, state=DesignState.DESIGNING, progress=None, failure=None)
    return StudyDecision(None, StudyCommit((DesignRestarted(after.attempt),), record=after))


def claim(known: KnownStudy, *, owner: str, lease_ms: int) -> StudyDecision[StudyRecord | None]:
    """Decide whose an unfinished design is; see `StudyStore.claim_design`."""
    is_held = known.lease.owner not in {"", owner} and known.now_ms < known.lease.until_ms
    if known.record.state is not DesignState.DESIGNING or is_held:
        return StudyDecision(None)
    return StudyDecision(known.record, StudyCommit(lease=Lease(owner, lease_ms)))


def report(
    known: KnownStudy, record: StudyRecord, *, owner: str, lease_ms: int, progress: DesignProgress | None
) -> StudyDecision[bool]:
    """Decide what becomes of a report on a design; see `StudyStore.report_design`."""
    is_same = (known.record.incarnation, known.record.attempt) == (record.incarnation, record.attempt)
    claimed = claim(known, owner=owner, lease_ms=lease_ms)
    if not is_same or claimed.commit is None:
        return StudyDecision(answer=False)
    after = known.record if progress is None else replace(known.record, progress=progress)
    return StudyDecision(answer=True, commit=replace(claimed.commit, record=after))


def end_design(known: KnownStudy, record: StudyRecord, end: DesignEnd) -> StudyDecision[None]:
    """Decide what becomes of an attempt at a design; see `StudyStore.end_design`."""
    _check_same(known, record)
    if (known.record.attempt, known.record.state) != (record.attempt, DesignState.DESIGNING):
        return StudyDecision(None, StudyCommit())
    after = known.record
    match end:
        case DesignChosen(design=design):
            progress = DesignProgress(design.steps, design.log_det, design.gap, design.target_gap)
            after = replace(after, state=DesignState.READY, progress=progress)
        case DesignCancelled():
            after = replace(after, state=DesignState.CANCELLED)
        case DesignFailed():
            after = replace(after, state=DesignState.FAILED, failure=end)
    return StudyDecision(None, StudyCommit((end,), record=after, lease=Lease()))


def ask(
    known: KnownStudy, record: StudyRecord, wanted: StudyRequest, *, lists: Sequence[int], asked: int
) -> StudyDecision[AskOutcome]:
    """Decide which questions a request is given; `wanted` has its id and count; see `StudyStore.ask`."""
    study = known.record
    if study.incarnation != record.incarnation:
        return StudyDecision(AskOutcome(AskStatus.STALE))
    if known.request is not None:
        if known.request.wanted != wanted.wanted:
            raise study_refusal("request_id_reused", study.name)
        repeated = AskOutcome(AskStatus.REPEATED, known.request.first, known.request.count)
        return StudyDecision(repeated, StudyCommit())
    if study.state is not DesignState.READY:
        raise study_refusal(f"design_{study.state}", study.name)
    if study.asked != asked or (not lists and asked < study.shape.budget):
        return StudyDecision(AskOutcome(AskStatus.STALE))  # lists were chosen before other questions, or the design
    if asked + len(lists) > study.shape.budget or not lists:
        raise study_refusal("study_budget", study.name, study.shape.budget)
    commit = StudyCommit(
        (QuestionsAsked(wanted.request_id, tuple(lists)),),
        record=replace(study, asked=asked + len(lists)),
        request=replace(wanted, first=asked + 1, count=len(lists)),
    )
    return StudyDecision(AskOutcome(AskStatus.ASKED, asked + 1, len(lists)), commit)


def answer(
    known: KnownStudy, record: StudyRecord, answers: Sequence[tuple[int, Answer]], respondents: Mapping[int, str]
) -> StudyDecision[list[AnswerStatus]]:
    """Decide what becomes of answers, each on its own; see `StudyStore.record_answers`.

    The same answer of somebody else to the same question is a repeated one: the first counts.
    """
    _check_same(known, record)
    statuses: list[AnswerStatus] = []
    events: list[StudyEvent] = []
    taken: dict[int, bytes] = {}
    for question, given in answers:
        packed, before = encode_answer(given), taken.get(question, known.answers.get(question))
        if before is not None:
            statuses.append(AnswerStatus.DUPLICATE if before == packed else AnswerStatus.CONFLICT)
        elif not 1 <= question <= known.record.asked:
            statuses.append(AnswerStatus.UNKNOWN)
        else:
            taken[question] = packed
            events.append(QuestionAnswered(question, given, respondents.get(question, "")))
            statuses.append(AnswerStatus.ACCEPTED)
    after = replace(known.record, answered=known.record.answered + len(taken))
    return StudyDecision(statuses, StudyCommit(tuple(events), record=after, answers=taken))


def change_links(
    known: KnownStudy, record: StudyRecord, event: LinkCreated | LinkRevoked, so_far: KnownLinks
) -> StudyDecision[bool]:
    """Decide what becomes of a link; see `StudyStore.record_link`."""
    _check_same(known, record)
    study = known.record
    if study.link_events != so_far.link_events:
        return StudyDecision(answer=False)
    after = replace(study, link_events=study.link_events + 1)
    return StudyDecision(answer=True, commit=StudyCommit((event,), record=after))


def answer_by_link(
    known: KnownStudy, record: StudyRecord, wanted: StudyRequest, *, list_number: int, given: Answer, so_far: KnownLinks
) -> StudyDecision[AskStatus]:
    """Decide what becomes of an answer that came through a link: its question is asked and answered at once."""
    if known.record.link_events != so_far.link_events:
        return StudyDecision(AskStatus.STALE)
    asking = ask(known, record, wanted, lists=(list_number,), asked=so_far.asked)
    status, asked, number = asking.answer.status, asking.commit, asking.answer.first
    if status is not AskStatus.ASKED or asked is None or asked.record is None:
        return StudyDecision(status, asked)
    commit = replace(
        asked,
        events=(*asked.events, QuestionAnswered(number, given)),
        record=replace(asked.record, answered=asked.record.answered + 1),
        answers={number: encode_answer(given)},
    )
    return StudyDecision(status, commit)


def import_answers(
    known: KnownStudy, record: StudyRecord, part: ImportPart, event: AnswersImported
) -> StudyDecision[ImportOutcome]:
    """Decide what becomes of a part of an import of answers; see `StudyStore.record_import`."""
    _check_same(known, record)
    outcome = recall_part(known.imported or KnownImport(), part)
    if outcome is not None:
        return StudyDecision(outcome, StudyCommit())
    imported = known.record.imported + part.accepted
    if imported > MOST_IMPORTED:
        raise study_refusal("study_imported", known.record.name)
    outcome = ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, appended(0))
    commit = StudyCommit((event,), record=replace(known.record, imported=imported), part=(part, outcome))
    return StudyDecision(outcome, commit)


def _check_same(known: KnownStudy, record: StudyRecord) -> None:
    """Refuse a record of a study that was created anew since."""
    if known.record.incarnation != record.incarnation:
        raise study_refusal("no_study", record.name)
