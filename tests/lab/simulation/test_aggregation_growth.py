from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.simulation.aggregation_growth import (
    METHODS,
    RESIDUAL_RIDGES,
    chosen_ridge,
    compare,
    corrupt_features,
    kendall_tau_distances,
)
from topk_bandit.preferences.models.aggregation import Comparisons, Loss, fit


def test_as_many_rows_are_corrupted_as_asked() -> None:
    features = np.random.default_rng(0).normal(size=(50, 3))
    before = features.copy()
    changed = corrupt_features(features, count=7, rng=np.random.default_rng(1))
    assert np.count_nonzero((changed != features).all(axis=1)) == 7
    assert np.count_nonzero((changed != features).any(axis=1)) == 7
    assert features.tolist() == before.tolist()


@pytest.mark.parametrize("flip", [0.0, 0.2, 1.0])
def test_comparisons_are_of_different_items_and_flipped_as_often_as_asked(flip: float) -> None:
    scores = np.random.default_rng(0).permutation(30).astype(np.float64)
    found = compare(scores, count=3000, flip=flip, rng=np.random.default_rng(2))
    assert len(found) == 3000
    assert (found.first != found.second).all()
    right = np.sign(scores[found.second] - scores[found.first]) == found.values
    assert 1.0 - right.mean() == pytest.approx(flip, abs=0.03)
    assert len(np.unique(found.first * 30 + found.second)) > 800


@pytest.mark.parametrize("loss", list(Loss))
def test_the_ridge_is_the_one_that_loses_least_on_what_was_left_out(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(40, 2))
    comparisons = compare(features @ [1.0, -2.0] + rng.normal(size=40), count=90, flip=0.1, rng=rng)
    fold = np.random.default_rng(9).permutation(90) % 3
    costs = []
    for ridge in RESIDUAL_RIDGES:
        cost = 0.0
        for k in range(3):
            kept = np.flatnonzero(fold != k)
            some = Comparisons(comparisons.first[kept], comparisons.second[kept], comparisons.values[kept])
            found = fit(features, some, loss=loss, residual_ridge=ridge)
            scores = features @ found.weights + found.residuals
            for c in np.flatnonzero(fold == k):
                t, sign = scores[comparisons.second[c]] - scores[comparisons.first[c]], comparisons.values[c]
                cost += np.log1p(np.exp(-sign * t)) if loss is Loss.LOGISTIC else (t - sign) ** 2
        costs.append(cost)
    chosen = chosen_ridge(features, comparisons, loss=loss, rng=np.random.default_rng(9))
    assert chosen == RESIDUAL_RIDGES[int(np.argmin(costs))]


def test_features_help_more_the_more_items_there_are() -> None:
    def run() -> np.ndarray:
        return kendall_tau_distances(0, seed=1, sizes=(160, 1500), flips=(0.0,), share=20.0)

    found = run()
    assert found.shape == (1, len(METHODS), 2)
    assert found.tolist() == run().tolist()
    few, many = found[0].T
    assert (many[:2] < few[:2]).all()
    assert (many[2:] > few[2:] + 0.05).all()
    assert many[:2].max() < 0.3
    assert many[2:].min() > 0.4
