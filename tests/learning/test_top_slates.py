"""The best few slates, beside those of all slates that there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.dense import WCK, WK, Kind
from tests.learning.test_search import CONTEXT, bounds, neighbours, random_posterior

from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, random_rankings
from topk_bandit.learning.search import LONGEST_FINE
from topk_bandit.learning.top_slates import find_top_slates

N_ITEMS, SLATE_SIZE, ITEMS = 8, 3, np.array([0, 2, 3, 4, 6, 7], dtype=np.int32)


@pytest.mark.parametrize("beta", [0.0, 1.5])
@pytest.mark.parametrize("kind", [WCK, WK], ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(4))
def test_the_top_slates_are_those_of_all_slates(kind: Kind, beta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rankings = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=30, rng=rng)
    posterior = Posterior.prior(kind.make(N_ITEMS, SLATE_SIZE), context_dim=1, noise_variance=0.1)
    posterior = posterior.observe(np.ones((30, 1)), rankings, rng.normal(size=30))
    at_context = posterior.at(np.ones(1), ITEMS)
    top = find_top_slates(at_context, beta=beta, starts=np.array([[0, 1, 2]], dtype=np.int32), limit=11)
    everything = all_rankings(ITEMS, slate_size=SLATE_SIZE)
    moments = posterior.predict(np.ones(1), everything)
    values = moments.mean + math.sqrt(beta) * np.sqrt(moments.variance)
    best = everything[np.argsort(-values, kind="stable")[:11]]
    assert top.rankings.shape == (11, SLATE_SIZE)
    assert (np.diff(top.bounds) <= 0.0).all()
    assert np.allclose(top.bounds, np.sort(values)[::-1][:11], atol=1e-5)
    assert {tuple(one) for one in ITEMS[top.rankings].tolist()} == {tuple(one) for one in best.tolist()}


def test_where_there_are_few_slates_each_is_returned_once() -> None:
    posterior = Posterior.prior(WCK.make(4, 2), context_dim=1, noise_variance=0.1)
    at_context = posterior.at(np.ones(1), np.array([1, 3], dtype=np.int32))
    top = find_top_slates(at_context, beta=1.0, starts=np.array([[0, 1]], dtype=np.int32), limit=11)
    assert sorted(top.rankings.tolist()) == [[0, 1], [1, 0]]


@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_long_slates_too_are_better_than_all_their_neighbours(beta: float) -> None:
    posterior = random_posterior(1, n_items=16, slate_size=LONGEST_FINE + 1)
    items = np.arange(16, dtype=np.int32)
    starts = random_rankings(items, slate_size=LONGEST_FINE + 1, count=1, rng=np.random.default_rng(0))
    top = find_top_slates(posterior.at(CONTEXT, items), beta=beta, starts=starts, limit=5)
    assert len({tuple(one) for one in top.rankings.tolist()}) == 5
    assert np.allclose(top.bounds, bounds(posterior, top.rankings, beta), atol=1e-5)
    known = {tuple(one) for one in top.rankings.tolist()}
    for slate in top.rankings:
        others = np.array([one for one in neighbours(slate, 16) if tuple(one.tolist()) not in known])
        assert bounds(posterior, others, beta).max() <= top.bounds[-1] + 1e-5
