"""The textbook's posterior: its features have the kernel's products, its moments are those of a joint normal."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.paper.dense_posterior import DenseAtContext, pair_features
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.rankings import random_rankings


def test_features_have_the_kernels_products() -> None:
    rankings = random_rankings(np.arange(9), slate_size=4, count=30, rng=np.random.default_rng(0))
    features = pair_features(rankings, 9)
    gram = weighted_convolutional_kendall(9, 4).gram(rankings, rankings)
    np.testing.assert_allclose(features @ features.T, gram, atol=1e-13)


def test_moments_are_those_of_a_joint_normal_distribution() -> None:
    """By the weights of features and contexts: their posterior precision is I + Z'Z / noise."""
    rng = np.random.default_rng(1)
    contexts, context, rewards = rng.normal(size=(7, 2)), rng.normal(size=2), rng.normal(size=5)
    features = pair_features(random_rankings(np.arange(5), slate_size=3, count=9, rng=rng), 5)
    dense = DenseAtContext.of(
        contexts, features[:7], rewards, context=context, noise_variance=0.3, offset=0.4, amplitude=2.0
    )
    rows = np.einsum("nc,np->ncp", contexts, features[:7]).reshape(7, -1)
    asked = np.einsum("c,np->ncp", context, features[7:]).reshape(2, -1)

    def posterior(n: int) -> np.ndarray:
        return np.linalg.inv(np.eye(rows.shape[1]) + rows[:n].T @ rows[:n] / 0.3)

    mean, variance = dense.moments(features[7:])
    assert mean == pytest.approx(0.4 + asked @ posterior(5) @ rows[:5].T @ (rewards - 0.4) / 0.3)
    assert variance == pytest.approx(2.0 * np.einsum("ni,ij,nj->n", asked, posterior(7), asked))
