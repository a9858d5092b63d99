from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.arm_players import RandomPlayer
from topk_bandit.lab.simulation.episodes import GpTopK, ProblemSize, Visit, play
from topk_bandit.lab.simulation.policies import ageing_service
from topk_bandit.lab.simulation.scenarios import (
    Batches,
    ComingAndGoing,
    Constant,
    Drift,
    Feedback,
    Geometric,
    Incomplete,
    Scenario,
    Wait,
)
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import all_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS, SLATE_SIZE, CONTEXT_DIM = 10, 3, 3


def shop(*, noise: float = 0.05) -> Shop:
    rng = np.random.default_rng(0)
    return Shop.random(rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, n_customers=5, noise=noise)


class Scribe:
    """Plays slates at random, and writes down its calls, each with the number of rounds until then."""

    def __init__(self, seed: int = 3) -> None:
        self.asked: list[Visit] = []
        self.chosen: list[tuple[int, ...]] = []
        self.heard: list[tuple[int, int, float]] = []
        self.missed: list[tuple[int, int]] = []
        self._rng = np.random.default_rng(seed)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        self.asked.append(visit)
        slate = self._rng.permutation(visit.eligible)[:SLATE_SIZE].astype(np.int32)
        self.chosen.append(tuple(slate.tolist()))
        return slate

    def observe(self, number: int, reward: float) -> None:
        self.heard.append((number, len(self.asked), reward))

    def close(self, number: int) -> None:
        self.missed.append((number, len(self.asked)))

    def customers(self, market: Shop) -> list[int]:
        contexts = [tuple(customer) for customer in market.customers.tolist()]
        return [contexts.index(tuple(visit.context.tolist())) for visit in self.asked]

    def slates(self) -> NDArray[np.int32]:
        return np.array(self.chosen, dtype=np.int32)


@pytest.mark.parametrize("delay", [0, 1, 5, 30, 40])
def test_each_reward_is_heard_once_and_late_by_the_delay(delay: int) -> None:
    scribe = Scribe()
    play(Scenario(shop(), Constant(delay)), scribe, rounds=30, rng=np.random.default_rng(1))
    assert [visit.number for visit in scribe.asked] == list(range(30))
    assert [heard[0] for heard in scribe.heard] == list(range(max(30 - delay, 0)))
    assert all(rounds == number + 1 + delay for number, rounds, _ in scribe.heard)
    assert scribe.missed == []


def test_a_batch_is_heard_at_once_and_in_order() -> None:
    scribe = Scribe()
    play(Scenario(shop(), Batches(4)), scribe, rounds=10, rng=np.random.default_rng(1))
    assert [heard[:2] for heard in scribe.heard] == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 8), (5, 8), (6, 8), (7, 8)]


@dataclass(frozen=True)
class Listed:
    """Waits from a list."""

    feedback_of: tuple[Feedback, ...]

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:  # noqa: ARG002 - as of the protocol
        return self.feedback_of[number]


def test_what_is_due_first_is_sent_first_and_what_is_due_together_in_the_order_of_rounds() -> None:
    lost = {"rewarded": False}
    wait = Listed(
        (Feedback(5), Feedback(3), Feedback(3, **lost), Feedback(5, **lost, default=0.7), Feedback(5), Feedback(9))
    )
    scribe = Scribe()
    play(Scenario(shop(), wait), scribe, rounds=6, rng=np.random.default_rng(1))
    assert [heard[:2] for heard in scribe.heard] == [(1, 3), (0, 5), (3, 5), (4, 5)]
    assert scribe.heard[2] == (3, 5, 0.7)
    assert scribe.missed == [(2, 3)]


def test_rewards_and_regret_belong_to_their_round() -> None:
    market, scribe = shop(noise=0.0), Scribe()
    episode = play(Scenario(market, Constant(3)), scribe, rounds=40, rng=np.random.default_rng(1))
    customers = scribe.customers(market)
    assert set(customers) == set(range(5))
    slates = scribe.slates()
    expected = [float(market.expect_rewards(customer, slates[t][None])[0]) for t, customer in enumerate(customers)]
    assert [reward for _, _, reward in scribe.heard] == pytest.approx(expected[:37])
    best = [market.best(customer) for customer in customers]
    np.testing.assert_allclose(episode.regret, np.array(best) - expected)
    np.testing.assert_allclose(episode.reward, expected)
    assert (episode.regret >= 0.0).all()
    assert episode.regret.max() > 0.05


def test_the_noise_of_what_is_heard_is_the_shops() -> None:
    market, scribe = shop(noise=0.3), Scribe()
    episode = play(Scenario(market), scribe, rounds=2000, rng=np.random.default_rng(1))
    noise = np.array([reward for _, _, reward in scribe.heard]) - episode.reward
    assert noise.std() == pytest.approx(0.3, rel=0.07)
    assert abs(noise.mean()) < 4.0 * 0.3 / np.sqrt(2000)


