"""Answers as people give them: what they are kept as, and which field is to blame where they can't be."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from tests.studies.test_studies import PLAIN

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import (
    AnswerKind,
    AnswersImported,
    ChoiceAnswer,
    DeclinedAnswer,
    DeclineReason,
    GivenBestWorst,
    GivenChoice,
    GivenDecline,
    GivenPastAnswer,
    GivenRanking,
    GivenTiers,
    LoggedStudyEvent,
    RankingAnswer,
    StudyCreated,
    TiersAnswer,
)
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.studies.analysis import StudyAnalysis, count_imported
from topk_bandit.studies.given_answers import read_answer
from topk_bandit.studies.imports import RowsOfAnswers, read_import
from topk_bandit.studies.model import StudyModel, begin, fold
from topk_bandit.studies.pool import build_pool

SHOWN = ("a", "b", "c", "d")
SKIPPED, NONE = DeclineReason.SKIPPED, DeclineReason.NONE_OF_THESE


@pytest.mark.parametrize(
    ("given", "kind", "kept"),
    [
        pytest.param(GivenTiers((("d",), ("b",))), AnswerKind.RANKING, TiersAnswer(((3,), (1,), (0, 2))), id="top two"),
        pytest.param(
            GivenTiers((("d", "b"), ("a", "c"))), AnswerKind.RANKING, TiersAnswer(((1, 3), (0, 2))), id="ties"
        ),
        pytest.param(
            GivenTiers((("d", "c", "b", "a"),)), AnswerKind.CHOICE, TiersAnswer(((0, 1, 2, 3),)), id="all tied"
        ),
        pytest.param(GivenTiers((("d",), ("b",), ("a",))), AnswerKind.RANKING, RankingAnswer((3, 1, 0, 2)), id="whole"),
        pytest.param(GivenTiers((("d",),)), AnswerKind.CHOICE, ChoiceAnswer(3), id="choice"),
        pytest.param(GivenTiers((("d",),)), AnswerKind.RANKING, TiersAnswer(((3,), (0, 1, 2))), id="best of a ranking"),
        pytest.param(GivenBestWorst("c", "a"), AnswerKind.RANKING, TiersAnswer(((2,), (1, 3), (0,))), id="best, worst"),
        pytest.param(GivenDecline(SKIPPED), AnswerKind.RATINGS, DeclinedAnswer(SKIPPED), id="skipped"),
        pytest.param(GivenDecline(NONE), AnswerKind.CHOICE, DeclinedAnswer(NONE), id="none"),
    ],
)
def test_an_answer_is_kept_in_one_form(given: GivenTiers, kind: AnswerKind, kept: TiersAnswer) -> None:
    assert read_answer(given, SHOWN, kind=kind) == kept


def test_a_pair_may_be_tied_and_its_ends_are_a_choice() -> None:
    assert read_answer(GivenTiers((("b", "a"),)), ("a", "b"), kind=AnswerKind.PAIR) == TiersAnswer(((0, 1),))
    assert read_answer(GivenBestWorst("b", "a"), ("a", "b"), kind=AnswerKind.PAIR) == ChoiceAnswer(1)
    assert read_answer(GivenBestWorst("b", "a"), ("a", "b"), kind=AnswerKind.RANKING) == RankingAnswer((1, 0))


@pytest.mark.parametrize(
    ("given", "kind", "field"),
    [
        (GivenTiers(()), AnswerKind.RANKING, "tiers.tiers"),
        (GivenTiers((("a",), ())), AnswerKind.RANKING, "tiers.tiers[1].item_ids"),
        (GivenTiers((("a", "b"), ("c", "a"))), AnswerKind.RANKING, "tiers.tiers[1].item_ids[1]"),
        (GivenTiers((("a", "e"),)), AnswerKind.RANKING, "tiers.tiers[0].item_ids[1]"),
        (GivenTiers((("a",),)), AnswerKind.RATINGS, "ratings"),
        (GivenBestWorst("e", "a"), AnswerKind.RANKING, "best_worst.best_item_id"),
        (GivenBestWorst("a", ""), AnswerKind.RANKING, "best_worst.worst_item_id"),
        (GivenBestWorst("a", "a"), AnswerKind.CHOICE, "best_worst.worst_item_id"),
        (GivenBestWorst("a", "b"), AnswerKind.RATINGS, "ratings"),
    ],
)
def test_a_bad_answer_is_named_by_its_field(given: GivenTiers, kind: AnswerKind, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        read_answer(given, SHOWN, kind=kind)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (GivenPastAnswer("", (), GivenDecline(SKIPPED)), "rows[0].item_ids"),
        (GivenPastAnswer("", (), GivenBestWorst("i0", "i1")), "rows[0].item_ids"),
        (GivenPastAnswer("", (), GivenTiers((("i0",),))), "rows[0].tiers.tiers"),
        (GivenPastAnswer("", ("i0", "i1"), GivenTiers((("i2",),))), "rows[0].tiers.tiers[0].item_ids[0]"),
    ],
)
def test_a_bad_row_of_an_import_is_named_by_its_field(row: GivenPastAnswer, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        read_import(PLAIN, RowsOfAnswers("old", 0, (row,)))
    assert refused.value.field == field


def imported(*rows: GivenPastAnswer) -> StudyModel:
    model = begin("x", LoggedStudyEvent(1, 5, StudyCreated(PLAIN)))
    event = read_import(PLAIN, RowsOfAnswers("old", 0, rows))[1]
    assert isinstance(event, AnswersImported)
    return fold(model, LoggedStudyEvent(2, 6, event))


def analysed(model: StudyModel) -> StudyAnalysis:
    pool = build_pool(model.settings)
    return StudyAnalysis(model, pool, lambda: count_imported(model, pool))


def test_declined_answers_are_counted_and_change_nothing_that_is_learned() -> None:
    shown = ("i1", "i2", "i4")
    ranked = GivenPastAnswer("", shown, GivenRanking(("i4", "i1", "i2")))
    declined = [GivenPastAnswer("", shown, GivenDecline(reason)) for reason in (SKIPPED, NONE, SKIPPED)]
    alone, both = imported(ranked), imported(declined[0], ranked, *declined[1:])
    assert (both.skipped, both.none_of_these, both.answer_count, len(both.imported)) == (2, 1, 1, 4)
    np.testing.assert_array_equal(
        analysed(both).learn().utilities.mean, analysed(alone).learn().utilities.mean, strict=True
    )


def test_the_top_of_a_list_and_its_whole_order_are_learned_alike_where_they_say_the_same() -> None:
    shown = ("i1", "i2", "i4")
    whole = imported(GivenPastAnswer("", shown, GivenRanking(("i4", "i1", "i2"))))
    top = imported(GivenPastAnswer("", shown, GivenTiers((("i4",), ("i1",)))))
    assert dict(whole.imported) == dict(top.imported)


def test_answers_of_people_have_the_likelihood_of_all_orders_that_fit() -> None:
    """By enumeration."""
    utilities = np.array([0.3, -1.0, 0.9, 0.2])

    def enumerate_orders(fits: object) -> float:
        total = 0.0
        for order in permutations(range(4)):
            if fits(order):  # type: ignore[operator]
                weights = np.exp(utilities[list(order)])
                total += float(np.prod([one / weights[n:].sum() for n, one in enumerate(weights)]))
        return math.log(total)

    def score(given: GivenTiers | GivenBestWorst | GivenChoice) -> float:
        answer = read_answer(given, SHOWN, kind=AnswerKind.RANKING)
        assert isinstance(answer, TiersAnswer)
        return float(TieredAnswers.of([answer.tiers], n_items=4).score(utilities)[0])

    top = score(GivenTiers((("c",), ("a",))))
    assert top == pytest.approx(enumerate_orders(lambda order: order[:2] == (2, 0)))
    ends = enumerate_orders(lambda order: (order[0], order[3]) == (2, 1))
    assert score(GivenBestWorst("c", "b")) == pytest.approx(ends)
    tied = enumerate_orders(lambda order: set(order[:2]) == {0, 3})
    assert score(GivenTiers((("a", "d"),))) == pytest.approx(tied)
