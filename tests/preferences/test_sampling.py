from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences import sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DRAWS = 60_000
UTILITIES = [5.0, 0.3, -1.0, 9.0, 0.8, 0.0]
SHOWN = (4, 1, 5, 2)


def probability(order: Sequence[int], places: int) -> float:
    """Return the probability of the first `places` of an order, by the definition."""
    product = 1.0
    for stage in range(places):
        left = [math.exp(UTILITIES[item]) for item in order[stage:]]
        product *= left[0] / sum(left)
    return product


def test_rankings_come_as_often_as_they_should() -> None:
    found = sampling.draw_rankings(UTILITIES, np.tile(SHOWN, (DRAWS, 1)), rng=np.random.default_rng(1))
    assert found.places.tolist() == [3] * DRAWS
    rows, counts = np.unique(found.items.reshape(DRAWS, 4), axis=0, return_counts=True)
    expected = {order: probability(order, 3) for order in permutations(sorted(SHOWN))}
    assert [tuple(row) for row in rows.tolist()] == list(expected)
    assert chisquare(counts, DRAWS * np.array(list(expected.values()))).pvalue > 1e-3


def test_choices_come_as_often_as_they_should() -> None:
    found = sampling.draw_choices(UTILITIES, np.tile(SHOWN, (DRAWS, 1)), rng=np.random.default_rng(2))
    assert found.places.tolist() == [1] * DRAWS
    orders = found.items.reshape(DRAWS, 4)
    assert (np.sort(orders, axis=1) == sorted(SHOWN)).all()
    counts = [int((orders[:, 0] == item).sum()) for item in SHOWN]
    weights = np.exp([UTILITIES[item] for item in SHOWN])
    assert chisquare(counts, DRAWS * weights / weights.sum()).pvalue > 1e-3


def test_pairs_come_as_often_as_they_should() -> None:
    found = sampling.draw_pairs(UTILITIES, np.tile([2, 4], (DRAWS, 1)), rng=np.random.default_rng(3))
    share = float(np.mean(found.items[::2] == 4))
    expected = 1.0 / (1.0 + math.exp(UTILITIES[2] - UTILITIES[4]))
    assert abs(share - expected) < 4.0 * math.sqrt(expected * (1.0 - expected) / DRAWS)


def test_each_answer_is_of_its_own_list() -> None:
    rng = np.random.default_rng(4)
    lists = np.array([rng.permutation(6)[:3] for _ in range(50)])
    found = sampling.draw_rankings(UTILITIES, lists, rng=rng)
    assert (np.sort(found.items.reshape(50, 3), axis=1) == np.sort(lists, axis=1)).all()


def test_ratings_are_utilities_with_normal_noise() -> None:
    items = np.tile([[3, 1, 2]], (20_000, 1))
    found = sampling.draw_ratings(UTILITIES, items, noise_variance=4.0, rng=np.random.default_rng(5))
    assert (found.items == items.reshape(-1)).all()
    noise = found.values - np.array(UTILITIES)[found.items]
    assert kstest(noise / 2.0, "norm").pvalue > 1e-3


def test_ratings_without_noise_are_utilities() -> None:
    found = sampling.draw_ratings(UTILITIES, [3, 1], noise_variance=0.0, rng=np.random.default_rng(6))
    assert found.values.tolist() == [9.0, 0.3]


def test_the_same_generator_gives_the_same_answers() -> None:
    lists = np.tile(SHOWN, (30, 1))
    first, second, other = (
        sampling.draw_rankings(UTILITIES, lists, rng=np.random.default_rng(seed)) for seed in (7, 7, 8)
    )
    assert first.items.tolist() == second.items.tolist() != other.items.tolist()


def test_no_lists_give_no_answers() -> None:
    none = np.zeros((0, 3), dtype=np.int64)
    assert sampling.draw_rankings(UTILITIES, none, rng=np.random.default_rng(0)).n_answers == 0


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("sample", "field"),
    [
        (lambda: sampling.draw_rankings([1.0, math.nan], [[0, 1]], rng=RNG), "utilities[1]"),
        (lambda: sampling.draw_rankings(UTILITIES, [0, 1], rng=RNG), "shown"),
        (lambda: sampling.draw_rankings(UTILITIES, [[0]], rng=RNG), "shown"),
        (lambda: sampling.draw_rankings(UTILITIES, [[0, 6]], rng=RNG), "shown"),
        (lambda: sampling.draw_rankings(UTILITIES, [[-1, 0]], rng=RNG), "shown"),
        (lambda: sampling.draw_rankings(UTILITIES, [[0.5, 1.0]], rng=RNG), "shown"),
        (lambda: sampling.draw_choices(UTILITIES, [[0, 1, 2], [3, 4, 3]], rng=RNG), "shown[1]"),
        (lambda: sampling.draw_pairs(UTILITIES, [[0, 1, 2]], rng=RNG), "shown"),
        (lambda: sampling.draw_ratings(UTILITIES, [9], noise_variance=1.0, rng=RNG), "items"),
        (lambda: sampling.draw_ratings(UTILITIES, [1], noise_variance=-1.0, rng=RNG), "noise_variance"),
        (lambda: sampling.draw_ratings(UTILITIES, [1], noise_variance=math.inf, rng=RNG), "noise_variance"),
    ],
)
def test_what_is_wrong_is_named(sample: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        sample()
    assert caught.value.field == field
