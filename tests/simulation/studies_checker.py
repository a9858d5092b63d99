"""What must hold of the study: each acknowledged question is there, and each acknowledged answer exactly once.

The logs are the archive's, one for each time that the study was created. What was acknowledged is in the one of its
time, also if the study was deleted later.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.imports_checker import LoggedRows, check_imports
from tests.simulation.ledger import Response

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    AnswersImported,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    QuestionAnswered,
    QuestionsAsked,
)
from topk_bandit.studies.model import begin, fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.ledger import Ledger, Questioned, SentAnswer
    from tests.simulation.server import Archive

    from topk_bandit.domain.studies import LoggedStudyEvent

__all__ = ["check_studies"]


def check_studies(ledger: Ledger, archive: Archive) -> Iterator[str]:
    """Yield what is broken of the study, whenever it was created."""
    logs = [_Log(incarnation, one.events) for incarnation, one in archive.studies.items() if one.events]
    for log in logs:
        yield from _check_log(ledger, log)
    for calls in ledger.questioned.values():
        for call in calls:
            yield from _check_questions(call, logs)
    for sent in ledger.answers.values():
        for one in sent:
            yield from _check_answer(one, sent, logs, ledger)
    deleted = sum(one.deletions for one in archive.studies.values())
    acknowledged = sum(deletion.response is Response.ANSWER for deletion in ledger.deletions)
    if deleted < acknowledged:
        yield f"{acknowledged} deletions of the study were acknowledged, and {deleted} took place"
    yield from check_imports(ledger, [log.imported for log in logs], kind="answers", deletions=ledger.deletions)


class _Log:
    """One log of the study, and what it comes to as far as it can be folded."""

    def __init__(self, incarnation: str, events: Sequence[LoggedStudyEvent]) -> None:
        self.events = events
        self.problem = ""
        self.asked = [logged.event for logged in events if isinstance(logged.event, QuestionsAsked)]
        self.answered = [logged.event for logged in events if isinstance(logged.event, QuestionAnswered)]
        self.imported = [
            LoggedRows(logged.position, logged.event.import_id, logged.event.first_row, logged.event.answers)
            for logged in events
            if isinstance(logged.event, AnswersImported)
        ]
        self.model = begin(incarnation, events[0])
        try:
            for logged in events[1:]:
                self.model = fold(self.model, logged)
        except CorruptDataError as error:
            self.problem = str(error)

    def find_answers(self, question_id: str) -> list[object]:
        """Return the answers that the log has to a question."""
        number = self.model.numbers.get(question_id)
        return [event.answer for event in self.answered if event.question == number]


def _check_log(ledger: Ledger, log: _Log) -> Iterator[str]:
    if log.problem:
        yield f"the study's log can't be folded: {log.problem}"
    if len(log.model.questions) > log.model.settings.budget:
        yield f"the study asked {len(log.model.questions)} questions"
    yield from _check_answered(ledger, log)
    yield from _check_asked(ledger, log)
    yield from _check_designs(log)


def _check_answered(ledger: Ledger, log: _Log) -> Iterator[str]:
    for question, times in Counter(event.question for event in log.answered).items():
        if times > 1:
            yield f"question {question} of the study is answered {times} times"
    for question_id in log.model.numbers:
        sent = [one.answer for one in ledger.answers.get(question_id, [])]
        if any(answer not in sent for answer in log.find_answers(question_id)):
            yield f"question {question_id} has an answer that nobody gave"


def _check_asked(ledger: Ledger, log: _Log) -> Iterator[str]:
    for request_id, times in Counter(event.request_id for event in log.asked).items():
        if times > 1:
            yield f"questions were asked {times} times as {request_id}"
        if request_id not in ledger.questioned:
            yield f"questions were asked as {request_id}, and nobody asked for them"


def _check_designs(log: _Log) -> Iterator[str]:
    ends = [one.event for one in log.events if isinstance(one.event, DesignChosen | DesignCancelled | DesignFailed)]
    for attempt, times in Counter(end.attempt for end in ends).items():
        if times > 1:
            yield f"attempt {attempt} at a design ended {times} times"
    if any(isinstance(end, DesignFailed) for end in ends):
        yield "a design failed"


def _check_questions(call: Questioned, logs: Sequence[_Log]) -> Iterator[str]:
    """Yield what is wrong with questions that a caller was given."""
    for question in call.batch.questions if call.batch is not None else ():
        known = [log.model for log in logs if question.question_id in log.model.numbers]
        if not known:
            yield f"question {question.question_id} was given out, and is lost"
        elif all(model.question(model.numbers[question.question_id]) != question for model in known):
            yield f"question {question.question_id} was given out otherwise than the log has it"
    if call.batch is not None and len(call.batch.questions) > call.count:
        yield f"{call.request_id} was given {len(call.batch.questions)} questions for {call.count}"


def _check_answer(one: SentAnswer, sent: Sequence[SentAnswer], logs: Sequence[_Log], ledger: Ledger) -> Iterator[str]:
    """Yield what is wrong with the response to an answer."""
    found = [answer for log in logs for answer in log.find_answers(one.question_id)]
    match one.outcome:
        case "accepted" | "duplicate" if one.answer not in found:
            yield f"the answer {one.answer} to {one.question_id} was acknowledged, and is lost"
        case "ANSWER_EXISTS" if all(other.answer == one.answer for other in sent):
            yield f"the answer to {one.question_id} is called another one, and nobody gave another"
        case "not_found" if not ledger.deletions:
            yield f"question {one.question_id} was given out, and its answer was NOT_FOUND without a deletion"
