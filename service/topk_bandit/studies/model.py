"""A study as the fold of its log: `fold` takes one event further, and nothing else changes a model.

Models are values: older ones stay valid, and may be read on any thread. The same events in the same order give equal
models, whichever process folds them and wherever it pauses. The module never reads a store, a clock or a random number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import (
    AnswersImported,
    DeclinedAnswer,
    DeclineReason,
    DesignCancelled,
    DesignChosen,
    DesignFailed,
    DesignRestarted,
    LinkCreated,
    LinkRevoked,
    Question,
    QuestionAnswered,
    QuestionsAsked,
    StudyCreated,
    StudyLink,
    TiersAnswer,
)
from topk_bandit.studies.growing import GrowingMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.studies import Answer, LoggedStudyEvent, PastAnswer, StudyDesign, StudySettings

__all__ = ["AskedQuestion", "LinkPlace", "StudyModel", "begin", "fold"]

_BETWEEN = "\x1f"
_BYTES_PER_FEATURE = 16
_BYTES_PER_QUESTION = 500
"""About how much memory a feature of an item under a query takes, and a question with its answer."""

_COPIES_OF_LISTS = 3
"""Lists that were given are kept as they are, and as rows of twice the size."""


class LinkPlace(NamedTuple):
    """Which question of which device a link asked: the request of a question that came with its answer.

    Its text has control characters, so that it is no request id of a caller.
    """

    link_id: str
    respondent: str
    number: int

    @classmethod
    def of(cls, request_id: str) -> Self | None:
        """Return what a request id stands for; None for a caller's own."""
        match request_id.split(_BETWEEN):
            case ["link", link_id, respondent, number] if number.isdecimal():
                return cls(link_id, respondent, int(number))
            case _:
                return None

    @property
    def request_id(self) -> str:
        """The text that stands for it."""
        return _BETWEEN.join(("link", self.link_id, self.respondent, str(self.number)))


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that was asked, and the number of its list in the design."""

    question_id: str
    list_number: int


@dataclass(frozen=True, slots=True)
class StudyModel:
    """A study after the event `last`.

    Attributes
    ----------
    design
        None before there is one.
    questions
        All questions asked, by their number.
    numbers
        Number of each question, by its id.
    answers
        By the number of their question, in the order in which they came.
    respondents
        Who gave an answer, by the number of its question; those that nobody is named with are left out.
    imported
        Answers that were given elsewhere, by their number, from 1 for the first that came.
    skipped, none_of_these
        How many of all answers were declined, and why.
    links
        By their id, in the order in which they were made.
    link_events
        How many events of links there were.
    """

    incarnation: str
    settings: StudySettings
    last: LoggedStudyEvent
    design: StudyDesign | None = None
    questions: GrowingMap[int, AskedQuestion] = field(default_factory=GrowingMap)
    numbers: GrowingMap[str, int] = field(default_factory=GrowingMap)
    answers: GrowingMap[int, Answer] = field(default_factory=GrowingMap)
    respondents: GrowingMap[int, str] = field(default_factory=GrowingMap)
    imported: GrowingMap[int, PastAnswer] = field(default_factory=GrowingMap)
    skipped: int = 0
    none_of_these: int = 0
    links: Mapping[str, StudyLink] = field(default_factory=dict)
    link_events: int = 0

    @property
    def version(self) -> int:
        """Log position that is folded in."""
        return self.last.position

    @property
    def memory_bytes(self) -> int:
        """About how much memory the model takes, with the coordinates that are computed from its settings."""
        items, queries = self.settings.items, self.settings.queries
        numbers = len(items) * (len(items[0].features) or len(items))
        if queries:
            numbers *= len(queries) * len(queries[0].features)
        lists = _COPIES_OF_LISTS * len(self.settings.lists)
        return lists + _BYTES_PER_FEATURE * numbers + _BYTES_PER_QUESTION * (len(self.questions) + len(self.imported))

    @property
    def answer_count(self) -> int:
        """How many answers utilities are learned from."""
        return len(self.answers) + len(self.imported) - self.skipped - self.none_of_these

    @property
    def chosen_design(self) -> StudyDesign:
        """The design, or `CorruptDataError` before there is one."""
        if self.design is None:
            raise CorruptDataError("questions were asked before there was a design")
        return self.design

    @property
    def designed_items(self) -> int:
        """How many items are in any list of the design; 0 before there is one."""
        return len({item for one in self.design.lists for item in one.items}) if self.design else 0

    def newer_answers(self) -> Iterator[Answer]:
        """Yield the answers that older data versions can't say."""
        for answer in chain(self.answers.values(), (one.answer for one in self.imported.values())):
            if isinstance(answer, TiersAnswer | DeclinedAnswer):
                yield answer

    def knows_request(self, request_id: str) -> bool:
        """Return whether questions were asked under this request id; a request has at least one question."""
        return self.question_of(request_id) is not None

    def question_of(self, request_id: str) -> int | None:
        """Return the number of a request's first question; None if it was asked none."""
        return self.numbers.get(_question_id(self.incarnation, request_id, 0))

    def question(self, number: int) -> Question:
        """Return a question as it is shown."""
        asked, settings = self.questions[number], self.settings
        shown = self.chosen_design.lists[asked.list_number]
        return Question(
            question_id=asked.question_id,
            query_id=settings.queries[shown.query].query_id if settings.queries else "",
            item_ids=tuple(settings.items[item].item_id for item in shown.items),
        )


