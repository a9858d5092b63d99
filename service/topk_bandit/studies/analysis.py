"""What can be computed from a study: what to ask next, how much is known, and the items' utilities.

An analysis is of one model, and models are values: it may run on any thread while the study goes on. It never changes
anything; orders of tied items are drawn from one seed, so that all processes agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.studies import (
    MODELS_OF,
    AnswerKind,
    ChoiceAnswer,
    DeclinedAnswer,
    RankingAnswer,
    RatingsAnswer,
    TiersAnswer,
)
from topk_bandit.preferences.agreement import measure_agreement
from topk_bandit.preferences.designs.optimal import SubsetDesign
from topk_bandit.preferences.held_out import compare_models
from topk_bandit.preferences.questions import choose_next_lists, count_answers
from topk_bandit.preferences.respondents import RespondentNames
from topk_bandit.preferences.study_models import RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.studies.pool import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topk_bandit.domain.studies import Answer, ModelScore, PastAnswer, PreferenceModel
    from topk_bandit.preferences.agreement import Agreement
    from topk_bandit.preferences.questions import QuestionPool
    from topk_bandit.preferences.study_models import LearnedUtilities, StudyAnswers
    from topk_bandit.preferences.tiers import Tiers
    from topk_bandit.studies.model import StudyModel

__all__ = ["Gathered", "StudyAnalysis", "count_imported"]

Gathered: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
"""How many answers are about each list of the design, and the information of all others."""

_Kind = TypeVar("_Kind", bound="Answer")


@dataclass(frozen=True, eq=False)
class StudyAnalysis:
    """Computations on a study.

    Attributes
    ----------
    model
        The study.
    pool
        What its settings allow to ask about.
    imported
        Returns what `count_imported` does of the model and the pool.
    """

    model: StudyModel
    pool: QuestionPool
    imported: Callable[[], Gathered]

    def choose_next_lists(self, count: int) -> tuple[int, ...]:
        """Return the numbers of the lists to ask about next; see `preferences.questions.choose_next_lists`."""
        imported, besides = self.imported()
        asked = imported + self._count(question.list_number for question in self.model.questions.merge().values())
        return tuple(choose_next_lists(self.pool, self._design, asked=asked, besides=besides, count=count).tolist())

    def count_answers_by_list(self) -> NDArray[np.int64]:
        """Return how many answers came about each list of the design, declined ones left out."""
        return self.imported()[0] + self._count(self._answered_lists)

    def measure_efficiency(self) -> float:
        """Return the share of the whole budget's information that was gathered; see `QuestionPool`."""
        design, (imported, besides) = self._design, self.imported()
        return self.pool.measure_efficiency(
            self.pool.information(design.subsets, imported + self._count(self._answered_lists)) + besides,
            self.pool.information(design.subsets, design.weights),
            budget=self.model.settings.budget,
            list_size=self.model.settings.list_size,
        )

    def learn(self, model: PreferenceModel | None = None) -> LearnedUtilities:
        """Return what the answers show of utilities, by a model or by the study's own.

        Raises
        ------
        NotReadyError
            PREFERENCES_UNDETERMINED: they do not determine utilities. MODEL_TOO_SLOW: the model would take minutes.
        """
        settings = self.model.settings
        try:
            return fit(model or settings.chosen_model, self.pool, self._given, stream_rate=settings.stream_rate)
        except InvalidArgumentError as error:
            raise _explain(error) from error

    def measure_agreement(self) -> Agreement:
        """Return how far the answers agree."""
        return measure_agreement(self._given)

    def compare(self) -> tuple[tuple[ModelScore, ...], int]:
        """Return how well each model that the answers allow predicts them; see `held_out.compare_models`.

        Raises
        ------
        NotReadyError
            As `learn` has it.
        """
        settings = self.model.settings
        models = MODELS_OF[settings.answer_kind]
        try:
            return compare_models(models, self.pool, self._given, stream_rate=settings.stream_rate)
        except InvalidArgumentError as error:
            raise _explain(error) from error

    @cached_property
    def _design(self) -> SubsetDesign:
        return _design_of_rows(self.model, self.pool)

    @cached_property
    def _rows(self) -> list[list[int]]:
        """For each list of the design the rows of the pool that stand for its items."""
        lists = self.model.design.lists if self.model.design else ()
        return rows_of(lists, n_items=self.pool.n_items)

    @cached_property
    def _answered_lists(self) -> list[int]:
        """The number of the list that each answer is about, without declined ones."""
        questions = self.model.questions.merge()
        return [questions[number].list_number for number in _without_declined(self.model.answers.merge())]

    def _count(self, lists: Iterable[int]) -> NDArray[np.int64]:
        """Return how often each list of the design occurs."""
        return np.bincount(np.fromiter(lists, dtype=np.int64), minlength=len(self._rows))

    @cached_property
    def _given(self) -> StudyAnswers:
        """The answers in the form that preference models take."""
        n_rows = len(self.pool.span.coordinates)
        imported = _learned_from(self.model)
        shown = [self._rows[number] for number in self._answered_lists]
        shown += rows_of((past.shown for past in imported), n_items=self.pool.n_items)
        answers = [*_without_declined(self.model.answers.merge()).values(), *(past.answer for past in imported)]
        respondents = self.respondents.numbers
        if self.model.settings.answer_kind is AnswerKind.RATINGS:
            values = [_expect(answer, RatingsAnswer).values for answer in answers]
            return RatedLists(shown, values, n_rows, respondents)
        return TieredAnswers.of(list(map(_tiers_of, answers, shown)), n_items=n_rows, respondents=respondents)

    @cached_property
    def respondents(self) -> RespondentNames:
        """Who gave each answer, without declined ones."""
        named = self.model.respondents.merge()
        own = [named.get(number, "") for number in _without_declined(self.model.answers.merge())]
        return RespondentNames(own + [past.respondent for past in _learned_from(self.model)])


