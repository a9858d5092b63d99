"""Estimates and ends of intervals are those of numpy and of a search for the ends."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy.optimize import brentq
from tests.learning.groups import REWARDS, reach, totals_of

from topk_bandit.domain.bandits import MAX_REWARD_MAGNITUDE
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.stages import LiftVerdict
from topk_bandit.learning.group_totals import NO_REQUESTS, GroupTotals
from topk_bandit.learning.lift import FEWEST_REQUESTS, Lift, estimate_lift


def groups(kind: str, seed: int, counts: tuple[int, int], factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    bandit, control = (REWARDS[kind](rng, (1, count))[0] for count in counts)
    return factor * bandit, control


def estimated(bandit: np.ndarray, control: np.ndarray, confidence: float = 0.95) -> Lift:
    return estimate_lift(totals_of(bandit), totals_of(control), confidence=confidence)


@pytest.mark.parametrize("kind", ["normal", "clicks", "baskets"])
@pytest.mark.parametrize("counts", [(700, 100), (300, 900), (100, 100)])
@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_ends_are_where_a_search_finds_them(kind: str, counts: tuple[int, int], confidence: float) -> None:
    bandit, control = groups(kind, 3, counts, factor=2.0)
    control = control + (3.0 if kind == "normal" else 0.0)
    lift = estimated(bandit, control, confidence)
    together = (bandit.var() * len(bandit) + control.var() * len(control)) / (sum(counts) - 2)
    v1, v0 = (max(together, one.var(ddof=1)) / len(one) for one in (bandit, control))
    m1, m0 = bandit.mean(), control.mean()
    information = np.array(counts[0] * counts[1] / sum(counts))
    k = float(reach(information, (1 - confidence) / 2))
    assert lift.difference is not None
    assert astuple(lift.difference) == pytest.approx(
        (m1 - m0, m1 - m0 - k * math.hypot(v1**0.5, v0**0.5), m1 - m0 + k * math.hypot(v1**0.5, v0**0.5))
    )

    def beyond(r: float) -> float:
        return float(abs(m1 - r * m0) - k * math.sqrt(v1 + r * r * v0))

    if m0 <= k * math.sqrt(v0):
        assert lift.ratio is None
        return
    assert lift.ratio is not None
    centre = m1 / m0
    ends = brentq(beyond, centre - 1e3, centre, xtol=1e-12), brentq(beyond, centre, centre + 1e3, xtol=1e-12)
    assert astuple(lift.ratio) == pytest.approx((centre, *ends), abs=1e-9)


def test_one_is_in_the_ratio_where_zero_is_in_the_difference() -> None:
    seen = set()
    for seed in range(24):
        lift = estimated(*groups("clicks", seed, (4_000, 4_000), factor=0.6 + 0.05 * seed))
        assert lift.difference is not None
        assert lift.ratio is not None
        sides = (lift.difference.low > 0, lift.difference.high < 0)
        assert sides == (lift.ratio.low > 1, lift.ratio.high < 1)
        assert lift.verdict is {(True, False): LiftVerdict.BETTER, (False, True): LiftVerdict.WORSE}.get(
            sides, LiftVerdict.UNDECIDED
        )
        seen.add(lift.verdict)
    assert seen == {LiftVerdict.BETTER, LiftVerdict.WORSE, LiftVerdict.UNDECIDED}


def repeated(totals: GroupTotals, times: int) -> GroupTotals:
    """Return the totals of so many times as many requests, with the same mean and nearly the same spread."""
    whole = NO_REQUESTS
    for bit in f"{times:b}":
        whole = whole.plus_totals(whole)
        if bit == "1":
            whole = whole.plus_totals(totals)
    return whole


@pytest.mark.parametrize("seed", range(5))
def test_so_many_further_requests_decide_it(seed: int) -> None:
    """Groups of so many times as many have the same means, and the same variances but for the n - 1."""
    bandit, control = (totals_of(one) for one in groups("clicks", seed, (3_000, 1_000)))
    lift = estimate_lift(repeated(bandit, 1_000), repeated(control, 1_000))
    small = estimate_lift(bandit, control)
    assert small.verdict is LiftVerdict.UNDECIDED
    assert small.further_requests is not None
    times = 1.0 + small.further_requests / 4_000
    assert (lift.verdict is not LiftVerdict.UNDECIDED) == (times <= 1_000)
    part = max(1, round(0.9 * times))
    nearly = estimate_lift(repeated(bandit, part), repeated(control, part))
    assert nearly.verdict is LiftVerdict.UNDECIDED
    assert nearly.further_requests is not None
    assert 1.0 + nearly.further_requests / (4_000 * part) == pytest.approx(times / part, rel=0.01)
    least, most = math.floor(0.99 * times), math.ceil(1.01 * times)
    assert estimate_lift(repeated(bandit, least), repeated(control, least)).verdict is LiftVerdict.UNDECIDED
    assert estimate_lift(repeated(bandit, most), repeated(control, most)).verdict is not LiftVerdict.UNDECIDED


def test_nothing_is_left_to_do_once_it_is_decided() -> None:
    assert estimated(*groups("clicks", 1, (5_000, 5_000), factor=3.0)).further_requests == 0


def test_equal_means_are_never_decided() -> None:
    same = totals_of([0.0, 1.0] * 100)
    assert estimate_lift(same, same)[::3] == (LiftVerdict.UNDECIDED, None)


def test_it_is_too_early_while_a_group_is_small() -> None:
    many, few = totals_of([0.0, 1.0] * 500), totals_of([1.0, 0.0] * (FEWEST_REQUESTS // 2))
    assert estimate_lift(many, few).verdict is LiftVerdict.UNDECIDED
    for bandit, control in ((many, few.minus(1.0)), (few.minus(0.0), many), (NO_REQUESTS, NO_REQUESTS)):
        assert estimate_lift(bandit, control) == (LiftVerdict.TOO_EARLY, None, None, None)


def test_it_is_too_early_while_no_reward_differs() -> None:
    zeros, ones = totals_of([0.0] * 500), totals_of([1.0] * 500)
    assert estimate_lift(zeros, zeros).verdict is estimate_lift(ones, zeros).verdict is LiftVerdict.TOO_EARLY


def test_a_ratio_needs_a_control_group_that_earns_something_for_sure() -> None:
    bandit = totals_of([1.0, 3.0] * 200)
    assert estimate_lift(bandit, totals_of([1.0, -1.0] * 200)).ratio is None
    assert estimate_lift(bandit, totals_of([-1.0, -3.0] * 200)).ratio is None
    assert estimate_lift(bandit, totals_of([1.0, 2.0] * 200)).ratio is not None


@pytest.mark.parametrize("size", [MAX_REWARD_MAGNITUDE, -MAX_REWARD_MAGNITUDE, 1e-140])
def test_rewards_of_any_size_have_an_answer_in_their_own_unit(size: float) -> None:
    bandit, control = groups("clicks", 4, (4_000, 1_000), factor=2.0)
    plain, scaled = estimated(bandit, control), estimated(bandit * (abs(size) / 2), control * (abs(size) / 2))
    assert plain.difference is not None
    assert scaled.difference is not None
    assert [one / (abs(size) / 2) for one in astuple(scaled.difference)] == pytest.approx(
        list(astuple(plain.difference))
    )
    assert scaled.ratio is not None
    assert plain.ratio is not None
    assert astuple(scaled.ratio) == pytest.approx(astuple(plain.ratio))
    assert (scaled.verdict, scaled.further_requests) == (plain.verdict, plain.further_requests)


def test_one_wild_reward_decides_nothing() -> None:
    bandit, control = (totals_of(one) for one in groups("clicks", 2, (1_000, 1_000)))
    assert estimate_lift(bandit.plus(MAX_REWARD_MAGNITUDE), control).verdict is LiftVerdict.UNDECIDED
    assert estimate_lift(bandit, control.plus(-MAX_REWARD_MAGNITUDE)).verdict is LiftVerdict.UNDECIDED


def test_another_confidence_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="confidence"):
        estimate_lift(NO_REQUESTS, NO_REQUESTS, confidence=95.0)
