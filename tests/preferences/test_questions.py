"""From a pool to questions."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.optimal import Feedback, SubsetDesign, ranking_matrices, rating_matrices
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists


def pool(
    feedback: Feedback = Feedback.RANKING, *, n_queries: int = 0, seed: int = 0, features_alone: bool = True
) -> QuestionPool:
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(n_queries, 2)) if n_queries else None
    return QuestionPool.of(rng.normal(size=(9, 3)), queries, feedback=feedback, features_alone=features_alone)


def design_of(of: QuestionPool, size: int = 3) -> SubsetDesign:
    return of.design(list_size=size, budget=50, rng=np.random.default_rng(1))


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize("n_queries", [0, 4])
def test_a_design_asks_about_lists_of_one_query(feedback: Feedback, n_queries: int) -> None:
    of = pool(feedback, n_queries=n_queries)
    design = design_of(of)
    np.testing.assert_allclose(design.weights.sum(), 1.0)
    assert design.gap <= 0.01 * of.span.rank
    queries = design.subsets // of.n_items
    assert (queries == queries[:, :1]).all()
    np.testing.assert_array_equal(of.groups[design.subsets], queries)


def test_information_is_that_of_all_pairs_of_a_list() -> None:
    of, rng = pool(), np.random.default_rng(2)
    lists = np.array([rng.permutation(9)[:4] for _ in range(5)])
    weights = rng.uniform(size=5)
    pairs = ranking_matrices(of.span.coordinates[lists])
    expected = sum(w * a @ a.T for w, a in zip(weights, pairs, strict=True))
    np.testing.assert_allclose(of.information(lists, weights), expected)


def test_information_of_ratings_is_that_of_the_items() -> None:
    of = pool(Feedback.RATING)
    lists = np.array([[0, 1], [3, 8]])
    items = rating_matrices(of.span.coordinates[lists])
    np.testing.assert_allclose(of.information(lists, [1.0, 2.0]), items[0] @ items[0].T + 2 * items[1] @ items[1].T)


@pytest.mark.parametrize("feedback", list(Feedback))
def test_the_first_questions_are_those_after_which_differences_are_known_best(feedback: Feedback) -> None:
    of = pool(feedback, n_queries=3)
    design = design_of(of)
    rows = of.span.coordinates.reshape(3, 9, -1)
    differences = (rows[:, :, None] - rows[:, None]).reshape(-1, of.span.rank)
    # A ranking of three is a choice of three and one of two: 2/3 of 1/3 and 1/2 of 1 pair each, of 3 pairs.
    share = 1.0 if feedback is Feedback.RATING else (1 / 2 + 2 / 3) / 6
    asked = np.zeros(len(design.weights), dtype=np.int64)
    besides = of.information(design.subsets[:1], [2.0])
    for chosen in choose_next_lists(of, design, asked=asked, besides=besides, count=len(asked) - 1).tolist():
        costs = []
        for other in range(len(asked)):
            counts = asked + (np.arange(len(asked)) == other)
            known = np.eye(of.span.rank) + share * (besides + of.information(design.subsets, counts))
            costs.append(np.einsum("nd,de,ne->", differences, np.linalg.inv(known), differences))
        np.testing.assert_allclose(costs[chosen], min(costs))
        asked[chosen] += 1


def test_later_questions_follow_the_shares() -> None:
    of = pool()
    design = design_of(of)
    size = len(design.weights)
    first = choose_next_lists(of, design, asked=np.zeros(size, dtype=np.int64), count=1000)
    counts = np.bincount(first, minlength=size)
    assert (np.abs(counts - 1000 * design.weights) < 1.0 + 1e-9).all()
    again = choose_next_lists(of, design, asked=np.bincount(first[:400], minlength=size), count=600)
    np.testing.assert_array_equal(again, first[400:])


@pytest.mark.parametrize("feedback", list(Feedback))
def test_many_questions_gather_what_the_design_would(feedback: Feedback) -> None:
    of = pool(feedback, n_queries=3)
    design = design_of(of)
    of_one = of.information(design.subsets, design.weights)
    chosen = choose_next_lists(of, design, asked=np.zeros(len(design.weights), dtype=np.int64), count=300)
    have = of.information(design.subsets[chosen], np.ones(300))
    assert of.measure_efficiency(have, of_one, budget=300, list_size=3) > 0.99


def test_gathered_grows_from_nothing_to_all_in_step_with_the_answers() -> None:
    of = pool()
    design = design_of(of)
    of_one = of.information(design.subsets, design.weights)
    shares = [of.measure_efficiency(count * of_one, of_one, budget=40, list_size=3) for count in range(41)]
    np.testing.assert_allclose(shares, np.arange(41) / 40, atol=1e-9)
    assert of.measure_efficiency(of.information(design.subsets[:1], [1.0]), of_one, budget=40, list_size=3) < 0.01
    assert of.measure_efficiency(100 * of_one, of_one, budget=40, list_size=3) == 1.0


def test_utilities_are_those_of_each_query() -> None:
    of = pool(n_queries=4)
    rows = of.span.coordinates
    theta = np.random.default_rng(3).normal(size=of.span.rank)
    truth = 3.0 * rows @ theta
    rng = np.random.default_rng(4)
    rankings = [
        sorted((query * 9 + rng.permutation(9)[:4]).tolist(), key=lambda row: -truth[row])
        for query in range(4)
        for _ in range(30)
    ]
    found = of.predict_utilities(of.learn(Orderings.from_rankings(rankings, n_items=36)))
    assert len(found) == 4
    for of_query, expected in zip(found, truth.reshape(4, 9), strict=True):
        assert np.corrcoef(of_query.mean, expected)[0, 1] > 0.95
