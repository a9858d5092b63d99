"""The paper's local search with all of its neighbours, by enumeration; and the shorter one that the experiments run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from topk_bandit.lab.paper.dense_posterior import DenseAtContext, pair_features
from topk_bandit.lab.paper.local_search import Orders, neighbouring_sets, paper_search, ucb_of_sets
from topk_bandit.lab.simulation.maximisers import BreadthFirst
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, full_neighbourhood, random_rankings

NOISE, BETA = 0.05, 2.3


def shown(n_items: int, k: int, *, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return contexts, rankings and rewards of some rows, and a context to ask for."""
    rng = np.random.default_rng(seed)
    rankings = random_rankings(np.arange(n_items), slate_size=k, count=rows, rng=rng)
    return rng.normal(size=(rows, 3)), rankings, rng.uniform(size=rows), rng.normal(size=3)


def dense_of(n_items: int, k: int, *, rows: int, seed: int) -> DenseAtContext:
    contexts, rankings, rewards, context = shown(n_items, k, rows=rows, seed=seed)
    return DenseAtContext.of(
        contexts, pair_features(rankings, n_items), rewards, context=context, noise_variance=NOISE**2
    )


def test_the_orders_of_neighbouring_sets_are_the_papers_neighbourhood() -> None:
    orders, sets = Orders.of(8, 3), neighbouring_sets((1, 4, 6), 8)
    found = {tuple(orders.ranking(members, order)) for members in sets for order in range(6)}
    assert len(sets) == 1 + 5 * 3
    assert found == {tuple(row) for row in full_neighbourhood(np.array([4, 1, 6]), np.arange(8))}


def test_the_bounds_of_whole_sets_agree_with_those_of_their_rankings() -> None:
    dense, orders, sets = dense_of(9, 4, rows=40, seed=2), Orders.of(9, 4), neighbouring_sets((0, 3, 5, 8), 9)
    found = ucb_of_sets(dense, orders, sets, beta=BETA)
    for members, values in zip(sets, found, strict=True):
        rankings = np.array([orders.ranking(members, order) for order in range(24)])
        mean, variance = dense.moments(pair_features(rankings, 9))
        np.testing.assert_allclose(values, mean + math.sqrt(BETA) * np.sqrt(variance), rtol=1e-10)


def test_the_search_finds_the_best_of_all() -> None:
    dense, rankings = dense_of(9, 3, rows=40, seed=2), all_rankings(np.arange(9), slate_size=3)
    mean, variance = dense.moments(pair_features(rankings, 9))
    bounds = mean + math.sqrt(BETA) * np.sqrt(variance)
    found = paper_search(dense, Orders.of(9, 3), beta=BETA, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(found.ranking, rankings[np.argmax(bounds)])
    assert found.value == pytest.approx(bounds.max(), rel=1e-10)
    assert found.evaluations % 6 == 1000 % 6


@pytest.mark.parametrize("seed", range(3))
def test_where_few_slates_are_drawn_a_climb_ends_at_the_best_of_all(seed: int) -> None:
    """1,000 of 43,680: no neighbour is better, nor is any other ranking."""
    dense, rankings = dense_of(16, 4, rows=40, seed=seed), all_rankings(np.arange(16), slate_size=4)
    found = paper_search(dense, Orders.of(16, 4), beta=BETA, rng=np.random.default_rng(seed))
    assert found.longest_climb > 0
    for others in (full_neighbourhood(found.ranking, np.arange(16)), rankings):
        mean, variance = dense.moments(pair_features(others, 16))
        assert (mean + math.sqrt(BETA) * np.sqrt(variance)).max() == pytest.approx(found.value, rel=1e-10)


@pytest.fixture(scope="module")
def orders() -> Orders:
    return Orders.of(50, 6)


@pytest.mark.parametrize("rows", [12, 60])
@pytest.mark.parametrize("seed", range(3))
def test_the_experiments_search_ends_as_high(orders: Orders, rows: int, seed: int) -> None:
    contexts, rankings, rewards, context = shown(50, 6, rows=rows, seed=seed)
    dense = dense_of(50, 6, rows=rows, seed=seed)
    reference = paper_search(dense, orders, beta=1.5, rng=np.random.default_rng([seed, 1]))
    kernel = weighted_convolutional_kendall(50, 6)
    posterior = Posterior.prior(kernel, context_dim=3, noise_variance=NOISE**2).observe(contexts, rankings, rewards)
    items, rng = np.arange(50, dtype=np.int32), np.random.default_rng([seed, 2])
    found = BreadthFirst().best(posterior, context, items, beta=1.5, rng=rng)
    [mean], [variance] = dense.moments(pair_features(found[None], 50))
    assert mean + np.sqrt(1.5 * variance) >= reference.value - 1e-3 * abs(reference.value)
