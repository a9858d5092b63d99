"""Policies of independent arms, against plain versions that list every arm."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.arm_players import EpsilonGreedy, MabUcb, RandomPlayer
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.lab.simulation.episodes import Player

CONTEXTS = (np.array([1.0, 0.0]), np.array([0.5, -0.5]))
EVERYTHING = tuple(range(4))
SLATE_SIZE = 2
SIZE = ProblemSize(n_items=4, slate_size=SLATE_SIZE, context_dim=2, n_contexts=2)

Slate = tuple[int, ...]
# Whose context, whether the slate's reward comes, and the reward; what is heard is heard after every third round.
rounds = st.lists(
    st.tuples(st.integers(0, 1), st.booleans(), st.sampled_from([-0.25, 0.0, 0.5, 0.75, 1.0])),
    min_size=1,
    max_size=40,
)


def visit(number: int, *, whose: int = 0, eligible: Slate = EVERYTHING) -> Visit:
    return Visit(number, CONTEXTS[whose].copy(), np.array(eligible, dtype=np.int32))


def shown(player: Player, asked: Visit) -> Slate:
    return tuple(player.choose(asked).tolist())


class Diary:
    """What was heard, as a list, and every arm's bound from it: slow and plain."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Slate, float]] = []

    def rewards(self, whose: int, slate: Slate) -> list[float]:
        return [reward for context, ranking, reward in self.heard if (context, ranking) == (whose, slate)]

    def means(self, whose: int, eligible: Slate = EVERYTHING) -> dict[Slate, float]:
        arms = {slate: self.rewards(whose, slate) for slate in permutations(eligible, SLATE_SIZE)}
        return {slate: sum(rewards) / len(rewards) for slate, rewards in arms.items() if rewards}

    def bounds(self, whose: int, t: int, *, beta: float) -> dict[Slate, float]:
        means = self.means(whose)
        bonus = beta * math.sqrt(2 * math.log(t + 1))
        bounds = {slate: bonus + sum(means.values()) / len(means) for slate in permutations(EVERYTHING, SLATE_SIZE)}
        return bounds | {slate: means[slate] + bonus / len(self.rewards(whose, slate)) ** 0.5 for slate in means}


def played(player: Player, happenings: list[tuple[int, bool, float]], diary: Diary) -> Iterator[tuple[int, int, Slate]]:
    """Let a player play, and yield round, context and slate of each choice while `diary` is as it was then."""
    late: list[tuple[int, bool, int, Slate, float]] = []
    for number, (whose, comes, reward) in enumerate(happenings):
        if number % 3 == 0:
            for old, came, context, slate, value in late:
                if came:
                    player.observe(old, value)
                    diary.heard.append((context, slate, value))
                else:
                    player.close(old)
            late = []
        slate = shown(player, visit(number, whose=whose))
        late.append((number, comes, whose, slate, reward))
        yield number, whose, slate


@given(happenings=rounds, seed=st.integers(0, 100))
def test_greedy_shows_a_slate_with_the_highest_mean_of_what_was_heard(
    happenings: list[tuple[int, bool, float]], seed: int
) -> None:
    diary = Diary()
    player = EpsilonGreedy(epsilon=0.0, slate_size=SLATE_SIZE, rng=np.random.default_rng(seed))
    for _, whose, slate in played(player, happenings, diary):
        means = diary.means(whose)
        if means:
            assert means[slate] >= max(means.values()) - 1e-12


@given(happenings=rounds, seed=st.integers(0, 100), beta=st.sampled_from([0.0, 0.1, 0.5, 2.0]))
def test_ucb_shows_an_arm_with_the_largest_bound(
    happenings: list[tuple[int, bool, float]], seed: int, beta: float
) -> None:
    diary = Diary()
    player = MabUcb(beta=beta, slate_size=SLATE_SIZE, rng=np.random.default_rng(seed))
    for number, whose, slate in played(player, happenings, diary):
        if diary.means(whose):
            bounds = diary.bounds(whose, number + 1, beta=beta)
            assert bounds[slate] >= max(bounds.values()) - 1e-12


@pytest.mark.parametrize("make", [RandomPlayer.of, partial(EpsilonGreedy.of, epsilon=1.0)])
def test_exploring_players_draw_every_slate_alike(make: partial[Player]) -> None:
    player = make(SIZE, np.random.default_rng(1))
    player.choose(visit(0))
    player.observe(0, 1.0)
    counts = Counter(shown(player, visit(number)) for number in range(1, 6001))
    assert len(counts) == 12
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_epsilon_is_the_share_of_random_slates() -> None:
    player = EpsilonGreedy(epsilon=0.3, slate_size=SLATE_SIZE, rng=np.random.default_rng(2))
    best = shown(player, visit(0))
    player.observe(0, 1.0)
    counts = Counter(shown(player, visit(number)) for number in range(1, 6001))
    # The best is shown when nothing is explored, and when it is drawn.
    assert (
        chisquare([counts[best], 6000 - counts[best]], [6000 * (0.7 + 0.3 / 12), 6000 * 0.3 * 11 / 12]).pvalue > 0.001
    )


