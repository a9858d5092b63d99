"""The papers' bounds beside what is measured: none is broken, and some say nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.preferences.plain_designs import scatter_matrix

from topk_bandit.lab.paper import sampled_frank_wolfe
from topk_bandit.lab.paper.design_bounds import (
    iterations_bound,
    least_slope,
    prediction_error_bound,
    ranking_loss_bound,
    subset_loss_bound,
)
from topk_bandit.lab.paper.sampled_frank_wolfe import SampledFrankWolfe
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.optimal import (
    d_optimal_lists,
    d_optimal_subsets,
    ranking_matrices,
    rating_matrices,
)
from topk_bandit.preferences.models import least_squares, plackett_luce
from topk_bandit.preferences.utilities import Gaussian

D, LISTS, SIZE = 4, 20, 3
PAIRS = np.array(list(itertools.combinations(range(SIZE), 2)))


def world() -> tuple[np.ndarray, np.ndarray]:
    """Return features of lists in the unit ball, (L, K, d), and weights of norm 1."""
    rng = np.random.default_rng(0)
    rows, theta = rng.normal(size=(LISTS, SIZE, D)), rng.normal(size=D)
    return rows / np.linalg.norm(rows, axis=2, keepdims=True), theta / np.linalg.norm(theta)


def gaps_of(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    utilities = rows @ theta
    return utilities[:, PAIRS[:, 0]] - utilities[:, PAIRS[:, 1]]


def wrong_pairs(rows: np.ndarray, theta: np.ndarray, found: np.ndarray) -> int:
    return int((gaps_of(rows, theta) * gaps_of(rows, found) < 0.0).sum())


def test_errors_and_losses_of_ratings_are_below_theorems_3_and_4() -> None:
    rows, theta = world()
    matrices = rating_matrices(rows)
    counts = d_optimal_lists(matrices, gap_tolerance=1e-6).allocate(1000)
    lists = np.repeat(np.arange(LISTS), counts)
    items = (lists[:, None] * SIZE + np.arange(SIZE)).ravel()
    features, rng = rows.reshape(-1, D), np.random.default_rng(1)
    errors, losses = [], []
    for _ in range(200):
        values = features[items] @ theta + rng.normal(size=len(items))
        found = least_squares.fit(features, Ratings(items, values), noise_variance=1.0).posterior.mean
        errors.append(float(((matrices.transpose(0, 2, 1) @ (theta - found)) ** 2).sum(axis=1).max()))
        losses.append(wrong_pairs(rows, theta, found))
    bound = prediction_error_bound(D, 1000, delta=0.05)
    assert bound == pytest.approx(4 * 4 * (8 * np.log(6) + np.log(20)) / 1000)
    assert max(errors) < 0.15 * bound
    assert np.mean(losses) < ranking_loss_bound(gaps_of(rows, theta), D, 1000)


def test_losses_of_rankings_are_below_theorem_6_which_says_little() -> None:
    rows, theta = world()
    counts = d_optimal_lists(ranking_matrices(rows), gap_tolerance=1e-6).allocate(1000)
    shown = np.repeat(np.arange(LISTS), counts)[:, None] * SIZE + np.arange(SIZE)
    features, rng = rows.reshape(-1, D), np.random.default_rng(2)
    losses = []
    for _ in range(50):
        answers = sampling.draw_rankings(features @ theta, shown, rng=rng)
        losses.append(wrong_pairs(rows, theta, plackett_luce.fit(features, answers).posterior.mean))
    bound = ranking_loss_bound(gaps_of(rows, theta), D, 1000, slope=least_slope(theta))
    assert np.mean(losses) < 0.2 * bound
    assert bound > 0.2 * LISTS * len(PAIRS)


def test_losses_over_all_pairs_are_below_proposition_2() -> None:
    rng = np.random.default_rng(3)
    features, theta = rng.normal(size=(8, 2)), np.array([0.6, -0.8])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    design = d_optimal_subsets(features, subset_size=3, gap_tolerance=1e-6, rng=rng)
    shown = np.repeat(design.subsets, design.allocate(2000), axis=0)
    first, second = np.triu_indices(8, 1)
    gaps = (features[first] - features[second]) @ theta
    losses = []
    for _ in range(50):
        answers: Orderings = sampling.draw_rankings(features @ theta, shown, rng=rng)
        prior = Gaussian.isotropic(2, variance=100.0)
        found = plackett_luce.fit(features, answers, prior=prior).posterior.mean
        losses.append(np.mean((features[first] - features[second]) @ found * gaps < 0.0))
    assert np.mean(losses) < subset_loss_bound(gaps, 2, 2000, slope=least_slope(theta))


def test_the_least_slope_is_that_of_the_worst_item_and_weights() -> None:
    rng = np.random.default_rng(4)
    theta = np.array([0.3, -0.2, 0.5])
    items, moves = rng.normal(size=(2, 20_000, 3))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    moves /= np.linalg.norm(moves, axis=1, keepdims=True)
    seen = np.exp((items * (theta + moves)).sum(axis=1))
    worst = -theta / np.linalg.norm(theta)
    assert least_slope(theta) <= seen.min()
    assert least_slope(theta) == pytest.approx(np.exp(worst @ (theta - worst)))


@pytest.mark.parametrize("sampled", [126, 30])
def test_dopewolfe_needs_fewer_iterations_than_corollary_8_says(monkeypatch: pytest.MonkeyPatch, sampled: int) -> None:
    """Four items span three dimensions, so that the first subset does."""
    monkeypatch.setattr(sampled_frank_wolfe, "MOST_SAMPLED", sampled)
    features = np.random.default_rng(0).normal(size=(9, 3))
    best = d_optimal_subsets(features, subset_size=4, gap_tolerance=1e-6, rng=np.random.default_rng(0)).log_det
    runs = [SampledFrankWolfe(features, 4, np.random.default_rng(seed)) for seed in range(8)]

    def missing() -> list[float]:
        return [best - log_det_of(features, run) for run in runs]

    bound = iterations_bound(126, sampled, 3, missing=min(missing()), epsilon=0.1)
    needed = 0
    while np.mean(missing()) > 0.1:
        needed += 1
        for run in runs:
            run.iterate()
    assert 0 < needed < 0.5 * bound


def log_det_of(features: np.ndarray, run: SampledFrankWolfe) -> float:
    total = sum(weight * scatter_matrix(features, np.array(one)) for one, weight in run.weights.items())
    return float(np.linalg.slogdet(total)[1])


def test_corollary_8_is_its_two_terms() -> None:
    near = iterations_bound(1000, 100, 5, missing=0.5, epsilon=0.1)
    assert near == int(np.ceil(53 * 5.5 * np.log(53.0)))  # 1 / epsilon is below 106: the second term is nothing
    far = iterations_bound(100, 100, 5, missing=0.5, epsilon=0.01)
    assert far == int(np.ceil(5.3 * 5.5 * np.log(5.3))) + int(np.ceil(12 * 25 * (100.0 - 10.6)))
    assert iterations_bound(100, 100, 5, missing=0.05, epsilon=0.1) == 0  # it is there
