from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from tests.learning.believed import Utilities
from tests.learning.dense import KINDS, WCK, DenseGp, Kind, Sample, fitted, sample

from topk_bandit.learning.hyperparameters import (
    RELATIVE_NOISE_GRID,
    Products,
    best_noise,
    profile_likelihood,
    scaling,
)
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.slope_prior import SlopePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS = 10
RATIOS = np.array([1e-3, 0.02, 0.1, 1.0, 7.0])


def draw(seed: int, *, count: int, kind: Kind = WCK, noise_variance: float = 0.1, context_dim: int = 2) -> Sample:
    rng = np.random.default_rng(seed)
    return sample(
        kind, rng, n_items=N_ITEMS, slate_size=3, context_dim=context_dim, count=count, noise_variance=noise_variance
    )


def observed_rows_of(data: Sample) -> ObservedRows:
    return ObservedRows.of(Observations(*data.rows))


def covariance_of(kind: Kind, data: Sample) -> NDArray[np.float64]:
    gp = DenseGp(kind, N_ITEMS, 1.0, *data.rows)
    return gp.covariance(gp.rewarded, gp.rewarded)


def log_density(data: Sample, covariance: NDArray[np.float64], offset: float, amplitude: float, ratio: float) -> float:
    noisy = amplitude * (covariance + ratio * np.eye(len(covariance)))
    return float(multivariate_normal.logpdf(data.rewards, mean=np.full(len(covariance), offset), cov=noisy))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_profile_is_the_density_at_its_best_offset_and_amplitude(kind: Kind) -> None:
    data = draw(1, count=40, kind=kind)
    covariance = covariance_of(kind, data)
    profile = profile_likelihood(covariance, observed_rows_of(data), RATIOS)
    for place, ratio in enumerate(RATIOS.tolist()):
        offset, amplitude = float(profile.offset[place]), float(profile.amplitude[place])
        density = log_density(data, covariance, offset, amplitude, ratio)
        assert profile.log_likelihood[place] == pytest.approx(density, abs=1e-6)


@pytest.mark.parametrize("place", range(len(RATIOS)))
def test_no_other_offset_and_amplitude_are_more_likely(place: int) -> None:
    data = draw(2, count=30)
    data.rewards[:] = 3.0 + 2.5 * data.rewards
    covariance = covariance_of(WCK, data)
    profile = profile_likelihood(covariance, observed_rows_of(data), RATIOS)

    def loss(parameters: NDArray[np.float64]) -> float:
        return -log_density(data, covariance, parameters[0], math.exp(parameters[1]), float(RATIOS[place]))

    start = np.array([data.rewards.mean(), math.log(data.rewards.var())])
    best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 5000})
    assert best.success
    assert profile.log_likelihood[place] == pytest.approx(-best.fun, abs=1e-6)
    assert profile.offset[place] == pytest.approx(best.x[0], abs=1e-4)
    assert profile.amplitude[place] == pytest.approx(math.exp(best.x[1]), rel=1e-4)


def test_the_profile_and_the_posterior_agree_on_offset_and_amplitude() -> None:
    data = draw(3, count=50)
    profile = profile_likelihood(covariance_of(WCK, data), observed_rows_of(data), RATIOS)
    for place, ratio in enumerate(RATIOS.tolist()):
        posterior = fitted(WCK, data, n_items=N_ITEMS, noise_variance=ratio)
        offset = posterior.best_offset
        assert profile.offset[place] == pytest.approx(offset, abs=1e-8)
        assert profile.amplitude[place] == pytest.approx(posterior.whitened_square(offset) / 50, rel=1e-8)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("noise_variance", [0.01, 0.1, 1.0])
def test_the_noise_of_the_model_is_found_to_its_order_of_magnitude(kind: Kind, noise_variance: float) -> None:
    kernel = kind.make(N_ITEMS, 3)
    for seed in range(3):
        data = draw(seed, count=200, kind=kind, noise_variance=noise_variance)
        chosen = best_noise(kernel, observed_rows_of(data)).noise_variance
        assert abs(math.log10(chosen / noise_variance)) <= 0.5


def test_the_unit_of_the_rewards_does_not_matter() -> None:
    data = draw(5, count=100)
    kernel = WCK.make(N_ITEMS, 3)
    chosen = best_noise(kernel, observed_rows_of(data)).noise_variance
    scaled = observed_rows_of(replace(data, rewards=1e6 * data.rewards - 4e6))
    assert best_noise(kernel, scaled).noise_variance == pytest.approx(chosen, rel=1e-6)


