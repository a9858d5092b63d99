from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import CK, KINDS, WCK, WK, Kind, convolution, dcg, one, shown_pairs

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.kendall import (
    KendallKernel,
    convolutional_kendall,
    dcg_weight,
    weighted_convolutional_kendall,
    weighted_kendall,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    RankWeight = Callable[[int, int], float]

N_ITEMS, SLATE_SIZE = 7, 3
FIRST = (0, 1, 2)
OTHERS = ((3, 4, 5), (2, 1, 0), (1, 0, 2), (0, 2, 1))
TABLE_2 = {
    "wk": (0.00, -1.00, 0.33, 0.33),
    "ck": (-0.60, 0.60, 0.87, 0.87),
    "wck": (-0.38, 0.09, 0.46, 0.87),
}


def table_kernel(name: str) -> KendallKernel:
    match name:
        case "wk":
            return weighted_kendall(N_ITEMS, SLATE_SIZE, rank_weight=one)
        case "ck":
            return convolutional_kendall(N_ITEMS, SLATE_SIZE)
        case _:
            return weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE)


def table_definition(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> float:
    if name == "wk":
        return shown_pairs(left, right, n_items=N_ITEMS, rank_weight=one)
    return convolution(left, right, n_items=N_ITEMS, rank_weight=one if name == "ck" else dcg)


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_from_the_sparse_form(name: str) -> None:
    values = table_kernel(name).gram([FIRST], OTHERS)[0]
    assert [round(value, 2) + 0.0 for value in values.tolist()] == list(TABLE_2[name])


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_from_the_definitions_over_full_rankings(name: str) -> None:
    brute = [table_definition(name, FIRST, other) for other in OTHERS]
    norms = [table_definition(name, ranking, ranking) for ranking in (FIRST, *OTHERS)]
    values = [value / math.sqrt(norms[0] * norm) for value, norm in zip(brute, norms[1:], strict=True)]
    assert [round(value, 2) + 0.0 for value in values] == list(TABLE_2[name])
    np.testing.assert_allclose(table_kernel(name).gram([FIRST], OTHERS)[0], values, atol=1e-12)


def steep(first: int, second: int) -> float:
    return 1.0 / (first * second) ** 2


def coupled(first: int, second: int) -> float:
    """No product of two factors, and of both signs."""
    return 1.0 + math.cos(first + second) - 0.3 * abs(first - second)


def normalised(
    definition: Callable[[tuple[int, ...], tuple[int, ...]], float], rankings: NDArray[np.int32]
) -> NDArray[np.float64]:
    orders = [tuple(row) for row in rankings.tolist()]
    gram = np.array([[definition(left, right) for right in orders] for left in orders])
    norms = np.sqrt(np.diag(gram))
    return np.asarray(gram / np.outer(norms, norms))


def some_rankings(n_items: int, slate_size: int, count: int) -> NDArray[np.int32]:
    everything = np.array(list(permutations(range(n_items), slate_size)), dtype=np.int32)
    rng = np.random.default_rng([n_items, slate_size])
    return everything[rng.choice(len(everything), size=min(count, len(everything)), replace=False)]


@pytest.mark.parametrize(
    ("n_items", "slate_size", "weight"),
    [
        *[(5, 2, weight) for weight in (dcg, one, steep, coupled)],
        *[(2, 1, dcg), (2, 2, one), (5, 1, coupled), (6, 3, coupled), (5, 4, steep), (5, 5, dcg), (6, 5, one)],
    ],
)
def test_the_convolutional_kernels_are_means_over_all_completions(
    n_items: int, slate_size: int, weight: RankWeight
) -> None:
    rankings = some_rankings(n_items, slate_size, 5)

    def definition(left: tuple[int, ...], right: tuple[int, ...]) -> float:
        return convolution(left, right, n_items=n_items, rank_weight=weight)

    kernel = weighted_convolutional_kendall(n_items, slate_size, rank_weight=weight)
    np.testing.assert_allclose(kernel.gram(rankings, rankings), normalised(definition, rankings), atol=1e-12)


@pytest.mark.parametrize("weight", [dcg, one, steep, coupled])
@pytest.mark.parametrize(("n_items", "slate_size"), [(2, 2), (5, 2), (6, 3), (9, 4), (5, 5)])
def test_the_weighted_kernel_counts_the_pairs_in_both_slates(n_items: int, slate_size: int, weight: RankWeight) -> None:
    rankings = some_rankings(n_items, slate_size, 25)

    def definition(left: tuple[int, ...], right: tuple[int, ...]) -> float:
        return shown_pairs(left, right, n_items=n_items, rank_weight=weight)

    kernel = weighted_kendall(n_items, slate_size, rank_weight=weight)
    np.testing.assert_allclose(kernel.gram(rankings, rankings), normalised(definition, rankings), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_large_universe_agrees_with_the_features_of_claim_3(kind: Kind) -> None:
    rng = np.random.default_rng(3)
    left = np.array([rng.permutation(60)[:8] for _ in range(30)], dtype=np.int32)
    right = np.array([rng.permutation(60)[:8] for _ in range(20)], dtype=np.int32)
    expected = kind.features(left, 60) @ kind.features(right, 60).T
    np.testing.assert_allclose(kind.make(60, 8).gram(left, right), expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("n_items", "slate_size", "count"), [(5, 5, 30), (12, 3, 60), (300, 4, 20), (9, 2, 1)])
def test_the_values_of_rankings_among_themselves_are_those_of_all_pairs(
    kind: Kind, n_items: int, slate_size: int, count: int
) -> None:
    rng, kernel = np.random.default_rng(n_items), kind.make(n_items, slate_size)
    rankings = np.array([rng.permutation(n_items)[:slate_size] for _ in range(count)], dtype=np.int32)
    own = kernel.gram_of(rankings)
    np.testing.assert_allclose(own, kernel.gram(rankings, rankings), rtol=0.0, atol=1e-13)
    np.testing.assert_array_equal(own, own.T)


def test_a_full_slate_leaves_no_difference_between_the_weighted_kernels() -> None:
    rankings = some_rankings(5, 5, 20)
    convolutional = weighted_convolutional_kendall(5, 5).gram(rankings, rankings)
    np.testing.assert_allclose(convolutional, weighted_kendall(5, 5).gram(rankings, rankings), atol=1e-14)


def test_the_default_weight_is_that_of_discounted_cumulative_gain() -> None:
    assert dcg_weight(1, 3) == pytest.approx(1.0 / (math.log(2) * math.log(4)))
    rankings = some_rankings(7, 3, 20)
    explicit = weighted_convolutional_kendall(7, 3, rank_weight=dcg).gram(rankings, rankings)
    np.testing.assert_allclose(weighted_convolutional_kendall(7, 3).gram(rankings, rankings), explicit, atol=1e-14)


def test_the_number_of_coordinates_of_a_ranking_does_not_grow_with_the_universe() -> None:
    small, large = weighted_convolutional_kendall(10, 4), weighted_convolutional_kendall(1000, 4)
    for name in ("item_weight", "pair_weight", "divergence"):
        assert getattr(small, name).shape == getattr(large, name).shape


@pytest.mark.parametrize("kind", [CK, WCK], ids=lambda kind: kind.name)
def test_slates_without_a_common_item_tend_to_be_unrelated_as_the_universe_grows(kind: Kind) -> None:
    values = [kind.make(n_items, 3).gram([[0, 1, 2]], [[3, 4, 5]])[0, 0] for n_items in (7, 20, 100, 1000)]
    assert all(value < 0 for value in values)
    assert [abs(value) for value in values] == sorted((abs(value) for value in values), reverse=True)
    assert abs(values[-1]) < 0.01


@pytest.mark.parametrize(
    ("rankings", "problem"),
    [
        ([[0, 1]], "shape"),
        ([[0, 1, 2, 3]], "shape"),
        ([[0, 1, 7]], "indices"),
        ([[-1, 1, 2]], "indices"),
        ([[0, 1, 1]], "twice"),
        ([[0.0, 1.0, 2.0]], "integers"),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_no_ranking_is_refused_by_side(side: str, rankings: list[list[int]], problem: str) -> None:
    sides = {"left": [[0, 1, 2]], "right": [[0, 1, 2]], side: rankings}
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        weighted_convolutional_kendall(7, 3).gram(sides["left"], sides["right"])
    assert caught.value.field == side


@pytest.mark.parametrize(
    ("kind", "n_items", "slate_size", "field"),
    [
        (WCK, 3, 4, "slate_size"),
        (WCK, 3, 0, "slate_size"),
        (WCK, 3, -1, "slate_size"),
        (WCK, 1, 1, "n_items"),
        (WCK, 0, 0, "n_items"),
        (CK, 3, 4, "slate_size"),
        (CK, 1, 1, "n_items"),
        (WK, 3, 4, "slate_size"),
        (WK, 3, 1, "slate_size"),
        (WK, 1, 2, "n_items"),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else str(value),
)
def test_sizes_that_make_no_kernel_are_refused_by_name(kind: Kind, n_items: int, slate_size: int, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        kind.make(n_items, slate_size)
    assert caught.value.field == field


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, 1e200])
@pytest.mark.parametrize("make", [weighted_kendall, weighted_convolutional_kendall])
def test_weights_without_a_usable_norm_are_refused_by_name(make: Callable[..., KendallKernel], value: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make(6, 3, rank_weight=lambda _first, _second: value)
    assert caught.value.field == "rank_weight"
