from __future__ import annotations

import math

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import Gaussian, Utilities, validate_features, validate_weights


def test_ranks_put_the_largest_mean_first_and_equal_items_in_order() -> None:
    found = Utilities(np.array([0.5, 2.0, 0.5, -1.0]), np.zeros(4))
    assert found.ranks.tolist() == [2, 1, 3, 4]


def test_mean_and_spread_are_those_of_drawn_weights() -> None:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    gaussian = Gaussian(rng.normal(size=3), root @ root.T)
    features = rng.normal(size=(5, 3))
    drawn = features @ (gaussian.mean[:, None] + root @ rng.normal(size=(3, 400_000)))
    found = gaussian.utilities(features)
    np.testing.assert_allclose(found.mean, drawn.mean(axis=1), atol=0.02)
    np.testing.assert_allclose(found.standard_deviation, drawn.std(axis=1), rtol=0.01)


def test_the_precision_is_the_inverse_in_any_unit() -> None:
    rng = np.random.default_rng(4)
    root, units = rng.normal(size=(4, 4)), np.array([1e-8, 1.0, 1e6, 3.0])
    covariance = root @ root.T * np.outer(units, units)
    product = Gaussian(np.zeros(4), covariance).precision(4) @ covariance
    np.testing.assert_allclose(product / np.outer(1.0 / units, units), np.eye(4), atol=1e-9)


@pytest.mark.parametrize(
    ("mean", "covariance"),
    [
        ([0.0], [[1.0]]),
        ([0.0, 0.0], [[1.0]]),
        ([0.0, math.nan], [[1.0, 0.0], [0.0, 1.0]]),
        ([0.0, 0.0], [[1.0, 0.0], [0.0, math.inf]]),
        ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]),
        ([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]]),
        ([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]]),
        ([0.0, 0.0], [[1.0, 0.0], [0.0, -1.0]]),
    ],
)
def test_what_is_no_prior_of_two_weights_is_refused(mean: list[float], covariance: list[list[float]]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Gaussian(np.array(mean), np.array(covariance)).precision(2)
    assert caught.value.field == "prior"


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf])
def test_a_variance_is_positive(variance: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Gaussian.isotropic(2, variance=variance)
    assert caught.value.field == "variance"


@pytest.mark.parametrize(
    ("features", "field"),
    [
        ([1.0, 2.0], "features"),
        ([[1.0, 2.0, 3.0]], "features"),
        ([[1.0], [2.0, 3.0]], "features"),
        ([["red", "blue"]], "features"),
        (np.zeros((3, 0)), "features"),
        ([[1.0, 2.0], [math.nan, 1.0]], "features[1][0]"),
        ([[1.0, -math.inf]], "features[0][1]"),
    ],
)
def test_features_are_a_finite_matrix_of_the_width_asked_for(features: object, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Gaussian.isotropic(2, variance=1.0).utilities(features)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_features_of_any_width_pass_where_none_is_asked_for() -> None:
    assert validate_features([[1, 2, 3]]).tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(("theta", "field"), [([[1.0]], "theta"), (["x"], "theta"), ([0.0, math.nan], "theta[1]")])
def test_weights_are_a_finite_vector(theta: object, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validate_weights(theta)  # type: ignore[arg-type]
    assert caught.value.field == field
