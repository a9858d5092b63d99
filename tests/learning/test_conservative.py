"""What a conservative bandit may lose: the bound beside its definition, and how often a promise is broken."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from tests.learning.groups import totals_of

from topk_bandit.learning.conservative import Arm, find_reserve, may_show_own
from topk_bandit.learning.exact_sums import NO_SUM
from topk_bandit.learning.group_totals import NO_REQUESTS, GroupTotals

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.groups import FloatArray as Floats

SHARE = 0.1


def away(information: float, error: float = 0.005, effect: float = 0.2) -> float:
    """Return how many standard errors away the mixture over N(m, m^2) reaches 1 / error, by bisection."""

    def log_mixture(errors: float) -> float:
        scaled, drift = 1.0 + effect**2 * information, 1.0 + effect * errors * math.sqrt(information)
        return -0.5 * math.log(scaled) + 0.5 * (drift**2 / scaled - 1.0)

    low, high = 0.0, 1e3
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if log_mixture(middle) >= -math.log(error) else (middle, high)
    return low


def by_definition(own: list[float], open_slates: int, baseline: list[float], least: float, share: float) -> float:
    """Return the larger lower bound of R + (alpha n - N) mu, with the next slate an own one."""
    n_own, ended, n_base = len(own) + open_slates + 1, len(own), len(baseline)
    centred = [one - statistics.fmean(arm) for arm in (own, baseline) if arm for one in arm]
    spread = math.sqrt(max(sum(one * one for one in centred) / (ended + n_base - 1), float(np.var(baseline, ddof=1))))
    mean = statistics.fmean(baseline)
    weight = share * (n_own + n_base) - n_own
    ends = [mean + sign * away(n_base) * spread / math.sqrt(n_base) for sign in (-1, 1)]
    bounds = [least * n_own + min(weight * end for end in ends)]
    if own:
        deviation = spread * math.sqrt(ended + weight * weight / n_base)
        reach = away(1.0 / (1.0 / ended + 1.0 / n_base)) * deviation
        bounds.append(sum(own) + least * (open_slates + 1) + weight * mean - reach)
    return max(bounds)


CASES = [
    # own slates that ended and that are open, baseline slates, the own rewards' spread, the least reward, the share
    *(
        (0, 0, 300, 1.0, 0.0, 0.1),
        (0, 40, 300, 1.0, 0.0, 0.1),
        (0, 40, 300, 1.0, -0.5, 0.1),
        (0, 9, 300, 1.0, -0.5, 0.4),
    ),
    *(
        (1, 0, 250, 0.5, 0.0, 0.1),
        (1, 0, 250, 0.5, -3.0, 0.9),
        (3, 4, 250, 0.5, 0.0, 0.1),
        (5, 60, 250, 0.5, -0.1, 0.1),
        (2, 1, 250, 0.5, -0.1, 0.5),
    ),
    *(
        (200, 9, 300, 3.0, 0.0, 0.1),
        (200, 9, 300, 3.0, -2.0, 0.3),
        (300, 0, 150, 0.2, 0.0, 0.05),
        (90, 0, 900, 1.0, 0.0, 0.4),
    ),
]


@pytest.mark.parametrize(("n_own", "n_open", "n_base", "spread", "least", "share"), CASES)
def test_the_reserve_is_the_bound_by_its_definition(
    n_own: int, n_open: int, n_base: int, spread: float, least: float, share: float
) -> None:
    rng = np.random.default_rng([n_own, n_open, n_base])
    own, baseline = rng.normal(1.2, spread, n_own), rng.normal(1.1, 0.7, n_base)
    arms = Arm(n_own + n_open, totals_of(own)), Arm(n_base, totals_of(baseline))
    found = find_reserve(*arms, share=share, least=least)
    assert found == pytest.approx(by_definition(own.tolist(), n_open, baseline.tolist(), least, share), rel=1e-9)
    assert found is not None
    is_free = not least and n_own + n_open + 1 <= share * (n_own + n_open + n_base + 1)
    assert may_show_own(*arms, share=share, least=least) == (is_free or found >= 0.0)


def test_one_large_reward_counts() -> None:
    baseline = [0.5 * (number % 3) for number in range(300)]
    found = find_reserve(Arm(1, totals_of([50.0])), Arm(300, totals_of(baseline)), share=SHARE, least=0.0)
    without = find_reserve(Arm(1, NO_REQUESTS), Arm(300, totals_of(baseline)), share=SHARE, least=0.0)
    assert found == pytest.approx(by_definition([50.0], 0, baseline, 0.0, SHARE), rel=1e-9)
    assert without is not None
    assert found > without + 10.0


def test_the_next_slate_is_an_own_one_as_soon_as_the_reserve_is_not_below_zero() -> None:
    rng = np.random.default_rng(3)
    own, baseline = Arm(200, totals_of(rng.normal(0.7, 0.3, 200))), totals_of(rng.normal(1.0, 0.3, 300))
    reserves = [find_reserve(own, Arm(given, baseline), share=SHARE, least=0.0) for given in range(300, 1500)]
    first = next(place for place, one in enumerate(reserves) if one is not None and one >= 0.0)
    assert first > 0
    for place, shows in ((first - 1, False), (first, True)):
        assert may_show_own(own, Arm(300 + place, baseline), share=SHARE, least=0.0) is shows


@pytest.mark.parametrize(("baseline", "shows"), [(8, False), (9, True), (18, True)])
def test_a_share_of_the_slates_is_free_while_no_reward_is_below_zero(baseline: int, *, shows: bool) -> None:
    arms = Arm(0, NO_REQUESTS), Arm(baseline, NO_REQUESTS)
    assert may_show_own(*arms, share=SHARE, least=0.0) is shows
    assert not may_show_own(*arms, share=SHARE, least=-1e-9)


def test_it_is_too_early_while_few_have_ended_or_all_rewards_are_equal() -> None:
    few, equal = totals_of(np.arange(99.0)), totals_of(np.ones(200))
    assert find_reserve(Arm(0, NO_REQUESTS), Arm(200, few), share=SHARE, least=0.0) is None
    assert find_reserve(Arm(0, NO_REQUESTS), Arm(200, equal), share=SHARE, least=0.0) is None
    assert find_reserve(Arm(0, NO_REQUESTS), Arm(200, few.plus(99.0)), share=SHARE, least=0.0) is not None
    assert find_reserve(Arm(1, equal), Arm(200, equal.plus(0.0)), share=SHARE, least=0.0) is not None


def test_slates_that_have_not_ended_count_as_the_least() -> None:
    """Those who buy at once say nothing of those who were shown the same and may buy nothing."""
    bought, baseline = totals_of(np.ones(40)), totals_of(np.arange(400.0) % 2)
    ended = find_reserve(Arm(40, bought), Arm(400, baseline), share=SHARE, least=0.0)
    waiting = find_reserve(Arm(80, bought), Arm(400, baseline), share=SHARE, least=0.0)
    assert ended is not None
    assert waiting is not None
    assert waiting < ended - 40 * (1.0 - SHARE) * 0.5 * 0.99


SHOPS = 400


class Shops(NamedTuple):
    """How probable it is that an own slate and a baseline slate earn something, and how long the shops are watched."""

    own: float
    baseline: float
    visits: int
    are_sales: bool = False

    def draw(self, rng: np.random.Generator, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        amount = rng.lognormal(-0.5, 1.0, SHOPS) if self.are_sales else 1.0
        return (rng.random(SHOPS) < probability) * amount


KINDS = {
    "clicks, half as good": Shops(0.2, 0.4, 3000),
    "clicks, a little worse": Shops(0.34, 0.4, 5000),
    "few clicks": Shops(0.005, 0.01, 8000),
    "sales": Shops(0.06, 0.1, 5000, are_sales=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_of_shops_whose_own_slates_are_worse_at_most_one_in_a_hundred_ever_breaks_its_promise(kind: str) -> None:
    """Many shops at once, in arrays; a part of the decisions is asked of the function, too."""
    shops, rng = KINDS[kind], np.random.default_rng(94)
    count, total, squares = (np.zeros((2, SHOPS)) for _ in range(3))  # of own slates, of baseline slates
    expected, ever = np.zeros(SHOPS), np.zeros(SHOPS, dtype=bool)
    for visit in range(shops.visits):
        shows = _decide(count, total, squares)
        if visit % 500 == 250:
            _check(count, total, squares, shows)
        worth = np.where(shows, shops.own, shops.baseline)
        rewards = shops.draw(rng, worth)
        for arm, mask in enumerate((shows, ~shows)):
            count[arm] += mask
            total[arm] += rewards * mask
            squares[arm] += rewards**2 * mask
        expected += worth
        ever |= expected < (1.0 - SHARE) * (visit + 1) * shops.baseline - 1e-9
    print(f"{kind}: {ever.sum()} of {SHOPS} ever; {count[1].mean() / shops.visits:.0%} baseline slates")
    assert ever.sum() <= SHOPS / 100


def _decide(count: Floats, total: Floats, squares: Floats) -> NDArray[np.bool_]:
    n, means = np.maximum(count, 1.0), total / np.maximum(count, 1.0)
    deviations = squares - total * means
    spread = np.sqrt(
        np.maximum(
            deviations.sum(axis=0) / np.maximum(count.sum(axis=0) - 1.0, 1.0), deviations[1] / np.maximum(n[1] - 1, 1)
        )
    )
    own = count[0] + 1.0
    weight = SHARE * (own + count[1]) - own
    least = weight * means[1] - np.abs(weight) * _reach(n[1]) * spread / np.sqrt(n[1])
    both = total[0] + weight * means[1]
    both -= _reach(n[0] * n[1] / (n[0] + n[1])) * spread * np.sqrt(count[0] + weight**2 / n[1])
    is_sure = np.maximum(least, np.where(count[0] > 0, both, -np.inf)) >= 0.0
    return (own <= SHARE * (own + count[1])) | (is_sure & (count[1] >= 100) & (spread > 0.0))


def _reach(information: Floats) -> Floats:
    scaled = 0.04 * information
    return (np.sqrt((1.0 + scaled) * (1.0 + np.log1p(scaled) - 2.0 * math.log(0.005))) - 1.0) / np.sqrt(scaled)


def _check(count: Floats, total: Floats, squares: Floats, shows: NDArray[np.bool_]) -> None:
    for shop in range(0, SHOPS, 40):
        own, baseline = (
            Arm(int(n), GroupTotals(int(n), *(NO_SUM.plus(float(one)) for one in sums)))
            for n, *sums in zip(count[:, shop], total[:, shop], squares[:, shop], strict=True)
        )
        assert may_show_own(own, baseline, share=SHARE, least=0.0) == shows[shop]
