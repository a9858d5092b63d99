from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings, Ratings

if TYPE_CHECKING:
    from collections.abc import Callable


def parts(orderings: Orderings) -> tuple[list[int], list[int], list[int]]:
    return orderings.items.tolist(), orderings.starts.tolist(), orderings.places.tolist()


def test_rankings_of_several_lengths_give_out_all_places_but_the_last() -> None:
    found = Orderings.from_rankings([[2, 0, 1], (3, 1), np.array([4, 3, 2, 1])], n_items=5)
    assert parts(found) == ([2, 0, 1, 3, 1, 4, 3, 2, 1], [0, 3, 5, 9], [2, 1, 3])
    assert found.n_answers == 3


def test_a_choice_puts_its_item_first_and_leaves_the_others_as_shown() -> None:
    found = Orderings.from_choices([3, 2], [[0, 1, 3, 2], [2, 4]], n_items=5)
    assert parts(found) == ([3, 0, 1, 2, 2, 4], [0, 4, 6], [1, 1])


def test_pairs_are_choices_of_two() -> None:
    found = Orderings.from_pairs(np.array([[1, 0], [2, 1]], dtype=np.uint8), n_items=3)
    assert parts(found) == ([1, 0, 2, 1], [0, 2, 4], [1, 1])
    assert found.items.dtype == np.int64


def test_joined_answers_are_those_of_both_in_order() -> None:
    rankings = Orderings.from_rankings([[2, 0, 1]], n_items=3)
    choices = Orderings.from_choices([1], [[0, 1, 2]], n_items=3)
    assert parts(rankings.join(choices)) == ([2, 0, 1, 1, 0, 2], [0, 3, 6], [2, 1])


def test_no_answers_are_answers() -> None:
    none = Orderings.from_rankings([], n_items=3)
    assert parts(none) == parts(Orderings.from_choices([], [], n_items=3)) == ([], [0], [])
    assert parts(none) == parts(Orderings.from_pairs([], n_items=3))
    one = Orderings.from_pairs([[0, 1]], n_items=3)
    assert parts(none.join(one)) == parts(one.join(none)) == parts(one)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ([], "at least 2"),
        ([1], "at least 2"),
        ([1, 2, 1], "item 1 occurs twice"),
        ([0, 5], "in [0, 5), got 5"),
        ([-1, 0], "got -1"),
        ([0, 1.5], "got 1.5"),
        ([0, math.nan], "got nan"),
        ([0, None], "got None"),
        (["a", "b"], "got a"),
        ([[0, 1], 2], "got [0, 1]"),
        ([0, 2**70], "got 1180591620717411303424"),
    ],
)
def test_a_wrong_answer_is_named(wrong: list[object], problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Orderings.from_rankings([[0, 1], wrong, [3, 4]], n_items=5)  # type: ignore[list-item]
    assert caught.value.field == "rankings[1]"
    assert problem in caught.value.problem


def test_an_item_may_occur_in_many_answers() -> None:
    found = Orderings.from_rankings([[0, 1], [1, 0], [0, 1]], n_items=2)
    assert found.n_answers == 3


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Orderings.from_choices([0, 9], [[0, 1], [0, 1]], n_items=9), "chosen[1]"),
        (lambda: Orderings.from_choices([math.nan], [[0, 1]], n_items=9), "chosen[0]"),  # type: ignore[list-item]
        (lambda: Orderings.from_choices([0], [[0, 1], [0, 1]], n_items=9), "chosen"),
        (lambda: Orderings.from_choices([0], [[0, 0]], n_items=9), "shown[0]"),
        (lambda: Orderings.from_choices([0], [[0]], n_items=9), "shown[0]"),
        (lambda: Orderings.from_pairs([[0, 1], [2, 2]], n_items=9), "pairs[1]"),
        (lambda: Orderings.from_pairs([[0, 1], [2, 9]], n_items=9), "pairs[1]"),
        (lambda: Orderings.from_pairs([[0, 1, 2]], n_items=9), "pairs"),
        (lambda: Orderings.from_pairs([[0, 1], [2]], n_items=9), "pairs"),
        (lambda: Orderings.from_pairs([[0.0, 0.5]], n_items=9), "pairs[0]"),
        (lambda: Ratings.of([0], [1.0, 2.0], n_items=9), "values"),
        (lambda: Ratings.of([0, 9], [1.0, 2.0], n_items=9), "items[1]"),
        (lambda: Ratings.of([0.5], [1.0], n_items=9), "items[0]"),  # type: ignore[list-item]
        (lambda: Ratings.of([0, 1], [1.0, math.nan], n_items=9), "values[1]"),
        (lambda: Ratings.of([0, 1], [1.0, math.inf], n_items=9), "values[1]"),
        (lambda: Ratings.of([0], ["good"], n_items=9), "values"),  # type: ignore[list-item]
    ],
)
def test_what_is_wrong_is_named(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("starts", "places", "field"),
    [
        ([0, 3], [1], "starts"),
        ([1, 4], [1], "starts"),
        ([0, 1, 4], [1, 1], "starts"),
        ([0, 3, 1, 4], [1, 1, 1], "starts"),
        ([0, 2, 4], [1], "starts"),
        ([0, 4], [0], "places"),
        ([0, 4], [4], "places"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(starts: list[int], places: list[int], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Orderings(np.arange(4), np.array(starts), np.array(places))
    assert caught.value.field == field


def test_ratings_of_an_item_may_repeat() -> None:
    found = Ratings.of([2, 0, 2], [1.0, 2, 3.5], n_items=3)
    assert found.items.tolist() == [2, 0, 2]
    assert found.values.tolist() == [1.0, 2.0, 3.5]
    assert Ratings.of([], [], n_items=3).items.tolist() == []
