from __future__ import annotations

import pickle
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.lab.experiments.vowpal import VowpalCcb, VowpalSlates, _ccb_lines, _distinct, slates_lines
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLAYERS = [VowpalCcb, VowpalSlates]
SIZE = ProblemSize(n_items=6, slate_size=2, context_dim=2, n_contexts=2)
CONTEXTS = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
LIKED = ({1, 4}, {0, 3})
"""The items that each of two customers likes."""


def visit(number: int, *, whose: int = 0, eligible: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Visit:
    return Visit(number, CONTEXTS[whose], np.array(eligible, dtype=np.int32))


def worth(whose: int, slate: NDArray[np.int32]) -> float:
    return len(LIKED[whose] & set(slate.tolist())) / 2


@pytest.mark.parametrize("kind", PLAYERS)
def test_it_learns_what_each_customer_likes(kind: type[VowpalCcb | VowpalSlates]) -> None:
    player = kind.of(SIZE, np.random.default_rng(1))
    earned = []
    for number in range(600):
        earned.append(worth(number % 2, player.choose(visit(number, whose=number % 2))))
        # Rewards come after every fifth round: what is learned is what was shown then, to whom it was shown.
        if number % 5 == 4:
            for late in range(5):
                player.observe(number - late, earned[number - late])
    # Random slates earn a third.
    assert np.mean(earned[-200:]) > 0.8


@pytest.mark.parametrize("kind", PLAYERS)
def test_slates_are_of_distinct_eligible_items(kind: type[VowpalCcb | VowpalSlates]) -> None:
    player = kind(slate_size=3, rng=np.random.default_rng(2), options="--epsilon 0.9 --quadratic ca")
    for number in range(60):
        slate = player.choose(visit(number, eligible=(1, 2, 5) if number % 2 else (0, 2, 3, 4)))
        assert len(set(slate.tolist())) == 3
        assert set(slate.tolist()) <= ({1, 2, 5} if number % 2 else {0, 2, 3, 4})
        assert slate.dtype == np.int32
        if number % 3:
            player.observe(number, 0.5)
        else:
            player.close(number)
    with pytest.raises(KeyError):
        player.observe(0, 1.0)


@pytest.mark.parametrize("kind", PLAYERS)
def test_the_same_seed_plays_the_same_and_another_does_not(kind: type[VowpalCcb | VowpalSlates]) -> None:
    games = []
    for seed in (3, 3, 4):
        player = pickle.loads(pickle.dumps(kind.of))(SIZE, np.random.default_rng(seed), options="--epsilon 0.5")
        games.append([])
        for number in range(40):
            games[-1].append(player.choose(visit(number)).tolist())
            player.observe(number, float(games[-1][-1][0]))
    assert games[0] == games[1] != games[2]


@pytest.mark.parametrize("kind", PLAYERS)
def test_everything_is_explored(kind: type[VowpalCcb | VowpalSlates]) -> None:
    player = kind(slate_size=2, rng=np.random.default_rng(5), options="--epsilon 1.0")
    counts = Counter(tuple(player.choose(visit(number)).tolist()) for number in range(900))
    # One in thirty each, if everything is drawn alike.
    assert len(counts) == 30
    assert max(counts.values()) < 90


def test_a_slate_is_learned_with_the_probabilities_and_the_reward_that_it_had() -> None:
    taught: list[list[str]] = []
    for kind in PLAYERS:
        player = kind(slate_size=2, rng=np.random.default_rng(6), options="--epsilon 0.0")
        player._wabbit = _Scripted([[(2, 0.7), (0, 0.2), (1, 0.1)], [(1, 0.6), (2, 0.3), (0, 0.1)]], taught)
        assert player.choose(visit(9, eligible=(0, 3, 5))).tolist() == [5, 3]
        player.observe(9, 0.25)
    assert taught[0] == _ccb_lines(CONTEXTS[0], [0, 3, 5], ["2:-0.250000:0.700000", "1:-0.250000:0.600000"])
    assert taught[1] == slates_lines(
        CONTEXTS[0], [[0, 3, 5]] * 2, cost="-0.250000", labels=["2:0.700000", "1:0.600000"]
    )


class _Scripted:
    """Answers what it was given, and writes down what it is taught."""

    def __init__(self, slots: list[list[tuple[int, float]]], taught: list[list[str]]) -> None:
        self._slots = slots
        self._taught = taught

    def predict(self, _lines: list[str]) -> list[list[tuple[int, float]]]:
        return self._slots

    def learn(self, lines: list[str]) -> None:
        self._taught.append(lines)


def test_the_texts_are_those_of_the_formats() -> None:
    assert _ccb_lines(np.array([0.5, -1.0]), [3, 7], ["1:-0.5:0.25", ""]) == [
        "ccb shared |c c0:0.500000 c1:-1.000000",
        "ccb action |a i3",
        "ccb action |a i7",
        "ccb slot 1:-0.5:0.25 |s p0",
        "ccb slot |s p1",
    ]
    assert slates_lines(np.array([0.5]), [[3, 7], [2]], cost="-0.5", labels=["1:0.9", "0:1.0"]) == [
        "slates shared -0.5 |c c0:0.500000",
        "slates action 0 |a i3",
        "slates action 0 |a i7",
        "slates action 1 |a i2",
        "slates slot 1:0.9 |s p0",
        "slates slot 0:1.0 |s p1",
    ]


def test_an_item_taken_before_gives_way_to_the_most_probable_other() -> None:
    slots = [[(2, 0.1), (0, 0.8), (1, 0.1)], [(2, 0.5), (0, 0.2), (1, 0.3)], [(1, 0.9), (2, 0.04), (0, 0.06)]]
    assert _distinct(slots) == ([2, 1, 0], [0.1, 0.3, 0.06])


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    with pytest.raises(ConfigurationError, match=r"topk-bandit\[rivals\]"):
        VowpalCcb.of(SIZE, np.random.default_rng(0))
