from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.bandits import Exploration, PaperBeta
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.episodes import GpTopK, Player, ProblemSize, Visit, play
from topk_bandit.lab.simulation.policies import Policy, service
from topk_bandit.lab.simulation.scenarios import Constant, Incomplete, Scenario
from topk_bandit.lab.simulation.service_variants import Restarting, ignore_pending, limit_rows, restart_every
from topk_bandit.learning.environments import Shop

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXPLORATION = Exploration(PaperBeta(0.1), uniform_share=0.05)
SIZE = ProblemSize(n_items=10, slate_size=3, context_dim=4, n_contexts=5)


def shop() -> Shop:
    return Shop.random(np.random.default_rng(0), n_items=10, slate_size=3, context_dim=4, n_customers=5)


def player_of(policy: Policy) -> Player:
    return pickle.loads(pickle.dumps(policy)).make(SIZE, np.random.default_rng(3))


def regret(player: Player, *, rounds: int = 40, late: int = 4) -> NDArray[np.float64]:
    return play(Scenario(shop(), Constant(late)), player, rounds=rounds, rng=np.random.default_rng(4)).regret


def test_each_is_the_service_but_for_one_thing() -> None:
    for policy, rows, pending in (
        (service(EXPLORATION), 40, 4),
        (ignore_pending(EXPLORATION), 40, 0),
        (limit_rows(EXPLORATION, rows=12), 20, 4),
    ):
        player = player_of(policy)
        assert isinstance(player, GpTopK)
        regret(player, rounds=44)
        assert player.state.posterior.n_rows <= rows
        assert len(player.state.pending_ids) == pending
        assert player.state.observations == 40


def test_without_lateness_pending_slates_are_worth_nothing() -> None:
    one, other = (regret(player_of(of(EXPLORATION)), late=0) for of in (service, ignore_pending))
    assert one.tobytes() == other.tobytes()
    late = [regret(player_of(of(EXPLORATION)), late=5) for of in (service, ignore_pending)]
    assert late[0].tolist() != late[1].tolist()


class Scribe:
    """Shows what it is asked first, and writes down what it gets."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.ended: list[int] = []

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        self.asked.append(visit.number)
        return visit.eligible[:3]

    def observe(self, number: int, reward: float) -> None:
        assert reward
        self.ended.append(number)

    def close(self, number: int) -> None:
        self.ended.append(-number)


def test_who_begins_anew_hears_nothing_of_what_others_showed() -> None:
    players: list[Scribe] = []

    def make() -> Scribe:
        players.append(Scribe())
        return players[-1]

    wait = Incomplete(Constant(2), missing=0.3, deadline=3, default=None)
    play(Scenario(shop(), wait), Restarting(make, every=10), rounds=35, rng=np.random.default_rng(5))
    assert [player.asked for player in players] == [list(range(s, min(s + 10, 35))) for s in range(0, 35, 10)]
    for player in players:
        assert len(player.ended) >= len(player.asked) - 4
        assert {abs(number) for number in player.ended} <= set(player.asked)
    assert min(number for player in players for number in player.ended) < 0


def test_the_service_begun_anew_plays_as_the_service_until_then() -> None:
    anew, once = (
        regret(player_of(policy), rounds=50, late=0)
        for policy in (restart_every(EXPLORATION, every=25), service(EXPLORATION))
    )
    assert anew[:25].tobytes() == once[:25].tobytes()
    assert anew[25:].sum() > once[25:].sum() + 0.5


def test_names_tell_the_parameter() -> None:
    policies = (ignore_pending(EXPLORATION), limit_rows(EXPLORATION, rows=12), restart_every(EXPLORATION, every=9))
    assert [policy.name for policy in policies] == ["pending not counted", "12 rows", "anew every 9 rounds"]


def test_a_turn_has_rounds() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Restarting(Scribe, every=0)
    assert caught.value.field == "every"
