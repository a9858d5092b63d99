"""What the service is measured against must itself be right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dense import DenseAtContext, pair_features
from paper_search import Orders, neighbouring_sets, paper_search, ucb_of_sets
from played import shown_at_random
from quality import dense_posterior
from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.simulation.environments import Shop
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.rankings import all_rankings, full_neighbourhood, random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.posterior import Posterior

BETA = 2.3
WCK = Kernel.WEIGHTED_CONVOLUTIONAL


def shop_of(n_items: int, slate_size: int) -> Shop:
    return Shop.random(np.random.default_rng(1), n_items=n_items, slate_size=slate_size, context_dim=3, n_customers=7)


def dense_and_bandit(shop: Shop) -> tuple[DenseAtContext, Posterior, np.ndarray]:
    bandit = shown_at_random(shop, np.random.default_rng(2), rewards=40, pending=4, kernel=WCK)
    context = shop.customers[3]
    return dense_posterior(bandit, shop, context), bandit.state.posterior, context


def test_features_have_the_kernels_products() -> None:
    rankings = random_rankings(np.arange(9), slate_size=4, count=30, rng=np.random.default_rng(0))
    features = pair_features(rankings, 9)
    gram = weighted_convolutional_kendall(9, 4).gram(rankings, rankings)
    np.testing.assert_allclose(features @ features.T, gram, atol=1e-13)


def test_the_dense_posterior_agrees_with_the_services() -> None:
    shop = shop_of(9, 4)
    dense, posterior, context = dense_and_bandit(shop)
    rankings = random_rankings(np.arange(9), slate_size=4, count=50, rng=np.random.default_rng(3))
    mean, variance = dense.moments(pair_features(rankings, 9))
    expected = posterior.predict(context, rankings)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variance, expected.variance, rtol=1e-7, atol=1e-9)


def test_the_orders_of_neighbouring_sets_are_the_papers_neighbourhood() -> None:
    orders, sets = Orders.of(8, 3), neighbouring_sets((1, 4, 6), 8)
    found = {tuple(orders.ranking(members, order)) for members in sets for order in range(6)}
    assert len(sets) == 1 + 5 * 3
    assert found == {tuple(row) for row in full_neighbourhood(np.array([4, 1, 6]), np.arange(8))}


def test_the_bounds_of_whole_sets_agree_with_those_of_their_rankings() -> None:
    shop = shop_of(9, 4)
    dense, _, _ = dense_and_bandit(shop)
    orders, sets = Orders.of(9, 4), neighbouring_sets((0, 3, 5, 8), 9)
    found = ucb_of_sets(dense, orders, sets, beta=BETA)
    for members, values in zip(sets, found, strict=True):
        rankings = np.array([orders.ranking(members, order) for order in range(24)])
        mean, variance = dense.moments(pair_features(rankings, 9))
        np.testing.assert_allclose(values, mean + math.sqrt(BETA) * np.sqrt(variance), rtol=1e-10)


def test_the_search_finds_the_best_of_all() -> None:
    shop = shop_of(9, 3)
    dense, _, _ = dense_and_bandit(shop)
    rankings = all_rankings(np.arange(9), slate_size=3)
    mean, variance = dense.moments(pair_features(rankings, 9))
    bounds = mean + math.sqrt(BETA) * np.sqrt(variance)
    found = paper_search(dense, Orders.of(9, 3), beta=BETA, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(found.ranking, rankings[np.argmax(bounds)])
    assert found.value == pytest.approx(bounds.max(), rel=1e-10)
    assert found.evaluations % 6 == 1000 % 6
