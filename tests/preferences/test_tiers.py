"""Answers in tiers: what they are broken into, and how far that is from the sum over all orders."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.held_out import score_answers
from topk_bandit.preferences.tiers import TieredAnswers


def enumerated(tiers: list[list[int]], utilities: np.ndarray) -> float:
    """Return the probability of all rankings that have these tiers one after the other."""
    total = 0.0
    for parts in product(*map(permutations, tiers)):
        order = [item for part in parts for item in part]
        weights = np.exp(utilities[order])
        total += float(np.prod([weight / weights[place:].sum() for place, weight in enumerate(weights)]))
    return total


def scored(tiers: list[list[int]], utilities: np.ndarray) -> float:
    return float(score_answers(utilities, TieredAnswers.of([tiers], n_items=len(utilities)))[0])


@st.composite
def drawn_tiers(draw: st.DrawFn) -> tuple[list[list[int]], np.ndarray]:
    count = draw(st.integers(2, 6))
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, count - 1))))
    tiers = [order[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    return tiers, np.array(draw(st.lists(st.floats(-3, 3), min_size=count, max_size=count)))


@given(drawn_tiers())
def test_tiers_of_one_above_a_last_one_have_the_exact_likelihood_and_others_less(
    drawn: tuple[list[list[int]], np.ndarray],
) -> None:
    tiers, utilities = drawn
    exact, broken = math.log(enumerated(tiers, utilities)), scored(tiers, utilities)
    if all(len(tier) == 1 for tier in tiers[:-1]):
        assert broken == pytest.approx(exact, abs=1e-9)
    else:
        orders = sum(math.log(math.factorial(len(tier))) for tier in tiers[:-1])
        assert broken - 1e-9 <= exact <= broken + orders + 1e-9


@pytest.mark.parametrize(
    ("tiers", "orders"),
    [
        pytest.param([[3], [1], [0], [2]], [([3, 1, 0, 2], 3)], id="ranking"),
        pytest.param([[3], [1], [0, 2]], [([3, 1, 0, 2], 2)], id="the top two"),
        pytest.param([[3], [0, 1, 2]], [([3, 0, 1, 2], 1)], id="choice"),
        pytest.param([[3], [0, 1], [2]], [([3, 0, 1, 2], 1), ([0, 2], 1), ([1, 2], 1)], id="best and worst"),
        pytest.param([[0, 1], [2]], [([0, 2], 1), ([1, 2], 1)], id="two tied at the top"),
        pytest.param([[0, 1, 2]], [], id="all tied"),
    ],
)
def test_an_answer_is_broken_into_choices(tiers: list[list[int]], orders: list[tuple[list[int], int]]) -> None:
    made, owners = TieredAnswers.of([[[0]], tiers], n_items=4).to_orderings()
    found = [made.items[a:b].tolist() for a, b in zip(made.starts[:-1], made.starts[1:], strict=True)]
    assert list(zip(found, made.places.tolist(), strict=True)) == orders
    assert owners.tolist() == [1] * len(orders)


def test_rankings_and_choices_are_the_orderings_that_they_were() -> None:
    made, _ = TieredAnswers.of([[[2], [0], [1]], [[1], [0, 3]]], n_items=4).to_orderings()
    ranked = Orderings.from_rankings([[2, 0, 1]], n_items=4)
    both = ranked.join(Orderings.from_choices([1], [[0, 1, 3]], n_items=4))
    for name in ("items", "starts", "places"):
        np.testing.assert_array_equal(getattr(made, name), getattr(both, name))


def test_pairs_are_all_that_an_answer_orders() -> None:
    pairs, owners = TieredAnswers.of([[[3], [0, 1], [2]], [[1, 0]], [[1], [0]]], n_items=4).to_pairs()
    assert [tuple(pair) for pair in pairs.tolist()] == [(3, 0), (3, 1), (3, 2), (0, 2), (1, 2), (1, 0)]
    assert owners.tolist() == [0] * 5 + [2]


@pytest.mark.parametrize("tiers", [[], [[0], []], [[0], [1, 0]], [[0], [4]], [[-1]]])
def test_bad_tiers_are_refused_by_their_number(tiers: list[list[int]]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"answers\[1\]"):
        TieredAnswers.of([[[0], [1]], tiers], n_items=4)
