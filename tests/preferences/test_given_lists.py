"""Designs of lists that are given: among no others, certified, and of what these lists can tell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.preferences.plain_designs import best_log_det, gradients, log_det

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import PreferenceModel
from topk_bandit.preferences.designs.given_subsets import connect
from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_subsets, ranking_matrices, rating_matrices
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists, count_answers
from topk_bandit.preferences.study_models import fit
from topk_bandit.preferences.tiers import TieredAnswers


def lists_of(n_lists: int, size: int, *, n_items: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(n_items, size, replace=False) for _ in range(n_lists)])


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(("size", "n_lists"), [(2, 20), (4, 8), (4, 30), (7, 15)])
def test_given_lists_are_weighed_as_a_general_optimiser_weighs_them(
    feedback: Feedback, size: int, n_lists: int
) -> None:
    features, lists = np.random.default_rng(size).normal(size=(25, 3)), lists_of(n_lists, size, n_items=25)
    found = d_optimal_subsets(
        features, subset_size=size, gap_tolerance=1e-3, rng=np.random.default_rng(0), feedback=feedback, given=lists
    )
    make = rating_matrices if feedback is Feedback.RATING else ranking_matrices
    matrices, number_of = make(features[lists]), {frozenset(one): number for number, one in enumerate(lists.tolist())}
    weights = np.zeros(n_lists)
    weights[[number_of[frozenset(one)] for one in found.subsets.tolist()]] = found.weights
    assert found.gap <= 1e-3
    assert found.gap == pytest.approx(max(gradients(matrices, weights).max() - 3.0, 0.0), abs=1e-8)
    assert found.log_det == pytest.approx(log_det(matrices, weights), abs=1e-8)
    assert best_log_det(matrices) - found.gap - 1e-6 <= found.log_det


def test_lists_in_other_orders_and_copies_of_lists_change_nothing() -> None:
    features, lists = np.random.default_rng(1).normal(size=(12, 3)), lists_of(9, 4, n_items=12)
    plain, copied = (
        d_optimal_subsets(features, subset_size=4, gap_tolerance=1e-2, rng=np.random.default_rng(0), given=given)
        for given in (lists, np.vstack([lists[::-1, ::-1], lists]))
    )
    np.testing.assert_array_equal(plain.subsets, copied.subsets)
    np.testing.assert_array_equal(plain.weights, copied.weights)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([[0, 1]], "shape (L, 3)"),
        ([0, 1, 2], "shape (L, 3)"),
        (np.zeros((0, 3), dtype=np.int64), "shape (L, 3)"),
        ([[0.0, 1.0, 2.0]], "integers"),
        ([[0, 1, 9]], "items from 0 to 8"),
        ([[-1, 1, 2]], "items from 0 to 8"),
        ([[1, 1, 2]], "none twice"),
        ([[3, 4, 5]], "one group"),
        ([[0, 1, 2], [6, 7, 8]], "one group"),
    ],
)
def test_lists_that_are_none_of_the_items_are_refused(given: object, problem: str) -> None:
    groups = [0, 0, 0, 0, 1, 1, 1, 2, 2]
    with pytest.raises(InvalidArgumentError) as caught:
        d_optimal_subsets(
            np.random.default_rng(0).normal(size=(9, 2)),
            subset_size=3,
            gap_tolerance=0.1,
            rng=np.random.default_rng(0),
            groups=groups,
            given=given,
        )
    assert caught.value.field == "given"
    assert problem in caught.value.problem


def test_items_are_connected_by_chains_of_lists() -> None:
    labels = connect(np.array([[0, 3, 5], [5, 1, 7], [2, 6, 8]]), 10)
    assert len({labels[item] for item in (0, 3, 5, 1, 7)}) == 1
    assert len({labels[item] for item in (2, 6, 8)}) == 1
    assert len(set(labels.tolist())) == 4
    assert len(set(connect(np.array([[0], [2]]), 3).tolist())) == 3


@pytest.mark.parametrize("features_alone", [False, True])
@pytest.mark.parametrize("feedback", list(Feedback))
def test_only_given_lists_are_asked_about(feedback: Feedback, features_alone: bool) -> None:  # noqa: FBT001
    rng, lists = np.random.default_rng(3), lists_of(40, 4, n_items=20)
    pool = QuestionPool.of(
        rng.normal(size=(20, 3)), None, feedback=feedback, features_alone=features_alone, given=lists
    )
    design = pool.design(list_size=4, budget=100, rng=rng)
    assert {frozenset(one) for one in design.subsets.tolist()} <= {frozenset(one) for one in lists.tolist()}
    asked, besides = count_answers(pool, design, [])
    chosen = choose_next_lists(pool, design, asked=asked, besides=besides, count=100)
    have = pool.information(design.subsets, np.bincount(chosen, minlength=len(asked)))
    of_one = pool.information(design.subsets, design.weights)
    assert pool.measure_efficiency(have, of_one, budget=100, list_size=4) == pytest.approx(1.0, abs=0.05)


def test_what_lists_tell_of_features_orders_items_that_no_list_has() -> None:
    """Lists are of the first ten and of the next ten; nobody is asked about the last ten, nor across."""
    rng, features = np.random.default_rng(5), np.random.default_rng(6).normal(size=(30, 2))
    lists = np.vstack([lists_of(15, 3, n_items=10), 10 + lists_of(15, 3, n_items=10, seed=1)])
    pool = QuestionPool.of(features, None, feedback=Feedback.RANKING, given=lists)
    design = pool.design(list_size=3, budget=200, rng=rng)
    utilities = features @ [2.0, -3.0]
    answers = [
        [[row] for row in sorted(design.subsets[number], key=lambda row: -utilities[row] - rng.gumbel())]
        for number in design.draw(200, rng)
    ]
    learned = fit(PreferenceModel.PLACKETT_LUCE, pool, TieredAnswers.of(answers, n_items=30)).utilities
    assert np.corrcoef(learned.mean, utilities)[0, 1] > 0.97
    assert (learned.standard_deviation[20:].mean() > learned.standard_deviation[:20].mean()) == pool.has_own_parts


def test_directions_that_no_list_tells_are_left_out() -> None:
    """Lists differ in the first feature alone; the second, by which halves differ, can't be learned."""
    features = np.column_stack([np.arange(8.0), np.repeat([0.0, 100.0], 4)])
    halves = np.array([[0, 1, 2], [1, 2, 3], [4, 5, 6], [5, 6, 7]])
    pool = QuestionPool.of(features, None, feedback=Feedback.RANKING, features_alone=True, given=halves)
    assert pool.span.rank == 1
    steps = [pool.span.coordinates[first, 0] - pool.span.coordinates[then, 0] for first, then in pairwise(range(8))]
    np.testing.assert_allclose(steps, steps[0])
    rated = QuestionPool.of(features, None, feedback=Feedback.RATING, features_alone=True, given=halves[:2])
    assert rated.span.rank == 2  # the first feature, and the one
    with pytest.raises(InvalidArgumentError, match="alike"):
        QuestionPool.of(np.repeat(np.eye(2), 4, axis=0), None, feedback=Feedback.RANKING, given=halves)
