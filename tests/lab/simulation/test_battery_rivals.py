"""Popularity and additive linear Thompson sampling, and the ridge posteriors below, against dense linear algebra."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from topk_bandit.lab.simulation.additive_thompson import AdditiveThompson
from topk_bandit.lab.simulation.battery.playing import play_in
from topk_bandit.lab.simulation.battery.recipes import Gaussian, Recipe
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
from topk_bandit.lab.simulation.popularity import Popularity
from topk_bandit.lab.simulation.ridge_posteriors import DenseRidge, SparseRidge, ridge_posterior

DIM, ROW = 12, 4


def observed(posterior: DenseRidge | SparseRidge, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    rows, rewards, weights = np.zeros((count, DIM)), np.zeros(count), rng.normal(size=DIM)
    for i in range(count):
        columns = rng.choice(DIM, size=ROW, replace=False)
        rows[i, columns] = rng.normal(size=ROW)
        rewards[i] = 5.0 + rows[i] @ weights + 0.5 * rng.normal()
        posterior.observe(columns, rows[i, columns], float(rewards[i]))
    return rows, rewards


@pytest.mark.parametrize("make", [DenseRidge, partial(SparseRidge, row_size=ROW)], ids=["dense", "sparse"])
def test_draws_have_the_posterior_s_mean_and_covariance(make: partial[DenseRidge]) -> None:
    posterior = make(DIM, ridge=2.0)
    rows, rewards = observed(posterior, 90)
    precision = rows.T @ rows + 2.0 * np.eye(DIM)
    centred = rewards - rewards.mean()
    mean = np.linalg.solve(precision, rows.T @ centred)
    variance = (centred @ centred - centred @ rows @ mean) / 90
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(posterior.draw(0.0, rng), mean, atol=5e-3)
    draws = np.array([posterior.draw(0.5, rng) for _ in range(3000)])
    covariance = 0.25 * variance * np.linalg.inv(precision)
    deviation = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) < 5.0 * deviation / np.sqrt(3000) + 5e-3).all()
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.12 * deviation.max() ** 2)


@pytest.mark.parametrize("make", [DenseRidge, partial(SparseRidge, row_size=ROW)], ids=["dense", "sparse"])
def test_before_any_reward_and_with_equal_ones_it_goes_on_drawing(make: partial[DenseRidge]) -> None:
    posterior, rng = make(DIM, ridge=4.0), np.random.default_rng(0)
    before = np.array([posterior.draw(1.0, rng) for _ in range(4000)])
    np.testing.assert_allclose(before.std(axis=0), 0.5, rtol=0.06)
    for _ in range(5):
        posterior.observe(np.arange(ROW), np.ones(ROW), 0.0)
    after = np.array([posterior.draw(1.0, rng) for _ in range(400)])
    assert (after.std(axis=0) > 0.1).all()


def test_thousands_of_weights_are_not_held_as_a_square() -> None:
    assert isinstance(ridge_posterior(300, ridge=1.0, row_size=4), DenseRidge)
    assert isinstance(ridge_posterior(6006, ridge=1.0, row_size=36), SparseRidge)


@pytest.mark.parametrize("width", [0.1, 0.3])
def test_thompson_finds_the_best_items_of_each_context(width: float) -> None:
    recipe = Recipe("", n_items=8, slate_size=3, n_customers=10, rewards=Gaussian(noise=0.1))
    shop = recipe.build("s", seed=2, rounds=400)
    player = AdditiveThompson(shop.size, np.random.default_rng(0), ridge=1.0, width=width)
    regret = play_in(shop, player, rounds=400, seed=0).regret
    assert regret[-100:].mean() < 0.1 * regret[:30].mean()


def test_a_draw_serves_as_many_rounds_as_it_should() -> None:
    size = ProblemSize(1000, 5, 6, 9)
    player = AdditiveThompson(size, np.random.default_rng(0), ridge=1.0, width=1.0)
    visit = Visit(0, np.ones(6), np.arange(1000, dtype=np.int32))
    first, second = player.choose(visit), player.choose(visit._replace(number=1))
    assert first.tolist() != second.tolist()
    player._posterior.observe = lambda *_: None  # type: ignore[method-assign]
    player._posterior._rewards.count = 5000  # type: ignore[attr-defined]
    assert player._posterior.rounds_a_draw == 3


def test_popularity_shows_what_earned_most() -> None:
    player = Popularity(n_items=6, slate_size=2, rng=np.random.default_rng(0), explored=0.0)
    every = np.arange(6, dtype=np.int32)
    shown = []
    for number in range(3):  # all items once before any twice
        ranking = player.choose(Visit(number, np.ones(1), every))
        shown += ranking.tolist()
        player.observe(number, float(4 in ranking))
    assert sorted(shown) == list(range(6))
    with_4 = shown[2 * (shown.index(4) // 2) :][:2]
    assert set(player.choose(Visit(3, np.ones(1), every)).tolist()) == set(with_4)
    player.close(3)
    others = np.array([item for item in range(6) if item != 4], dtype=np.int32)
    assert 4 not in player.choose(Visit(4, np.ones(1), others))


def test_popularity_explores_a_share() -> None:
    player = Popularity(n_items=40, slate_size=1, rng=np.random.default_rng(0), explored=0.25)
    every, chosen = np.arange(40, dtype=np.int32), []
    for number in range(1500):
        item = int(player.choose(Visit(number, np.ones(1), every))[0])
        player.observe(number, float(item == 7))
        chosen.append(item)
    assert np.mean(np.array(chosen[200:]) != 7) == pytest.approx(0.25 * 39 / 40, abs=0.05)


def test_rivals_can_be_sent_to_other_processes() -> None:
    size = ProblemSize(6, 2, 3, 4)
    for make in (Popularity.of, partial(AdditiveThompson, ridge=1.0, width=0.3)):
        player = pickle.loads(pickle.dumps(make))(size, np.random.default_rng(0))  # type: ignore[operator]
        assert len(player.choose(Visit(0, np.ones(3), np.arange(6, dtype=np.int32)))) == 2