def _tiers_of(answer: Answer, rows: Sequence[int]) -> Tiers:
    """Return the rows of an answer in tiers, best first."""
    match answer:
        case RankingAnswer(places):
            return [[rows[place]] for place in places]
        case ChoiceAnswer(place):
            return [[rows[place]], [row for row in rows if row != rows[place]]]
        case TiersAnswer(tiers):
            return [[rows[place] for place in tier] for tier in tiers]
        case _:
            raise CorruptDataError(f"a study that takes orders has {answer!r}")


def _without_declined(answers: Mapping[int, Answer]) -> dict[int, Answer]:
    return {number: answer for number, answer in answers.items() if not isinstance(answer, DeclinedAnswer)}


def _learned_from(model: StudyModel) -> list[PastAnswer]:
    """Return the answers from elsewhere, without declined ones."""
    return [past for past in model.imported.merge().values() if not isinstance(past.answer, DeclinedAnswer)]


def _explain(error: InvalidArgumentError) -> NotReadyError:
    if error.field in {"model", "compare"}:
        return NotReadyError("MODEL_TOO_SLOW", error.problem)
    return NotReadyError("PREFERENCES_UNDETERMINED", f"the answers do not tell utilities: {error}")


def count_imported(model: StudyModel, pool: QuestionPool) -> Gathered:
    """Return what answers from elsewhere are about: see `preferences.questions.count_answers`."""
    shown = (past.shown for past in _learned_from(model))
    return count_answers(pool, _design_of_rows(model, pool), rows_of(shown, n_items=pool.n_items))


def _design_of_rows(model: StudyModel, pool: QuestionPool) -> SubsetDesign:
    """Return the design, its lists as rows of the pool."""
    design = model.chosen_design
    subsets = np.array(rows_of(design.lists, n_items=pool.n_items), dtype=np.int64)
    return SubsetDesign(subsets, np.array(design.weights), design.log_det, design.gap, design.steps)


def _expect(answer: Answer, kind: type[_Kind]) -> _Kind:
    if not isinstance(answer, kind):
        raise CorruptDataError(f"a study that takes {kind.__name__} has {answer!r}")
    return answer
