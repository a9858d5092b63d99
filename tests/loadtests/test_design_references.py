"""What designs are measured against must itself be right."""

from __future__ import annotations

import numpy as np
import pytest
from tests.preferences.plain_designs import all_matrices, gradients, scatter_matrix

from designs import _gap_of_lists, _gap_of_triples, _log_det
from sampled_frank_wolfe import GAMMA, SampledFrankWolfe, random_subsets
from topk_bandit.preferences.designs.optimal import d_optimal_lists, d_optimal_subsets


def test_dopewolfe_as_written_keeps_its_inverse_and_climbs_to_the_optimum() -> None:
    features = np.random.default_rng(0).normal(size=(9, 3))
    run = SampledFrankWolfe(features, 4, np.random.default_rng(1))
    log_dets = []
    for _ in range(150):
        run.iterate()
        subsets, weights = np.array(list(run.weights)), np.array(list(run.weights.values()))
        log_dets.append(_log_det(features, subsets, weights))
    assert weights.sum() == pytest.approx(1.0)
    information = sum(p * scatter_matrix(features, one) for one, p in zip(subsets, weights, strict=True))
    # The ridge shrinks with the weights that it began beside, so that little of it is left.
    assert run.inverse == pytest.approx(np.linalg.inv(information), rel=1e-4, abs=1e-6)
    assert (np.diff(log_dets) >= -1e-5).all()
    best = d_optimal_subsets(features, subset_size=4, gap_tolerance=1e-3, rng=np.random.default_rng(0))
    assert best.log_det - 0.05 <= log_dets[-1] <= best.log_det + best.gap + 3 * GAMMA * np.trace(run.inverse)


def test_random_subsets_are_uniform_and_repeat_no_item() -> None:
    drawn = np.sort(random_subsets(np.random.default_rng(2), 5, 3, 20_000), axis=1)
    assert (np.diff(drawn, axis=1) > 0).all()
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert counts / 20_000 == pytest.approx(np.full(10, 0.1), abs=0.01)


def test_the_gaps_that_are_printed_are_the_definitions() -> None:
    features = np.random.default_rng(3).normal(size=(10, 3))
    subsets, matrices = all_matrices(features, 3, is_ranking=True)
    lists = d_optimal_lists(matrices, gap_tolerance=0.2)
    expected = gradients(matrices, lists.weights).max() / 3.0 - 1.0
    assert _gap_of_lists(matrices, lists.weights) == pytest.approx(expected, abs=1e-12)
    triples = d_optimal_subsets(features, subset_size=3, gap_tolerance=0.2, rng=np.random.default_rng(0))
    weights = np.zeros(len(subsets))
    for subset, weight in zip(triples.subsets.tolist(), triples.weights, strict=True):
        weights[subsets.index(tuple(subset))] = weight
    assert _gap_of_triples(features, triples) == pytest.approx(gradients(matrices, weights).max() / 3.0 - 1.0, abs=1e-5)