def test_the_choice_is_relative_to_the_size_of_the_contexts() -> None:
    data = draw(5, count=100)
    kernel = WCK.make(N_ITEMS, 3)
    chosen = best_noise(kernel, observed_rows_of(data)).noise_variance
    scaled = observed_rows_of(replace(data, contexts=10.0 * data.contexts))
    assert best_noise(kernel, scaled).noise_variance == pytest.approx(100.0 * chosen)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e9])
@pytest.mark.parametrize("count", [1, 30])
def test_equal_rewards_leave_the_prior_s_mean(value: float, count: int) -> None:
    data = draw(6, count=count, context_dim=1)
    equal = replace(data, rewards=np.full(count, value))
    chosen = best_noise(WCK.make(N_ITEMS, 3), observed_rows_of(equal)).noise_variance
    assert chosen == pytest.approx(0.1)


def test_few_rewards_do_not_lead_to_an_extreme() -> None:
    for seed in range(20):
        data = draw(seed, count=2)
        unit = float(np.mean((data.contexts**2).sum(axis=1)))
        chosen = best_noise(WCK.make(N_ITEMS, 3), observed_rows_of(data)).noise_variance / unit
        assert RELATIVE_NOISE_GRID[0] < chosen < RELATIVE_NOISE_GRID[-1]


def test_contexts_of_zero_do_not_stop_the_choice() -> None:
    data = draw(7, count=20)
    chosen = best_noise(
        WCK.make(N_ITEMS, 3), observed_rows_of(replace(data, contexts=0.0 * data.contexts))
    ).noise_variance
    assert math.isfinite(chosen)
    assert chosen > 0.0


def believed(data: Sample, utilities: Utilities) -> tuple[ObservedRows, NDArray[np.float64]]:
    """Return the rows with a prior mean, and its h by definition."""
    return (
        observed_rows_of(data).with_prior_mean(utilities.prior_mean(WCK, 3)),
        utilities.h(WCK, data.contexts, data.rankings),
    )


def some_utilities(seed: int) -> Utilities:
    return Utilities.draw(np.random.default_rng(seed), n_items=N_ITEMS, context_dim=2, of="contexts")


PRIORS = [SlopePrior(1.5, 0.6), SlopePrior(0.3, 4.0), SlopePrior(-1.0, 0.0), SlopePrior(0.0, 0.0)]
IN_REWARDS = [prior._replace(in_rewards=True) for prior in PRIORS]


def unit_of_slope(prior: SlopePrior, amplitude: float) -> float:
    return 1.0 if prior.in_rewards else math.sqrt(amplitude)


def log_density_over_slopes(
    rewards: NDArray[np.float64],
    h: NDArray[np.float64],
    noisy: NDArray[np.float64],
    prior: SlopePrior,
    *,
    amplitude: float,
) -> float:
    """Return the log of the density at its best offset, integrated over the slope step by step."""
    spread, unit = math.sqrt(prior.variance), unit_of_slope(prior, amplitude)
    steps = np.linspace(-9.0, 9.0, 4_001) if spread else np.zeros(1)
    slopes = (prior.mean + spread * steps) * unit
    weights, ones = np.linalg.inv(amplitude * noisy), np.ones(len(rewards))
    rest = rewards[:, None] - h[:, None] * slopes
    rest -= (ones @ weights @ rest) / (ones @ weights @ ones)
    squares = (rest * (weights @ rest)).sum(axis=0)
    logs = -0.5 * (squares + np.linalg.slogdet(2.0 * np.pi * amplitude * noisy)[1])
    if not spread:
        return float(logs[0])
    return float(logsumexp(logs + norm.logpdf(steps)) + math.log(steps[1] - steps[0]))


@pytest.mark.parametrize("prior", [*PRIORS, *IN_REWARDS], ids=str)
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_with_a_prior_mean_the_profile_is_the_density_over_all_slopes_at_its_best(
    prior: SlopePrior, sign: float
) -> None:
    data, utilities = draw(8, count=25), some_utilities(9)
    observed_rows, h = believed(data, utilities)
    observed_rows.targets[0] = rewards = 3.0 + 2.0 * (data.rewards + sign * h)
    profile = profile_likelihood(covariance_of(WCK, data), observed_rows, RATIOS[1:4], prior=prior)
    for place, ratio in enumerate(RATIOS[1:4].tolist()):
        noisy, amplitude = covariance_of(WCK, data) + ratio * np.eye(25), float(profile.amplitude[place])
        density = log_density_over_slopes(rewards, h, noisy, prior, amplitude=amplitude)
        assert profile.log_likelihood[place] == pytest.approx(density, abs=1e-6)
        for other in (0.9 * amplitude, 1.1 * amplitude):
            assert log_density_over_slopes(rewards, h, noisy, prior, amplitude=other) < density


