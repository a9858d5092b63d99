from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from tests.learning.dense import KINDS, WCK, DenseGp, Kind, Sample, fitted, sample

from topk_bandit.learning.evidence import Evidence, Observations
from topk_bandit.learning.hyperparameters import RELATIVE_NOISE_GRID, choose_noise_variance, profile_likelihood

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS = 10
RATIOS = np.array([1e-3, 0.02, 0.1, 1.0, 7.0])


def draw(seed: int, *, count: int, kind: Kind = WCK, noise_variance: float = 0.1, context_dim: int = 2) -> Sample:
    rng = np.random.default_rng(seed)
    return sample(
        kind, rng, n_items=N_ITEMS, slate_size=3, context_dim=context_dim, count=count, noise_variance=noise_variance
    )


def evidence_of(data: Sample) -> Evidence:
    return Evidence.of(Observations(*data.rows))


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
    profile = profile_likelihood(covariance, evidence_of(data), RATIOS)
    for place, ratio in enumerate(RATIOS.tolist()):
        offset, amplitude = float(profile.offset[place]), float(profile.amplitude[place])
        density = log_density(data, covariance, offset, amplitude, ratio)
        assert profile.log_likelihood[place] == pytest.approx(density, abs=1e-6)


@pytest.mark.parametrize("place", range(len(RATIOS)))
def test_no_other_offset_and_amplitude_are_more_likely(place: int) -> None:
    data = draw(2, count=30)
    data.rewards[:] = 3.0 + 2.5 * data.rewards
    covariance = covariance_of(WCK, data)
    profile = profile_likelihood(covariance, evidence_of(data), RATIOS)

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
    profile = profile_likelihood(covariance_of(WCK, data), evidence_of(data), RATIOS)
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
        chosen = choose_noise_variance(kernel, evidence_of(data))
        assert abs(math.log10(chosen / noise_variance)) <= 0.5


def test_the_unit_of_the_rewards_does_not_matter() -> None:
    data = draw(5, count=100)
    kernel = WCK.make(N_ITEMS, 3)
    chosen = choose_noise_variance(kernel, evidence_of(data))
    scaled = evidence_of(replace(data, rewards=1e6 * data.rewards - 4e6))
    assert choose_noise_variance(kernel, scaled) == chosen


def test_the_choice_is_relative_to_the_size_of_the_contexts() -> None:
    data = draw(5, count=100)
    kernel = WCK.make(N_ITEMS, 3)
    chosen = choose_noise_variance(kernel, evidence_of(data))
    scaled = evidence_of(replace(data, contexts=10.0 * data.contexts))
    assert choose_noise_variance(kernel, scaled) == pytest.approx(100.0 * chosen)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e9])
@pytest.mark.parametrize("count", [1, 30])
def test_equal_rewards_leave_the_prior_s_mean(value: float, count: int) -> None:
    data = draw(6, count=count, context_dim=1)
    equal = replace(data, rewards=np.full(count, value))
    chosen = choose_noise_variance(WCK.make(N_ITEMS, 3), evidence_of(equal))
    assert chosen == pytest.approx(0.1)


def test_few_rewards_do_not_lead_to_an_extreme() -> None:
    for seed in range(20):
        data = draw(seed, count=2)
        unit = float(np.mean((data.contexts**2).sum(axis=1)))
        chosen = choose_noise_variance(WCK.make(N_ITEMS, 3), evidence_of(data)) / unit
        assert RELATIVE_NOISE_GRID[0] < chosen < RELATIVE_NOISE_GRID[-1]


def test_contexts_of_zero_do_not_stop_the_choice() -> None:
    data = draw(7, count=20)
    chosen = choose_noise_variance(WCK.make(N_ITEMS, 3), evidence_of(replace(data, contexts=0.0 * data.contexts)))
    assert math.isfinite(chosen)
    assert chosen > 0.0