def begin(incarnation: str, first: LoggedStudyEvent) -> StudyModel:
    """Return the model after the first event of a log."""
    if not isinstance(first.event, StudyCreated):
        raise CorruptDataError(f"a study's log begins with {type(first.event).__name__}")
    return StudyModel(incarnation, first.event.settings, first)


def fold(model: StudyModel, logged: LoggedStudyEvent) -> StudyModel:
    """Return the model after the next event of its log.

    Raises
    ------
    CorruptDataError
        The event can't follow.
    """
    if logged.position != model.version + 1:
        raise CorruptDataError(f"event {logged.position} can't follow event {model.version}")
    try:
        return _apply(model, logged)
    except ValueError as error:
        raise CorruptDataError(f"event {logged.position} repeats an earlier one: {logged.event!r}") from error


def _apply(model: StudyModel, logged: LoggedStudyEvent) -> StudyModel:
    match logged.event:
        case StudyCreated():
            raise CorruptDataError(f"event {logged.position} creates the study again")
        case DesignChosen(design=design):
            return replace(model, last=logged, design=design)
        case QuestionsAsked(request_id, lists):
            counted = _count_link_answer(replace(model, last=logged), request_id)
            return _add_questions(counted, request_id, lists)
        case QuestionAnswered(question, answer, respondent):
            answered = _add_answer(replace(model, last=logged), question, answer)
            return _count_declined(_name_respondent(answered, question, respondent), [answer])
        case AnswersImported(answers=answers):
            counted = _count_declined(replace(model, last=logged), [one.answer for one in answers])
            return _add_imported(counted, answers)
        case LinkCreated() | LinkRevoked():
            return _put_link(replace(model, last=logged, link_events=model.link_events + 1), logged.event)
        case DesignRestarted() | DesignCancelled() | DesignFailed():
            return replace(model, last=logged)


def _put_link(model: StudyModel, event: LinkCreated | LinkRevoked) -> StudyModel:
    before = model.links.get(event.link_id)
    if isinstance(event, LinkCreated) and before is None:
        link = StudyLink(event.link_id, event.digest, event.settings, model.last.at_ms)
    elif isinstance(event, LinkRevoked) and before is not None:
        link = replace(before, revoked=True)
    else:
        raise CorruptDataError(f"event {model.version} can't be of the link {event.link_id!r}")
    return replace(model, links={**model.links, link.link_id: link})


def _count_link_answer(model: StudyModel, request_id: str) -> StudyModel:
    """Count an answer of a link, if that is what the request stands for."""
    place = LinkPlace.of(request_id)
    if place is None or (link := model.links.get(place.link_id)) is None:
        return model
    respondents = link.respondents + (place.number == 1)
    link = replace(link, answered=link.answered + 1, respondents=respondents, last_answer_ms=model.last.at_ms)
    counted = replace(model, links={**model.links, link.link_id: link})
    return _name_respondent(counted, len(model.questions) + 1, place.respondent)


def _name_respondent(model: StudyModel, question: int, respondent: str) -> StudyModel:
    if not respondent:
        return model
    return replace(model, respondents=model.respondents.add({question: respondent}))


def _add_questions(model: StudyModel, request_id: str, lists: Sequence[int]) -> StudyModel:
    if not all(0 <= one < len(model.chosen_design.lists) for one in lists):
        raise CorruptDataError(f"event {model.version} asks about a list that the design does not have")
    first = len(model.questions) + 1
    ids = [_question_id(model.incarnation, request_id, place) for place in range(len(lists))]
    asked = map(AskedQuestion, ids, lists)
    return replace(
        model,
        questions=model.questions.add(dict(enumerate(asked, first))),
        numbers=model.numbers.add({question_id: number for number, question_id in enumerate(ids, first)}),
    )


def _add_answer(model: StudyModel, question: int, answer: Answer) -> StudyModel:
    if question not in model.questions:
        raise CorruptDataError(f"event {model.version} answers question {question}, which was not asked")
    return replace(model, answers=model.answers.add({question: answer}))


def _count_declined(model: StudyModel, answers: Sequence[Answer]) -> StudyModel:
    reasons = [answer.reason for answer in answers if isinstance(answer, DeclinedAnswer)]
    if not reasons:
        return model
    skipped = reasons.count(DeclineReason.SKIPPED)
    none = model.none_of_these + len(reasons) - skipped
    return replace(model, skipped=model.skipped + skipped, none_of_these=none)


def _add_imported(model: StudyModel, answers: Sequence[PastAnswer]) -> StudyModel:
    n_queries, n_items = max(1, len(model.settings.queries)), len(model.settings.items)
    for one in answers:
        query, items = one.shown.query, one.shown.items
        if not (0 <= query < n_queries and min(items) >= 0 and max(items) < n_items):
            raise CorruptDataError(f"event {model.version} has an answer about items that the study does not have")
    first = len(model.imported) + 1
    return replace(model, imported=model.imported.add(dict(enumerate(answers, first))))


def _question_id(incarnation: str, request_id: str, place: int) -> str:
    """Return the id of the question at a place of a request; every process computes the same one."""
    text = f"{place} {request_id}".encode()
    return blake2b(text, key=incarnation.encode()[:64], digest_size=12).hexdigest()
