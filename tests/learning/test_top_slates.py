"""The best few slates, beside those of all slates that there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.dense import WCK, WK, Kind

from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, random_rankings
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
    bounds = moments.mean + math.sqrt(beta) * np.sqrt(moments.variance)
    best = everything[np.argsort(-bounds, kind="stable")[:11]]
    assert top.rankings.shape == (11, SLATE_SIZE)
    assert (np.diff(top.bounds) <= 0.0).all()
    assert np.allclose(top.bounds, np.sort(bounds)[::-1][:11], atol=1e-5)
    assert {tuple(one) for one in ITEMS[top.rankings].tolist()} == {tuple(one) for one in best.tolist()}


def test_where_there_are_few_slates_each_is_returned_once() -> None:
    posterior = Posterior.prior(WCK.make(4, 2), context_dim=1, noise_variance=0.1)
    at_context = posterior.at(np.ones(1), np.array([1, 3], dtype=np.int32))
    top = find_top_slates(at_context, beta=1.0, starts=np.array([[0, 1]], dtype=np.int32), limit=11)
    assert sorted(top.rankings.tolist()) == [[0, 1], [1, 0]]
