"""What kernels can explain, against Gaussian-process regression written out with dense features."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from tests.learning.dense import CK, KINDS, WCK, WK, Kind
from tests.long_forms import examples

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.explained_variance import (
    NOISE_RATIOS,
    explained_variance,
    order_free_share,
    order_free_variance,
    regression,
)
from topk_bandit.learning.environments import Objective, Shop
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.rankings import random_rankings

FloatArray = NDArray[np.float64]

N_ITEMS, SLATE_SIZE = 6, 3
OF_KIND = {Kernel.WEIGHTED_CONVOLUTIONAL: WCK, Kernel.CONVOLUTIONAL: CK, Kernel.WEIGHTED: WK}


def shop_of(objective: Objective = Objective.NDCG, *, noise: float = 0.05) -> Shop:
    return Shop.random(
        np.random.default_rng(3),
        n_items=N_ITEMS,
        slate_size=SLATE_SIZE,
        context_dim=2,
        n_customers=3,
        objective=objective,
        noise=noise,
    )


def dense_regression(covariance: FloatArray, rewards: FloatArray) -> tuple[FloatArray, float]:
    """Return predictions and g, each of whose values is tried with the full density of the rewards."""
    n_rows = len(rewards)
    among, ones = covariance[:n_rows], np.ones(n_rows)
    ratios, fits = NOISE_RATIOS * np.trace(among) / n_rows, []
    for ratio in ratios:
        noisy = among + ratio * np.eye(n_rows)
        inverse = np.linalg.inv(noisy)
        offset = (ones @ inverse @ rewards) / (ones @ inverse @ ones)
        centred = rewards - offset
        amplitude = centred @ inverse @ centred / n_rows
        density = multivariate_normal(cov=amplitude * noisy).logpdf(centred)
        fits.append((density, float(ratio), offset + covariance[n_rows:] @ inverse @ centred))
    _, ratio, predicted = max(fits, key=lambda fit: fit[0])
    return predicted, ratio


def covariance_of(kind: Kind, contexts: FloatArray, slates: NDArray[np.int32], n_rows: int) -> FloatArray:
    features = kind.features(slates, N_ITEMS)
    return np.array((contexts @ contexts[:n_rows].T) * (features @ features[:n_rows].T))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("noise", [0.01, 0.3, 3.0])
def test_regression_is_the_posterior_mean_under_the_likeliest_noise(kind: Kind, noise: float) -> None:
    rng = np.random.default_rng(0)
    slates = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=60, rng=rng)
    contexts = rng.normal(size=(60, 2))
    covariance = covariance_of(kind, contexts, slates, 40)
    truth = kind.features(slates, N_ITEMS) @ rng.normal(size=15) * contexts[:, 0]
    rewards = 5.0 + truth[:40] + noise * rng.normal(size=40)
    found = regression(covariance, rewards)
    predicted, ratio = dense_regression(covariance, rewards)
    assert found.noise_ratio == pytest.approx(ratio)
    np.testing.assert_allclose(found.mean, predicted, atol=1e-8)


@given(
    seed=st.integers(0, 2**32 - 1), shift=st.floats(-10.0, 10.0), times=st.floats(0.1, 10.0), scale=st.floats(0.1, 10.0)
)
@settings(max_examples=examples(30), deadline=None)
def test_units_of_rewards_and_of_the_kernel_mean_nothing(seed: int, shift: float, times: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(25, 4))
    covariance = features @ features[:20].T
    rewards = features[:20] @ rng.normal(size=4) + 0.3 * rng.normal(size=20)
    plain = regression(covariance, rewards)
    other = regression(scale * covariance, shift + times * rewards)
    np.testing.assert_allclose(other.mean, shift + times * plain.mean, rtol=1e-6, atol=1e-6)
    assert other.noise_ratio == pytest.approx(scale * plain.noise_ratio)


def test_explained_variance_is_that_of_slates_without_a_reward() -> None:
    shops = [shop_of(Objective.NDCG), shop_of(Objective.DIVERSITY)]
    found = explained_variance(shops, list(OF_KIND), np.random.default_rng(5), n_rewarded=30, n_others=20)
    rng = np.random.default_rng(5)
    customers = rng.integers(3, size=50)
    slates = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=50, rng=rng)
    noise = rng.normal(size=30)
    for column, shop in enumerate(shops):
        expected = np.array(
            [shop.expect_rewards(int(u), slate[None])[0] for u, slate in zip(customers, slates, strict=True)]
        )
        rewards, others = expected[:30] + 0.05 * noise, expected[30:]
        for row, kind in enumerate(OF_KIND.values()):
            covariance = covariance_of(kind, shop.customers[customers], slates, 30)
            errors = dense_regression(covariance, rewards)[0] - others
            by_hand = 1.0 - (errors @ errors) / ((others - others.mean()) @ (others - others.mean()))
            assert found[row, column] == pytest.approx(by_hand, abs=1e-6)


def test_all_rewards_of_a_draw_are_of_the_same_slates_and_noise() -> None:
    shops = [shop_of(objective) for objective in Objective]
    sizes = {"n_rewarded": 20, "n_others": 10}
    together = explained_variance(shops, list(OF_KIND), np.random.default_rng(1), **sizes)
    for column, shop in enumerate(shops):
        alone = explained_variance([shop], list(OF_KIND), np.random.default_rng(1), **sizes)
        assert alone[:, 0].tolist() == together[:, column].tolist()
    assert len(np.unique(together)) == together.size


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_a_kernel_holds_is_found_without_noise_and_what_it_does_not_hold_is_not(kind: Kind) -> None:
    rng = np.random.default_rng(4)
    slates = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=150, rng=rng)
    contexts = rng.normal(size=(150, 2))
    covariance = covariance_of(kind, contexts, slates, 100)
    held = 7.0 + (kind.features(slates, N_ITEMS) @ rng.normal(size=(15, 2)) * contexts).sum(axis=1)
    found = regression(covariance, held[:100])
    np.testing.assert_allclose(found.mean, held[100:], atol=0.01 * held.std())
    assert found.offset == pytest.approx(7.0, abs=0.01)
    chance = rng.normal(size=100)
    found = regression(covariance, chance)
    assert found.noise_ratio > 1.0
    assert found.mean.std() < 0.5


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize(("n_items", "slate_size"), [(6, 3), (5, 2), (4, 4)])
def test_the_order_free_share_is_that_of_means_of_features(kind: Kernel, n_items: int, slate_size: int) -> None:
    means, squares, total = [], [], np.zeros(n_items * (n_items - 1) // 2)
    for items in combinations(range(n_items), slate_size):
        features = OF_KIND[kind].features(list(permutations(items)), n_items)
        means.append(features.mean(axis=0) @ features.mean(axis=0))
        squares.append((features**2).sum(axis=1).mean())
        total += features.sum(axis=0)
    np.testing.assert_allclose(total, 0.0, atol=1e-9)
    share = order_free_share(kernel_of(kind, n_items, slate_size))
    assert share == pytest.approx(np.mean(means) / np.mean(squares), abs=1e-12)


@pytest.mark.parametrize("objective", Objective)
def test_the_order_free_variance_is_that_of_means_over_all_orders(objective: Objective) -> None:
    shop = shop_of(objective)
    found = order_free_variance(shop, np.random.default_rng(2), n_slates=15)
    drawn = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=15, rng=np.random.default_rng(2))
    rewards = [
        [float(shop.expect_rewards(0, np.array([order], dtype=np.int32))[0]) for order in permutations(slate)]
        for slate in drawn.tolist()
    ]
    assert found == pytest.approx(np.var([np.mean(row) for row in rewards]) / np.var(rewards), abs=1e-12)
    assert (found > 1.0 - 1e-9) == (objective is Objective.DIVERSITY)


@pytest.mark.parametrize("field", ["n_rewarded", "n_others"])
def test_too_few_slates_are_refused(field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{field}: expected at least 2, got 1"):
        explained_variance([shop_of()], list(OF_KIND), np.random.default_rng(0), **{field: 1})
    with pytest.raises(InvalidArgumentError, match="n_slates"):
        order_free_variance(shop_of(), np.random.default_rng(0), n_slates=1)
