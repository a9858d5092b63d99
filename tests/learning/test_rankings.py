from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import (
    all_rankings,
    full_neighbourhood,
    log_count,
    random_rankings,
    validated_items,
    validated_rankings,
)


@pytest.mark.parametrize(
    ("rankings", "problem"),
    [
        ([[0, 1]], "shape"),
        ([[[0, 1, 2]]], "shape"),
        ([], "shape"),
        (3, "shape"),
        ([[0, 1, 2.0]], "integers"),
        ([["a", "b", "c"]], "integers"),
        ([[True, False, True]], "integers"),
        ([[0, 1, 5]], "indices"),
        ([[0, 1, -1]], "indices"),
        ([[0, 1, 2**40]], "indices"),
        ([[0, 1, 2], [4, 3, 4]], "twice"),
    ],
)
def test_what_is_no_ranking_is_refused_by_name(rankings: object, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        validated_rankings(rankings, n_items=5, slate_size=3, field="slates")  # type: ignore[arg-type]
    assert caught.value.field == "slates"


def test_rankings_of_different_lengths_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validated_rankings([[0, 1, 2], [3, 4]], n_items=5, slate_size=3, field="slates")
    assert caught.value.field == "slates"


def test_one_ranking_and_none_are_arrays_of_rankings() -> None:
    assert validated_rankings([2, 0, 1], n_items=3, slate_size=3).tolist() == [[2, 0, 1]]
    assert validated_rankings(np.zeros((0, 3), dtype=int), n_items=3, slate_size=3).shape == (0, 3)
    accepted = validated_rankings(np.array([[4, 0]], dtype=np.uint64), n_items=5, slate_size=2)
    assert accepted.dtype == np.int32
    assert accepted.flags.c_contiguous


@pytest.mark.parametrize(("n_items", "slate_size"), [(5, 1), (6, 3), (4, 4), (20, 3)])
def test_log_count_is_the_number_of_rankings(n_items: int, slate_size: int) -> None:
    assert math.exp(log_count(n_items, slate_size)) == pytest.approx(math.perm(n_items, slate_size))


def test_all_rankings_are_all_and_distinct() -> None:
    rankings = all_rankings(np.array([2, 5, 7, 9]), slate_size=3)
    assert {tuple(row) for row in rankings.tolist()} == set(permutations([2, 5, 7, 9], 3))
    assert len(rankings) == 24


def test_random_rankings_are_of_the_items_and_repeat_with_the_generator() -> None:
    items = np.array([3, 8, 11, 40])
    drawn = random_rankings(items, slate_size=3, count=200, rng=np.random.default_rng(5))
    again = random_rankings(items, slate_size=3, count=200, rng=np.random.default_rng(5))
    assert drawn.tolist() == again.tolist()
    assert set(drawn.ravel().tolist()) == set(items.tolist())
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    assert random_rankings(items, slate_size=3, count=0, rng=np.random.default_rng(5)).shape == (0, 3)


@pytest.mark.parametrize(("n_items", "slate_size"), [(4, 1), (4, 2), (5, 3), (4, 4)])
def test_random_rankings_are_uniform_over_all_rankings(n_items: int, slate_size: int) -> None:
    items = np.arange(n_items) + 10
    count = 100 * math.perm(n_items, slate_size)
    drawn = random_rankings(items, slate_size=slate_size, count=count, rng=np.random.default_rng(1))
    counts = Counter(tuple(row) for row in drawn.tolist())
    assert set(counts) == set(permutations(items.tolist(), slate_size))
    assert chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("n_items", "slate_size"), [(6, 3), (7, 2), (5, 1), (4, 4), (6, 4)])
def test_the_full_neighbourhood_is_every_ranking_with_at_most_one_other_item(n_items: int, slate_size: int) -> None:
    ranking = np.random.default_rng(n_items).permutation(n_items)[:slate_size]
    neighbours = full_neighbourhood(ranking, np.arange(n_items))
    kept = slate_size - 1
    expected = {
        other for other in permutations(range(n_items), slate_size) if len(set(other) & set(ranking.tolist())) >= kept
    }
    assert {tuple(row) for row in neighbours.tolist()} == expected
    k_factorial = math.factorial(slate_size)
    assert len(neighbours) == (n_items - slate_size) * slate_size * k_factorial + k_factorial


def test_the_full_neighbourhood_stays_inside_the_items() -> None:
    neighbours = full_neighbourhood(np.array([4, 9]), np.array([1, 4, 9, 30]))
    assert set(neighbours.ravel().tolist()) == {1, 4, 9, 30}
    assert len(neighbours) == 2 * 2 * 2 + 2


@pytest.mark.parametrize("items", [[3, 1], [1, 1, 2], [-1, 2], [0, 5], [[0, 1]], [0.0, 1.0], [[0], [1, 2]], 3], ids=str)
def test_what_is_no_list_of_items_is_refused_by_name(items: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        validated_items(items, n_items=5, field="eligible")  # type: ignore[arg-type]
    assert caught.value.field == "eligible"


def test_ascending_items_are_accepted() -> None:
    assert validated_items([0, 2, 4], n_items=5).tolist() == [0, 2, 4]
    assert validated_items(np.array([], dtype=int), n_items=5).tolist() == []