def test_only_what_is_in_stock_can_be_shown_and_regret_is_against_the_best_of_it() -> None:
    market, scribe, stock = shop(noise=0.0), Scribe(), ComingAndGoing(size=5, every=3)
    episode = play(Scenario(market, stock=stock), scribe, rounds=40, rng=np.random.default_rng(1))
    assert [visit.eligible.tolist() for visit in scribe.asked] == [
        sorted((t // 3 + i) % N_ITEMS for i in range(5)) for t in range(40)
    ]
    best = [
        float(market.expect_rewards(customer, all_rankings(visit.eligible, slate_size=SLATE_SIZE)).max())
        for customer, visit in zip(scribe.customers(market), scribe.asked, strict=True)
    ]
    np.testing.assert_allclose(episode.regret + episode.reward, best, atol=1e-12)
    assert max(market.best(customer) - one for customer, one in zip(scribe.customers(market), best, strict=True)) > 0.01


class Stubborn(Scribe):
    """Always plays the same."""

    def __init__(self, *slate: float) -> None:
        super().__init__()
        self._slate = np.array(slate)

    def choose(self, visit: Visit) -> NDArray[np.int32]:  # noqa: ARG002 - as of the protocol
        return self._slate


@pytest.mark.parametrize("slate", [(0, 1, 5), (0, 1), (0, 1, 1), (0, 1, 10), (-1, 0, 1), (0.0, 1.0, 2.0)])
def test_a_player_that_shows_what_it_can_not_is_stopped(slate: tuple[float, ...]) -> None:
    scenario = Scenario(shop(), stock=ComingAndGoing(size=5, every=50))
    play(scenario, Stubborn(0, 1, 2), rounds=3, rng=np.random.default_rng(1))
    with pytest.raises(InvalidArgumentError) as caught:
        play(scenario, Stubborn(*slate), rounds=3, rng=np.random.default_rng(1))
    assert caught.value.field == "ranking"


@dataclass(frozen=True, eq=False)
class Changed:
    """Preferences that become others in a round."""

    preferences: NDArray[np.float64]
    at: int

    def change_preferences(
        self,
        preferences: NDArray[np.float64],
        number: int,
        rng: np.random.Generator,  # noqa: ARG002 - as of the protocol
    ) -> NDArray[np.float64]:
        return self.preferences if number == self.at else preferences


def test_rewards_and_regret_are_those_of_the_tastes_of_the_round() -> None:
    before, scribe = shop(noise=0.0), Scribe()
    after = before.with_preferences(-before.preferences)
    scenario = Scenario(before, Constant(2), preferences=Changed(after.preferences, at=15))
    episode = play(scenario, scribe, rounds=30, rng=np.random.default_rng(1))
    heard = {number: reward for number, _, reward in scribe.heard}
    for t, (customer, slate) in enumerate(zip(scribe.customers(before), scribe.slates(), strict=True)):
        market = before if t < 15 else after
        assert episode.reward[t] == pytest.approx(float(market.expect_rewards(customer, slate[None])[0]))
        assert episode.regret[t] == pytest.approx(market.best(customer) - episode.reward[t])
        assert heard.get(t, episode.reward[t]) == pytest.approx(episode.reward[t])


def eventful() -> Scenario:
    market = shop()
    population = np.random.default_rng(6).normal(size=(30, CONTEXT_DIM))
    wait = Incomplete(Geometric(4.0), missing=0.2, deadline=9, default=None)
    return Scenario(market, wait, ComingAndGoing(size=6, every=4), Drift(population, step=0.3))


def test_all_players_see_the_same_customers_noise_waits_and_tastes() -> None:
    one, other = Scribe(seed=3), Scribe(seed=4)
    first = play(eventful(), one, rounds=60, rng=np.random.default_rng(8))
    second = play(eventful(), other, rounds=60, rng=np.random.default_rng(8))
    assert one.chosen != other.chosen
    assert [visit.context.tolist() for visit in one.asked] == [visit.context.tolist() for visit in other.asked]
    assert [heard[:2] for heard in one.heard] == [heard[:2] for heard in other.heard]
    assert one.missed == other.missed
    assert len(one.missed) > 3
    np.testing.assert_allclose(first.regret + first.reward, second.regret + second.reward, atol=1e-12)
    noises = [
        [reward - episode.reward[number] for number, _, reward in scribe.heard]
        for scribe, episode in ((one, first), (other, second))
    ]
    np.testing.assert_allclose(noises[0], noises[1], atol=1e-12)
    assert np.std(noises[0]) > 0.02


@pytest.mark.parametrize("wait", [Constant(3), Geometric(3.0), Incomplete(Geometric(3.0), 0.5, 4, 0.0)])
def test_customers_and_noise_are_the_same_whatever_the_waits(wait: Wait) -> None:
    at_once, late = Scribe(), Scribe()
    play(Scenario(shop()), at_once, rounds=50, rng=np.random.default_rng(8))
    play(Scenario(shop(), wait), late, rounds=50, rng=np.random.default_rng(8))
    rewards = {number: reward for number, _, reward in at_once.heard}
    assert [visit.context.tolist() for visit in at_once.asked] == [visit.context.tolist() for visit in late.asked]
    assert all(reward in {0.0, rewards[number]} for number, _, reward in late.heard)
    assert len(late.heard) > 10


def test_an_episode_repeats_with_its_generator() -> None:
    one, other = Scribe(), Scribe()
    first = play(eventful(), one, rounds=40, rng=np.random.default_rng(8))
    second = play(eventful(), other, rounds=40, rng=np.random.default_rng(8))
    assert first.regret.tobytes() == second.regret.tobytes()
    assert first.reward.tobytes() == second.reward.tobytes()
    assert one.heard == other.heard


def gp_player(*, seed: int = 0, count_pending: bool = True, pending_rows: int = 128) -> GpTopK:
    kernel = weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE)
    state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits(pending_rows=pending_rows))
    exploration = Exploration(ConstantBeta(0.5), uniform_share=0.0)
    return GpTopK(state, exploration, rng=np.random.default_rng(seed), count_pending=count_pending)


