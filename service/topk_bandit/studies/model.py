"""A study as its log tells it: the fold, and what can be computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.studies import (
    Answered,
    AnswerKind,
    ChoiceAnswer,
    DesignChosen,
    Question,
    QuestionList,
    QuestionsAsked,
    RankingAnswer,
    RatingsAnswer,
    StudyCreated,
    StudyDesign,
)
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.optimal import Feedback, SubsetDesign
from topk_bandit.preferences.inference import learned
from topk_bandit.preferences.questions import RELATIVE_GAP, Catalogue, next_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.studies import Answer, LoggedStudyEvent, StudySettings
    from topk_bandit.preferences.designs.optimal import Progress
    from topk_bandit.preferences.inference import Learned

    Counts = NDArray[np.int64]

__all__ = ["StudyModel", "StudyMoment", "catalogue_of", "designed", "utilities_of"]

_Kind = TypeVar("_Kind", RatingsAnswer, RankingAnswer, ChoiceAnswer)

_BYTES_PER_FEATURE = 16
_BYTES_PER_QUESTION = 500
"""What a feature of an item under a query, and a question with its answer, take in memory, about."""


def catalogue_of(settings: StudySettings) -> Catalogue:
    """Return what a study asks about, or raise `InvalidArgumentError` when no answer could tell its items apart."""
    items = np.array([item.features for item in settings.items])
    queries = np.array([query.features for query in settings.queries]) if settings.queries else None
    feedback = Feedback.RATING if settings.answer_kind is AnswerKind.RATINGS else Feedback.RANKING
    try:
        return Catalogue.of(items, queries, feedback=feedback)
    except InvalidArgumentError as error:
        raise InvalidArgumentError("study.items", error.problem) from error


def designed(
    settings: StudySettings, *, rng: np.random.Generator, watch: Callable[[Progress, float], bool]
) -> StudyDesign:
    """Return a study's design.

    Parameters
    ----------
    watch
        Is told now and then how far the design is, and the gap that it aims at; true ends it as it is then.
    """
    catalogue = catalogue_of(settings)
    target = RELATIVE_GAP * catalogue.span.rank
    try:
        found = catalogue.designed(
            list_size=settings.list_size,
            relative_gap=RELATIVE_GAP,
            rng=rng,
            watch=lambda progress: watch(progress, target),
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError("study.items", error.problem) from error
    rows = np.asarray(found.subsets)
    return StudyDesign(
        lists=tuple(
            QuestionList(int(list_of[0] // catalogue.n_items), tuple((list_of % catalogue.n_items).tolist()))
            for list_of in rows
        ),
        weights=tuple(np.asarray(found.weights, dtype=np.float64).tolist()),
        log_det=float(found.log_det),
        gap=float(found.gap),
        target_gap=target,
        steps=int(found.steps),
    )


def utilities_of(study: StudyMoment) -> Learned:
    """Return what a study's answers tell; the library's word on what they can't tell becomes a `NotReadyError`."""
    try:
        return learned(study.catalogue.span.coordinates, study.given())
    except InvalidArgumentError as error:
        raise NotReadyError("PREFERENCES_UNDETERMINED", f"the answers do not tell utilities: {error}") from error


@dataclass(frozen=True, eq=False)
class StudyMoment:
    """A study at one moment, for computing on another thread.

    Attributes
    ----------
    asked, answered
        How often each list of the design was asked about, and answered.
    answers
        Each answer with the number of its question's list.
    """

    settings: StudySettings
    catalogue: Catalogue
    design: StudyDesign | None
    asked: Counts
    answered: Counts
    answers: tuple[tuple[int, Answer], ...]

    @cached_property
    def subsets(self) -> SubsetDesign:
        """The design with its lists as rows of the catalogue."""
        design = self._design
        rows = [[self.row(one.query, item) for item in one.items] for one in design.lists]
        return SubsetDesign(
            np.array(rows, dtype=np.int64), np.array(design.weights), design.log_det, design.gap, design.steps
        )

    def row(self, query: int, item: int) -> int:
        """Return the row of the catalogue for an item under a query."""
        return query * self.catalogue.n_items + item

    def next_lists(self, count: int) -> tuple[int, ...]:
        """Return which lists to ask about next; see `preferences.questions.next_lists`."""
        return tuple(next_lists(self.catalogue, self.subsets, asked=self.asked, count=count).tolist())

    def gathered(self) -> float:
        """Return which share of the whole budget's information was gathered; see `Catalogue.gathered`."""
        subsets = self.subsets.subsets
        return self.catalogue.gathered(
            self.catalogue.information(subsets, self.answered),
            self.catalogue.information(subsets, self.subsets.weights),
            budget=self.settings.budget,
        )

    def given(self) -> Orderings | Ratings:
        """Return the answers as the preference models take them."""
        n_rows = len(self.catalogue.span.coordinates)
        shown = [self._rows_of(number) for number, _ in self.answers]
        kind = self.settings.answer_kind
        if kind is AnswerKind.RATINGS:
            ratings = [_expected(answer, RatingsAnswer).values for _, answer in self.answers]
            return Ratings.of(
                [row for rows in shown for row in rows], [one for values in ratings for one in values], n_items=n_rows
            )
        if kind is AnswerKind.RANKING:
            orders = [_expected(answer, RankingAnswer).places for _, answer in self.answers]
            ranked = [[rows[place] for place in places] for rows, places in zip(shown, orders, strict=True)]
            return Orderings.from_rankings(ranked, n_items=n_rows)
        places = [_expected(answer, ChoiceAnswer).place for _, answer in self.answers]
        chosen = [rows[place] for rows, place in zip(shown, places, strict=True)]
        return Orderings.from_choices(chosen, shown, n_items=n_rows)

    def _rows_of(self, number: int) -> list[int]:
        one = self._design.lists[number]
        return [self.row(one.query, item) for item in one.items]

    @property
    def _design(self) -> StudyDesign:
        if self.design is None:
            raise CorruptDataError("questions were asked before there was a design")
        return self.design


