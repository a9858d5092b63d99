"""The bound is where the mixture reaches 1 / alpha, and a Brownian motion ever does so as seldom as it should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.confidence_sequences import EXPECTED_EFFECT, check_confidence, errors_away


@pytest.mark.parametrize("information", [1.0, 50.0, 400.0, 3_000.0, 1e5])
@pytest.mark.parametrize("error", [0.025, 0.001, 0.5])
def test_the_mixture_is_one_over_alpha_there(information: float, error: float) -> None:
    reached = errors_away(information, error=error) * np.sqrt(information)
    m = EXPECTED_EFFECT

    def mixed(effect: float) -> float:
        return float(np.exp(effect * reached - effect**2 * information / 2) * norm.pdf(effect, m, m))

    centre, width = (reached + 1 / m) / (information + m**-2), (information + m**-2) ** -0.5
    value, _ = quad(mixed, centre - 12 * width, centre + 12 * width, epsrel=1e-11)
    assert value == pytest.approx(1 / error, rel=1e-8)


@pytest.mark.parametrize(("error", "runs"), [(0.05, 2_000), (0.2, 2_000)])
def test_a_brownian_motion_ever_crosses_it_as_seldom_as_promised(error: float, runs: int) -> None:
    rng = np.random.default_rng(5)
    times = np.geomspace(1.0, 1e7, 2_000)
    bound = np.array([errors_away(time, error=error) for time in times]) * np.sqrt(times)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    crossed = sum(
        (np.cumsum(rng.normal(size=(100, times.size)) * steps, axis=1) > bound).any(axis=1).sum()
        for _ in range(runs // 100)
    )
    assert 0.3 * error * runs <= crossed <= binom.ppf(0.999, runs, error)


def test_it_shrinks_as_information_comes_in() -> None:
    reach = [errors_away(time, error=0.025) / time**0.5 for time in np.geomspace(1.0, 1e12, 50)]
    assert reach == sorted(reach, reverse=True)
    assert reach[-1] < 1e-5


@pytest.mark.parametrize("confidence", [0.49, 1.0, float("nan"), -1.0, 95.0])
def test_another_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidArgumentError, match="confidence"):
        check_confidence(confidence)
