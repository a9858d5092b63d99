"""Wild values are found out whatever they are and whenever they come, and those of ordinary shops are in range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from topk_bandit.learning.robust_ranges import MOST_VALUES, NO_VALUES, RobustRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOPS = {
    "clicks": lambda rng: (rng.random(3000) < 0.01).astype(float),
    "likes and dislikes": lambda rng: rng.choice([-1.0, 0.0, 1.0], 3000),
    "ratings": lambda rng: rng.integers(1, 6, 3000).astype(float),
    "noisy": lambda rng: rng.normal(size=3000),
    "heavy tails": lambda rng: rng.standard_t(3, size=3000),
    "purchases": lambda rng: np.where(rng.random(3000) < 0.05, rng.lognormal(3.0, 0.8, size=3000), 0.0),
    "money": lambda rng: rng.lognormal(3.0, 1.5, size=3000),
    "three kinds": lambda rng: rng.choice([1.0, 10.0, 100.0], 3000, p=[0.7, 0.25, 0.05]) * rng.normal(1.0, 0.1, 3000),
    "returns": lambda rng: np.where(rng.random(3000) < 0.1, rng.normal(10.0, 20.0, 3000), 0.0),
    "minutes watched": lambda rng: np.where(
        rng.random(3000) < 0.85, rng.exponential(0.05, 3000), 30.0 * rng.random(3000)
    ),
    "costs and margins": lambda rng: np.where(rng.random(3000) < 0.3, rng.lognormal(2.0, 0.5, 3000), -0.2),
    "rising": lambda rng: (1.0 + np.arange(3000) / 500.0) * rng.lognormal(0.0, 0.3, 3000),
    "losses": lambda rng: -1000.0 + rng.normal(size=3000),
    "all equal": lambda _: np.full(3000, 0.7),
}


def in_sessions(rng: np.random.Generator, *, first: float, purchases: int) -> NDArray[np.float64]:
    """Return rewards of sessions: many slates that earn nothing, one that earns little, and purchases one by one."""
    values: list[float] = []
    while len(values) < 3000:
        values += [0.0] * int(rng.geometric(0.05)) + [first] + rng.lognormal(4.0, 0.4, purchases).tolist()
    return np.array(values[:3000])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("first", "purchases"), [(1.0, 3), (-0.5, 2), (5.0, 4)])
def test_purchases_one_after_another_are_in_range(seed: int, first: float, purchases: int) -> None:
    values = in_sessions(np.random.default_rng(seed), first=first, purchases=purchases)
    outliers, _ = judged(values)
    assert sum(outliers) <= 9


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_purchases_in_ascending_order_are_in_range(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [np.append(np.zeros(int(rng.geometric(0.02))), np.sort(rng.lognormal(3.0, 1.0, 20))) for _ in range(60)]
    outliers, _ = judged(np.concatenate(batches))
    assert sum(outliers) <= 12


def medians_until(values: NDArray[np.float64]) -> list[float]:
    """Return the median of the latest values at each of them, including it."""
    first = min(MOST_VALUES, len(values)) - 1
    begun = [float(np.median(values[: place + 1])) for place in range(first)]
    return [*begun, *np.median(sliding_window_view(values, first + 1), axis=1).tolist()]


def judged(values: NDArray[np.float64]) -> tuple[list[bool], RobustRange]:
    """Return which values were outliers when they came, and their robust range after them."""
    robust_range, outliers = NO_VALUES, []
    for value, centre in zip(values.tolist(), medians_until(values), strict=True):
        robust_range = robust_range.after(value, centre)
        outliers.append(abs(value - centre) > robust_range.reach)
    return outliers, robust_range


def believed_now(values: NDArray[np.float64], robust_range: RobustRange) -> NDArray[np.bool_]:
    centre = np.median(values[-MOST_VALUES:])
    return np.asarray(np.abs(values - centre) <= robust_range.reach)


@pytest.mark.parametrize("shop", SHOPS)
@pytest.mark.parametrize("seed", range(2))
def test_values_of_ordinary_shops_are_in_range(shop: str, seed: int) -> None:
    """But for three in a thousand, where tails are as heavy as can be."""
    values = SHOPS[shop](np.random.default_rng(seed))
    outliers, robust_range = judged(values)
    assert sum(outliers) <= 9
    assert (~believed_now(values, robust_range)[-MOST_VALUES:]).sum() <= 1


SIZES = [10.0, -10.0, 1e3, 1e6, -1e9, 1e100, -1e100]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [12, 40, 700])
def test_one_or_two_wild_values_are_outliers_at_once(size: float, place: int) -> None:
    values = np.random.default_rng(place).random(place + 2)
    values[place:] = size
    outliers, _ = judged(values)
    assert outliers[place:] == [True, True]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("place", "count"), [(0, 1), (0, 50), (5, 7), (30, 50), (300, 7)])
def test_a_run_of_wild_values_is_found_out_after_as_many_honest_ones_and_a_hundred(
    size: float, count: int, place: int
) -> None:
    values = np.random.default_rng(count).random(place + 2 * count + 100)
    values[place : place + count] = size
    _, robust_range = judged(values)
    believed = believed_now(values, robust_range)
    assert not believed[place : place + count].any()
    assert believed.sum() == len(values) - count


@pytest.mark.parametrize("shop", ["clicks", "purchases"])
@pytest.mark.parametrize("size", [1e6, -1e9, 1e100, -1e100])
@pytest.mark.parametrize("place", [100, 400])
def test_a_run_of_wild_values_where_most_slates_earn_nothing_is_found_out_at_once(
    shop: str, size: float, place: int
) -> None:
    values = SHOPS[shop](np.random.default_rng(12))[: place + 200]
    values[place : place + 50] = size
    _, robust_range = judged(values)
    believed = believed_now(values, robust_range)
    assert not believed[place : place + 50].any()


@pytest.mark.parametrize("size", [1e4, -1e6, 1e100])
@pytest.mark.parametrize(("share", "rounds"), [(1.0 / 2.0, 50), (1.0 / 3.0, 60), (0.1, 300)])
@pytest.mark.parametrize("place", [200, 400])
def test_wild_values_among_slates_that_earn_nothing_are_found_out_though_purchases_are_fewer(
    size: float, share: float, rounds: int, place: int
) -> None:
    rng = np.random.default_rng(3)
    end = place + 2 * rounds + 100
    values = SHOPS["purchases"](rng)[:end]
    wild = place + np.flatnonzero(rng.random(rounds) < share)
    values[wild] = size
    assert len(wild) > (values[: wild[-1]] != 0.0).sum() - len(wild)
    _, robust_range = judged(values)
    assert np.flatnonzero(~believed_now(values, robust_range)).tolist() == wild.tolist()


@pytest.mark.parametrize("place", [300, 1000])
@pytest.mark.parametrize("size", SIZES)
def test_a_run_of_wild_values_after_many_honest_ones_is_never_believed(size: float, place: int) -> None:
    values = np.random.default_rng(3).random(place + 100)
    values[place:] = size * np.where(np.arange(100) % 2, 1.0, -1.0)
    outliers, _ = judged(values)
    assert all(outliers[place:])
    assert not any(outliers[:place])


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_wild_values_among_honest_ones_are_found_out(share: float) -> None:
    rng = np.random.default_rng(4)
    wild = rng.random(300) < share
    values = np.append(np.where(wild, 10.0 ** rng.uniform(5, 90, 300), rng.random(300)), rng.random(100))
    _, robust_range = judged(values)
    assert believed_now(values, robust_range).tolist() == np.append(~wild, np.ones(100, dtype=bool)).tolist()


@pytest.mark.parametrize("factor", [100.0, 1e4])
def test_another_scale_is_believed_once_most_values_have_it(factor: float) -> None:
    values = np.random.default_rng(5).random(400 + 3 * MOST_VALUES // 4)
    values[400:] *= factor
    outliers, robust_range = judged(values)
    assert not any(outliers[400 + MOST_VALUES // 2 + 16 :])
    assert believed_now(values, robust_range)[400:].all()


def test_orders_among_clicks_are_believed_from_the_sixth_on() -> None:
    rng = np.random.default_rng(6)
    values = np.where(rng.random(2000) < 0.04, 20.0, (rng.random(2000) < 0.15).astype(float))
    outliers, robust_range = judged(values)
    assert sum(outliers) <= 5
    assert believed_now(values, robust_range).all()


@pytest.mark.parametrize("large", [20.0, 100.0])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.4, 0.5, 0.6, 0.95])
@pytest.mark.parametrize("seed", range(3))
def test_two_kinds_of_values_are_believed_in_whatever_shares_they_come(large: float, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    is_large = rng.random(1000) < share
    values = np.where(is_large, large * rng.normal(1.0, 0.1, 1000), rng.normal(1.0, 0.3, 1000))
    outliers, robust_range = judged(values)
    assert sum(outliers) <= 12
    assert believed_now(values, robust_range).all()


def test_a_class_of_values_that_begins_late_is_believed_in_time() -> None:
    rng = np.random.default_rng(7)
    values = rng.random(6000)
    orders = 600 + np.flatnonzero(rng.random(5400) < 0.05)
    values[orders] = 60.0
    outliers, robust_range = judged(values)
    assert robust_range.accepted > 60.0
    assert np.array(outliers)[orders][:20].all()
    assert not np.array(outliers)[orders][45:].any()


def test_a_class_that_vanishes_before_it_is_accepted_is_forgotten() -> None:
    values = np.random.default_rng(8).random(4000)
    values[600:1080:20] = 60.0
    _, robust_range = judged(values)
    assert (robust_range.accepted, robust_range.blocks) == (0.0, 0)


def test_what_is_as_small_as_nothing_tells_no_unit() -> None:
    values = np.zeros(200)
    values[:60] = 5e-324
    values[60:] = np.random.default_rng(9).choice([0.0, 30.0], 140)
    _, robust_range = judged(values)
    assert believed_now(values, robust_range).all()


def test_values_that_differ_by_rounding_are_equal() -> None:
    _, robust_range = judged(np.array([0.3, 0.1 + 0.2] * 20))
    assert (robust_range.count, robust_range.reach) == (0, np.inf)


@given(st.lists(st.integers(-(10**4), 10**4), min_size=1, max_size=60), st.integers(-20, 20))
def test_another_unit_changes_no_judgement(values: list[int], power: int) -> None:
    one = np.array(values, dtype=float)
    assert judged(one)[0] == judged(2.0**power * one)[0]
