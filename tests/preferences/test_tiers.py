"""Answers in tiers: their likelihood by the sum over all orders, and what models learn from."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings
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
    return float(TieredAnswers.of([[[0]], tiers], n_items=len(utilities)).score(utilities)[1])


@st.composite
def drawn_tiers(draw: st.DrawFn) -> tuple[list[list[int]], np.ndarray]:
    count = draw(st.integers(2, 6))
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, count - 1))))
    tiers = [order[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    return tiers, np.array(draw(st.lists(st.floats(-3, 3), min_size=count, max_size=count)))


@given(drawn_tiers())
def test_the_likelihood_of_tiers_is_that_of_all_orders_that_fit(drawn: tuple[list[list[int]], np.ndarray]) -> None:
    tiers, utilities = drawn
    assert scored(tiers, utilities) == pytest.approx(math.log(enumerated(tiers, utilities)), abs=1e-9)


@pytest.mark.parametrize("tiers", [[[3], [0, 1], [2]], [[0, 1, 3], [2]], [[0, 2], [1, 3]], [[1, 0], [3]]])
def test_ties_are_drawn_as_often_as_plackett_luce_has_them(tiers: list[list[int]]) -> None:
    utilities = np.array([0.8, -0.5, 0.1, 1.1])
    drawn = TieredAnswers.of([tiers] * 20_000, n_items=4).draw_orderings(utilities, np.random.default_rng(0))
    found = Counter(map(tuple, drawn.items.reshape(20_000, -1)[:, :-1].tolist()))
    whole = enumerated(tiers, utilities)
    last = tiers[-1][:-1]
    for parts in product(*map(permutations, tiers[:-1])):
        order = [item for part in parts for item in part]
        share = enumerated([[item] for item in order] + tiers[-1:], utilities) / whole
        count = found.pop((*order, *last))
        assert abs(count - 20_000 * share) < 4.0 * math.sqrt(20_000 * share * (1.0 - share)) + 1e-9
    assert not found


@pytest.mark.parametrize(
    ("tiers", "orders"),
    [
        pytest.param([[3], [1], [0], [2]], [([3, 1, 0, 2], 3)], id="ranking"),
        pytest.param([[3], [1], [0, 2]], [([3, 1, 0, 2], 2)], id="the top two"),
        pytest.param([[3], [0, 1, 2]], [([3, 0, 1, 2], 1)], id="choice"),
        pytest.param([[3], [0, 1], [2]], [([3, 0, 1, 2], 3)], id="best and worst"),
        pytest.param([[0, 1], [2, 3]], [([0, 1, 2, 3], 2)], id="two tied at the top"),
        pytest.param([[0, 1, 2]], [], id="all tied"),
    ],
)
def test_an_answer_assigns_the_places_above_its_last_tier(
    tiers: list[list[int]], orders: list[tuple[list[int], int]]
) -> None:
    answers = TieredAnswers.of([[[0]], tiers], n_items=4)
    made = answers.to_orderings()
    found = [made.items[a:b].tolist() for a, b in zip(made.starts[:-1], made.starts[1:], strict=True)]
    assert list(zip(found, made.places.tolist(), strict=True)) == orders
    assert answers.has_ties == any(len(tier) > 1 for tier in tiers[:-1])


def test_utilities_far_apart_overflow_nothing() -> None:
    utilities = np.array([700.0, -700.0, 0.0, 690.0])
    for tiers in ([[1], [0, 2, 3]], [[1, 2], [0], [3]], [[0, 3], [1, 2]]):
        answers = TieredAnswers.of([tiers], n_items=4)
        assert np.isfinite(answers.score(utilities)).all()
        assert sorted(answers.draw_orderings(utilities, np.random.default_rng(1)).items.tolist()) == [0, 1, 2, 3]


def test_rankings_and_choices_are_the_orderings_that_they_were() -> None:
    made = TieredAnswers.of([[[2], [0], [1]], [[1], [0, 3]]], n_items=4).to_orderings()
    ranked = Orderings.from_rankings([[2, 0, 1]], n_items=4)
    both = ranked.join(Orderings.from_choices([1], [[0, 1, 3]], n_items=4))
    for name in ("items", "starts", "places"):
        np.testing.assert_array_equal(getattr(made, name), getattr(both, name))


def test_pairs_are_all_that_an_answer_orders() -> None:
    pairs = TieredAnswers.of([[[3], [0, 1], [2]], [[1, 0]], [[1], [0]]], n_items=4).to_pairs()
    assert [tuple(pair) for pair in pairs.tolist()] == [(3, 0), (3, 1), (3, 2), (0, 2), (1, 2), (1, 0)]


@pytest.mark.parametrize("tiers", [[], [[0], []], [[0], [1, 0]], [[0], [4]], [[-1]]])
def test_bad_tiers_are_refused_by_their_number(tiers: list[list[int]]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"answers\[1\]"):
        TieredAnswers.of([[[0], [1]], tiers], n_items=4)


def test_too_many_tied_items_are_refused() -> None:
    TieredAnswers.of([[[*range(12)], [12]], [[0], [*range(1, 15)]]], n_items=15)
    with pytest.raises(InvalidArgumentError, match=r"answers\[0\]: .*12 items tied above others"):
        TieredAnswers.of([[[*range(13)], [13]]], n_items=15)


def test_utilities_that_are_far_apart_have_scores_and_orders() -> None:
    answers = TieredAnswers.of([[[0, 1], [2]], [[2], [1, 0]]], n_items=3)
    utilities = np.array([5000.0, -3.0, -4000.0])
    first, second = answers.score(utilities)
    assert -700.0 < first < 0.0
    assert -700.0 < second < -500.0
    assert answers.draw_orderings(utilities, np.random.default_rng(0)).items.tolist()[:3] == [0, 1, 2]
