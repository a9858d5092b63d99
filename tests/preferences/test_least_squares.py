from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Ratings
from topk_bandit.preferences.models import least_squares
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

N_ITEMS, WIDTH = 15, 4


def rated(seed: int, n_ratings: int, *, noise_variance: float = 0.3) -> tuple[FloatArray, FloatArray, Ratings]:
    rng = np.random.default_rng(seed)
    features, theta = rng.normal(size=(N_ITEMS, WIDTH)) + 2.0, rng.normal(size=WIDTH)
    items = rng.integers(N_ITEMS, size=n_ratings)
    return features, theta, sampling.draw_ratings(features @ theta, items, noise_variance=noise_variance, rng=rng)


def a_prior(seed: int) -> Gaussian:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(WIDTH, WIDTH))
    return Gaussian(rng.normal(size=WIDTH), root @ root.T + 0.1 * np.eye(WIDTH))


def test_weights_are_those_of_numpy_and_of_the_paper() -> None:
    features, _, ratings = rated(1, 60)
    rows = features[ratings.items]
    found = least_squares.fit(features, ratings)
    expected, squares, _, _ = np.linalg.lstsq(rows, ratings.values)
    np.testing.assert_allclose(found.posterior.mean, expected, rtol=1e-10)
    assert found.noise_variance == pytest.approx(float(squares[0]) / (60 - WIDTH), rel=1e-10)
    precision = rows.T @ rows
    np.testing.assert_allclose(found.posterior.mean, np.linalg.solve(precision, rows.T @ ratings.values), rtol=1e-9)
    np.testing.assert_allclose(
        found.posterior.covariance, found.noise_variance * np.linalg.inv(precision), rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("n_ratings", [1, 3, 60])
def test_the_posterior_is_that_of_the_textbook(n_ratings: int) -> None:
    features, _, ratings = rated(2, n_ratings)
    prior, rows = a_prior(2), features[ratings.items]
    found = least_squares.fit(features, ratings, prior=prior, noise_variance=0.7)
    covariance = np.linalg.inv(np.linalg.inv(prior.covariance) + rows.T @ rows / 0.7)
    mean = covariance @ (np.linalg.solve(prior.covariance, prior.mean) + rows.T @ ratings.values / 0.7)
    np.testing.assert_allclose(found.posterior.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.posterior.covariance, covariance, rtol=1e-8, atol=1e-12)
    assert found.noise_variance == 0.7


@pytest.mark.slow
@pytest.mark.parametrize("n_ratings", [3, 12, 200])
def test_with_a_prior_the_noise_is_the_most_probable_one(n_ratings: int) -> None:
    features, _, ratings = rated(3, n_ratings)
    prior, rows = a_prior(3), features[ratings.items]

    def log_density(noise: float) -> float:
        covariance = rows @ prior.covariance @ rows.T + noise * np.eye(n_ratings)
        return float(multivariate_normal.logpdf(ratings.values, rows @ prior.mean, covariance))

    found = least_squares.fit(features, ratings, prior=prior).noise_variance
    largest = float(np.mean((ratings.values - rows @ prior.mean) ** 2))
    tried = np.geomspace(1e-6 * largest, largest, 300)
    assert 1e-6 * largest * (1.0 - 1e-9) <= found <= largest * (1.0 + 1e-9)
    assert log_density(found) >= max(log_density(noise) for noise in tried) - 1e-6


def test_many_ratings_bring_weights_and_noise_back() -> None:
    features, theta, ratings = rated(4, 20_000, noise_variance=2.0)
    for prior in (None, a_prior(4)):
        found = least_squares.fit(features, ratings, prior=prior)
        spread = np.sqrt(np.diag(found.posterior.covariance))
        assert (np.abs(found.posterior.mean - theta) < 4.0 * spread).all()
        assert found.noise_variance == pytest.approx(2.0, rel=4.0 * math.sqrt(2.0 / 20_000))


def test_ratings_one_after_the_other_end_where_all_at_once_do() -> None:
    features, _, ratings = rated(5, 30)
    together = least_squares.fit(features, ratings, prior=a_prior(5), noise_variance=0.3).posterior
    belief = a_prior(5)
    for number in range(0, 30, 10):
        some = Ratings(ratings.items[number : number + 10], ratings.values[number : number + 10])
        belief = least_squares.fit(features, some, prior=belief, noise_variance=0.3).posterior
    np.testing.assert_allclose(belief.mean, together.mean, rtol=1e-8)
    np.testing.assert_allclose(belief.covariance, together.covariance, rtol=1e-7, atol=1e-12)


def test_utilities_are_those_of_the_posterior() -> None:
    features, _, ratings = rated(6, 30)
    found = least_squares.fit(features, ratings)
    utilities = found.utilities(features)
    np.testing.assert_allclose(utilities.mean, features @ found.posterior.mean)
    assert (utilities.standard_deviation > 0.0).all()


def test_units_do_not_matter() -> None:
    features, _, ratings = rated(7, 30)
    units = np.array([1e-9, 1.0, 1e7, 3.0])
    plain, scaled = least_squares.fit(features, ratings), least_squares.fit(features * units, ratings)
    np.testing.assert_allclose(scaled.posterior.mean * units, plain.posterior.mean, rtol=1e-9)
    assert scaled.noise_variance == pytest.approx(plain.noise_variance, rel=1e-9)


def test_without_ratings_the_posterior_is_the_prior() -> None:
    prior = a_prior(8)
    none = Ratings.of([], [], n_items=N_ITEMS)
    found = least_squares.fit(np.eye(N_ITEMS, WIDTH), none, prior=prior, noise_variance=1.0).posterior
    np.testing.assert_allclose(found.mean, prior.mean)
    np.testing.assert_allclose(found.covariance, prior.covariance, rtol=1e-10)


def test_items_that_are_not_rated_do_not_matter() -> None:
    features, _, ratings = rated(9, 30)
    more = np.vstack([features, 1e9 * np.ones((2, WIDTH))])
    assert (
        least_squares.fit(more, ratings).posterior.mean.tolist()
        == least_squares.fit(features, ratings).posterior.mean.tolist()
    )


IDENTITY = np.eye(2)
PRIOR = Gaussian.isotropic(2, variance=1.0)
ONE_OF_TWO = Ratings.of([0, 0, 0], [1.0, 2.0, 3.0], n_items=2)
EXACT = Ratings.of([0, 1, 0], [1.0, 2.0, 1.0], n_items=2)
NONE = Ratings.of([], [], n_items=2)
ZEROS = Ratings.of([0, 1, 0], [0.0, 0.0, 0.0], n_items=2)


@pytest.mark.parametrize(
    ("features", "ratings", "prior", "noise_variance", "field"),
    [
        ([[1.0, math.nan], [0.0, 1.0]], EXACT, PRIOR, 1.0, "features[0][1]"),
        (IDENTITY, ONE_OF_TWO, None, 1.0, "features"),
        (IDENTITY[:1], EXACT, PRIOR, 1.0, "ratings"),
        (IDENTITY, NONE, None, 1.0, "ratings"),
        (IDENTITY, EXACT, Gaussian.isotropic(3, variance=1.0), 1.0, "prior"),
        (IDENTITY, EXACT, Gaussian(np.zeros(2), np.ones((2, 2))), 1.0, "prior"),
        (IDENTITY, EXACT, PRIOR, 0.0, "noise_variance"),
        (IDENTITY, EXACT, PRIOR, math.nan, "noise_variance"),
        (IDENTITY, EXACT, None, None, "noise_variance"),
        (IDENTITY, Ratings.of([0, 1], [1.0, 2.0], n_items=2), None, None, "noise_variance"),
        (IDENTITY, NONE, PRIOR, None, "noise_variance"),
        (IDENTITY, ZEROS, PRIOR, None, "noise_variance"),
    ],
)
def test_what_can_not_be_learned_from_is_named(
    features: FloatArray, ratings: Ratings, prior: Gaussian | None, noise_variance: float | None, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        least_squares.fit(features, ratings, prior=prior, noise_variance=noise_variance)
    assert caught.value.field == field


def test_the_rank_is_reported() -> None:
    with pytest.raises(InvalidArgumentError, match=r"rank 1 of 2.*prior"):
        least_squares.fit(IDENTITY, ONE_OF_TWO)
    found = least_squares.fit(IDENTITY, ONE_OF_TWO, prior=PRIOR)
    assert found.posterior.covariance[1, 1] == pytest.approx(1.0)