@pytest.mark.parametrize("delay", [0, 5])
def test_gp_topk_learns_what_a_random_player_does_not(delay: int) -> None:
    scenario = Scenario(shop(), Constant(delay))
    random = RandomPlayer(slate_size=SLATE_SIZE, rng=np.random.default_rng(1))
    unlearned = play(scenario, random, rounds=150, rng=np.random.default_rng(7)).regret
    player = gp_player()
    learned = play(scenario, player, rounds=150, rng=np.random.default_rng(7)).regret
    assert learned.sum() < 0.6 * unlearned.sum()
    assert learned[75:].sum() < 0.35 * unlearned[75:].sum()
    assert player.state.observations == 150 - delay
    assert len(player.state.pending_ids) == delay


def test_without_counting_them_no_slate_is_pending() -> None:
    player = gp_player(count_pending=False)
    wait = Incomplete(Constant(4), missing=0.3, deadline=6, default=None)
    play(Scenario(shop(), wait), player, rounds=20, rng=np.random.default_rng(7))
    assert player.state.pending_ids == ()
    assert player.state.posterior.n_pending == 0
    assert 8 <= player.state.observations <= 15


def test_a_missing_reward_ends_the_counting_of_its_slate_and_a_default_is_learned() -> None:
    market = shop()
    for default, observations in ((None, 0), (0.25, 16)):
        player = gp_player()
        wait = Incomplete(Constant(), missing=1.0, deadline=4, default=default)
        play(Scenario(market, wait), player, rounds=20, rng=np.random.default_rng(7))
        assert player.state.observations == observations
        # Where no slate ever gets a reward, few of those that are open count.
        assert player.state.pending_ids == (("16",) if default is None else tuple(map(str, range(16, 20))))


def visit_of(number: int) -> Visit:
    context = np.random.default_rng(number).normal(size=CONTEXT_DIM)
    return Visit(number, context, np.arange(N_ITEMS, dtype=np.int32))


def test_a_slate_that_has_stopped_counting_can_be_missed_and_heard_of() -> None:
    player = gp_player(pending_rows=2)
    for number in range(5):
        player.choose(visit_of(number))
    assert player.state.pending_ids == ("3", "4")
    unmoved = player.state
    player.close(0)
    assert (player.state.posterior, player.state.pending_ids) == (unmoved.posterior, unmoved.pending_ids)
    assert player.state.unrewarded == 1
    player.observe(1, 0.5)
    assert (player.state.observations, player.state.pending_ids) == (1, ("3", "4"))
    player.close(4)
    assert player.state.pending_ids == ("3",)
    player.observe(3, 0.6)
    player.observe(2, 0.7)
    assert (player.state.observations, player.state.pending_ids) == (3, ())


def test_a_missed_slate_leaves_the_state_as_if_it_had_never_been_shown() -> None:
    missing, without = gp_player(), gp_player()
    missing.choose(visit_of(0))
    slate = missing.choose(visit_of(1))
    missing.close(0)
    without.state = without.state.shown("1", visit_of(1).context, slate)
    candidates = all_rankings(np.arange(5), slate_size=SLATE_SIZE)
    moments = [player.state.predict(visit_of(2).context, candidates) for player in (missing, without)]
    np.testing.assert_allclose(moments[0].variance, moments[1].variance, rtol=1e-9)


def test_the_same_generators_give_the_same_episode() -> None:
    scenario = replace(eventful(), stock=Scenario(shop()).stock)
    runs = [play(scenario, gp_player(seed=4), rounds=40, rng=np.random.default_rng(5)).regret for _ in range(2)]
    assert runs[0].tobytes() == runs[1].tobytes()


def test_a_round_is_the_unit_of_a_half_life() -> None:
    size = ProblemSize(n_items=10, slate_size=SLATE_SIZE, context_dim=3, n_contexts=0)
    counted = {}
    for half_life in (20.0, 1e9):
        player = ageing_service(half_life).make(size, np.random.default_rng(0))
        for number in range(1, 101):
            player.choose(visit_of(number))
            player.observe(number, float(number % 3))
        assert isinstance(player, GpTopK)
        counted[half_life] = player.state.posterior.n_observations
    assert counted[1e9] == pytest.approx(100.0, rel=1e-3)
    assert counted[20.0] < 45.0
