from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

import choix
import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq, minimize

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.models.existence import check_not_separable
from topk_bandit.preferences.models.likelihood import Likelihood
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

N_ITEMS, WIDTH = 12, 4


def equation_9(theta: FloatArray, features: FloatArray, orderings: Orderings) -> float:
    """Return the log-likelihood as the paper writes it, stage by stage."""
    total = []
    for start, end, placed in zip(orderings.starts[:-1], orderings.starts[1:], orderings.places, strict=True):
        utilities = [float(features[item] @ theta) for item in orderings.items[start:end]]
        for stage in range(placed):
            left = utilities[stage:]
            total.append(utilities[stage] - math.log(math.fsum(math.exp(one) for one in left)))
    return math.fsum(total)


def mixed(seed: int, *, n_answers: int = 40) -> tuple[FloatArray, FloatArray, Orderings]:
    """Return features, true weights, and rankings, choices and pairs from them, also some with two places of five."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N_ITEMS, WIDTH)) + rng.normal(size=WIDTH)
    theta = rng.normal(size=WIDTH)
    lists = np.array([rng.permutation(N_ITEMS)[:5] for _ in range(n_answers)])
    utilities = features @ theta
    rankings = sampling.draw_rankings(utilities, lists, rng=rng)
    two = Orderings(rankings.items, rankings.starts, np.full(n_answers, 2))
    choices = sampling.draw_choices(utilities, lists[:, :3], rng=rng)
    pairs = sampling.draw_pairs(utilities, lists[:, 3:], rng=rng)
    return features, theta, rankings.join(two).join(choices).join(pairs)


@pytest.fixture(scope="module")
def example() -> tuple[FloatArray, FloatArray, Orderings]:
    return mixed(1)


def test_the_log_likelihood_is_that_of_the_paper(example: tuple[FloatArray, FloatArray, Orderings]) -> None:
    features, theta, orderings = example
    for weights in (np.zeros(WIDTH), theta, -3.0 * theta):
        expected = equation_9(weights, features, orderings)
        assert plackett_luce.log_likelihood(weights, features, orderings) == pytest.approx(expected, rel=1e-13)


def test_the_gradient_is_that_of_finite_differences(example: tuple[FloatArray, FloatArray, Orderings]) -> None:
    features, theta, orderings = example
    expected = approx_fprime(theta, lambda at: equation_9(at, features, orderings), 1e-7)
    np.testing.assert_allclose(plackett_luce.gradient(theta, features, orderings), expected, atol=2e-4)


def test_the_hessian_is_that_of_finite_differences(example: tuple[FloatArray, FloatArray, Orderings]) -> None:
    features, theta, orderings = example
    step = 1e-5
    expected = [
        (plackett_luce.gradient(theta + step * axis, features, orderings)
         - plackett_luce.gradient(theta - step * axis, features, orderings)) / (2.0 * step)
        for axis in np.eye(WIDTH)
    ]  # fmt: skip
    np.testing.assert_allclose(plackett_luce.hessian(theta, features, orderings), expected, atol=1e-5)


def test_pairs_and_stages_sum_to_the_same(example: tuple[FloatArray, FloatArray, Orderings]) -> None:
    features, theta, orderings = example
    likelihood = Likelihood.of(features, orderings)
    by_pairs, by_stages = likelihood.by_pairs(theta), likelihood.by_stages(theta)
    assert by_pairs.value == pytest.approx(by_stages.value, rel=1e-13)
    np.testing.assert_allclose(by_pairs.gradient, by_stages.gradient, atol=1e-11)
    np.testing.assert_allclose(by_pairs.information, by_stages.information, atol=1e-10)
    np.testing.assert_allclose(by_pairs.gradient, likelihood.gradient(theta), atol=1e-11)


def test_stages_are_summed_in_blocks() -> None:
    rng = np.random.default_rng(5)
    features, lists = rng.normal(size=(40, 600)), np.array([rng.permutation(40)[:6] for _ in range(400)])
    rankings = sampling.draw_rankings(np.zeros(40), lists, rng=rng)
    theta = 0.02 * rng.normal(size=600)
    likelihood = Likelihood.of(features, rankings)
    assert rankings.places.sum() * 600 * 8 > 2 * 2**22
    by_pairs, by_stages = likelihood.by_pairs(theta), likelihood.by_stages(theta)
    assert by_pairs.value == pytest.approx(by_stages.value, rel=1e-12)
    np.testing.assert_allclose(by_pairs.information, by_stages.information, atol=1e-8)


def test_utilities_far_apart_neither_overflow_nor_vanish() -> None:
    features = np.array([[0.0], [900.0], [-900.0], [400.0], [1.0]])
    orders = [[1, 3, 4, 0, 2], [2, 0, 4, 3, 1], [0, 4], [4, 0], [3, 2, 0, 1, 4]]
    orderings = Orderings.from_rankings(orders, n_items=5)
    expected = 0.0
    for order in orders:
        for stage in range(len(order) - 1):
            left = features[order[stage:], 0]
            expected += features[order[stage], 0] - left.max() - math.log(np.exp(left - left.max()).sum())
    assert plackett_luce.log_likelihood([1.0], features, orderings) == pytest.approx(expected, rel=1e-13)
    # Only between items 0 and 4 is anything undecided, the three times that nothing larger is left beside them.
    p = 1.0 / (1.0 + math.e)
    assert plackett_luce.hessian([1.0], features, orderings) == pytest.approx(-3.0 * p * (1.0 - p), rel=1e-9)


def test_answers_to_large_lists_are_summed_without_overflow() -> None:
    rng = np.random.default_rng(6)
    features, theta = rng.normal(size=(400, 2)), np.array([1.0, -2.0])
    rankings = sampling.draw_rankings(features @ theta, np.arange(400)[None], rng=rng)
    expected = equation_9(theta, features, rankings)
    assert plackett_luce.log_likelihood(theta, features, rankings) == pytest.approx(expected, rel=1e-12)
    assert Likelihood.of(features, rankings).by_pairs(theta).value == pytest.approx(expected, rel=1e-12)


def one_hot(n: int) -> FloatArray:
    """Return features of n items of which the first has utility 0."""
    return np.eye(n)[:, 1:]


def centred(utilities: NDArray[np.generic]) -> FloatArray:
    return np.asarray(utilities - np.mean(utilities), dtype=np.float64)


def test_one_hot_features_give_what_choix_finds_in_rankings() -> None:
    rng = np.random.default_rng(7)
    lists = np.array([rng.permutation(8)[:4] for _ in range(60)])
    rankings = sampling.draw_rankings(rng.normal(size=8), lists, rng=rng)
    expected = choix.opt_rankings(8, [tuple(row) for row in rankings.items.reshape(-1, 4).tolist()], alpha=0, tol=1e-12)
    found = plackett_luce.fit(one_hot(8), rankings)
    np.testing.assert_allclose(centred(found.utilities(one_hot(8)).mean), centred(expected), atol=1e-7)


def test_one_hot_features_give_what_choix_finds_in_choices() -> None:
    rng = np.random.default_rng(8)
    lists = np.array([rng.permutation(8)[:4] for _ in range(90)])
    choices = sampling.draw_choices(rng.normal(size=8), lists, rng=rng)
    data = [(row[0], tuple(row[1:])) for row in choices.items.reshape(-1, 4).tolist()]
    expected = choix.opt_top1(8, data, alpha=0, tol=1e-12)
    found = plackett_luce.fit(one_hot(8), choices)
    np.testing.assert_allclose(centred(found.utilities(one_hot(8)).mean), centred(expected), atol=1e-7)


def test_one_hot_features_and_a_prior_give_what_choix_finds_in_pairs_with_its_penalty() -> None:
    rng = np.random.default_rng(9)
    lists = np.array([rng.permutation(8)[:2] for _ in range(50)])
    pairs = sampling.draw_pairs(rng.normal(size=8), lists, rng=rng)
    # choix takes off alpha |theta|^2, and a prior N(0, v I) takes off |theta|^2 / (2 v).
    expected = choix.opt_pairwise(8, [tuple(row) for row in pairs.items.reshape(-1, 2).tolist()], alpha=0.2, tol=1e-12)
    found = plackett_luce.fit(np.eye(8), pairs, prior=Gaussian.isotropic(8, variance=1.0 / 0.4))
    np.testing.assert_allclose(found.posterior.mean, expected, atol=1e-7)


def test_maximum_likelihood_is_what_a_general_optimiser_finds(
    example: tuple[FloatArray, FloatArray, Orderings],
) -> None:
    features, _, orderings = example
    expected = minimize(lambda at: -equation_9(at, features, orderings), np.zeros(WIDTH), method="BFGS", tol=1e-8)
    found = plackett_luce.fit(features, orderings)
    np.testing.assert_allclose(found.posterior.mean, expected.x, atol=1e-5)
    assert found.log_likelihood == pytest.approx(-expected.fun, abs=1e-8)
    information = -plackett_luce.hessian(found.posterior.mean, features, orderings)
    np.testing.assert_allclose(found.posterior.covariance @ information, np.eye(WIDTH), atol=1e-4)


def test_the_most_probable_weights_are_what_a_general_optimiser_finds() -> None:
    features, _, orderings = mixed(2, n_answers=2)
    rng = np.random.default_rng(2)
    root = rng.normal(size=(WIDTH, WIDTH))
    prior = Gaussian(rng.normal(size=WIDTH), root @ root.T + 0.1 * np.eye(WIDTH))
    precision = np.linalg.inv(prior.covariance)

    def cost(at: FloatArray) -> float:
        return 0.5 * float((at - prior.mean) @ precision @ (at - prior.mean)) - equation_9(at, features, orderings)

    expected = minimize(cost, np.zeros(WIDTH), method="BFGS", tol=1e-8)
    found = plackett_luce.fit(features, orderings, prior=prior)
    np.testing.assert_allclose(found.posterior.mean, expected.x, atol=1e-5)
    assert found.log_likelihood == pytest.approx(equation_9(found.posterior.mean, features, orderings), abs=1e-8)
    information = precision - plackett_luce.hessian(found.posterior.mean, features, orderings)
    np.testing.assert_allclose(found.posterior.covariance @ information, np.eye(WIDTH), atol=1e-4)


def test_many_answers_bring_the_weights_back_and_their_spread_is_right() -> None:
    rng = np.random.default_rng(10)
    features, theta = rng.normal(size=(30, 3)), np.array([1.0, -0.5, 0.25])
    deviations = []
    for _ in range(200):
        lists = np.array([rng.permutation(30)[:4] for _ in range(150)])
        found = plackett_luce.fit(features, sampling.draw_rankings(features @ theta, lists, rng=rng))
        spread = np.sqrt(np.diag(found.posterior.covariance))
        deviations.append((found.posterior.mean - theta) / spread)
    # 600 standard normal numbers, or nearly: four standard errors each way.
    assert abs(np.mean(deviations)) < 4.0 / math.sqrt(600)
    assert abs(np.mean(np.square(deviations)) - 1.0) < 4.0 * math.sqrt(2.0 / 600)


def test_beginning_with_the_first_answers_does_not_change_the_maximum() -> None:
    features, _, few = mixed(11, n_answers=20)
    # Enough answers for a head start, and the first ones are all alike.
    alike = Orderings.from_rankings([[0, 1, 2, 3, 4]] * 900, n_items=N_ITEMS)
    found = plackett_luce.fit(features, alike.join(few))
    gradient = plackett_luce.gradient(found.posterior.mean, features, alike.join(few))
    assert abs(gradient) @ np.sqrt(np.diag(found.posterior.covariance)) < 1e-5
    turned = plackett_luce.fit(features, few.join(alike))
    np.testing.assert_allclose(found.posterior.mean, turned.posterior.mean, rtol=1e-6, atol=1e-6)


def test_without_answers_the_posterior_is_the_prior() -> None:
    prior = Gaussian(np.array([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 3.0]]))
    found = plackett_luce.fit(np.eye(2), Orderings.from_pairs([], n_items=2), prior=prior)
    assert found.posterior is prior
    assert (found.log_likelihood, found.iterations) == (0.0, 0)


def test_what_answers_do_not_compare_stays_as_the_prior_has_it() -> None:
    # The second feature is the same for both items that are compared; the third belongs to an item never shown.
    features = np.array([[1.0, 5.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 7.0]])
    prior = Gaussian(np.array([0.5, -1.0, 2.0]), np.diag([1.0, 4.0, 9.0]))
    found = plackett_luce.fit(features, Orderings.from_pairs([[0, 1]] * 5, n_items=3), prior=prior).posterior
    np.testing.assert_allclose(found.mean[1:], prior.mean[1:], atol=1e-12)
    np.testing.assert_allclose(found.covariance[1:, 1:], prior.covariance[1:, 1:], atol=1e-12)
    assert found.mean[0] > 1.0
    assert found.covariance[0, 0] < 0.7


def test_separable_answers_have_a_most_probable_explanation() -> None:
    prior = Gaussian.isotropic(1, variance=100.0)
    found = plackett_luce.fit([[1.0], [0.0]], Orderings.from_pairs([[0, 1]] * 10**4, n_items=2), prior=prior)
    # theta / 100 = 10^4 / (1 + exp(theta))
    theta = float(found.posterior.mean[0])
    assert theta / 100.0 == pytest.approx(1e4 / (1.0 + math.exp(theta)), rel=1e-6)


@pytest.mark.parametrize("mean", [-60.0, 60.0])
def test_a_prior_that_is_far_off_is_overcome(mean: float) -> None:
    # Where the answers are next to impossible they say little of how far to go: an undamped step ends at +-10^5.
    prior = Gaussian(np.array([mean]), np.array([[1e4]]))
    pairs = Orderings.from_pairs([[0, 1]] * 20 + [[1, 0]] * 10, n_items=2)
    found = plackett_luce.fit([[1.0], [0.0]], pairs, prior=prior).posterior
    expected = brentq(lambda at: 20.0 - 30.0 / (1.0 + math.exp(-at)) - (at - mean) / 1e4, -10.0, 10.0, xtol=1e-14)
    assert found.mean[0] == pytest.approx(expected, abs=1e-8)


def test_contradictory_pairs_are_noise() -> None:
    pairs = Orderings.from_pairs([[0, 1]] * 3 + [[1, 0]], n_items=2)
    found = plackett_luce.fit([[1.0], [0.0]], pairs)
    assert found.posterior.mean[0] == pytest.approx(math.log(3.0), abs=1e-8)
    assert found.posterior.covariance[0, 0] == pytest.approx(1.0 / (4 * 0.75 * 0.25), rel=1e-4)


@pytest.mark.parametrize("often", [10**2, 10**5])
def test_one_dissent_among_many_is_enough_for_a_maximum(often: int) -> None:
    pairs = Orderings.from_pairs([[0, 1]] * often + [[1, 0]], n_items=2)
    found = plackett_luce.fit([[1.0], [0.0]], pairs)
    assert found.posterior.mean[0] == pytest.approx(math.log(often), abs=1e-6)


SEPARABLE = {
    "one pair": (np.array([[1.0], [0.0]]), [[0, 1]]),
    "a chain": (one_hot(4), [[0, 1], [1, 2], [2, 3]] * 3),
    "a ranking": (np.random.default_rng(0).normal(size=(5, 2)), [[3, 1, 0, 4, 2]]),
    "only one item always wins": (one_hot(3), [[2, 0], [2, 1], [0, 1], [1, 0]]),
    "only one item always loses": (one_hot(3), [[0, 2], [1, 2], [0, 1], [1, 0]] * 20),
    "a thousand of them": (
        np.array([[math.cos(angle), math.sin(angle)] for angle in range(30)]),
        [sorted(pair, key=lambda item: -math.cos(item)) for pair in combinations(range(30), 2)] * 3,
    ),
}


@pytest.mark.parametrize("tolerance", [1e-8, 1.0])
@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_answers_without_a_prior_are_refused(name: str, tolerance: float) -> None:
    features, orders = SEPARABLE[name]
    orderings = Orderings.from_rankings(orders, n_items=len(features))
    with pytest.raises(InvalidArgumentError, match=r"separable.*prior") as caught:
        plackett_luce.fit(features, orderings, tolerance=tolerance)
    assert caught.value.field == "orderings"
    found = plackett_luce.fit(features, orderings, prior=Gaussian.isotropic(features.shape[1], variance=1.0))
    assert found.log_likelihood > plackett_luce.log_likelihood(np.zeros(features.shape[1]), features, orderings)


def test_answers_that_only_just_have_a_maximum_have_it() -> None:
    # All triples agree with the order of the angles' cosines, but for one pair that is close to a tie.
    angles = np.arange(12.0)
    features = np.column_stack([np.cos(angles), np.sin(angles)])
    orders = [sorted(three, key=lambda item: -math.cos(item)) for three in combinations(range(12), 3)]
    by_cosine = sorted(range(12), key=lambda item: -math.cos(item))
    dissent = [[second, first] for first, second in pairwise(by_cosine)]
    orderings = Orderings.from_rankings(orders + dissent, n_items=12)
    check_not_separable(Likelihood.of(features, orderings))
    found = plackett_luce.fit(features, orderings)
    gradient = plackett_luce.gradient(found.posterior.mean, features, orderings)
    assert np.abs(gradient).max() < 1e-6


def test_a_dissent_too_slight_for_the_linear_programme_still_counts() -> None:
    # Item 1 was preferred to item 2, which has the larger feature, by less than the programme tells from nothing.
    pairs = Orderings.from_pairs([[0, 1], [1, 2]], n_items=3)
    found = plackett_luce.fit([[1.0], [0.0], [5e-10]], pairs, tolerance=1e-16)
    # 1 / (1 + exp(theta)) = 5e-10 / (1 + exp(-5e-10 theta))
    assert found.posterior.mean[0] == pytest.approx(math.log(2.0 / 5e-10), abs=1e-3)


def test_answers_must_compare_all_directions_or_a_prior_must() -> None:
    rng = np.random.default_rng(12)
    thin = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 4))
    rankings = Orderings.from_rankings([rng.permutation(9).tolist() for _ in range(20)], n_items=9)
    with pytest.raises(InvalidArgumentError, match=r"compare 2 of 4 directions.*prior") as caught:
        plackett_luce.fit(thin, rankings)
    assert caught.value.field == "features"
    assert plackett_luce.fit(thin, rankings, prior=Gaussian.isotropic(4, variance=1.0)).iterations > 0


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
def test_a_feature_that_no_answer_compares_is_found_at_any_level(offset: float) -> None:
    rng = np.random.default_rng(13)
    features = np.column_stack([rng.normal(size=6), offset + np.repeat([0.1, 0.7], 3)])
    orders = [list(order) for group in ((0, 1, 2), (3, 4, 5)) for order in permutations(group)]
    with pytest.raises(InvalidArgumentError, match=r"compare 1 of 2 directions.*2 groups"):
        plackett_luce.fit(features, Orderings.from_rankings(orders, n_items=6))


def test_groups_that_no_answer_connects_are_named() -> None:
    orders = [[0, 1], [1, 0], [2, 3], [3, 2], [4, 3], [3, 4]]
    with pytest.raises(InvalidArgumentError, match=r"compare 3 of 4 directions.*2 groups that no answer connects"):
        plackett_luce.fit(one_hot(5), Orderings.from_rankings(orders, n_items=5))
    with pytest.raises(InvalidArgumentError, match="compare 4 of 5 directions:"):
        plackett_luce.fit(np.eye(5), Orderings.from_rankings([*orders, [0, 4], [4, 0]], n_items=5))


def test_features_with_large_offsets_and_unequal_scales_lose_nothing() -> None:
    features, theta, orderings = mixed(14)
    units, offsets = np.array([1e-6, 1.0, 1e5, 30.0]), np.array([1e-3, 1e4, -1e8, 0.0])
    plain = plackett_luce.fit(features, orderings).posterior
    scaled = plackett_luce.fit(features * units + offsets, orderings).posterior
    np.testing.assert_allclose(scaled.mean * units, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.covariance * np.outer(units, units), plain.covariance, rtol=1e-5, atol=1e-9)
    assert np.abs(plain.mean - theta).max() < 1.0


@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_features_in_any_unit_are_learned_from(unit: float) -> None:
    features, _, orderings = mixed(17)
    prior = Gaussian.isotropic(WIDTH, variance=2.0)
    in_units = Gaussian.isotropic(WIDTH, variance=2.0 / unit**2)
    plain = plackett_luce.fit(features, orderings, prior=prior).posterior
    found = plackett_luce.fit(features * unit, orderings, prior=in_units).posterior
    np.testing.assert_allclose(found.mean * unit, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(
        plackett_luce.fit(features * unit, orderings).posterior.mean * unit,
        plackett_luce.fit(features, orderings).posterior.mean,
        rtol=1e-9,
    )


def test_items_that_never_occur_do_not_matter() -> None:
    features, _, orderings = mixed(15)
    more = np.vstack([features, 1e9 * np.ones((3, WIDTH))])
    expected, found = plackett_luce.fit(features, orderings).posterior, plackett_luce.fit(more, orderings).posterior
    assert found.mean.tolist() == expected.mean.tolist()


@pytest.mark.parametrize(
    ("features", "prior", "field"),
    [
        ([[1.0, math.nan], [0.0, 0.0]], None, "features[0][1]"),
        ([[1.0, 0.0]], None, "orderings"),
        ([[1.0, 0.0], [0.0, 0.0]], Gaussian.isotropic(3, variance=1.0), "prior"),
        ([[1.0, 0.0], [0.0, 0.0]], Gaussian(np.zeros(2), np.zeros((2, 2))), "prior"),
    ],
)
def test_what_can_not_be_learned_from_is_named(features: list[list[float]], prior: Gaussian | None, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plackett_luce.fit(features, Orderings.from_pairs([[0, 1]], n_items=2), prior=prior)
    assert caught.value.field == field


def test_without_answers_and_prior_there_is_nothing_to_learn() -> None:
    with pytest.raises(InvalidArgumentError, match="no answers") as caught:
        plackett_luce.fit(np.eye(2), Orderings.from_pairs([], n_items=2))
    assert caught.value.field == "orderings"


def test_too_few_iterations_are_an_error_not_an_answer() -> None:
    features, _, orderings = mixed(16)
    with pytest.raises(InvalidArgumentError) as caught:
        plackett_luce.fit(features, orderings, max_iterations=2)
    assert caught.value.field == "max_iterations"


@pytest.mark.parametrize(("theta", "field"), [([1.0], "features"), ([[1.0]], "theta"), ([1.0, math.nan], "theta[1]")])
def test_weights_must_fit_the_features(theta: list[float], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plackett_luce.log_likelihood(theta, np.eye(2), Orderings.from_pairs([[0, 1]], n_items=2))
    assert caught.value.field == field
