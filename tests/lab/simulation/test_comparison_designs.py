from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import chisquare

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation import comparison_designs as designs
from topk_bandit.preferences.designs.optimal import Feedback


def cost(points: np.ndarray, medoids: np.ndarray) -> float:
    return float(cdist(points, points[medoids]).min(axis=1).sum())


def lists_of(n_lists: int, size: int) -> np.ndarray:
    return np.arange(n_lists * size, dtype=np.int64).reshape(n_lists, size)


def g_values(features: np.ndarray, pairs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    z = features[pairs[:, 0]] - features[pairs[:, 1]]
    return np.einsum("nd,de,ne->n", z, np.linalg.inv((z * weights[:, None]).T @ z), z)


@pytest.mark.parametrize("seed", range(5))
def test_k_medoids_are_the_best_ones_of_points_in_clumps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    points = np.repeat(centres, 5, axis=0) + rng.normal(size=(15, 2))
    best = min(cost(points, np.array(chosen)) for chosen in combinations(range(15), 3))
    assert cost(points, designs.k_medoids(points, count=3, rng=rng)) == pytest.approx(best)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_k_medoids_are_each_the_most_central_point_of_their_cluster(count: int) -> None:
    points = np.random.default_rng(3).normal(size=(40, 3))
    medoids = designs.k_medoids(points, count=count, rng=np.random.default_rng(1))
    assert len(set(medoids.tolist())) == count
    distances = cdist(points, points)
    nearest = np.argmin(distances[:, medoids], axis=1)
    for number, medoid in enumerate(medoids):
        members = np.flatnonzero(nearest == number)
        assert medoid == members[np.argmin(distances[np.ix_(members, members)].sum(axis=0))]
    best = min(cost(points, np.array(chosen)) for chosen in combinations(range(40), min(count, 2)))
    assert cost(points, medoids) < (1.05 * best if count <= 2 else best)


def test_there_are_no_more_medoids_than_different_points() -> None:
    points = np.array([[0.0], [0.0], [1.0], [1.0], [1.0]])
    medoids = designs.k_medoids(points, count=4, rng=np.random.default_rng(0))
    assert sorted(points[medoids, 0].tolist()) == [0.0, 1.0]


@pytest.mark.parametrize("radius", [0.05, 0.2, 0.5, 2.0])
def test_core_points_have_five_points_within_the_radius(radius: float) -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    near = (cdist(points, points) <= radius).sum(axis=1)
    assert designs.core_points(points, radius=radius).tolist() == np.flatnonzero(near >= 5).tolist()


def test_fewer_points_than_neighbours_have_no_core() -> None:
    assert designs.core_points(np.zeros((4, 2)), radius=1.0).tolist() == []


def test_dense_subsets_are_the_sparsest_that_tell_of_every_direction() -> None:
    features = np.random.default_rng(4).normal(size=(9, 3))
    lists = np.array(list(combinations(range(9), 3)), dtype=np.int64)
    radii = np.geomspace(1e-3, 10.0, 30).tolist()
    chosen = designs.dense_subsets(features, lists, radii=radii).lists
    sizes = []
    for radius in radii:
        core = lists[designs.core_points(features[lists].mean(axis=1), radius=radius)]
        centred = features[core] - features[core].mean(axis=1, keepdims=True)
        if np.linalg.matrix_rank(centred.reshape(-1, 3)) == 3:
            sizes.append(len(core))
    assert len(chosen) == min(sizes)
    with pytest.raises(InvalidArgumentError, match="radii: none leaves"):
        designs.dense_subsets(features, lists, radii=[1e-9])


@pytest.mark.parametrize("feedback", list(Feedback))
def test_pairs_only_is_optimal_over_the_pairs_of_each_list(feedback: Feedback) -> None:
    features, lists = np.random.default_rng(5).normal(size=(24, 3)), lists_of(8, 3)
    found = designs.pairs_only(features, lists, feedback=feedback, gap_tolerance=1e-3)
    assert {tuple(pair) for pair in found.lists.tolist()} == {
        pair for one in lists.tolist() for pair in combinations(one, 2)
    }
    if feedback is Feedback.RANKING:
        g = g_values(features, found.lists, found.weights)
    else:
        rows = features[found.lists]
        inverse = np.linalg.inv(np.einsum("l,lkd,lke->de", found.weights, rows, rows))
        g = np.einsum("lkd,de,lke->l", rows, inverse, rows)
    assert found.weights.sum() == pytest.approx(1.0)
    assert 3.0 - 1e-9 <= g.max() <= 3.0 + 2e-3


def test_the_mean_feature_design_is_optimal_for_means_even_where_these_do_not_span() -> None:
    rng = np.random.default_rng(6)
    features, lists = rng.normal(size=(40, 3)), lists_of(20, 2)
    features[1::2, 2] = -features[::2, 2]
    found = designs.mean_feature_design(features, lists, gap_tolerance=1e-3)
    means = features[lists].mean(axis=1)[:, :2]
    inverse = np.linalg.inv((means * found.weights[:, None]).T @ means)
    assert np.einsum("nd,de,ne->n", means, inverse, means).max() == pytest.approx(2.0, abs=2e-3)
    assert found.weights.sum() == pytest.approx(1.0)


def test_clustered_is_uniform_over_medoids_of_means() -> None:
    rng = np.random.default_rng(7)
    features, lists = rng.normal(size=(30, 2)), lists_of(10, 3)
    found = designs.design_clusters(features, lists, count=4, rng=np.random.default_rng(2))
    medoids = designs.k_medoids(features[lists].mean(axis=1), count=4, rng=np.random.default_rng(2))
    assert found.lists.tolist() == lists[medoids].tolist()
    assert found.weights.tolist() == [0.25] * 4


def test_a_design_draws_lists_by_their_weights() -> None:
    design = designs.QuestionDesign(lists_of(3, 2), np.array([0.5, 0.0, 0.5]))
    drawn = design.draw(400, np.random.default_rng(0))
    counts = [int((drawn == one).all(axis=1).sum()) for one in design.lists]
    assert counts[1] == 0
    assert chisquare([counts[0], counts[2]]).pvalue > 1e-3
    assert designs.uniform(lists_of(3, 2)).weights == pytest.approx([1 / 3] * 3)


def test_uniform_subsets_are_all_as_likely_whatever_their_group() -> None:
    groups = [np.array([0, 1, 2, 3]), np.array([4, 5, 6]), np.array([7])]
    drawn = designs.uniform_subsets(groups, size=2, count=4500, rng=np.random.default_rng(1))
    names, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    assert len(names) == comb(4, 2) + comb(3, 2)
    assert all(tuple(name) in combinations(range(4), 2) or min(name) >= 4 for name in names.tolist())
    assert chisquare(counts).pvalue > 1e-3


def test_some_subsets_are_all_of_them_where_these_are_few() -> None:
    groups = [np.array([0, 1, 2]), np.array([3, 4])]
    assert designs.some_subsets(groups, size=2, most=4, rng=np.random.default_rng(0)).tolist() == [
        [0, 1], [0, 2], [1, 2], [3, 4],
    ]  # fmt: skip
    few = designs.some_subsets(groups, size=2, most=3, rng=np.random.default_rng(0))
    assert few.shape == (3, 2)
