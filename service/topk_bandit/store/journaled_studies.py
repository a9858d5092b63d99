"""A store of studies that reads what a rule needs, lets it decide, and commits what has not changed meanwhile."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import NotFoundError
from topk_bandit.store.journaled import TRIES, too_fast
from topk_bandit.store.log import ImportProgress
from topk_bandit.store.rules import studies
from topk_bandit.store.rules.decisions import position_of
from topk_bandit.store.study_archives import StudyRequest
from topk_bandit.store.study_log import StudyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.domain.studies import (
        Answer,
        AnswersImported,
        DesignEnd,
        DesignProgress,
        LinkCreated,
        LinkRevoked,
        StudyName,
    )
    from topk_bandit.store.log import ImportOutcome, ImportPart
    from topk_bandit.store.rules.studies import KnownStudy, StudyCommit, StudyDecision
    from topk_bandit.store.study_log import AnswerStatus, AskOutcome, AskStatus, KnownLinks, StudyRecord

__all__ = ["JournaledStudies", "SoughtStudy"]

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class SoughtStudy:
    """What a rule needs to know of a study beside its record and its lease.

    Attributes
    ----------
    request_id
        Of a request for questions; None for none.
    questions
        Numbers of questions whose answers are needed.
    part
        Id of an import and first row of a part of it; None for no import.
    """

    request_id: str | None = None
    questions: tuple[int, ...] = ()
    part: tuple[str, int] | None = None


class JournaledStudies(StudyStore):
    """The commands of a `StudyStore` that rules decide, for stores that read and commit."""

    @abstractmethod
    async def _read(self, name: StudyName, sought: SoughtStudy) -> KnownStudy:
        """Return what is known of a study, or raise `NotFoundError`."""

    @abstractmethod
    async def _commit(self, known: KnownStudy, commit: StudyCommit, *, is_durable: bool) -> int | None:
        """Commit a decision; return the position of its first event, 0 without any, or None if it is stale."""

    async def _restart(self, name: StudyName, digest: str) -> StudyRecord:
        """Create a study once more that is there; see `StudyStore.create_study`."""
        await self._decide(name, SoughtStudy(), lambda known: studies.restart(known, digest))
        return await self.get_study(name)

    async def claim_design(self, name: StudyName, *, owner: str, lease_ms: int) -> StudyRecord | None:
        """See `StudyStore.claim_design`."""
        record, _ = await self._decide(
            name,
            SoughtStudy(),
            lambda known: studies.claim(known, owner=owner, lease_ms=lease_ms),
            is_durable=False,
        )
        return record

    async def report_design(
        self, record: StudyRecord, *, owner: str, lease_ms: int, progress: DesignProgress | None
    ) -> bool:
        """See `StudyStore.report_design`."""
        try:
            is_ours, _ = await self._decide(
                record.name,
                SoughtStudy(),
                lambda known: studies.report(known, record, owner=owner, lease_ms=lease_ms, progress=progress),
                is_durable=False,
            )
        except NotFoundError:
            return False
        return is_ours

    async def end_design(self, record: StudyRecord, end: DesignEnd) -> StudyRecord:
        """See `StudyStore.end_design`."""
        await self._decide(record.name, SoughtStudy(), lambda known: studies.end_design(known, record, end))
        return await self.get_study(record.name)

    async def ask(
        self, record: StudyRecord, *, request_id: str, count: int, lists: Sequence[int], asked: int
    ) -> AskOutcome:
        """See `StudyStore.ask`."""
        wanted = StudyRequest(request_id, count, 0, 0)
        outcome, _ = await self._decide(
            record.name,
            SoughtStudy(request_id=request_id),
            lambda known: studies.ask(known, record, wanted, lists=lists, asked=asked),
        )
        return outcome

    async def record_answers(
        self,
        record: StudyRecord,
        answers: Sequence[tuple[int, Answer]],
        *,
        respondents: Mapping[int, str] | None = None,
    ) -> Sequence[AnswerStatus]:
        """See `StudyStore.record_answers`."""
        questions = dict.fromkeys(question for question, _ in answers)
        statuses, _ = await self._decide(
            record.name,
            SoughtStudy(questions=tuple(questions)),
            lambda known: studies.answer(known, record, answers, respondents or {}),
        )
        return statuses

    async def record_link(self, record: StudyRecord, event: LinkCreated | LinkRevoked, *, known: KnownLinks) -> bool:
        """See `StudyStore.record_link`."""
        is_recorded, _ = await self._decide(
            record.name, SoughtStudy(), lambda now: studies.change_links(now, record, event, known)
        )
        return is_recorded

    async def record_link_answer(
        self, record: StudyRecord, *, request_id: str, list_number: int, answer: Answer, known: KnownLinks
    ) -> AskStatus:
        """See `StudyStore.record_link_answer`."""
        wanted = StudyRequest(request_id, 1, 0, 0)
        status, _ = await self._decide(
            record.name,
            SoughtStudy(request_id=request_id),
            lambda now: studies.answer_by_link(
                now, record, wanted, list_number=list_number, given=answer, so_far=known
            ),
        )
        return status

    async def find_import(self, name: StudyName, import_id: str) -> ImportProgress:
        """See `StudyStore.find_import`."""
        known = await self._read(name, SoughtStudy(part=(import_id, 0)))
        return known.imported.progress if known.imported else ImportProgress()

    async def record_import(self, record: StudyRecord, part: ImportPart, event: AnswersImported) -> ImportOutcome:
        """See `StudyStore.record_import`."""
        outcome, first = await self._decide(
            record.name,
            SoughtStudy(part=part.place),
            lambda known: studies.import_answers(known, record, part, event),
        )
        return replace(outcome, position=position_of(outcome.position, first))

    async def _decide(
        self,
        name: StudyName,
        sought: SoughtStudy,
        rule: Callable[[KnownStudy], StudyDecision[_Answer]],
        *,
        is_durable: bool = True,
    ) -> tuple[_Answer, int]:
        """Return what a rule decides, and the position of the first event that was committed of it, 0 without any."""
        for _ in range(TRIES):
            known = await self._read(name, sought)
            decision = rule(known)
            if decision.commit is None:
                return decision.answer, 0
            first = await self._commit(known, decision.commit, is_durable=is_durable)
            if first is not None:
                return decision.answer, first
        raise too_fast(name)
