"""What designs are measured against must itself be right."""

from __future__ import annotations

import numpy as np
import pytest
from tests.preferences.plain_designs import all_matrices, gradients

from designs import _gap_of_lists, _gap_of_triples
from topk_bandit.preferences.designs.optimal import d_optimal_lists, d_optimal_subsets


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
