"""The odds are those of a Polya urn; a share as asked is hardly ever called odd, and a wrong one soon is."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import binom

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.sample_ratio import RATIO_ERROR, judge_sample_ratio


@pytest.mark.parametrize("share", [0.5, 0.1, 0.99])
def test_the_odds_are_those_of_predictions_from_what_came_before(share: float) -> None:
    rng, log_odds, n0, n1 = random.Random(2), 0.0, 0, 0
    for _ in range(3_000):
        is_control = rng.random() < min(share * 1.01, 1.0)
        predicted = (1_000.0 * share + n0) / (1_000.0 + n0 + n1)
        log_odds += math.log(predicted / share) if is_control else math.log((1.0 - predicted) / (1.0 - share))
        n0, n1 = n0 + is_control, n1 + (not is_control)
    found = judge_sample_ratio(n1, n0, control_share=share)
    assert found.log_odds == pytest.approx(log_odds, abs=1e-7)
    assert (found.share, found.asked) == (n0 / 3_000, share)


def ever_odd(true: float, asked: float, shops: int, requests: int, seed: int) -> np.ndarray:
    """Return after how many requests each shop is first odd, infinity if never."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(shops // 100):
        n0 = np.cumsum(rng.random((100, requests)) < true, axis=1)
        n1 = np.arange(1, requests + 1) - n0
        a, b = 1_000.0 * asked, 1_000.0 * (1 - asked)
        odds = betaln(a + n0, b + n1) - betaln(a, b) - n0 * math.log(asked) - n1 * math.log(1 - asked)
        odd = odds >= math.log(1_000.0)
        found.append(np.where(odd.any(axis=1), odd.argmax(axis=1) + 1, np.inf))
        last = judge_sample_ratio(int(n1[0, -1]), int(n0[0, -1]), control_share=asked)
        assert last.log_odds == pytest.approx(odds[0, -1], abs=1e-6)
        assert last.is_odd == odd[0, -1]
    return np.concatenate(found)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_one_shop_in_a_thousand_is_ever_odd_without_a_reason(share: float) -> None:
    shops = 3_000
    odd = np.isfinite(ever_odd(share, share, shops, 10_000, seed=1)).sum()
    print(f"control {share}: {odd} of {shops} are ever odd")
    assert odd <= binom.ppf(0.999, shops, RATIO_ERROR)


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "true", "within"), [(0.5, 0.53, 15_000), (0.1, 0.12, 10_000), (0.1, 0.05, 3_000)])
def test_a_wrong_share_is_noticed(asked: float, true: float, within: int) -> None:
    assert (ever_odd(true, asked, 200, within, seed=2) <= within).mean() >= 0.95


def test_large_counts_have_exact_odds() -> None:
    """By Stirling's series, without the gamma function: 10^9 requests, of which the control group has 10^8."""
    even = judge_sample_ratio(900_000_000, 100_000_000, control_share=0.1)
    n, k = 1e9, 1_000.0
    assert even.log_odds == pytest.approx(-0.5 * math.log1p(n / k), abs=1e-2)
    assert not even.is_odd
    assert judge_sample_ratio(899_000_000, 101_000_000, control_share=0.1).is_odd


def test_nothing_is_odd_before_the_first_request() -> None:
    assert judge_sample_ratio(0, 0, control_share=0.2) == (None, 0.2, 0.0, False)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_leaves_a_group_empty_is_refused(share: float) -> None:
    with pytest.raises(InvalidArgumentError, match="control_share"):
        judge_sample_ratio(1, 1, control_share=share)


@pytest.mark.parametrize("counts", [(-1, 3), (3, -1)])
def test_negative_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="count"):
        judge_sample_ratio(*counts, control_share=0.5)