@pytest.mark.parametrize("prior", [*PRIORS[:2], *IN_REWARDS[:2]], ids=str)
def test_offset_and_slope_are_a_regression_with_a_prior_on_the_slope(prior: SlopePrior) -> None:
    data, utilities = draw(8, count=40), some_utilities(9)
    observed_rows, h = believed(data, utilities)
    covariance = covariance_of(WCK, data)
    profile = profile_likelihood(covariance, observed_rows, RATIOS, prior=prior)
    for place, ratio in enumerate(RATIOS.tolist()):
        amplitude = float(profile.amplitude[place])
        unit = unit_of_slope(prior, amplitude)
        weights = np.linalg.inv(amplitude * (covariance + ratio * np.eye(40)))
        design = np.column_stack([np.ones(40), unit * h])
        precision, moment = design.T @ weights @ design, design.T @ weights @ data.rewards
        precision[1, 1] += 1.0 / prior.variance
        moment[1] += prior.mean / prior.variance
        offset, slope = np.linalg.solve(precision, moment)
        assert profile.offset[place] == pytest.approx(offset, rel=1e-6, abs=1e-6)
        assert profile.slope[place] == pytest.approx(slope * unit, rel=1e-6, abs=1e-6)


def test_an_amplitude_that_is_given_is_kept() -> None:
    found = scaling(Products(np.float64(3.0), np.float64(-2.0), np.float64(5.0), 9.0), PRIORS[0], amplitude=4.0)
    assert found.amplitude == 4.0
    assert found.slope == pytest.approx((1.5 * 2.0 + 0.6 * -2.0) / (1.0 + 0.6 * 5.0))
    found = scaling(Products(np.float64(3.0), np.float64(-2.0), np.float64(5.0), 9.0), IN_REWARDS[0], amplitude=4.0)
    assert found.amplitude == 4.0
    assert found.slope == pytest.approx((1.5 / 0.6 - 2.0 / 4.0) / (1.0 / 0.6 + 5.0 / 4.0))


@pytest.mark.parametrize("prior", [*PRIORS, *IN_REWARDS], ids=str)
def test_the_spread_of_the_slope_is_that_of_its_density_at_the_amplitude(prior: SlopePrior) -> None:
    amplitude, products = 4.0, Products(np.float64(30.0), np.float64(-2.0), np.float64(5.0), 9.0)
    found = scaling(products, prior, amplitude=amplitude)
    unit, width = unit_of_slope(prior, amplitude), math.sqrt(prior.variance)
    # The density of t on a fine grid: of the rest that it leaves, times its prior.
    t = prior.mean + width * np.linspace(-9.0, 9.0, 20_001)
    rest = 30.0 - 2.0 * t * unit * -2.0 + (t * unit) ** 2 * 5.0
    density = np.exp(-0.5 * (rest - rest.min()) / amplitude) * norm.pdf(np.linspace(-9.0, 9.0, 20_001))
    mean = float(density @ t / density.sum())
    assert found.slope == pytest.approx(unit * mean, rel=1e-6)
    assert found.spread == pytest.approx(unit * math.sqrt(density @ (t - mean) ** 2 / density.sum()), rel=1e-6)


def misfits_of(amplitudes: NDArray[np.float64], products: Products, prior: SlopePrior) -> NDArray[np.float64]:
    """Return -2 log L less log|.| at amplitudes (A,), by the density of the slope on a fine grid."""
    yy, yh, hh, n = (float(number) for number in products)
    every = amplitudes[:, None]
    # Around where the two together have most of their density, and as wide as that is.
    precision = 1.0 / prior.variance + hh / every
    t = (prior.mean / prior.variance + yh / every) / precision + np.linspace(-9.0, 9.0, 501) / np.sqrt(precision)
    logs = norm.logpdf(t, prior.mean, math.sqrt(prior.variance)) - 0.5 * (yy - 2.0 * t * yh + t * t * hh) / every
    return np.asarray(n * np.log(amplitudes) - 2.0 * (logsumexp(logs, axis=1) + np.log(t[:, 1] - t[:, 0])))


def drawn_products(seed: int, n: float) -> tuple[Products, SlopePrior]:
    """Return the products of rewards that follow h more or less, and a prior that may be far from how much."""
    rng = np.random.default_rng(seed)
    size, noise, of_prior = 10.0 ** rng.uniform([-1.0, -2.0, -3.0], [1.0, 1.0, 2.0])
    h = 10.0 ** rng.uniform(-1.0, 1.0) * rng.normal(size=50)
    y = size * rng.normal() * h + noise * rng.normal(size=50)
    products = Products(*(np.float64(n / 50 * product) for product in (y @ y, y @ h, h @ h)), n)
    return products, SlopePrior(size * float(rng.normal()), float(of_prior**2), in_rewards=True)


