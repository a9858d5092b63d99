"""Sums are those of fractions, whatever the order, and what is taken back was never there."""

from __future__ import annotations

import random
import struct
from fractions import Fraction

import pytest

from topk_bandit.domain.bandits import MAX_REWARD_MAGNITUDE
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.exact_sums import MOST_CHARACTERS, NO_SUM, ExactSum
from topk_bandit.learning.group_totals import NO_REQUESTS


def any_reward(rng: random.Random) -> float:
    """Return a reward of any size: any bits of a float that are in the range, or a usual one."""
    if rng.random() < 0.3:
        return rng.choice([0.0, -0.0, 1.0, -1.0, 0.1, 5e-324, MAX_REWARD_MAGNITUDE, -MAX_REWARD_MAGNITUDE])
    while True:
        [value] = struct.unpack("<d", rng.randbytes(8))
        if abs(value) <= MAX_REWARD_MAGNITUDE:
            return float(value)


def rewards(seed: int, count: int = 60) -> list[float]:
    rng = random.Random(seed)
    return [any_reward(rng) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_sum_of_fractions(seed: int) -> None:
    total = squares = NO_SUM
    for one in rewards(seed):
        total, squares = total.plus(one), squares.plus_square(one)
    assert total.to_fraction() == sum(map(Fraction, rewards(seed)))
    assert squares.to_fraction() == sum(Fraction(one) ** 2 for one in rewards(seed))


@pytest.mark.parametrize("seed", range(20))
def test_no_order_and_nothing_that_was_taken_back_can_be_seen(seed: int) -> None:
    rng, kept, gone = random.Random(seed + 1_000), rewards(seed), rewards(seed + 100)
    plain = shuffled = NO_REQUESTS
    for one in kept:
        plain = plain.plus(one)
    came = kept + gone
    rng.shuffle(came)
    for one in came:
        shuffled = shuffled.plus(one)
    rng.shuffle(gone)
    for one in gone:
        shuffled = shuffled.minus(one)
    assert shuffled == plain
    assert (shuffled.total.to_text(), shuffled.squares.to_text()) == (plain.total.to_text(), plain.squares.to_text())


def test_a_sum_of_parts_is_the_sum_of_all() -> None:
    parts = [NO_REQUESTS, NO_REQUESTS]
    whole = NO_REQUESTS
    for number, one in enumerate(rewards(7)):
        parts[number % 2], whole = parts[number % 2].plus(one), whole.plus(one)
    assert parts[0].plus_totals(parts[1]) == parts[1].plus_totals(parts[0]) == whole


def test_a_huge_reward_that_is_voided_leaves_small_ones_as_they_were() -> None:
    totals = NO_REQUESTS.plus(1e-9).plus(MAX_REWARD_MAGNITUDE)
    assert totals.minus(MAX_REWARD_MAGNITUDE) == NO_REQUESTS.plus(1e-9)
    assert totals.revise(MAX_REWARD_MAGNITUDE, 0.0) == NO_REQUESTS.plus(1e-9).plus(0.0)
    assert totals.minus(1e-9).minus(MAX_REWARD_MAGNITUDE) == NO_REQUESTS


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_read_as_the_same_sum(seed: int) -> None:
    total = squares = NO_SUM
    for one in rewards(seed, count=seed):
        total, squares = total.plus(one), squares.plus_square(one)
    for one_sum in (total, squares):
        assert ExactSum.from_text(one_sum.to_text(), field="total") == one_sum


def test_texts_are_short() -> None:
    """The longest is of squares of the largest and the smallest rewards, as often as a counter of 63 bits can count."""
    often = 2**63 - 1
    largest = NO_SUM.plus_square(32.0 * MAX_REWARD_MAGNITUDE)
    longest = ExactSum(often * largest.digits, largest.exponent).plus_square(5e-324)
    assert len(longest.to_text()) == MOST_CHARACTERS
    assert len(NO_SUM.plus(-MAX_REWARD_MAGNITUDE).plus(-5e-324).to_text()) < MOST_CHARACTERS
    assert ExactSum.from_text(longest.to_text(), field="squares") == longest
    clicks = NO_SUM
    for _ in range(1_000):
        clicks = clicks.plus(1.0)
    assert clicks.to_text() == "7dp3"


@pytest.mark.parametrize(
    "text", ["", "0", "0p1", "-0p0", "2p0", "1p-0", "01p0", "+1p0", "1P0", "1p 0", " 1p0", "1p0\n", "gp0"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"total.*no exact sum"):
        ExactSum.from_text(text, field="total")


def test_a_text_of_any_length_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="total"):
        ExactSum.from_text("1" * 1_000_000 + "p0", field="total")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    for add in (NO_SUM.plus, NO_SUM.minus, NO_SUM.plus_square, NO_SUM.minus_square, NO_REQUESTS.plus):
        with pytest.raises(InvalidArgumentError, match="reward"):
            add(value)


def test_what_several_rewards_of_a_slate_come_to_is_taken() -> None:
    assert NO_REQUESTS.plus(1.0).plus(32.0 * MAX_REWARD_MAGNITUDE).minus(
        32.0 * MAX_REWARD_MAGNITUDE
    ) == NO_REQUESTS.plus(1.0)


def test_nothing_is_taken_from_an_empty_group() -> None:
    with pytest.raises(InvalidArgumentError, match="no request"):
        NO_REQUESTS.minus(0.0)


@pytest.mark.parametrize("seed", range(10))
def test_mean_and_variance_are_those_of_fractions(seed: int) -> None:
    values, totals = rewards(seed), NO_REQUESTS
    for one in values:
        totals = totals.plus(one)
    mean = sum(map(Fraction, values)) / len(values)
    assert totals.mean == float(mean)
    assert totals.variance == float(sum((Fraction(one) - mean) ** 2 for one in values) / (len(values) - 1))


def test_a_variance_far_from_zero_is_exact() -> None:
    totals = NO_REQUESTS
    for one in (1e15, 1e15 + 1, 1e15 + 2):
        totals = totals.plus(one)
    assert (totals.mean, totals.variance) == (1e15 + 1, 1.0)
    few = NO_REQUESTS, NO_REQUESTS.plus(3.0), NO_REQUESTS.plus(3.0).plus(5.0)
    assert [one.variance for one in few] == [0.0, 0.0, 2.0]
