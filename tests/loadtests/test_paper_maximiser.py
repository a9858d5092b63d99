"""The paper's search as the experiments run it, against the one with all of the paper's neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dense import DenseAtContext, pair_features
from paper_search import Orders, paper_search
from topk_bandit.lab.simulation.maximisers import BreadthFirst
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings

N_ITEMS, SLATE_SIZE, NOISE, BETA = 50, 6, 0.05, 1.5


@pytest.fixture(scope="module")
def orders() -> Orders:
    return Orders.of(N_ITEMS, SLATE_SIZE)


@pytest.mark.parametrize("rows", [12, 60])
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_as_high(orders: Orders, rows: int, seed: int) -> None:
    rng, items = np.random.default_rng(seed), np.arange(N_ITEMS, dtype=np.int32)
    rankings = random_rankings(items, slate_size=SLATE_SIZE, count=rows, rng=rng)
    contexts, rewards, context = rng.normal(size=(rows, 3)), rng.uniform(size=rows), rng.normal(size=3)
    features = pair_features(rankings, N_ITEMS)
    covariance = (contexts @ contexts.T) * (features @ features.T) + NOISE**2 * np.eye(rows)
    relevant = (contexts @ context)[:, None] * features
    dense = DenseAtContext(
        weights=cho_solve(cho_factor(covariance), rewards) @ relevant,
        whitened=solve_triangular(np.linalg.cholesky(covariance), relevant, lower=True),
        prior=float(context @ context),
        offset=0.0,
        amplitude=1.0,
    )
    reference = paper_search(dense, orders, beta=BETA, rng=np.random.default_rng([seed, 1]))
    kernel = weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE)
    posterior = Posterior.prior(kernel, context_dim=3, noise_variance=NOISE**2).observe(contexts, rankings, rewards)
    found = BreadthFirst().best(posterior, context, items, beta=BETA, rng=np.random.default_rng([seed, 2]))
    [mean], [variance] = dense.moments(pair_features(found[None], N_ITEMS))
    assert mean + np.sqrt(BETA * variance) >= reference.value - 1e-3 * abs(reference.value)