def test_ucb_draws_alike_among_the_arms_not_played() -> None:
    counts: Counter[Slate] = Counter()
    for seed in range(2200):
        player = MabUcb(beta=0.5, slate_size=SLATE_SIZE, rng=np.random.default_rng([seed]))
        player._arms.show(visit(0), np.array([1, 3], dtype=np.int32))
        player._arms.show(visit(1), np.array([2, 0], dtype=np.int32))
        player.observe(0, 1.0)
        player.observe(1, 1.0)
        # Heard twice, its bound is lower than that of an arm that was not played.
        player._arms.show(visit(2), np.array([1, 3], dtype=np.int32))
        player._arms.show(visit(3), np.array([2, 0], dtype=np.int32))
        player.observe(2, 1.0)
        player.observe(3, 1.0)
        counts[shown(player, visit(4))] += 1
    assert set(counts) == set(permutations(EVERYTHING, SLATE_SIZE)) - {(1, 3), (2, 0)}
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_ucb_returns_to_played_arms_when_there_are_no_others() -> None:
    player = MabUcb(beta=0.5, slate_size=SLATE_SIZE, rng=np.random.default_rng(0))
    tried = []
    for number in range(36):
        tried.append(shown(player, visit(number)))
        player.observe(number, 1.0)
    # Rewards are all equal: an arm that was shown twice is worth less than a new one, and then all are shown again.
    assert set(Counter(tried[:24]).values()) == {2}
    assert set(Counter(tried).values()) == {3}


@pytest.mark.parametrize("make", [partial(EpsilonGreedy.of, epsilon=0.0), partial(MabUcb.of, beta=0.0)])
def test_arms_with_an_item_that_went_are_skipped(make: partial[Player]) -> None:
    player = make(SIZE, np.random.default_rng(3))
    best = shown(player, visit(0))
    player.observe(0, 1.0)
    left = tuple(item for item in EVERYTHING if item != best[0])
    without = shown(player, visit(1, eligible=left))
    assert set(without) <= set(left)
    player.observe(1, 0.5)
    assert shown(player, visit(2, eligible=left)) == without
    assert shown(player, visit(3)) == best


@pytest.mark.parametrize("make", [partial(EpsilonGreedy.of, epsilon=0.0), partial(MabUcb.of, beta=0.0)])
def test_nothing_is_learned_of_a_slate_that_was_missed(make: partial[Player]) -> None:
    player = make(SIZE, np.random.default_rng(4))
    first = {shown(player, visit(number)) for number in range(40)}
    for number in range(40):
        player.close(number)
    # Still nothing is known: everything is shown.
    assert len(first | {shown(player, visit(number)) for number in range(40, 80)}) == 12


def test_a_round_with_ten_thousand_million_arms_is_played() -> None:
    everything = np.arange(50, dtype=np.int32)
    for player in (
        RandomPlayer(slate_size=6, rng=np.random.default_rng(5)),
        EpsilonGreedy(epsilon=0.1, slate_size=6, rng=np.random.default_rng(5)),
        MabUcb(beta=0.1, slate_size=6, rng=np.random.default_rng(5)),
    ):
        for number in range(20):
            slate = shown(player, Visit(number, CONTEXTS[0], everything))
            player.observe(number, float(number % 3))
            assert len(set(slate)) == 6


@pytest.mark.parametrize(
    "make", [RandomPlayer.of, partial(EpsilonGreedy.of, epsilon=0.1), partial(MabUcb.of, beta=0.1)]
)
def test_factories_can_be_sent_to_other_processes_and_play_the_same_again(make: partial[Player]) -> None:
    slates = []
    for factory in (make, pickle.loads(pickle.dumps(make))):
        player = factory(SIZE, np.random.default_rng(6))
        slates.append([shown(player, visit(number)) for number in range(10)])
    assert slates[0] == slates[1]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_an_epsilon_that_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgumentError, match="epsilon"):
        EpsilonGreedy(epsilon=value, slate_size=2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan")])
def test_a_beta_that_is_no_weight_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgumentError, match="beta"):
        MabUcb(beta=value, slate_size=2, rng=np.random.default_rng(0))
