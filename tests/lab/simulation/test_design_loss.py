from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from topk_bandit.lab.simulation import design_loss
from topk_bandit.lab.simulation.design_loss import (
    METHODS,
    NOISE_VARIANCE,
    Survey,
    World,
    choosing,
    drawing,
    estimate_weights,
    outer_product_world,
    pair_scatter,
    prefix,
    unit_scatter,
)
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.utilities import Gaussian


def small_world(rng: np.random.Generator) -> World:
    return outer_product_world(rng, n_lists=20, list_size=3, side=2)


def test_the_synthetic_world_is_the_source_s() -> None:
    world = outer_product_world(np.random.default_rng(0))
    assert world.features.shape == (1600, 36)
    assert world.lists.shape == (400, 4)
    np.testing.assert_allclose(np.linalg.norm(world.features, axis=1), 1.0)
    assert 0.0 <= world.theta.min() < 0.1
    assert 0.9 < world.theta.max() <= 1.0
    for row in world.features[[0, 700, 1599]]:
        left, sizes, right = np.linalg.svd(row.reshape(6, 6))
        assert sizes[1] < 1e-12
        answer = np.abs(right[0])
        assert answer.max() / answer.min() < 2.0
        assert np.abs(left[:, 0]).max() <= 1.0
    questions = [np.linalg.svd(world.features[row].reshape(6, 6))[0][:, 0] for row in world.lists[3]]
    for one in questions[1:]:
        np.testing.assert_allclose(np.abs(one), np.abs(questions[0]))


@pytest.mark.parametrize("feedback", list(Feedback))
def test_every_method_asks_about_lists_of_the_world(feedback: Feedback) -> None:
    rng = np.random.default_rng(1)
    world = small_world(rng)
    lists = {tuple(one) for one in world.lists.tolist()}
    pairs = {pair for one in lists for pair in combinations(one, 2)}
    chosen = choosing(world, feedback, count=25, prior_variance=1.0, rng=rng)
    for askers in (drawing(world, feedback, rng=rng), chosen):
        assert len(askers) == len(METHODS)
        for method, asker in zip(METHODS, askers, strict=True):
            shown = asker.draw(25, rng)
            assert len(shown) == 25
            assert {tuple(one) for one in shown.tolist()} <= (pairs if method == "pairs only" else lists)


def test_uniform_chooses_every_list_before_it_chooses_one_twice() -> None:
    rng = np.random.default_rng(1)
    world = small_world(rng)
    askers = choosing(world, Feedback.RANKING, count=50, prior_variance=1.0, rng=rng)
    firsts = askers[METHODS.index("uniform")].draw(50, rng)[:, 0].tolist()
    assert sorted(firsts[:20]) == sorted(firsts[20:40]) == world.lists[:, 0].tolist()
    assert firsts[:20] != firsts[20:40]
    assert len(set(firsts[40:])) == 10


def test_ours_chooses_what_lowers_the_mean_variance_of_differences_most() -> None:
    rng = np.random.default_rng(8)
    world = small_world(rng)
    [ours, *_] = choosing(world, Feedback.RATING, count=3, prior_variance=0.5, rng=rng)
    z = np.array([world.features[a] - world.features[b] for one in world.lists for a, b in combinations(one, 2)])

    def uncertain(chosen: list[np.ndarray]) -> float:
        rows = world.features[np.concatenate(chosen)]
        covariance = np.linalg.inv(rows.T @ rows / NOISE_VARIANCE + 2.0 * np.eye(4))
        return float(np.mean(np.einsum("nd,de,ne->n", z, covariance, z) / (z**2).sum(axis=1)))

    chosen = list(ours.draw(3, rng))
    for number, one in enumerate(chosen):
        costs = [uncertain([*chosen[:number], other]) for other in world.lists]
        assert uncertain([*chosen[:number], one]) == pytest.approx(min(costs))
        assert min(costs) < 0.99 * np.median(costs)


def test_equal_items_are_no_direction() -> None:
    features = np.random.default_rng(0).normal(size=(5, 3, 4))
    features[0, 1] = features[0, 0]
    z = np.array([one[a] - one[b] for one in features for a, b in combinations(range(3), 2)])
    z = z[np.linalg.norm(z, axis=1) > 0.0]
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    assert len(unit) == 14
    np.testing.assert_allclose(pair_scatter(features), unit.T @ unit / 14)
    np.testing.assert_allclose(unit_scatter(z), unit.T @ unit / 14)
    assert unit_scatter(np.zeros((2, 3))).tolist() == np.zeros((3, 3)).tolist()


def test_estimates_are_the_most_probable_weights() -> None:
    world = small_world(np.random.default_rng(2))
    rng = np.random.default_rng(3)
    prior = Gaussian.isotropic(4, variance=0.5)
    ratings = sampling.draw_ratings(world.utilities, world.lists[:6], noise_variance=1.0, rng=rng)
    rows = world.features[ratings.items]
    ridge = np.linalg.solve(rows.T @ rows + 2.0 * np.eye(4), rows.T @ ratings.values)
    np.testing.assert_allclose(estimate_weights(world.features, ratings, prior), ridge, atol=1e-9)
    rankings = sampling.draw_rankings(world.utilities, world.lists[:6], rng=rng)
    theta, gradient = estimate_weights(world.features, rankings, prior), np.zeros(4)
    for order in rankings.items.reshape(6, 3):
        for place in range(2):
            left = world.features[order[place:]]
            odds = np.exp(left @ theta)
            gradient += left[0] - odds @ left / odds.sum()
    np.testing.assert_allclose(gradient, 2.0 * theta, atol=1e-5)


def test_the_first_answers_are_what_few_questions_would_have_had() -> None:
    rng = np.random.default_rng(4)
    world = small_world(rng)
    rankings = sampling.draw_rankings(world.utilities, world.lists, rng=rng)
    few = prefix(rankings, 2, list_size=3)
    assert isinstance(few, Orderings)
    expected = Orderings.from_rankings(rankings.items[:6].reshape(2, 3).tolist(), n_items=60)
    assert few.items.tolist() == expected.items.tolist()
    assert few.starts.tolist() == expected.starts.tolist()
    assert few.places.tolist() == expected.places.tolist()
    ratings = sampling.draw_ratings(world.utilities, world.lists, noise_variance=1.0, rng=rng)
    some = prefix(ratings, 2, list_size=3)
    assert isinstance(some, Ratings)
    assert some.values.tolist() == ratings.values[:6].tolist()
    assert some.items.tolist() == world.lists[:2].reshape(-1).tolist()


def test_a_run_repeats_and_answers_teach() -> None:
    def questions(rng: np.random.Generator) -> Survey:
        world = World(rng.normal(size=(60, 4)), np.arange(60).reshape(20, 3), rng.normal(size=4))
        return Survey.of(world, feedbacks=list(Feedback), count=300, prior_variance=1.0, rng=rng)

    def losses(number: int) -> np.ndarray:
        return design_loss.ranking_losses(
            number, seed=5, questions=questions, budgets=(1, 300), answer_sets=1, prior_variance=1.0
        )

    first = losses(0)
    assert first.shape == (4, len(METHODS), 2)
    assert first.tolist() == losses(0).tolist()
    assert first.tolist() != losses(1).tolist()
    assert first[:, :, 1].max() < 0.4
    assert first[:, :, 0].mean() > 4.0 * first[:, :, 1].mean()
