"""Callers who make a study: they create it, ask its questions, bring the answers, and take it as the bandit's prior."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.actions import Action
from tests.simulation.feedback import NAME, RECENT, draw_patience, word_of
from tests.simulation.importing import Receipt
from tests.simulation.ledger import Deletion, Questioned, Response, SentAnswer

from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.domain.studies import (
    AnswerKind,
    ChoiceAnswer,
    DeclinedAnswer,
    DesignState,
    GivenChoice,
    GivenDecline,
    GivenPastAnswer,
    GivenRanking,
    GivenRatings,
    GivenTiers,
    PastAnswer,
    QuestionList,
    RankingAnswer,
    RatingsAnswer,
    StudyItem,
    StudyName,
    StudyQuery,
    StudySettings,
    SubmittedAnswer,
    TiersAnswer,
)
from topk_bandit.studies.imports import RowsOfAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    import numpy as np
    from tests.simulation.feedback import Callers
    from tests.simulation.ledger import SentRows
    from tests.simulation.worker import Worker

    from topk_bandit.domain.studies import Answer, AnswerOutcome, GivenAnswer, Question
    from topk_bandit.store.log import ImportProgress

__all__ = ["STUDY", "Interviews", "PastAnswers", "draw_study"]

STUDY = StudyName(NAME.tenant, "taste")
ITEMS = 6
MOST_QUESTIONS = 3
AT_FIRST = 4
"""So many questions are answered before a bandit begins with the study as its prior."""

DESIGN_POLL_SECONDS = 1.0
MOST_POLLS = 60

T = TypeVar("T")


def draw_study(rng: np.random.Generator) -> StudySettings:
    """Draw a study of the items that the bandit begins with."""
    kind = list(AnswerKind)[int(rng.integers(len(AnswerKind)))]
    queries = tuple(StudyQuery(f"q{n}", tuple(rng.normal(size=2).round(3).tolist())) for n in range(3))
    return StudySettings(
        items=tuple(StudyItem(f"i{n}", ()) for n in range(1, ITEMS + 1)),
        queries=queries if rng.random() < 0.4 else (),
        answer_kind=kind,
        list_size=2 if kind is AnswerKind.PAIR else int(rng.integers(2, 4)),
        budget=24,
    )


def _draw_answer(rng: np.random.Generator, kind: AnswerKind, size: int) -> Answer:
    match kind:
        case AnswerKind.RATINGS:
            return RatingsAnswer(tuple(rng.normal(size=size).round(3).tolist()))
        case AnswerKind.RANKING:
            return RankingAnswer(tuple(rng.permutation(size).tolist()))
        case AnswerKind.CHOICE | AnswerKind.PAIR:
            return ChoiceAnswer(int(rng.integers(size)))


def _as_given(answer: Answer, shown: Sequence[str]) -> GivenAnswer:
    """Return an answer as a caller names it."""
    match answer:
        case RatingsAnswer(values):
            return GivenRatings(tuple(zip(shown, values, strict=True))[::-1])
        case RankingAnswer(places):
            return GivenRanking(tuple(shown[place] for place in places))
        case ChoiceAnswer(place):
            return GivenChoice(shown[place])
        case TiersAnswer(tiers):
            return GivenTiers(tuple(tuple(shown[place] for place in tier) for tier in tiers))
        case DeclinedAnswer(reason):
            return GivenDecline(reason)


def _word(result: AnswerOutcome | TopkBanditError) -> str:
    return word_of(result) if isinstance(result, TopkBanditError) else str(result)


class PastAnswers:
    """The study, which takes in answers that were given elsewhere."""

    rows = "answers"
    may_skip = False

    def __init__(self, settings: StudySettings) -> None:
        self._settings = settings

    def draw(self, rng: np.random.Generator, count: int, *, skips: bool) -> tuple[PastAnswer, ...]:  # noqa: ARG002
        """See `tests.simulation.importing.Receiver.draw`; none is skipped."""
        return tuple(self._draw_one(rng) for _ in range(count))

    def _draw_one(self, rng: np.random.Generator) -> PastAnswer:
        kind = self._settings.answer_kind
        size = 2 if kind is AnswerKind.PAIR else int(rng.integers(2, 5))
        items = tuple(sorted(rng.permutation(ITEMS)[:size].tolist()))
        query = int(rng.integers(max(1, len(self._settings.queries))))
        return PastAnswer(QuestionList(query, items), _draw_answer(rng, kind, size))

    async def send(self, worker: Worker, sent: SentRows) -> Receipt:
        """See `tests.simulation.importing.Receiver.send`."""
        rows = tuple(self._write_row(row) for row in sent.rows if isinstance(row, PastAnswer))
        outcome = await worker.studies.import_answers(STUDY, RowsOfAnswers(sent.import_id, sent.first_row, rows))
        return Receipt(outcome.next_row, outcome.accepted, outcome.position)

    def seek(self, worker: Worker, import_id: str) -> Coroutine[object, object, ImportProgress]:
        """See `tests.simulation.importing.Receiver.seek`."""
        return worker.studies.find_import(STUDY, import_id)

    def _write_row(self, row: PastAnswer) -> GivenPastAnswer:
        shown = tuple(self._settings.items[item].item_id for item in row.shown.items)
        query = self._settings.queries[row.shown.query].query_id if self._settings.queries else ""
        return GivenPastAnswer(query, shown[::-1], _as_given(row.answer, shown))


class Interviews:
    """Callers of a shop who know its study.

    Attributes
    ----------
    acts
        What carries out each kind of action.
    """

    def __init__(self, shop: Callers, settings: StudySettings) -> None:
        self._shop = shop
        self._ledger = shop.ledger
        self._settings = settings
        self.acts: Mapping[str, Callable[[Action, np.random.Generator], Coroutine[None, None, None]]] = {
            "create the study": self._create,
            "delete the study": self._delete,
            "cancel the design": self._cancel,
            "ask questions": self._ask,
            "ask questions again": self._ask_again,
            "answer questions": self._answer,
            "answer again": self._answer_again,
            "answer otherwise": self._answer_otherwise,
            "read preferences": self._read,
            "take the study as prior": self._take_as_prior,
        }

    async def open(self, worker: Worker, rng: np.random.Generator) -> bool:
        """Create the study, and answer its first questions; return whether a bandit can begin with it."""
        action = Action(-1, 0.0, "create the study", 0)
        await worker.studies.create_study(STUDY, self._settings)
        for _ in range(MOST_POLLS):
            if (await worker.studies.get_design(STUDY)).state is DesignState.READY:
                break
            await asyncio.sleep(DESIGN_POLL_SECONDS)
        await self._question(action, worker, rng, "first", AT_FIRST)
        await self._submit(action, worker, rng, self._draw_answers(rng, self._questions()))
        try:
            await worker.studies.prior(STUDY.tenant, STUDY.study, context_dim=2)
        except TopkBanditError:
            return False
        return True

    # The study.

    async def _create(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self._shop.any_worker(rng):
            await self._tell(action, rng, worker, worker.studies.create_study(STUDY, self._settings), "creates")

    async def _delete(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self._shop.any_worker(rng):
            deletion = Deletion(action.number, self._shop.now())
            self._ledger.deletions.append(deletion)
            deletion.response, _ = await self._tell(action, rng, worker, worker.studies.delete_study(STUDY), "deletes")

    async def _cancel(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self._shop.any_worker(rng):
            await self._tell(action, rng, worker, worker.studies.cancel_design(STUDY), "cancels the design of")

    async def _read(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self._shop.any_worker(rng):
            call = worker.studies.get_preferences(STUDY, after=0, queries=1, items=ITEMS)
            await self._tell(action, rng, worker, call, "reads the preferences of")

    async def _take_as_prior(self, action: Action, rng: np.random.Generator) -> None:
        """Have the bandit take what the study knows now, or go on without it."""
        if worker := self._shop.any_worker(rng):
            study = STUDY.study if rng.random() < 0.7 else ""
            call = worker.bandits.update_bandit(
                NAME, lambda settings: replace(settings, prior_study=study, prior_digest="")
            )
            await self._tell(action, rng, worker, call, f"takes {study or 'nothing'} as the prior of a bandit of")

    # Questions.

    async def _ask(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self._shop.any_worker(rng):
            count = int(rng.integers(1, MOST_QUESTIONS + 1))
            await self._question(action, worker, rng, f"q{action.number}", count)

    async def _ask_again(self, action: Action, rng: np.random.Generator) -> None:
        """Ask under an id that was used, sometimes for another number of questions."""
        known, worker = [calls[0] for calls in list(self._ledger.questioned.values())[-RECENT:]], None
        if known and (worker := self._shop.any_worker(rng)):
            again = known[int(rng.integers(len(known)))]
            count = again.count + (rng.random() < 0.2)
            await self._question(action, worker, rng, again.request_id, count)

    async def _question(
        self, action: Action, worker: Worker, rng: np.random.Generator, request_id: str, count: int
    ) -> None:
        entry = Questioned(action.number, request_id, count)
        self._ledger.questioned[request_id].append(entry)
        call = worker.studies.next_questions(STUDY, count=count, request_id=request_id)
        patience, deaf = draw_patience(rng)
        entry.response, entry.batch, entry.outcome = await self._shop.call(worker, call, patience, deaf=deaf)
        given = "" if entry.batch is None else ",".join(one.question_id[:8] for one in entry.batch.questions)
        words = f"is asked for {count} questions as {request_id}: {entry.response} {entry.outcome}{given}"
        self._shop.note(action.number, f"worker {worker.number} {words}")

    # Answers.

    def _questions(self) -> list[Question]:
        """Return the questions that callers were given of late."""
        calls = [call for calls in list(self._ledger.questioned.values())[-RECENT:] for call in calls]
        given = [question for call in calls if call.batch is not None for question in call.batch.questions]
        return list({one.question_id: one for one in given}.values())

    def _draw_answers(self, rng: np.random.Generator, questions: Sequence[Question]) -> dict[str, Answer]:
        kind = self._settings.answer_kind
        return {one.question_id: _draw_answer(rng, kind, len(one.item_ids)) for one in questions}

    async def _answer(self, action: Action, rng: np.random.Generator) -> None:
        waiting = [one for one in self._questions() if one.question_id not in self._ledger.answers]
        if waiting and (worker := self._shop.any_worker(rng)):
            chosen = [waiting[place] for place in rng.permutation(len(waiting))[: 1 + int(rng.integers(3))].tolist()]
            await self._submit(action, worker, rng, self._draw_answers(rng, chosen))

    async def _answer_again(self, action: Action, rng: np.random.Generator) -> None:
        sent = [one for calls in list(self._ledger.answers.values())[-RECENT:] for one in calls]
        if sent and (worker := self._shop.any_worker(rng)):
            again = sent[int(rng.integers(len(sent)))]
            await self._submit(action, worker, rng, {again.question_id: again.answer})

    async def _answer_otherwise(self, action: Action, rng: np.random.Generator) -> None:
        answered = [one for one in self._questions() if one.question_id in self._ledger.answers]
        if answered and (worker := self._shop.any_worker(rng)):
            other = answered[int(rng.integers(len(answered)))]
            await self._submit(action, worker, rng, self._draw_answers(rng, [other]))

    async def _submit(
        self, action: Action, worker: Worker, rng: np.random.Generator, answers: Mapping[str, Answer]
    ) -> None:
        now, shown = self._shop.now(), {one.question_id: one.item_ids for one in self._questions()}
        entries = [SentAnswer(action.number, one, answer, now) for one, answer in answers.items() if one in shown]
        for entry in entries:
            self._ledger.answers[entry.question_id].append(entry)
        given = [
            SubmittedAnswer(entry.question_id, _as_given(entry.answer, shown[entry.question_id])) for entry in entries
        ]
        patience, deaf = draw_patience(rng)
        call = worker.studies.submit_answers(STUDY, given)
        response, results, word = await self._shop.call(worker, call, patience, deaf=deaf)
        words = [word] * len(entries) if results is None else [_word(result) for result in results]
        for entry, entry.outcome in zip(entries, words, strict=True):
            entry.response = response
            what = f"is answered {entry.question_id[:8]} with {entry.answer}: {response} {entry.outcome}"
            self._shop.note(action.number, f"worker {worker.number} {what}")

    async def _tell(
        self,
        action: Action,
        rng: np.random.Generator,
        worker: Worker,
        call: Coroutine[object, object, T],
        what: str,
    ) -> tuple[Response, T | None]:
        patience, deaf = draw_patience(rng)
        response, result, word = await self._shop.call(worker, call, patience, deaf=deaf)
        self._shop.note(action.number, f"worker {worker.number} {what} the study: {response} {word}")
        return response, result
