"""The probabilities of slates, against a list of all slates and how often each is drawn."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.rankings import all_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELIGIBLE = np.array([1, 4, 5, 7, 9], dtype=np.int32)
BEST = np.array([5, 1, 9], dtype=np.int32)
SHARES = [(0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.2, 0.3), (1.0, 0.5), (0.0, 1.0)]
each_share = pytest.mark.parametrize(("uniform", "near"), SHARES)


def distribution(
    uniform: float, near: float, *, best: NDArray[np.int32] = BEST, eligible: NDArray[np.int32] = ELIGIBLE
) -> SlateDistribution:
    exploration = Exploration(ConstantBeta(1.0), uniform_share=uniform, near_share=near)
    return SlateDistribution.of(exploration, best, eligible)


def is_near(slate: list[int], best: list[int]) -> bool:
    """By the words: one item replaced by one that the best slate does not show, or two positions exchanged."""
    exchanged = [
        [best[b] if p == a else best[a] if p == b else one for p, one in enumerate(best)]
        for a in range(len(best))
        for b in range(a + 1, len(best))
    ]
    replaced = sum(one != other for one, other in zip(slate, best, strict=True)) == 1 and set(slate) != set(best)
    return replaced or slate in exchanged


@each_share
def test_each_slate_has_the_probability_that_its_definition_says(uniform: float, near: float) -> None:
    slates, drawn_from = all_rankings(ELIGIBLE, slate_size=3), distribution(uniform, near)
    beside = [is_near(slate, BEST.tolist()) for slate in slates.tolist()]
    assert sum(beside) == 3 * 2 + 3
    by_hand = uniform / len(slates) + (1.0 - uniform) * (
        (1.0 - near) * (slates == BEST).all(axis=1) + near * np.array(beside) / 9
    )
    propensities = np.array([drawn_from.propensity(slate) for slate in slates])
    np.testing.assert_allclose(propensities, by_hand, atol=1e-15)
    assert propensities.sum() == pytest.approx(1.0)
    for slate in slates:
        at_positions = [(by_hand * (slates[:, p] == slate[p])).sum() for p in range(3)]
        np.testing.assert_allclose(drawn_from.position_propensities(slate), at_positions, atol=1e-15)


@each_share
def test_slates_are_drawn_as_often_as_their_propensities_say(uniform: float, near: float) -> None:
    drawn_from, rng = distribution(uniform, near), np.random.default_rng(0)
    draws = [drawn_from.draw(rng) for _ in range(6000)]
    counts = Counter(tuple(slate.tolist()) for slate, _ in draws)
    propensities = {slate: drawn_from.propensity(np.array(slate, dtype=np.int32)) for slate in counts}
    assert min(propensities.values()) > 0.0
    likely = [slate for slate in propensities if propensities[slate] > 1e-12]
    expected = np.array([propensities[slate] for slate in likely])
    if len(likely) > 1:
        assert chisquare([counts[slate] for slate in likely], 6000 * expected / expected.sum()).pvalue > 1e-3
    explored = sum(by_share for _, by_share in draws) / 6000
    assert abs(explored - (uniform + (1.0 - uniform) * near)) <= 4.0 * 0.5 / np.sqrt(6000)
    assert BEST.tolist() == [5, 1, 9], "a draw changes nothing"


class LeastNumbers:
    """A generator whose every number is the least one that there is."""

    def random(self) -> float:
        return 0.0


def test_a_share_of_zero_draws_nothing() -> None:
    slate, by_share = distribution(0.0, 0.0).draw(LeastNumbers())  # type: ignore[arg-type]
    assert (slate.tolist(), by_share) == (BEST.tolist(), False)


@pytest.mark.parametrize(("best", "eligible"), [([3], [3]), ([3], [1, 3]), ([2, 0], [0, 2]), ([2, 0, 1], [0, 1, 2])])
def test_small_shops_have_what_slates_there_are(best: list[int], eligible: list[int]) -> None:
    one, items = np.array(best, dtype=np.int32), np.array(eligible, dtype=np.int32)
    drawn_from, rng = distribution(0.1, 0.4, best=one, eligible=items), np.random.default_rng(1)
    slates = all_rankings(items, slate_size=len(best))
    each = np.array([drawn_from.propensity(slate) for slate in slates])
    assert each.sum() == pytest.approx(1.0)
    assert all(drawn_from.propensity(drawn_from.draw(rng)[0]) > 0.0 for _ in range(100))
    for slate in slates:
        at_positions = [(each * (slates[:, p] == slate[p])).sum() for p in range(len(best))]
        np.testing.assert_allclose(drawn_from.position_propensities(slate), at_positions, atol=1e-15)
