"""What holds for every set of answers: orderings, ratings and the measures of an order."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.losses import kendall_tau_distance, ndcg, ranking_loss
from topk_bandit.preferences.models import least_squares, plackett_luce
from topk_bandit.preferences.models.existence import check_not_separable
from topk_bandit.preferences.models.likelihood import Likelihood
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def answers(draw: st.DrawFn, *, n_items: int, most: int = 8) -> Orderings:
    """Draw orderings of any lengths and places."""
    orderings = Orderings.from_rankings([], n_items=n_items)
    for _ in range(draw(st.integers(1, most))):
        length = draw(st.integers(2, n_items))
        order = draw(st.permutations(range(n_items)))[:length]
        places = draw(st.integers(1, length - 1))
        one = Orderings(np.array(order), np.array([0, length]), np.array([places]))
        orderings = orderings.join(one)
    return orderings


@st.composite
def problems(draw: st.DrawFn, *, most: int = 8) -> tuple[FloatArray, Orderings, FloatArray]:
    """Draw features, answers and weights."""
    n_items, width = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0]))
    return rng.normal(size=(n_items, width)), draw(answers(n_items=n_items, most=most)), scale * rng.normal(size=width)


@given(st.integers(2, 5), st.data(), SEEDS)
def test_probabilities_of_all_orders_sum_to_one(n_items: int, data: st.DataObject, seed: int) -> None:
    places = data.draw(st.integers(1, n_items - 1))
    utilities = 5.0 * np.random.default_rng(seed).normal(size=n_items)
    total = 0.0
    for order in permutations(range(n_items)):
        if list(order[places:]) == sorted(order[places:]):
            one = Orderings(np.array(order), np.array([0, n_items]), np.array([places]))
            total += np.exp(plackett_luce.log_likelihood(utilities, np.eye(n_items), one))
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@given(problems())
def test_a_ranking_is_its_successive_choices(problem: tuple[FloatArray, Orderings, FloatArray]) -> None:
    features, orderings, theta = problem
    stages = Orderings.from_rankings([], n_items=len(features))
    for start, end, placed in zip(orderings.starts[:-1], orderings.starts[1:], orderings.places, strict=True):
        for stage in range(placed):
            left = orderings.items[start + stage : end].tolist()
            stages = stages.join(Orderings.from_choices([left[0]], [left], n_items=len(features)))
    for function in (plackett_luce.log_likelihood, plackett_luce.gradient, plackett_luce.hessian):
        np.testing.assert_allclose(
            function(theta, features, orderings), function(theta, features, stages), rtol=1e-9, atol=1e-10
        )


@given(problems(), SEEDS)
def test_shifting_all_features_changes_nothing(problem: tuple[FloatArray, Orderings, FloatArray], seed: int) -> None:
    features, orderings, theta = problem
    moved = features + np.random.default_rng(seed).normal(size=features.shape[1])
    for function in (plackett_luce.log_likelihood, plackett_luce.gradient, plackett_luce.hessian):
        np.testing.assert_allclose(
            function(theta, moved, orderings), function(theta, features, orderings), rtol=1e-8, atol=1e-9
        )


@given(problems())
def test_pairs_and_stages_agree_and_the_likelihood_is_concave(
    problem: tuple[FloatArray, Orderings, FloatArray],
) -> None:
    features, orderings, theta = problem
    likelihood = Likelihood.of(features, orderings)
    by_pairs, by_stages = likelihood.by_pairs(theta), likelihood.by_stages(theta)
    np.testing.assert_allclose(by_pairs.value, by_stages.value, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(by_pairs.gradient, by_stages.gradient, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(by_pairs.information, by_stages.information, rtol=1e-9, atol=1e-11)
    assert np.linalg.eigvalsh(by_pairs.information).min() > -1e-10


@given(problems(), st.sampled_from([1e-2, 1.0, 1e2, 1e6]), SEEDS)
def test_nothing_is_more_probable_than_the_mode(
    problem: tuple[FloatArray, Orderings, FloatArray], variance: float, seed: int
) -> None:
    features, orderings, centre = problem
    width = features.shape[1]
    prior = Gaussian(centre, variance * np.eye(width))
    found = plackett_luce.fit(features, orderings, prior=prior)
    mode, covariance = found.posterior.mean, found.posterior.covariance
    slope = plackett_luce.gradient(mode, features, orderings) - (mode - centre) / variance
    assert slope @ covariance @ slope < 1e-10
    assert np.linalg.eigvalsh(covariance).min() > 0.0
    assert np.linalg.eigvalsh(covariance).max() <= variance * (1.0 + 1e-6)

    def height(theta: FloatArray) -> float:
        away = theta - centre
        return plackett_luce.log_likelihood(theta, features, orderings) - 0.5 * float(away @ away) / variance

    steps = np.random.default_rng(seed).normal(size=(5, width)) @ np.linalg.cholesky(covariance).T
    assert all(height(mode + step) <= height(mode) + 1e-8 for step in steps)


def separable(features: FloatArray, orderings: Orderings) -> bool:
    """Return whether weights other than 0 give each chosen item at least the utility of all left ones, by search."""
    rows = [
        features[orderings.items[start + stage]] - features[other]
        for start, end, placed in zip(orderings.starts[:-1], orderings.starts[1:], orderings.places, strict=True)
        for stage in range(placed)
        for other in orderings.items[start + stage + 1 : end]
    ]
    width = features.shape[1]
    for axis in range(width):
        for sign in (1.0, -1.0):
            bounds = [(-1.0, 1.0)] * width
            bounds[axis] = (sign, sign)
            if linprog(np.zeros(width), A_ub=-np.array(rows), b_ub=np.zeros(len(rows)), bounds=bounds).status == 0:
                return True
    return False


@given(problems(most=12))
def test_without_a_prior_there_is_a_maximum_exactly_if_the_answers_are_not_separable(
    problem: tuple[FloatArray, Orderings, FloatArray],
) -> None:
    features, orderings, _ = problem
    # Where answers compare fewer than d directions, any weights across them are neither here nor there.
    if separable(features, orderings):
        with pytest.raises(InvalidArgumentError, match=r"separable|directions"):
            plackett_luce.fit(features, orderings)
    else:
        found = plackett_luce.fit(features, orderings).posterior
        slope = plackett_luce.gradient(found.mean, features, orderings)
        assert slope @ found.covariance @ slope < 1e-10


@given(problems(most=4))
def test_the_linear_programme_knows_separable_answers(problem: tuple[FloatArray, Orderings, FloatArray]) -> None:
    features, orderings, _ = problem
    likelihood, _ = Likelihood.of(features, orderings).standardise()
    assume(np.linalg.matrix_rank(likelihood.features, rtol=1e-9) == features.shape[1])
    if separable(features, orderings):
        with pytest.raises(InvalidArgumentError, match="separable"):
            check_not_separable(likelihood)
    else:
        check_not_separable(likelihood)


@given(problems(), SEEDS)
def test_the_order_of_answers_does_not_matter(problem: tuple[FloatArray, Orderings, FloatArray], seed: int) -> None:
    features, orderings, _ = problem
    prior = Gaussian.isotropic(features.shape[1], variance=2.0)
    shuffled = Orderings.from_rankings([], n_items=len(features))
    for answer in np.random.default_rng(seed).permutation(orderings.n_answers):
        start, end = orderings.starts[answer], orderings.starts[answer + 1]
        one = Orderings(orderings.items[start:end], np.array([0, end - start]), orderings.places[answer : answer + 1])
        shuffled = shuffled.join(one)
    first, second = (plackett_luce.fit(features, one, prior=prior) for one in (orderings, shuffled))
    np.testing.assert_allclose(first.posterior.mean, second.posterior.mean, atol=1e-6)


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 12), SEEDS)
def test_ratings_in_two_parts_are_ratings_at_once(width: int, n_ratings: int, cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, items, values = rng.normal(size=(6, width)), rng.integers(6, size=n_ratings), rng.normal(size=n_ratings)
    prior = Gaussian.isotropic(width, variance=3.0)
    whole = least_squares.fit(features, Ratings(items, values), prior=prior, noise_variance=0.5).posterior
    for part in (slice(cut), slice(cut, None)):
        ratings = Ratings(items[part], values[part])
        prior = least_squares.fit(features, ratings, prior=prior, noise_variance=0.5).posterior
    np.testing.assert_allclose(prior.mean, whole.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(prior.covariance, whole.covariance, rtol=1e-7, atol=1e-9)


LEVELS = st.integers(-3, 3).map(float)


@given(st.integers(1, 9), st.data())
def test_the_distance_of_orders_is_a_metric(n: int, data: st.DataObject) -> None:
    first, second, third = (data.draw(arrays(np.float64, n, elements=LEVELS)) for _ in range(3))
    there, back = kendall_tau_distance(first, second), kendall_tau_distance(second, first)
    assert there == back
    assert 0.0 <= there <= n * (n - 1) / 2
    assert there <= kendall_tau_distance(first, third) + kendall_tau_distance(third, second)
    assert kendall_tau_distance(first, 2.0 * first + 1.0) == 0.0


@given(st.integers(2, 9), st.data())
def test_an_order_and_its_reverse_share_the_loss(n: int, data: st.DataObject) -> None:
    first, second = (data.draw(arrays(np.float64, n, elements=LEVELS)) for _ in range(2))
    assume(len(set(first.tolist())) > 1)
    np.testing.assert_allclose(ranking_loss(first, second) + ranking_loss(first, -second), 1.0, rtol=1e-12)
    assert ranking_loss(first, first) == 0.0
    assert ranking_loss(first, np.zeros(n)) == 0.5


@given(st.integers(1, 9), st.data())
def test_no_order_gains_more_than_the_true_one(n: int, data: st.DataObject) -> None:
    gains = data.draw(arrays(np.float64, n, elements=LEVELS.map(abs)))
    estimated = data.draw(arrays(np.float64, n, elements=LEVELS))
    depth = data.draw(st.none() | st.integers(1, n))
    assert 0.0 <= ndcg(gains, estimated, depth=depth) <= 1.0 + 1e-12
    np.testing.assert_allclose(ndcg(gains, gains, depth=depth), 1.0, rtol=1e-12)
