"""The few questions that tell most."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.exact_questions import choose_most_informative, contrasts, ranking_information
from topk_bandit.preferences.designs.optimal import ranking_matrices
from topk_bandit.preferences.models import plackett_luce

FEATURES = np.random.default_rng(0).normal(size=(12, 3, 4))


def mean_variance(chosen: list[int], prior_variance: float) -> float:
    """Return the mean over pairs of the variance of z'theta, the posterior inverted densely."""
    matrices = ranking_matrices(FEATURES)
    precision = np.eye(4) / prior_variance + sum(matrices[i] @ matrices[i].T for i in chosen)
    z = np.concatenate([matrix.T for matrix in matrices])
    variances = np.einsum("nd,de,ne->n", z, np.linalg.inv(precision), z)
    return float(np.mean(variances))


@pytest.mark.parametrize("prior_variance", [0.05, 1.0])
def test_each_question_is_the_one_after_which_differences_are_known_best(prior_variance: float) -> None:
    z = np.concatenate([matrix.T for matrix in ranking_matrices(FEATURES)])
    covariance = prior_variance * np.eye(4)
    chosen = choose_most_informative(contrasts(FEATURES), scatter=z.T @ z, covariance=covariance, count=6).tolist()
    for number, one in enumerate(chosen):
        costs = [mean_variance([*chosen[:number], other], prior_variance) for other in range(12)]
        assert costs[one] == pytest.approx(min(costs))
        assert costs[one] < 0.99 * np.median(costs)


def test_contrasts_have_the_information_of_all_pair_differences() -> None:
    pairs, few = ranking_matrices(FEATURES), contrasts(FEATURES)
    assert few.shape == (12, 4, 2)
    np.testing.assert_allclose(few @ few.transpose(0, 2, 1), pairs @ pairs.transpose(0, 2, 1), atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_information_of_a_ranking_is_the_hessian_s_expectation(size: int) -> None:
    rows = np.random.default_rng(size).normal(size=(size, 3))
    hessians = [
        plackett_luce.hessian(np.zeros(3), rows, Orderings.from_rankings([order], n_items=size))
        for order in permutations(range(size))
    ]
    [pairs] = ranking_matrices(rows[None])
    np.testing.assert_allclose(-np.mean(hessians, axis=0), ranking_information(size) * pairs @ pairs.T, atol=1e-12)