@pytest.mark.parametrize("n", [0.4, 2.0, 8.0, 40.0, 1000.0])
def test_no_other_amplitude_is_more_likely_where_the_prior_is_in_rewards(n: float) -> None:
    """Also where it is far from what rewards say: then there are two that are more likely than those beside them."""
    for seed in range(20):
        products, prior = drawn_products(seed, n)
        found = scaling(products, prior)
        tried = float(products.yy) / n * np.exp(np.linspace(-25.0, 15.0, 120))
        [at_found] = misfits_of(np.array([float(found.amplitude)]), products, prior)
        assert at_found <= misfits_of(tried, products, prior).min() + 1e-6, (seed, products, prior)
        assert n * math.log(found.amplitude) + found.misfit == pytest.approx(at_found, abs=1e-6)


def test_a_prior_that_rewards_are_far_from_is_left() -> None:
    """A narrow one that is wrong is not taken for a large noise."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=1000)
    y = 2.0 * h + 0.02 * rng.normal(size=1000)
    found = scaling(Products(y @ y, y @ h, h @ h, 1000.0), SlopePrior(-0.03, 0.001, in_rewards=True))
    assert found.slope == pytest.approx(2.0, abs=0.01)
    assert found.amplitude == pytest.approx(0.02**2, rel=0.2)


@pytest.mark.parametrize("amplitude", [None, 4.0])
def test_arrays_are_scaled_number_by_number(amplitude: float | None) -> None:
    drawn = [drawn_products(seed, 30.0)[0] for seed in range(20)]
    every = Products(*(np.array(column) for column in list(zip(*drawn, strict=True))[:3]), 30.0)
    for prior in (IN_REWARDS[0], IN_REWARDS[2], PRIORS[0]):
        together = scaling(every, prior, amplitude=amplitude)
        for place, one in enumerate(drawn):
            alone = scaling(one, prior, amplitude=amplitude)
            for mine, theirs in zip(together, alone, strict=True):
                assert mine[place] == pytest.approx(float(theirs), rel=1e-12)  # type: ignore[index]


@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e100])
def test_the_unit_of_rewards_does_not_matter_to_a_prior_in_their_unit(size: float) -> None:
    for seed in range(10):
        products, prior = drawn_products(seed, 40.0)
        found = scaling(products, prior)
        sized = Products(size * products.yy * size, size * products.yh, products.hh, 40.0)
        other = scaling(sized, prior.times(size))
        assert other.slope == pytest.approx(size * found.slope, rel=1e-6)
        assert other.spread == pytest.approx(size * found.spread, rel=1e-6)
        assert other.amplitude == pytest.approx(size * found.amplitude * size, rel=1e-6)
        assert other.misfit == pytest.approx(float(found.misfit), abs=1e-6)


@pytest.mark.parametrize(("prior", "middle"), [(PRIORS[0], -1.0), (IN_REWARDS[0], 0.0)], ids=["a study", "outcomes"])
def test_few_rewards_beside_outcomes_are_taken_for_noisier(prior: SlopePrior, middle: float) -> None:
    """The ratio is the mean noise over the mean amplitude, by the likelihood and a prior of a decade."""
    data, utilities = draw(12, count=6), some_utilities(13)
    observed_rows, _ = believed(data, utilities)
    covariance = covariance_of(WCK, data)
    unit = float(np.trace(covariance)) / 6.0
    profile = profile_likelihood(covariance, observed_rows, RELATIVE_NOISE_GRID * unit, prior=prior)
    logs = profile.log_likelihood + norm.logpdf(np.log10(RELATIVE_NOISE_GRID), middle, 1.0)
    weights = np.exp(logs - logs.max()) * profile.amplitude
    expected = unit * float(weights @ RELATIVE_NOISE_GRID) / float(weights.sum())
    fit = best_noise(WCK.make(N_ITEMS, 3), observed_rows, prior=prior)
    assert fit.noise_variance == pytest.approx(expected, rel=1e-6)


def test_the_slope_is_found_from_enough_rewards_whatever_its_sign() -> None:
    data, utilities = draw(10, count=200), some_utilities(11)
    observed_rows, h = believed(data, utilities)
    covariance = covariance_of(WCK, data)
    for slope in (-2.0, 0.0, 2.0):
        observed_rows.targets[0] = data.rewards + slope * h
        profile = profile_likelihood(covariance, observed_rows, np.array([0.1]), prior=SlopePrior(1.0, 1.0))
        assert profile.slope[0] == pytest.approx(slope, abs=0.3)


def test_the_prior_of_the_slope_has_the_unit_of_the_contexts() -> None:
    small, large = SlopePrior.of_contexts(1.0), SlopePrior.of_contexts(400.0)
    assert large.mean == pytest.approx(20.0 * small.mean)
    assert large.variance == pytest.approx(400.0 * small.variance)
    assert SlopePrior.of_contexts(0.0) == small
