from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import kendalltau

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.losses import kendall_tau_distance, ndcg, ranking_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


def signs(first: FloatArray, second: FloatArray) -> list[tuple[int, int]]:
    """Return how each pair of items stands in both orders."""
    pairs = combinations(zip(first.tolist(), second.tolist(), strict=True), 2)
    return [((a > b) - (a < b), (c > d) - (c < d)) for (a, c), (b, d) in pairs]


def distance(first: FloatArray, second: FloatArray) -> float:
    return sum(1.0 if a * b < 0 else 0.5 * ((a == 0) != (b == 0)) for a, b in signs(first, second))


def loss(first: FloatArray, second: FloatArray) -> float:
    counted = [1.0 if a * b < 0 else 0.5 * (b == 0) for a, b in signs(first, second) if a != 0]
    return sum(counted) / len(counted) if counted else 0.0


@pytest.mark.parametrize("levels", [1, 2, 4, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_pairs_are_counted_one_by_one(n: int, levels: int) -> None:
    rng = np.random.default_rng([n, levels])
    first = rng.integers(levels, size=(3, 4, n)).astype(float)
    second = rng.integers(levels, size=(3, 4, n)).astype(float)
    distances, losses = kendall_tau_distance(first, second), ranking_loss(first, second)
    for place in np.ndindex(3, 4):
        assert distances[place] == distance(first[place], second[place])
        assert losses[place] == pytest.approx(loss(first[place], second[place]), abs=1e-15)


def test_the_distance_of_long_orders_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.permutation(3001), rng.permutation(3001)
    pairs = 3001 * 3000 / 2
    tau = kendalltau(first, second).statistic
    assert kendall_tau_distance(first, second) == pytest.approx(pairs * (1.0 - tau) / 2.0, abs=1e-3)
    assert kendall_tau_distance(first, first) == 0.0
    assert kendall_tau_distance(first, -first) == pairs


def test_the_papers_losses() -> None:
    # Lists of three items, the best first; the estimates reverse none, one and all of their pairs.
    true = np.array([[3.0, 2.0, 1.0]] * 3)
    estimated = np.array([[9.0, 5.0, 1.0], [5.0, 9.0, 1.0], [1.0, 5.0, 9.0]])
    assert kendall_tau_distance(true, estimated).tolist() == [0.0, 1.0, 3.0]
    assert ranking_loss(true, estimated).tolist() == pytest.approx([0.0, 1.0 / 3.0, 1.0])


@pytest.mark.parametrize("depth", [1, 2, 4, 9, None])
def test_ndcg_is_the_mean_over_ways_to_break_ties(depth: int | None) -> None:
    gains = np.array([3.0, 0.0, 1.5, 1.5, 0.25])
    estimated = np.array([1.0, 2.0, 1.0, 0.0, 1.0])

    def gained(order: tuple[int, ...]) -> float:
        return sum(gains[item] / math.log2(rank + 2) for rank, item in enumerate(order[: depth or 5]))

    orders = list(permutations(range(5)))
    consistent = [one for one in orders if all(estimated[a] >= estimated[b] for a, b in pairwise(one))]
    expected = sum(map(gained, consistent)) / len(consistent) / max(map(gained, orders))
    assert len(consistent) == 6
    assert ndcg(gains, estimated, depth=depth) == pytest.approx(expected, rel=1e-12)


def test_ndcg_of_several_lists() -> None:
    rng = np.random.default_rng(2)
    gains, estimated = rng.random(size=(2, 3, 6)), rng.integers(3, size=(2, 3, 6))
    found = ndcg(gains, estimated, depth=3)
    for place in np.ndindex(2, 3):
        assert found[place] == pytest.approx(ndcg(gains[place], estimated[place], depth=3), rel=1e-12)


def test_ndcg_of_known_orders() -> None:
    gains = [3.0, 2.0, 1.0]
    best = 3.0 + 2.0 / math.log2(3) + 0.5
    assert ndcg(gains, [0.3, 0.2, 0.1]) == pytest.approx(1.0)
    assert ndcg(gains, [0.1, 0.2, 0.3]) == pytest.approx((1.0 + 2.0 / math.log2(3) + 1.5) / best)
    assert ndcg([0.0, 0.0], [1.0, 2.0]) == 1.0
    assert ndcg([0.0, 0.0, 1.0], [3.0, 2.0, 1.0], depth=2) == 0.0


@pytest.mark.parametrize(
    ("measure", "field"),
    [
        (lambda: kendall_tau_distance([1.0, 2.0], [1.0]), "second"),
        (lambda: kendall_tau_distance([1.0, math.nan], [1.0, 2.0]), "first"),
        (lambda: kendall_tau_distance([], []), "first"),
        (lambda: kendall_tau_distance(1.0, 1.0), "first"),
        (lambda: ranking_loss([1.0, 2.0], [1.0, math.inf]), "estimated"),
        (lambda: ranking_loss([[1.0, 2.0]], [1.0, 2.0]), "estimated"),
        (lambda: ranking_loss(["good", "bad"], [1.0, 2.0]), "utilities"),
        (lambda: ndcg([1.0, -1.0], [1.0, 2.0]), "gains"),
        (lambda: ndcg([1.0, 1.0], [1.0, 2.0, 3.0]), "estimated"),
        (lambda: ndcg([1.0, 1.0], [1.0, 2.0], depth=0), "depth"),
    ],
)
def test_what_is_wrong_is_named(measure: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        measure()
    assert caught.value.field == field
