"""What is planned is what simulated shops need."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.groups import reach, watch

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.confidence_sequences import errors_away
from topk_bandit.learning.holdouts import POWER, count_requests
from topk_bandit.learning.lift import FEWEST_REQUESTS


@pytest.mark.slow
@pytest.mark.parametrize(("lift", "share"), [(0.3, 0.5), (0.3, 0.2), (0.6, 0.1)])
def test_so_many_requests_decide_it_in_four_shops_of_five(lift: float, share: float) -> None:
    """Clicks of 10 %: not fewer than what 1,000 shops differ by, nor more than looking at all times adds."""
    rng, mean, shops, decided = np.random.default_rng(8), 0.1, 1_000, 0
    requests = int(count_requests(lift, mean=mean, spread=math.sqrt(mean * (1 - mean)), control_share=share))
    for _ in range(shops // 50):
        in_control = rng.random((50, requests)) < share
        rewards = (rng.random(in_control.shape) < np.where(in_control, mean, (1 + lift) * mean)).astype(float)
        watched = watch(rewards, in_control)
        decided += int((watched.errors() > reach(watched.information, 0.025)).any(axis=1).sum())
    print(f"lift {lift}, control {share}: {decided} of {shops} decided within {requests}")
    assert 0.75 * shops <= decided <= 0.92 * shops


@pytest.mark.slow
def test_baskets_as_large_as_before_need_as_many() -> None:
    """One request in ten buys for a log-normal sum, and with the bandit one in eight."""
    rng, shops, decided = np.random.default_rng(9), 400, 0
    mean, square = 0.1 * math.exp(0.5), 0.1 * math.exp(2.0)
    requests = int(count_requests(0.25, mean=mean, spread=math.sqrt(square - mean**2), control_share=0.3))
    for _ in range(shops // 20):
        in_control = rng.random((20, requests)) < 0.3
        bought = rng.random(in_control.shape) < np.where(in_control, 0.1, 0.125)
        watched = watch(bought * np.exp(rng.normal(size=bought.shape)), in_control)
        decided += int((watched.errors() > reach(watched.information, 0.025)).any(axis=1).sum())
    assert 0.74 * shops <= decided <= 0.92 * shops


@pytest.mark.parametrize("lift", [0.002, 0.04, 0.6])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_it_is_the_least_number_that_is_enough(lift: float, share: float, confidence: float) -> None:
    """With rewards of 0 and 1, whose spread with the lift is known."""
    mean = 0.2
    spreads = mean * (1 - mean), (1 + lift) * mean * (1 - (1 + lift) * mean)
    requests = count_requests(lift, mean=mean, spread=math.sqrt(spreads[0]), control_share=share, confidence=confidence)
    both = share * spreads[0] + (1 - share) * spreads[1]

    def missing(count: float) -> float:
        standard_error = math.sqrt(spreads[1] / ((1 - share) * count) + both / (share * count))
        reached = errors_away(share * (1 - share) * count, error=(1 - confidence) / 2)
        return float(reached + 0.8416212335729143 - lift * mean / standard_error)

    assert missing(requests) <= 1e-9
    assert requests == math.ceil(FEWEST_REQUESTS / min(share, 1 - share)) or missing(requests - 2) > 0.0
    assert POWER == 0.8


def test_a_large_lift_waits_for_the_fewest_that_an_interval_needs() -> None:
    assert count_requests(3.0, mean=2.0, spread=1.0, control_share=0.1) == 10 * FEWEST_REQUESTS


def test_what_nobody_will_ever_see_takes_for_ever() -> None:
    assert count_requests(1e-9, mean=1.0, spread=1.0, control_share=0.1) == math.inf


def test_another_confidence_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="confidence"):
        count_requests(0.1, mean=1.0, spread=1.0, control_share=0.1, confidence=1.0)
