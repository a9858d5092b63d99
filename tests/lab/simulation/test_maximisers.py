"""The paper's two ways to maximise an upper confidence bound, against each other and against what is written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.simulation.maximisers import BreadthFirst, Exhaustive, breadth_first
from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, full_neighbourhood, random_rankings

BETA = 0.8


def posterior_of(kind: Kernel, n_items: int, k: int, *, rows: int, seed: int) -> Posterior:
    rng = np.random.default_rng(seed)
    slates = random_rankings(np.arange(n_items), slate_size=k, count=rows, rng=rng)
    prior = Posterior.prior(kernel_of(kind, n_items, k), context_dim=2, noise_variance=0.01)
    return prior.observe(rng.normal(size=(rows, 2)), slates, rng.normal(size=rows))


def bound_of(posterior: Posterior, context: np.ndarray, rankings: np.ndarray) -> np.ndarray:
    mean, variance = posterior.predict(context, rankings, with_constant=False)
    return mean + math.sqrt(BETA) * np.sqrt(variance)


@given(st.sampled_from(list(Kernel)), st.integers(0, 1000), st.integers(1, 12), st.data())
def test_exhaustive_finds_the_largest_bound_as_rows_come(
    kind: Kernel, seed: int, rows: int, data: st.DataObject
) -> None:
    rng, search = np.random.default_rng([seed, 1]), Exhaustive()
    posterior, context = posterior_of(kind, 6, 3, rows=rows, seed=seed), rng.normal(size=2)
    items = np.array(data.draw(st.lists(st.integers(0, 5), min_size=3, max_size=6, unique=True).map(sorted)), np.int32)
    for more in (0, 3, 0, 1):
        slates = random_rankings(np.arange(6), slate_size=3, count=more, rng=rng)
        if more:
            posterior = posterior.observe(rng.normal(size=(more, 2)), slates, rng.normal(size=more))
        found = search.best(posterior, context, items, beta=BETA, rng=rng)
        assert set(found.tolist()) <= set(items.tolist())
        largest = bound_of(posterior, context, all_rankings(items, slate_size=3)).max()
        assert bound_of(posterior, context, found)[0] == pytest.approx(largest, abs=2e-5)


@given(st.sampled_from(list(Kernel)), st.integers(0, 1000), st.integers(0, 12))
def test_coordinates_give_the_moments(kind: Kernel, seed: int, first: int) -> None:
    posterior = posterior_of(kind, 6, 2, rows=12, seed=seed)
    items = np.array([0, 2, 3, 5], dtype=np.int32)
    at_context = posterior.at([0.5, -1.0], items)
    weights, features = at_context.coordinates()
    u, v, kernel = np.zeros(4), np.zeros(4), posterior.kernel
    u[[2, 1]], v[[2, 1]] = kernel.item_weight, kernel.divergence
    pairs = np.zeros(6)
    pairs[3] = -kernel.pair_weight[0, 1]  # of items 1 and 2: the fourth pair, and the other way round
    x = np.concatenate([u, v, [kernel.total], pairs])
    mean, variance = posterior.predict([0.5, -1.0], items[[2, 1]], with_constant=False)
    assert at_context.offset + x @ weights == pytest.approx(mean[0], abs=1e-9)
    assert 1.25 * (1.0 - ((x @ features) ** 2).sum()) == pytest.approx(variance[0], abs=1e-5)
    np.testing.assert_array_equal(at_context.coordinates(first)[1], features[:, first:])


@pytest.mark.parametrize("kind", Kernel)
@pytest.mark.parametrize("n_items", [8, 10])
def test_local_search_finds_what_enumeration_finds(kind: Kernel, n_items: int) -> None:
    items, found = np.arange(n_items, dtype=np.int32), 0
    for seed in range(20):
        posterior, rng = posterior_of(kind, n_items, 3, rows=3 * seed + 1, seed=seed), np.random.default_rng([seed, 1])
        context = rng.normal(size=2)
        best = BreadthFirst().best(posterior, context, items, beta=BETA, rng=rng)
        largest = bound_of(posterior, context, all_rankings(items, slate_size=3)).max()
        assert bound_of(posterior, context, best)[0] <= largest + 1e-9
        found += bound_of(posterior, context, best)[0] > largest - 1e-5
    assert found == 20


@pytest.mark.parametrize("kind", [Kernel.CONVOLUTIONAL, Kernel.WEIGHTED_CONVOLUTIONAL])
@pytest.mark.parametrize("rows", [5, 40])
def test_no_neighbour_of_the_paper_s_is_better(kind: Kernel, rows: int) -> None:
    """Its neighbours are all orders of all slates with one item replaced."""
    items = np.arange(20, dtype=np.int32)
    for seed in range(4):
        posterior, rng = posterior_of(kind, 20, 4, rows=rows, seed=seed), np.random.default_rng([seed, 1])
        context = rng.normal(size=2)
        best = BreadthFirst().best(posterior, context, items, beta=BETA, rng=rng)
        around = bound_of(posterior, context, full_neighbourhood(best, items))
        assert bound_of(posterior, context, best)[0] == pytest.approx(around.max(), abs=1e-5)


@pytest.mark.parametrize("kind", Kernel)
def test_a_search_says_how_it_came_to_where_it_ended(kind: Kernel) -> None:
    posterior, items = posterior_of(kind, 15, 4, rows=30, seed=1), np.arange(0, 15, 1, dtype=np.int32)
    at_context = posterior.at([1.0, 0.5], items)
    climbed = breadth_first(at_context, beta=BETA, rng=np.random.default_rng(0))
    evaluations, values = np.array(climbed.steps).T
    assert evaluations[0] == 1000
    assert (np.diff(evaluations) > 0).all()
    assert (np.diff(values) >= 0).all()
    assert len(values) <= 1 + 5 * 5
    reached = UpperConfidenceBound(BETA)(at_context.moments(climbed.ranking[None]))[0]
    assert reached == pytest.approx(values[-1], abs=1e-5)
    assert evaluations[1] - evaluations[0] == 10 * (4 * 11 + 3)


def test_local_search_shows_eligible_items_only_and_the_same_for_the_same_seed() -> None:
    posterior, items = posterior_of(Kernel.WEIGHTED, 15, 3, rows=20, seed=2), np.array([1, 4, 5, 9, 12, 14], np.int32)
    twice = [
        BreadthFirst().best(posterior, np.ones(2), items, beta=BETA, rng=np.random.default_rng(7)) for _ in range(2)
    ]
    np.testing.assert_array_equal(*twice)
    assert set(twice[0].tolist()) <= set(items.tolist())
