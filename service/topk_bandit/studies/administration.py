"""What people are asked and what is learned from them: the use cases of studies."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from topk_bandit.domain.bandits import ItemUtility, Prior
from topk_bandit.domain.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.domain.studies import (
    AnswerOutcome,
    AskedQuestions,
    DesignCancelled,
    DesignState,
    ItemPreference,
    Preferences,
    QueryPreferences,
    StudyName,
)
from topk_bandit.store.study_log import AnswerStatus, AskStatus
from topk_bandit.studies.given_answers import answer_of
from topk_bandit.studies.model import catalogue_of, utilities_of
from topk_bandit.studies.residents import StudyDesks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.studies import Answer, GivenAnswer, StudySettings
    from topk_bandit.preferences.inference import Learned
    from topk_bandit.preferences.utilities import Utilities
    from topk_bandit.store.study_log import AskOutcome, StudyRecord, StudyStore
    from topk_bandit.studies.designer import Designer
    from topk_bandit.studies.model import StudyMoment
    from topk_bandit.studies.residents import StudyDesk

__all__ = ["Studies"]

_Result = TypeVar("_Result")

DRAWS_PER_CALL = 16
"""How often a call draws questions again because somebody else was asked meanwhile, before it gives up."""

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25
"""How long a wait for a design leaves the store alone between two looks."""


class Studies:
    """The use cases of `topk_bandit.studies.use_cases.StudyUseCases`.

    Parameters
    ----------
    store
        Where studies are kept.
    designer
        Who designs them.
    executor
        Where questions are drawn and utilities learned, away from the event loop.
    hooks
        Where telemetry listens.
    quota
        How many studies a tenant may have.
    new_id
        Returns a fresh incarnation, or request id.
    most_bytes
        What studies may take in memory; see `StudyDesks`.
    """

    def __init__(
        self,
        store: StudyStore,
        designer: Designer,
        executor: Executor,
        *,
        hooks: Hooks,
        quota: int,
        new_id: Callable[[], str],
        most_bytes: int,
    ) -> None:
        self._store = store
        self._designer = designer
        self._executor = executor
        self._hooks = hooks
        self._quota = quota
        self._new_id = new_id
        self._desks = StudyDesks(store, most_bytes=most_bytes)

    async def create_study(self, name: StudyName, settings: StudySettings) -> StudyRecord:
        """See `StudyUseCases.create_study`."""
        await self._in_thread(lambda: catalogue_of(settings))
        record = await self._store.create_study(name, settings, incarnation=self._new_id(), quota=self._quota)
        if record.state is DesignState.DESIGNING:
            self._designer.begin(name)
        return record

    async def get_study(self, name: StudyName) -> tuple[StudyRecord, StudySettings]:
        """See `StudyUseCases.get_study`."""
        async with self._desks.followed(name) as desk:
            return desk.record, desk.model.settings

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """See `StudyUseCases.list_studies`."""
        return await self._store.list_studies(tenant, after=after, limit=limit)

    async def delete_study(self, name: StudyName) -> None:
        """See `StudyUseCases.delete_study`."""
        await self._store.delete_study(name)
        self._designer.ended(name)

    async def get_design(self, name: StudyName) -> StudyRecord:
        """See `StudyUseCases.get_design`."""
        return await self._store.get_study(name)

    async def cancel_design(self, name: StudyName) -> None:
        """See `StudyUseCases.cancel_design`."""
        record = await self._store.get_study(name)
        if record.state is DesignState.DESIGNING:
            await self._store.end_design(record, DesignCancelled(record.attempt))
            self._designer.ended(name)

    async def wait_for_design(self, name: StudyName, *, seconds: float) -> StudyRecord:
        """See `StudyUseCases.wait_for_design`."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            record = await self._store.get_study(name)
            left = deadline - time.monotonic()
            if record.state is not DesignState.DESIGNING or left <= 0.0:
                return record
            await asyncio.sleep(min(pause, left))
            pause = min(2.0 * pause, LONGEST_PAUSE_SECONDS)

    async def next_questions(self, name: StudyName, *, count: int, request_id: str) -> AskedQuestions:
        """See `StudyUseCases.next_questions`."""
        request_id = request_id or self._new_id()
        for _ in range(DRAWS_PER_CALL):
            async with self._desks.followed(name) as desk:
                lists = await self._drawn(desk, count, request_id)
                outcome = await self._store.ask(
                    desk.record, request_id=request_id, count=count, lists=lists, asked=len(desk.model.lists)
                )
                if outcome.status is not AskStatus.STALE:
                    return await self._asked(desk, outcome)
        raise UnavailableError(f"others ask {name} for questions faster than they can be drawn")

    async def submit_answers(
        self, name: StudyName, answers: Sequence[tuple[str, GivenAnswer | None]]
    ) -> Sequence[AnswerOutcome | TopkBanditError]:
        """See `StudyUseCases.submit_answers`."""
        try:
            try:
                results = await self._submitted(name, answers)
            except NotFoundError:  # the study in memory may be one that was deleted and created again since
                results = await self._submitted(name, answers)
        except TopkBanditError as error:
            for _ in answers:
                self._hooks.answered(_word(error))
            raise
        for result in results:
            self._hooks.answered(_word(result))
        return results

    async def preferences(self, name: StudyName, *, after: int, queries: int, items: int) -> Preferences:
        """See `StudyUseCases.preferences`."""
        async with self._desks.followed(name) as desk:
            at_this_moment, key = desk.model.moment(), (desk.model.incarnation, len(desk.model.answers))
        moment = await self._in_thread(at_this_moment)
        learned = await self._learned(desk, key, moment)
        return await self._in_thread(lambda: _preferences(moment, learned, after=after, queries=queries, items=items))

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
            async with self._desks.followed(name) as desk:
                _check_is_prior(name, desk.model.settings, len(desk.model.answers), context_dim)
                at_this_moment, key = desk.model.moment(), (desk.model.incarnation, len(desk.model.answers))
            moment = await self._in_thread(at_this_moment)
            learned = await self._learned(desk, key, moment)
        except (NotFoundError, NotReadyError) as error:
            raise InvalidArgumentError("prior_study", str(error)) from error
        return Prior(study, len(moment.answers), _item_utilities(moment, learned))

    async def _drawn(self, desk: StudyDesk, count: int, request_id: str) -> tuple[int, ...]:
        """Draw questions; none where the store has another answer to the request than new questions."""
        model = desk.model
        left = min(count, model.settings.budget - len(model.lists))
        if model.design is None or left <= 0 or request_id in model.requests:
            return ()
        at_this_moment = model.moment()
        return await self._in_thread(lambda: at_this_moment().next_lists(left))

    async def _asked(self, desk: StudyDesk, outcome: AskOutcome) -> AskedQuestions:
        model = await desk.catch_up()
        at_this_moment = model.moment()
        return AskedQuestions(
            questions=tuple(map(model.question, range(outcome.first, outcome.first + outcome.count))),
            asked=len(model.lists),
            answered=len(model.answers),
            budget=model.settings.budget,
            gathered=await self._in_thread(lambda: at_this_moment().gathered()),
        )

    async def _submitted(
        self, name: StudyName, answers: Sequence[tuple[str, GivenAnswer | None]]
    ) -> list[AnswerOutcome | TopkBanditError]:
        async with self._desks.followed(name, newest=False) as desk:
            if any(desk.model.number_of(question_id) is None for question_id, _ in answers):
                await desk.catch_up()
            read = [_read(desk, name, question_id, given) for question_id, given in answers]
            good = [one for one in read if not isinstance(one, TopkBanditError)]
            statuses = iter(await self._store.record_answers(desk.record, good))
        return [
            one if isinstance(one, TopkBanditError) else _result(next(statuses), name, question_id)
            for one, (question_id, _) in zip(read, answers, strict=True)
        ]

    async def _learned(self, desk: StudyDesk, key: tuple[str, int], moment: StudyMoment) -> Learned:
        """Return what the answers tell, computed anew only when there are others; the study goes on meanwhile."""
        async with desk.learning:
            if desk.learned is None or desk.learned[0] != key:
                desk.learned = key, await self._in_thread(lambda: utilities_of(moment))
            return desk.learned[1]

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _read(
    desk: StudyDesk, name: StudyName, question_id: str, given: GivenAnswer | None
) -> tuple[int, Answer] | TopkBanditError:
    """Return an answer as the log takes it, or what is wrong with it."""
    number = desk.model.number_of(question_id)
    if number is None:
        return NotFoundError(f"{name}/questions/{question_id}")
    shown = desk.model.question(number).item_ids
    try:
        return number, answer_of(given, shown, kind=desk.model.settings.answer_kind)
    except InvalidArgumentError as error:
        return error