class StudyModel:
    """A study as far as its log is folded; belongs to one task at a time.

    Attributes
    ----------
    last
        The newest event that is folded in.
    design
        None until it is there.
    lists
        For each question its list, in order.
    requests
        Ids of the requests that were answered.
    answers
        By question.
    """

    def __init__(self, incarnation: str, first: LoggedStudyEvent) -> None:
        if not isinstance(first.event, StudyCreated):
            raise CorruptDataError(f"a study's log begins with {type(first.event).__name__}")
        self.incarnation = incarnation
        self.settings: StudySettings = first.event.settings
        self.last = first
        self.design: StudyDesign | None = None
        self.lists: list[int] = []
        self.requests: set[str] = set()
        self.answers: dict[int, Answer] = {}
        self._ids: list[str] = []
        self._numbers: dict[str, int] = {}
        self._catalogue: Catalogue | None = None

    @property
    def version(self) -> int:
        """Position of the newest event that is folded in."""
        return self.last.position

    @property
    def memory_bytes(self) -> int:
        """What the model takes in memory, about."""
        items, queries = self.settings.items, self.settings.queries
        numbers = len(items) * len(items[0].features)
        if queries:
            numbers *= len(queries) * len(queries[0].features)
        return _BYTES_PER_FEATURE * numbers + _BYTES_PER_QUESTION * len(self.lists)

    def fold(self, logged: LoggedStudyEvent) -> None:
        """Take in the event after `last`."""
        match logged.event:
            case DesignChosen(design=design):
                self.design = design
            case QuestionsAsked(request_id, lists):
                self._ask(request_id, lists)
            case Answered(question, answer):
                self.answers[question] = answer
            case _:
                pass
        self.last = logged

    def _ask(self, request_id: str, lists: Sequence[int]) -> None:
        self.requests.add(request_id)
        for number, one in enumerate(lists):
            self.lists.append(one)
            self._ids.append(_question_id(self.incarnation, request_id, number))
            self._numbers[self._ids[-1]] = len(self.lists)

    def number_of(self, question_id: str) -> int | None:
        """Return a question's number, None when no such question is known."""
        return self._numbers.get(question_id)

    def list_of(self, number: int) -> QuestionList:
        """Return the list that a question is about."""
        if self.design is None:
            raise CorruptDataError("questions were asked before there was a design")
        return self.design.lists[self.lists[number - 1]]

    def question(self, number: int) -> Question:
        """Return a question."""
        shown = self.list_of(number)
        settings = self.settings
        return Question(
            question_id=self._ids[number - 1],
            query_id=settings.queries[shown.query].query_id if settings.queries else "",
            item_ids=tuple(settings.items[item].item_id for item in shown.items),
        )

    def moment(self) -> Callable[[], StudyMoment]:
        """Return a function that gives the study as it is now; it may run on another thread."""
        lists, answers, design, settings = tuple(self.lists), dict(self.answers), self.design, self.settings

        def at_this_moment() -> StudyMoment:
            catalogue = self._catalogue
            if catalogue is None:
                catalogue = self._catalogue = catalogue_of(settings)
            size = 0 if design is None else len(design.lists)
            of_answers = [lists[number - 1] for number in answers]
            return StudyMoment(
                settings=settings,
                catalogue=catalogue,
                design=design,
                asked=np.bincount(np.array(lists, dtype=np.int64), minlength=size),
                answered=np.bincount(np.array(of_answers, dtype=np.int64), minlength=size),
                answers=tuple(zip(of_answers, answers.values(), strict=True)),
            )

        return at_this_moment


def _question_id(incarnation: str, request_id: str, number: int) -> str:
    text = f"{number} {request_id}".encode()
    return blake2b(text, key=incarnation.encode()[:64], digest_size=12).hexdigest()


def _expected(answer: Answer, kind: type[_Kind]) -> _Kind:
    if not isinstance(answer, kind):
        raise CorruptDataError(f"a study that takes {kind.__name__} has {answer!r}")
    return answer
