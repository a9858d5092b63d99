"""What the service is measured against must itself be right."""

from __future__ import annotations

import numpy as np

from played import shown_at_random
from quality import dense_posterior
from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.paper.dense_posterior import pair_features
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.rankings import random_rankings


def test_the_dense_posterior_agrees_with_the_services() -> None:
    shop = Shop.random(np.random.default_rng(1), n_items=9, slate_size=4, context_dim=3, n_customers=7)
    bandit = shown_at_random(
        shop, np.random.default_rng(2), rewards=40, pending=4, kernel=Kernel.WEIGHTED_CONVOLUTIONAL
    )
    context = shop.customers[3]
    rankings = random_rankings(np.arange(9), slate_size=4, count=50, rng=np.random.default_rng(3))
    mean, variance = dense_posterior(bandit, shop, context).moments(pair_features(rankings, 9))
    expected = bandit.state.predict(context, rankings)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variance, expected.variance, rtol=1e-7, atol=1e-9)
