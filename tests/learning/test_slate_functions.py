"""Maximisers of slate functions, against a look at every slate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.dense import rankings_of

from topk_bandit.learning.rankings import all_rankings, full_neighbourhood
from topk_bandit.learning.slate_functions import SlateFunction, maximiser

if TYPE_CHECKING:
    from numpy.typing import NDArray


def drawn(rng: np.random.Generator, *, n_items: int, slate_size: int, pairs: float = 1.0) -> SlateFunction:
    """Draw a function without any structure: its pair scores are neither symmetric nor antisymmetric."""
    return SlateFunction(
        rng.normal(size=(slate_size, n_items)),
        np.triu(rng.normal(size=(slate_size, slate_size)), 1),
        pairs * rng.normal(size=(n_items, n_items)),
        float(rng.normal()),
    )


def value(function: SlateFunction, ranking: NDArray[np.int32]) -> float:
    """One slate's value, term by term."""
    total = function.offset
    for a, item in enumerate(ranking.tolist()):
        total += function.position_scores[a, item]
        for b in range(a + 1, len(ranking)):
            total += function.pair_weight[a, b] * function.pair_scores[item, ranking[b]]
    return float(total)


sizes = st.tuples(st.integers(1, 4), st.integers(0, 4)).map(lambda size: (size[0], size[0] + size[1]))


@given(size=sizes, seed=st.integers(0, 1000))
def test_values_and_the_table_of_all_slates_are_sums_of_their_terms(size: tuple[int, int], seed: int) -> None:
    slate_size, n_items = size
    function = drawn(np.random.default_rng(seed), n_items=n_items, slate_size=slate_size)
    slates = all_rankings(np.arange(n_items), slate_size=slate_size)
    expected = [value(function, slate) for slate in slates]
    table = function.table()
    np.testing.assert_allclose(function.values(slates), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(table[tuple(slates.T)], expected, rtol=1e-12, atol=1e-12)
    assert np.isneginf(table).sum() == table.size - len(slates)


@given(size=sizes, seed=st.integers(0, 1000))
def test_the_maximiser_of_a_small_function_is_its_best_slate(size: tuple[int, int], seed: int) -> None:
    slate_size, n_items = size
    rng = np.random.default_rng(seed)
    function = drawn(rng, n_items=n_items, slate_size=slate_size)
    best = maximiser(function, starts=np.zeros((0, slate_size), dtype=np.int32), rng=rng)
    slates = all_rankings(np.arange(n_items), slate_size=slate_size)
    assert len(set(best.tolist())) == slate_size
    assert value(function, best) >= max(value(function, slate) for slate in slates) - 1e-12


@given(size=sizes, seed=st.integers(0, 1000))
def test_the_function_of_some_items_has_the_values_of_their_slates(size: tuple[int, int], seed: int) -> None:
    slate_size, n_items = size
    rng = np.random.default_rng(seed)
    function = drawn(rng, n_items=n_items + 3, slate_size=slate_size)
    items = np.sort(rng.permutation(n_items + 3)[:n_items])
    slates = all_rankings(np.arange(n_items), slate_size=slate_size)
    np.testing.assert_array_equal(function.among(items).values(slates), function.values(items[slates]))


def test_climbs_find_the_best_of_many_slates() -> None:
    # 13^4 is more than is enumerated. Pairs as strong as these are the exception: items of their own matter more.
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        function = drawn(rng, n_items=13, slate_size=4, pairs=0.3)
        best = maximiser(function, starts=np.zeros((0, 4), dtype=np.int32), rng=rng)
        found += bool(value(function, best) >= function.table().max() - 1e-12)
    assert found == 20


@pytest.mark.parametrize("seed", range(3))
def test_no_replacement_and_no_exchange_is_better_than_the_end_of_the_climbs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    function = drawn(rng, n_items=40, slate_size=5)
    best = maximiser(function, starts=np.zeros((0, 5), dtype=np.int32), rng=rng)
    neighbours = full_neighbourhood(best, np.arange(40))
    near = neighbours[(neighbours != best).sum(axis=1) <= 2]
    # The slate itself, one item replaced, or two positions exchanged.
    near = near[[(row != best).sum() == 1 or set(row) == set(best) for row in near]]
    assert len(near) == 1 + 35 * 5 + 10
    assert value(function, best) >= function.values(near).max() - 1e-9


def test_climbs_start_from_what_is_given() -> None:
    # A single set of items stands out, and no slate leads to it that has fewer than two of them.
    n_items, slate_size = 400, 4
    pairs = -np.ones((n_items, n_items))
    hidden = np.array([11, 23, 35, 47], dtype=np.int32)
    pairs[np.ix_(hidden, hidden)] = 5.0
    singles = np.full((slate_size, n_items), 2.0)
    singles[:, hidden] = -6.0
    ones = np.triu(np.ones((slate_size, slate_size)), 1)
    function = SlateFunction(singles, ones, pairs, 0.0)
    start = np.array([[11, 23, 35, 2], [0, 1, 2, 3]], dtype=np.int32)
    rng = np.random.default_rng(0)
    assert set(maximiser(function, starts=start, rng=rng).tolist()) == set(hidden.tolist())
    assert set(maximiser(function, starts=start[1:], rng=rng).tolist()) != set(hidden.tolist())


def test_the_same_seed_gives_the_same_slate() -> None:
    function = drawn(np.random.default_rng(1), n_items=50, slate_size=6)
    starts = rankings_of(50, 6, 20, np.random.default_rng(2))
    slates = [maximiser(function, starts=starts, rng=np.random.default_rng(3)).tolist() for _ in range(2)]
    assert slates[0] == slates[1]