def _result(status: AnswerStatus, name: StudyName, question_id: str) -> AnswerOutcome | TopkBanditError:
    match status:
        case AnswerStatus.ACCEPTED:
            return AnswerOutcome.ACCEPTED
        case AnswerStatus.DUPLICATE:
            return AnswerOutcome.DUPLICATE
        case AnswerStatus.CONFLICT:
            return ConflictError("ANSWER_EXISTS", f"question {question_id} has another answer already")
        case AnswerStatus.UNKNOWN:
            return NotFoundError(f"{name}/questions/{question_id}")


def _word(result: AnswerOutcome | TopkBanditError) -> str:
    known = {
        "NotFoundError": "not_found",
        "ConflictError": "conflict",
        "UnavailableError": "unavailable",
        "InvalidArgumentError": "invalid",
    }
    return result.value if isinstance(result, AnswerOutcome) else known.get(type(result).__name__, "refused")


def _preferences(moment: StudyMoment, learned: Learned, *, after: int, queries: int, items: int) -> Preferences:
    item_ids = [item.item_id for item in moment.settings.items]
    query_ids = [query.query_id for query in moment.settings.queries] or [""]
    end = after + max(1, min(queries, items // len(item_ids)))
    found = moment.catalogue.utilities(learned)[after:end]
    return Preferences(
        answered=len(moment.answers),
        gathered=moment.gathered() if moment.design else 0.0,
        total=len(query_ids),
        queries=tuple(
            QueryPreferences(query, _ranked(item_ids, utilities))
            for query, utilities in zip(query_ids[after:end], found, strict=True)
        ),
    )


def _ranked(item_ids: Sequence[str], utilities: Utilities) -> tuple[ItemPreference, ...]:
    """Return items with their utilities, best first."""
    ranks = utilities.ranks
    preferences = [
        ItemPreference(*one)
        for one in zip(
            item_ids, utilities.mean.tolist(), utilities.standard_deviation.tolist(), ranks.tolist(), strict=True
        )
    ]
    return tuple(preferences[index] for index in np.argsort(ranks))


def _check_is_prior(name: StudyName, settings: StudySettings, answers: int, context_dim: int) -> None:
    if not answers:
        raise InvalidArgumentError("prior_study", f"{name} has no answers yet")
    width = len(settings.queries[0].features) if settings.queries else 0
    if width not in {0, context_dim}:
        problem = f"{name} has queries of {width} features, and the bandit contexts of {context_dim} numbers"
        raise InvalidArgumentError("prior_study", problem)


def _item_utilities(moment: StudyMoment, learned: Learned) -> tuple[ItemUtility, ...]:
    settings = moment.settings
    ids = [item.item_id for item in settings.items]
    if not settings.queries:
        [utilities] = moment.catalogue.utilities(learned)
        means = utilities.mean.tolist()
        return tuple(ItemUtility(item_id, constant) for item_id, constant in zip(ids, means, strict=True))
    weights = moment.catalogue.span.basis @ learned.posterior.mean
    features = np.array([item.features for item in settings.items])
    slopes = (features - features.mean(axis=0)) @ weights.reshape(-1, features.shape[1]).T
    return tuple(ItemUtility(item_id, 0.0, tuple(row)) for item_id, row in zip(ids, slopes.tolist(), strict=True))
