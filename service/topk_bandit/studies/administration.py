"""The use cases of studies: create them, ask questions, take in answers, and return what was learned.

What is acknowledged is in the store, and workers that share a store agree, whatever each has in memory. Calls never
block the event loop: whatever takes long is computed on the executor. A design is never computed here, only handed to
the `Designer`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.domain.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.domain.quotas import Quota
from topk_bandit.domain.studies import (
    MODELS_OF,
    AnswerOutcome,
    DesignCancelled,
    DesignState,
    QuestionBatch,
    StudyName,
)
from topk_bandit.store.data_versions import check_answer, check_study_version
from topk_bandit.store.study_log import AnswerStatus, AskStatus
from topk_bandit.studies.exports import read_study_page
from topk_bandit.studies.given_answers import label_of, read_answer
from topk_bandit.studies.imports import read_import
from topk_bandit.studies.links import StudyLinks
from topk_bandit.studies.pool import build_pool
from topk_bandit.studies.restores import StudyRestores
from topk_bandit.studies.results import check_is_prior, make_preferences, make_prior
from topk_bandit.studies.study_cache import StudyCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.domain.bandits import Prior
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.domain.studies import (
        Answer,
        ModelScore,
        PreferenceModel,
        Preferences,
        StudySettings,
        SubmittedAnswer,
    )
    from topk_bandit.preferences.agreement import Agreement
    from topk_bandit.preferences.study_models import LearnedUtilities
    from topk_bandit.store.line_imports import Lines, Receipt
    from topk_bandit.store.log import ImportOutcome, ImportProgress
    from topk_bandit.store.study_log import AskOutcome, StudyRecord, StudyStore
    from topk_bandit.studies.analysis import StudyAnalysis
    from topk_bandit.studies.designer import Designer
    from topk_bandit.studies.exports import StudyPlace
    from topk_bandit.studies.imports import RowsOfAnswers
    from topk_bandit.studies.study_cache import CachedStudy

__all__ = ["Studies"]

_Result = TypeVar("_Result")

CHOICES_PER_CALL = 16
"""How often a call chooses questions again because others were asked meanwhile, before it gives up."""

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25
"""The shortest and the longest pause between two reads of the store while a call waits for a design."""


class Studies:
    """What can be done with studies.

    Arguments are well-formed. What needs the study itself to judge, such as the items of an answer, is judged here, and
    an error names the field as the wire does.

    Parameters
    ----------
    executor
        Where questions are chosen and utilities learned.
    quotas
        How many studies a tenant may have.
    new_id
        Returns a fresh incarnation, or request id.
    most_bytes
        How much memory studies may take; see `StudyCache`.
    clock_ms
        Milliseconds since 1970, by which links end.

    Attributes
    ----------
    links
        What can be done with links.
    """

    def __init__(
        self,
        store: StudyStore,
        designer: Designer,
        executor: Executor,
        *,
        hooks: Hooks,
        quotas: Quotas,
        new_id: Callable[[], str],
        most_bytes: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._designer = designer
        self._executor = executor
        self._hooks = hooks
        self._quotas = quotas
        self._new_id = new_id
        self._cache = StudyCache(store, most_bytes=most_bytes)
        self._restores = StudyRestores(store, executor, quotas=quotas)
        self.links = StudyLinks(store, self._cache, executor, hooks=hooks, clock_ms=clock_ms)

    async def create_study(self, name: StudyName, settings: StudySettings) -> StudyRecord:
        """Create a study and begin its design, or return the equal one; its design begins again if it had no result."""
        check_study_version(settings, self._store.data_version)
        await self._in_thread(partial(build_pool, settings))
        quota = self._quotas.limit(name.tenant, Quota.STUDIES)
        record = await self._store.create_study(name, settings, incarnation=self._new_id(), quota=quota)
        if record.state is DesignState.DESIGNING:
            self._designer.begin(name)
        return record

    async def get_study(self, name: StudyName) -> tuple[StudyRecord, StudySettings, int]:
        """Return a study with its settings, and how many items are in any list of its design."""
        async with self._cache.use(name) as entry:
            return entry.record, entry.model.settings, entry.model.designed_items

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """Return up to `limit` studies of a tenant whose id sorts after `after`."""
        return await self._store.list_studies(tenant, after=after, limit=limit)

    async def delete_study(self, name: StudyName) -> None:
        """Remove a study with all that was answered."""
        await self._store.delete_study(name)
        self._designer.abandon(name)

    async def export_study(self, name: StudyName, place: StudyPlace | None) -> tuple[list[str], StudyPlace | None]:
        """Return a page of a study as lines; see `topk_bandit.studies.exports.read_study_page`."""
        return await read_study_page(self._store, name, place)

    async def import_study(self, name: StudyName, sent: Lines) -> Receipt[StudyRecord]:
        """Take in lines of a study; see `StudyRestores.take`. A design that was under way is begun again."""
        receipt = await self._restores.take(name, sent)
        if receipt.made is not None and receipt.made.state is DesignState.DESIGNING:
            self._designer.begin(name)
        return receipt

    async def get_design(self, name: StudyName) -> StudyRecord:
        """Return a study; its record says how far the design is."""
        return await self._store.get_study(name)

    async def cancel_design(self, name: StudyName) -> None:
        """Cancel an unfinished design; one that has ended stays as it is."""
        record = await self._store.get_study(name)
        if record.state is DesignState.DESIGNING:
            await self._store.end_design(record, DesignCancelled(record.attempt))
            self._designer.abandon(name)

    async def wait_for_design(self, name: StudyName, *, seconds: float) -> StudyRecord:
        """Return a study once its design has ended, or as it is after `seconds`."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            record = await self._store.get_study(name)
            left = deadline - time.monotonic()
            if record.state is not DesignState.DESIGNING or left <= 0.0:
                return record
            await asyncio.sleep(min(pause, left))
            pause = min(2.0 * pause, LONGEST_PAUSE_SECONDS)

    async def next_questions(self, name: StudyName, *, count: int, request_id: str) -> QuestionBatch:
        """Ask up to `count` more questions, fewer when the budget has no more; the same id gives the same questions.

        An empty `request_id` is replaced by a fresh one.
        """
        request_id = request_id or self._new_id()
        for _ in range(CHOICES_PER_CALL):
            async with self._cache.use(name) as entry:
                lists = await self._choose_lists(entry, count, request_id)
                outcome = await self._store.ask(
                    entry.record,
                    request_id=request_id,
                    count=count,
                    lists=lists,
                    asked=len(entry.model.questions),
                )
                if outcome.status is not AskStatus.STALE:
                    return await self._return_questions(entry, outcome)
        raise UnavailableError(f"others ask {name} for questions faster than they can be chosen")

    async def submit_answers(
        self, name: StudyName, answers: Sequence[SubmittedAnswer]
    ) -> Sequence[AnswerOutcome | TopkBanditError]:
        """Record answers by question id, with who gave each; return its outcome, or the error for which it was refused.

        An `InvalidArgumentError` names a field below the answer.
        """
        try:
            try:
                results = await self._record_answers(name, answers)
            except NotFoundError:  # the study in memory may be one that was deleted and created again since
                results = await self._record_answers(name, answers)
        except TopkBanditError as error:
            for _ in answers:
                self._hooks.answered(label_of(error))
            raise
        for result in results:
            self._hooks.answered(label_of(result))
        return results

    async def import_answers(self, name: StudyName, sent: RowsOfAnswers) -> ImportOutcome:
        """Record answers that were given elsewhere, all or none, unless they were before.

        Raises
        ------
        InvalidArgumentError
            On ``rows[n]...``: that one can't be taken.
        NotFoundError, ConflictError, NotReadyError, ExhaustedError
            As `StudyStore.record_import` has them.
        """
        async with self._cache.use(name) as entry:
            part, event = await self._in_thread(partial(read_import, entry.model.settings, sent))
            for one in event.answers:
                check_answer(one.answer, self._store.data_version, respondent=one.respondent)
            return await self._store.record_import(entry.record, part, event)

    async def find_import(self, name: StudyName, import_id: str) -> ImportProgress:
        """Return how far an import of answers is."""
        return await self._store.find_import(name, import_id)

    async def get_preferences(
        self,
        name: StudyName,
        *,
        after: int,
        queries: int,
        items: int,
        model: PreferenceModel | None = None,
        compare: bool = False,
    ) -> Preferences:
        """Return what was learned, from query number `after` on.

        Parameters
        ----------
        queries, items
            For how many queries at most, with how many items together; but at least for one query.
        model
            By which model; None is the study's own.
        compare
            Whether to compare all models that the answers allow.

        Raises
        ------
        InvalidArgumentError
            Naming ``model``: it does not learn from the study's kind of answers.
        """
        async with self._cache.use(name) as entry:
            _check_model(entry, model)
            prepared = entry.prepare_analysis()
        analysis, learned = await self._learn(entry, prepared, model)
        agreement = await self._measure_agreement(entry, analysis)
        found = await self._in_thread(
            partial(make_preferences, analysis, learned, agreement, by=model, after=after, queries=queries, items=items)
        )
        if not compare:
            return found
        scores, compared = await self._compare(entry, analysis)
        return replace(found, scores=scores, compared=compared)

    async def prior(self, tenant: str, study: str, *, context_dim: int) -> Prior:
        """Return what a study hands to a bandit of the same tenant whose contexts have `context_dim` numbers.

        Without queries an item's utility is a constant, above the mean item's. With queries it is linear in the query,
        which has to be a context then.

        Raises
        ------
        InvalidArgumentError
            Naming ``prior_study``: there is no such study, it has no answers, or its queries have another number of
            features than the bandit's contexts.
        """
        name = StudyName(tenant, study)
        try:
            async with self._cache.use(name) as entry:
                check_is_prior(name, entry.model, context_dim=context_dim)
                prepared = entry.prepare_analysis()
            analysis, learned = await self._learn(entry, prepared)
        except (NotFoundError, NotReadyError) as error:
            raise InvalidArgumentError("prior_study", str(error)) from error
        return make_prior(study, analysis, learned)

    async def _choose_lists(self, entry: CachedStudy, count: int, request_id: str) -> tuple[int, ...]:
        """Choose lists to ask about; none where the store answers the request otherwise than with new questions."""
        model = entry.model
        left = min(count, model.settings.budget - len(model.questions))
        if model.design is None or left <= 0 or model.knows_request(request_id):
            return ()
        prepared = entry.prepare_analysis()
        return await self._in_thread(lambda: prepared().choose_next_lists(left))

    async def _return_questions(self, entry: CachedStudy, outcome: AskOutcome) -> QuestionBatch:
        model = await entry.fold_new_events()
        prepared = entry.prepare_analysis()
        return QuestionBatch(
            questions=tuple(map(model.question, range(outcome.first, outcome.first + outcome.count))),
            asked=len(model.questions),
            answered=len(model.answers),
            budget=model.settings.budget,
            gathered=await self._in_thread(lambda: prepared().measure_efficiency()),
        )

    async def _record_answers(
        self, name: StudyName, answers: Sequence[SubmittedAnswer]
    ) -> list[AnswerOutcome | TopkBanditError]:
        async with self._cache.use(name, newest=False) as entry:
            if any(sent.question_id not in entry.model.numbers for sent in answers):
                await entry.fold_new_events()
            version = self._store.data_version
            read = [_read(entry, name, sent, version) for sent in answers]
            good = [one for one in read if not isinstance(one, TopkBanditError)]
            both = zip(reversed(read), reversed(answers), strict=True)
            # Of several answers to one question the first counts, with its name.
            respondents = {one[0]: sent.respondent for one, sent in both if not isinstance(one, TopkBanditError)}
            statuses = iter(await self._store.record_answers(entry.record, good, respondents=respondents))
        return [
            one if isinstance(one, TopkBanditError) else _interpret(next(statuses), name, sent.question_id)
            for one, sent in zip(read, answers, strict=True)
        ]

    async def _learn(
        self, entry: CachedStudy, prepared: Callable[[], StudyAnalysis], model: PreferenceModel | None = None
    ) -> tuple[StudyAnalysis, LearnedUtilities]:
        """Return an analysis and what it learns, computed only if other answers were learned from before.

        The study may be used meanwhile.
        """
        analysis = await self._in_thread(prepared)
        chosen = model or analysis.model.settings.chosen_model
        async with entry.learning:
            learned = entry.learned_from(analysis.model)
            if chosen not in learned.utilities:
                learned.utilities[chosen] = await self._in_thread(partial(analysis.learn, chosen))
            return analysis, learned.utilities[chosen]

    async def _measure_agreement(self, entry: CachedStudy, analysis: StudyAnalysis) -> Agreement:
        """Return how far the answers agree, computed only if it was computed of other answers before."""
        async with entry.learning:
            learned = entry.learned_from(analysis.model)
            if learned.agreement is None:
                learned.agreement = await self._in_thread(analysis.measure_agreement)
            return learned.agreement

    async def _compare(self, entry: CachedStudy, analysis: StudyAnalysis) -> tuple[tuple[ModelScore, ...], int]:
        """Return what `StudyAnalysis.compare` does, computed only if other answers were compared before."""
        async with entry.comparing:
            learned = entry.learned_from(analysis.model)
            if learned.scores is None:
                learned.scores = await self._in_thread(analysis.compare)
            return learned.scores

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _check_model(entry: CachedStudy, model: PreferenceModel | None) -> None:
    allowed = MODELS_OF[entry.model.settings.answer_kind]
    if model is not None and model not in allowed:
        names = ", ".join(allowed)
        raise InvalidArgumentError("model", f"must be one that the study's answers allow: {names}; not {model}")


def _read(
    entry: CachedStudy, name: StudyName, sent: SubmittedAnswer, version: int
) -> tuple[int, Answer] | TopkBanditError:
    """Return the question's number with the answer as the log keeps it, or the error in it."""
    model = entry.model
    number = model.numbers.get(sent.question_id)
    if number is None:
        return NotFoundError(f"{name}/questions/{sent.question_id}")
    shown = model.question(number).item_ids
    try:
        answer = read_answer(sent.answer, shown, kind=model.settings.answer_kind)
        check_answer(answer, version, respondent=sent.respondent)
    except (InvalidArgumentError, NotReadyError) as error:
        return error
    return number, answer


def _interpret(status: AnswerStatus, name: StudyName, question_id: str) -> AnswerOutcome | TopkBanditError:
    match status:
        case AnswerStatus.ACCEPTED:
            return AnswerOutcome.ACCEPTED
        case AnswerStatus.DUPLICATE:
            return AnswerOutcome.DUPLICATE
        case AnswerStatus.CONFLICT:
            return ConflictError("ANSWER_EXISTS", f"question {question_id} has another answer already")
        case AnswerStatus.UNKNOWN:
            return NotFoundError(f"{name}/questions/{question_id}")
