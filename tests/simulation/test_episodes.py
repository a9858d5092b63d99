from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare

from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.policy import Limits, State
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.simulation.environments import Shop
from topk_bandit.simulation.episodes import GpTopK, RandomPlayer, play
from topk_bandit.types import ConstantBeta, Exploration

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS, SLATE_SIZE, CONTEXT_DIM = 10, 3, 3


def shop(*, noise: float = 0.05) -> Shop:
    rng = np.random.default_rng(0)
    return Shop.random(rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, n_customers=5, noise=noise)


class Scribe:
    """Plays slates from a list, and writes down what it is asked and told."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[float, ...]]] = []
        self.chosen: list[tuple[int, ...]] = []
        self.heard: list[tuple[int, int, float]] = []
        self._rng = np.random.default_rng(3)

    def choose(self, round_number: int, context: NDArray[np.float64]) -> NDArray[np.int32]:
        self.asked.append((round_number, tuple(context.tolist())))
        slate = self._rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)
        self.chosen.append(tuple(slate.tolist()))
        return slate

    def hear(self, round_number: int, reward: float) -> None:
        self.heard.append((round_number, len(self.asked), reward))


@pytest.mark.parametrize("delay", [0, 1, 5, 30, 40])
def test_each_reward_is_heard_once_and_late_by_the_delay(delay: int) -> None:
    scribe = Scribe()
    play(shop(), scribe, rounds=30, delay=delay, rng=np.random.default_rng(1))
    assert [asked[0] for asked in scribe.asked] == list(range(30))
    assert [heard[0] for heard in scribe.heard] == list(range(max(30 - delay, 0)))
    assert all(rounds == number + 1 + delay for number, rounds, _ in scribe.heard)


def test_rewards_and_regret_belong_to_their_round() -> None:
    market, scribe = shop(noise=0.0), Scribe()
    regret = play(market, scribe, rounds=40, delay=3, rng=np.random.default_rng(1))
    contexts = [tuple(customer) for customer in market.customers.tolist()]
    customers = [contexts.index(context) for _, context in scribe.asked]
    assert set(customers) == set(range(5))
    slates = np.array(scribe.chosen, dtype=np.int32)
    expected = [float(market.expected(customer, slates[t][None])[0]) for t, customer in enumerate(customers)]
    assert [reward for _, _, reward in scribe.heard] == pytest.approx(expected[:37])
    best = [market.best(customer) for customer in customers]
    np.testing.assert_allclose(regret, np.array(best) - expected)
    assert (regret >= 0.0).all()
    assert regret.max() > 0.05


def test_an_episode_repeats_with_its_generator() -> None:
    one, other = Scribe(), Scribe()
    first = play(shop(), one, rounds=20, delay=2, rng=np.random.default_rng(8))
    second = play(shop(), other, rounds=20, delay=2, rng=np.random.default_rng(8))
    assert first.tolist() == second.tolist()
    assert one.heard == other.heard


def test_the_random_player_shows_every_slate_as_often() -> None:
    player = RandomPlayer(n_items=4, slate_size=2, rng=np.random.default_rng(2))
    counts: Counter[tuple[int, ...]] = Counter()
    for t in range(6000):
        counts[tuple(player.choose(t, np.ones(1)).tolist())] += 1
        player.hear(t, float(t))
    slates = [tuple(row) for row in all_rankings(np.arange(4), slate_size=2).tolist()]
    assert set(counts) == set(slates)
    assert chisquare([counts[slate] for slate in slates]).pvalue > 1e-3


def gp_player(*, seed: int = 0, count_pending: bool = True) -> GpTopK:
    kernel = weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE)
    state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits())
    exploration = Exploration(ConstantBeta(0.5), uniform_share=0.0)
    return GpTopK(state, exploration, rng=np.random.default_rng(seed), count_pending=count_pending)


@pytest.mark.parametrize("delay", [0, 5])
def test_gp_topk_learns_what_a_random_player_does_not(delay: int) -> None:
    market = shop()
    random = RandomPlayer(n_items=N_ITEMS, slate_size=SLATE_SIZE, rng=np.random.default_rng(1))
    unlearned = play(market, random, rounds=150, delay=delay, rng=np.random.default_rng(7))
    player = gp_player()
    learned = play(market, player, rounds=150, delay=delay, rng=np.random.default_rng(7))
    assert learned.sum() < 0.6 * unlearned.sum()
    assert learned[75:].sum() < 0.35 * unlearned[75:].sum()
    assert player.state.observations == 150 - delay
    assert len(player.state.pending_ids) == delay


def test_without_counting_them_no_slate_is_pending() -> None:
    player = gp_player(count_pending=False)
    play(shop(), player, rounds=20, delay=4, rng=np.random.default_rng(7))
    assert player.state.pending_ids == ()
    assert player.state.posterior.n_pending == 0
    assert player.state.observations == 16


def test_the_same_generators_give_the_same_episode() -> None:
    runs = [play(shop(), gp_player(seed=4), rounds=40, delay=3, rng=np.random.default_rng(5)) for _ in range(2)]
    assert runs[0].tolist() == runs[1].tolist()
