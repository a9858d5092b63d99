"""How far answers agree, against a count of all pairs of answers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from topk_bandit.preferences.agreement import measure_agreement
from topk_bandit.preferences.study_models import RatedLists
from topk_bandit.preferences.tiers import TieredAnswers

N_ITEMS = 5


def above(levels: dict[int, float], one: int, other: int) -> int:
    """Return 1 where an answer has one item above another, -1 below, and 0 where it does not order them."""
    if one not in levels or other not in levels:
        return 0
    return int(np.sign(levels[one] - levels[other]))


def by_definition(answers: list[dict[int, float]]) -> tuple[float, int]:
    alike = both = 0
    for mine, theirs in combinations(answers, 2):
        for one, other in combinations(range(N_ITEMS), 2):
            product = above(mine, one, other) * above(theirs, one, other)
            both += product != 0
            alike += product > 0
    return (alike / both if both else 0.0), both


def draw_levels(rng: np.random.Generator) -> dict[int, float]:
    items = rng.permutation(N_ITEMS)[: rng.integers(1, N_ITEMS + 1)]
    return {int(item): float(rng.integers(3)) for item in items}


def tiers_of(levels: dict[int, float]) -> list[list[int]]:
    tiers = [[item for item, one in levels.items() if one == level] for level in (2.0, 1.0, 0.0)]
    return [tier for tier in tiers if tier]


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_share_of_pairs_of_answers_that_order_two_items_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = [draw_levels(rng) for _ in range(12)]
    share, count = by_definition(answers)
    for given in (
        TieredAnswers.of([tiers_of(one) for one in answers], n_items=N_ITEMS),
        RatedLists([list(one) for one in answers], [list(one.values()) for one in answers], N_ITEMS),
    ):
        found = measure_agreement(given)
        assert found.pairs == count
        assert found.share == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], (0.0, 0)),
        ([[[0], [1]]], (0.0, 0)),
        ([[[0], [1]], [[2], [3]]], (0.0, 0)),
        ([[[0, 1]], [[0], [1]]], (0.0, 0)),
        ([[[0], [1], [2]]] * 3, (1.0, 9)),
        ([[[0], [1]], [[1], [0]]], (0.0, 1)),
    ],
)
def test_the_ends_of_its_range(answers: list[list[list[int]]], expected: tuple[float, int]) -> None:
    assert measure_agreement(TieredAnswers.of(answers, n_items=4)) == expected


def test_people_who_guess_agree_in_half_of_the_pairs() -> None:
    rng = np.random.default_rng(0)
    guessed = [[[int(item)] for item in rng.permutation(N_ITEMS)] for _ in range(400)]
    found = measure_agreement(TieredAnswers.of(guessed, n_items=N_ITEMS))
    assert found.pairs == 10 * 400 * 399 // 2
    assert abs(found.share - 0.5) < 0.01
