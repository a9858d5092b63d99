"""Designs for what features tell and for items' own parts: against their definitions and a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.preferences.plain_designs import all_matrices, information

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.designs.exact_questions import ranking_information
from topk_bandit.preferences.designs.newton import newton
from topk_bandit.preferences.designs.optimal import Feedback, SubsetDesign
from topk_bandit.preferences.designs.own_parts import EXPECTED_VARIANCE, directions_of, questions_worth
from topk_bandit.preferences.questions import MOST_OWN_PARTS, QuestionPool, choose_next_lists


def pool_of(
    n_items: int = 7,
    *,
    feedback: Feedback = Feedback.RANKING,
    n_queries: int = 0,
    features_alone: bool = False,
    given: np.ndarray | None = None,
) -> QuestionPool:
    rng = np.random.default_rng(n_items)
    queries = rng.normal(size=(n_queries, 2)) if n_queries else None
    items = rng.normal(size=(n_items, 2))
    return QuestionPool.of(items, queries, feedback=feedback, features_alone=features_alone, given=given)


def covariance_of(pool: QuestionPool) -> np.ndarray:
    """Return the covariance of all utilities before there are answers, own parts being about their mean."""
    own = np.eye(pool.n_items) - 1.0 / pool.n_items
    rows = pool.span.coordinates
    return rows @ rows.T + EXPECTED_VARIANCE * np.tile(own, (pool.n_queries,) * 2)


def told(pool: QuestionPool, matrices: np.ndarray, weights: np.ndarray) -> float:
    """Return log det(I + G V) of information V of utilities."""
    return float(np.linalg.slogdet(np.eye(len(pool.groups)) + covariance_of(pool) @ information(matrices, weights))[1])


def most_told(pool: QuestionPool, matrices: np.ndarray) -> float:
    """Return the largest of all, by a general optimiser."""
    covariance, count = covariance_of(pool), len(matrices)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        inverse = np.linalg.solve(np.eye(len(covariance)) + covariance @ information(matrices, weights), covariance)
        return -told(pool, matrices, weights), -np.array([np.trace(one.T @ inverse @ one) for one in matrices])

    found = minimize(
        loss,
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": np.ones_like},
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    return -float(found.fun)


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(("n_queries", "size"), [(0, 2), (0, 3), (0, 4), (3, 3)])
@pytest.mark.parametrize(("budget", "n_given"), [(3, None), (200, None), (3, 12), (200, 12), (200, 2)])
def test_no_design_tells_more_than_the_gap_says(
    feedback: Feedback, n_queries: int, size: int, budget: int, n_given: int | None
) -> None:
    pool = pool_of(feedback=feedback, n_queries=n_queries)
    subsets, matrices = all_matrices(
        np.eye(len(pool.groups)), size, is_ranking=feedback is Feedback.RANKING, groups=pool.groups
    )
    if n_given is not None:
        chosen = np.random.default_rng(n_given).choice(len(subsets), n_given, replace=False)
        subsets, matrices = [subsets[number] for number in chosen], matrices[chosen]
        pool = pool_of(feedback=feedback, n_queries=n_queries, given=np.array(subsets)[:, ::-1])
    design = pool.design(list_size=size, budget=budget, rng=np.random.default_rng(0))
    share = budget * (1.0 if feedback is Feedback.RATING else ranking_information(size))
    matrices = matrices * np.sqrt(share)
    weights = np.zeros(len(subsets))
    weights[[subsets.index(tuple(one)) for one in design.subsets.tolist()]] = design.weights
    reached, best = told(pool, matrices, weights), most_told(pool, matrices)
    assert best - design.gap - 1e-6 <= reached <= best + 1e-6
    assert design.gap <= pool.target_gap(size, budget)
    assert design.log_det + pool.rank * np.log(share) == pytest.approx(reached, abs=1e-6)
    # And the gap is that of the definition: the largest gradient, less their mean.
    inverse = np.linalg.solve(
        np.eye(len(pool.groups)) + covariance_of(pool) @ information(matrices, weights), covariance_of(pool)
    )
    gradients = np.array([np.trace(one.T @ inverse @ one) for one in matrices])
    assert design.gap >= gradients.max() - weights @ gradients - 1e-6


@pytest.mark.parametrize("list_size", [3, 4])
def test_every_item_is_asked_about_and_with_features_alone_many_are_not(list_size: int) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(40, 5))
    for features_alone in (False, True):
        pool = QuestionPool.of(features, None, feedback=Feedback.RANKING, features_alone=features_alone)
        design = pool.design(list_size=list_size, budget=300, rng=rng)
        asked = np.zeros(40)
        np.add.at(asked, design.subsets.ravel(), np.repeat(design.weights, list_size))
        assert (asked.min() > 0.25 * list_size / 40) != features_alone
        assert (np.count_nonzero(asked) < 30) == features_alone
        chosen = choose_next_lists(pool, design, asked=np.zeros(len(design.weights), dtype=np.int64), count=40)
        assert (len(np.unique(design.subsets[chosen])) == 40) != features_alone


def test_the_more_questions_there_are_the_more_is_asked_of_own_parts() -> None:
    pool, shares = pool_of(12), []
    for budget in (5, 50, 500, 50_000):
        design = pool.design(list_size=2, budget=budget, rng=np.random.default_rng(0))
        shares.append(np.sort(share_of_items(pool, design))[:6].sum())
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.5, abs=0.03)  # at last all items alike


def share_of_items(pool: QuestionPool, design: SubsetDesign) -> np.ndarray:
    shares = np.zeros(pool.n_items)
    np.add.at(shares, design.subsets.ravel(), np.repeat(design.weights, design.subsets.shape[1]))
    return shares / design.subsets.shape[1]


def test_directions_have_the_products_of_features_and_own_parts() -> None:
    for pool in (pool_of(), pool_of(n_queries=3), pool_of(feedback=Feedback.RATING)):
        rows = directions_of(pool.span.coordinates, pool.items, compare=np.asarray)
        np.testing.assert_allclose(rows @ rows.T, covariance_of(pool), atol=1e-9)
        assert rows.shape[1] == np.linalg.matrix_rank(covariance_of(pool))


def test_questions_are_worth_what_as_many_of_them_tell() -> None:
    rng = np.random.default_rng(5)
    root = rng.normal(size=(6, 4))
    of_one = root @ root.T
    for n in (0.0, 1e-6, 0.3, 40.0, 1e7):
        assert questions_worth(n * of_one, of_one) == pytest.approx(n, rel=1e-6, abs=1e-12)
    other = np.diag([5.0, 0.0, 1.0, 0.0, 2.0, 0.1])
    n = questions_worth(other, of_one)
    expected = np.linalg.slogdet(np.eye(6) + other)[1]
    assert np.linalg.slogdet(np.eye(6) + n * of_one)[1] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_newtons_method_with_a_prior_ends_where_no_gradient_exceeds_their_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, root = rng.normal(size=(12, 2, 5)), rng.normal(size=(5, 5))
    prior = root @ root.T
    weights, steps = newton(rows, np.full(12, 1 / 12), prior=prior, gap_tolerance=1e-9, stop=lambda: False)
    inverse = np.linalg.inv(prior + information(rows.transpose(0, 2, 1), weights))
    gradients = np.einsum("smd,de,sme->s", rows, inverse, rows)
    assert steps <= 30
    assert weights.sum() == pytest.approx(1.0)
    assert gradients.max() <= weights @ gradients + 1e-6


def test_of_very_many_items_designs_are_those_of_features_alone() -> None:
    assert pool_of(MOST_OWN_PARTS).asks_for_own_parts
    assert not pool_of(MOST_OWN_PARTS + 1).asks_for_own_parts
    assert not pool_of(features_alone=True).asks_for_own_parts


def test_a_list_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^subset_size: "):
        pool_of().design(list_size=8, budget=10, rng=np.random.default_rng(0))
