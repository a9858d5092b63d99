from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest

from topk_bandit.lab.simulation.circumstances import (
    DEADLINE,
    DRIFT,
    LATE_REWARDS,
    ROUNDS_OF_DRIFT,
    ROUNDS_OF_LATE_REWARDS,
    Circumstance,
    step_of_half_life,
)
from topk_bandit.lab.simulation.episodes import Visit, play
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.lab.simulation.scenarios import Constant, Drift, Scenario
from topk_bandit.learning.environments import Objective

FACTORS = synthetic(np.random.default_rng(0), n_users=200, n_items=120)
ALL = (*LATE_REWARDS, *DRIFT)


def made(circumstance: Circumstance, seed: int = 1, *, rounds: int = 200) -> Scenario:
    rng = np.random.default_rng(seed)
    return circumstance.make(FACTORS, rng, objective=Objective.NDCG, rounds=rounds)


def by_key(key: str) -> Circumstance:
    [found] = [one for one in ALL if one.key == key]
    return found


class First:
    """Shows the first items there are, and counts what it hears."""

    def __init__(self) -> None:
        self.seen: list[Visit] = []
        self.late: list[int] = []
        self.rewards: list[float] = []
        self.missed: list[int] = []

    def choose(self, visit: Visit) -> np.ndarray:
        self.seen.append(visit)
        return visit.eligible[:3]

    def observe(self, number: int, reward: float) -> None:
        self.late.append(len(self.seen) - 1 - number)
        self.rewards.append(reward)

    def close(self, number: int) -> None:
        self.missed.append(len(self.seen) - 1 - number)


def played(key: str, rounds: int) -> tuple[First, np.ndarray]:
    player = First()
    episode = play(made(by_key(key), rounds=rounds), player, rounds=rounds, rng=np.random.default_rng(2))
    return player, episode.regret + episode.reward


def test_keys_and_titles_tell_them_apart() -> None:
    assert len({one.key for one in ALL}) == len({one.title for one in ALL}) == len(ALL)


@pytest.mark.parametrize("circumstance", ALL, ids=lambda one: one.key)
def test_they_are_the_papers_small_shop_and_can_be_sent_to_other_processes(circumstance: Circumstance) -> None:
    scenario = made(circumstance)
    shop = scenario.shop
    assert (len(scenario.stock.eligible(0, len(shop.items))), shop.slate_size, len(shop.customers)) == (20, 3, 5)
    assert (shop.objective, shop.noise) == (Objective.NDCG, 0.05)
    assert {tuple(row) for row in shop.items} < {tuple(row) for row in FACTORS.items}
    sent = made(pickle.loads(pickle.dumps(circumstance)))
    assert sent.shop.items.tobytes() == shop.items.tobytes()
    assert (sent.wait, sent.stock) == (scenario.wait, scenario.stock)


@pytest.mark.parametrize("circumstances", [LATE_REWARDS, DRIFT])
def test_in_a_trial_they_differ_in_nothing_else(circumstances: tuple[Circumstance, ...]) -> None:
    first, *others = (made(one) for one in circumstances if one.key != "renewed")
    assert first.wait == Constant()
    assert first.preferences is None
    for other in others:
        assert other.shop.items.tobytes() == first.shop.items.tobytes()
        assert other.shop.customers.tobytes() == first.shop.customers.tobytes()


def test_rewards_are_as_late_as_is_said() -> None:
    for key, late in (("at_once", 0), ("5_late", 5), ("20_late", 20)):
        assert set(played(key, 30)[0].late) == {late}
    late = played("geometric_20", 1200)[0].late
    assert np.mean(late) == pytest.approx(20.0, abs=4.0 * 20.5 / np.sqrt(1200))


@pytest.mark.parametrize("key", ["missing", "missing_as_0"])
def test_of_rewards_30_percent_never_come(key: str) -> None:
    player, _ = played(key, 1000)
    missed = (
        player.missed
        if key == "missing"
        else [late for late, reward in zip(player.late, player.rewards, strict=True) if not reward]
    )
    assert set(missed) == {DEADLINE}
    assert len(missed) == pytest.approx(0.3 * (1000 - DEADLINE), rel=0.15)
    assert len(player.missed) == (len(missed) if key == "missing" else 0)


def test_items_come_and_go() -> None:
    player, _ = played("renewed", ROUNDS_OF_LATE_REWARDS)
    shelves = [set(visit.eligible.tolist()) for visit in player.seen]
    assert all(len(shelf) == 20 for shelf in shelves)
    changes = [len(one - other) for one, other in pairwise(shelves)]
    assert [t for t, change in enumerate(changes, start=1) if change] == list(range(10, ROUNDS_OF_LATE_REWARDS, 10))
    assert set(changes) == {0, 1}
    assert set.union(*shelves) == set(range(39))


def test_drifting_tastes_are_half_forgotten_in_the_rounds_of_their_title() -> None:
    for key, rounds in (("slow", 200), ("fast", 50)):
        drift = made(by_key(key)).preferences
        assert isinstance(drift, Drift)
        assert str(rounds) in by_key(key).title
        assert (1.0 - drift.step**2) ** (rounds / 2) == pytest.approx(0.5)
    assert step_of_half_life(1) == pytest.approx(np.sqrt(0.75))


def test_a_sudden_change_comes_at_half_time() -> None:
    rounds = 40
    (_, still), (_, sudden) = played("still", rounds), played("sudden", rounds)
    assert still[:20].tobytes() == sudden[:20].tobytes()
    # The best slate's nDCG is 1 for whatever preference.
    np.testing.assert_allclose(sudden, 1.0)
    rewards = [
        play(made(by_key(key), rounds=rounds), First(), rounds=rounds, rng=np.random.default_rng(2)).reward
        for key in ("still", "sudden")
    ]
    assert rewards[0][:20].tobytes() == rewards[1][:20].tobytes()
    assert (rewards[0][20:] != rewards[1][20:]).all()
    assert ROUNDS_OF_DRIFT % 2 == 0
