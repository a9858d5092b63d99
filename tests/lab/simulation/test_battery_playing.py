"""Playing in the battery's shops: what is heard when, what is noted, and that all policies meet the same."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.battery.catalogue import build
from topk_bandit.lab.simulation.battery.playing import make_player, open_shop, play, play_in
from topk_bandit.lab.simulation.battery.recipes import Bernoulli, Recipe
from topk_bandit.lab.simulation.episodes import GpTopK, ProblemSize, Visit
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.lab.simulation.policies import random_slates, service_player, shipped_service
from topk_bandit.lab.simulation.scenarios import Between, Constant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.lab.simulation.scenarios import Wait


class Diary:
    """Shows the first eligible items, and notes what it sees and hears, and when."""

    def __init__(self, slate_size: int) -> None:
        self.slate_size = slate_size
        self.visits: list[Visit] = []
        self.heard: list[tuple[int, int, float]] = []

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        self.visits.append(visit)
        return visit.eligible[: self.slate_size].copy()

    def observe(self, number: int, reward: float) -> None:
        self.heard.append((len(self.visits), number, reward))

    def close(self, number: int) -> None:
        raise AssertionError(number)


class DiaryOfItems(Diary):
    """The same that also hears what each item did."""

    def __init__(self, slate_size: int) -> None:
        super().__init__(slate_size)
        self.outcomes: list[NDArray[np.float64]] = []

    def observe_items(self, number: int, reward: float, outcomes: NDArray[np.float64]) -> None:
        self.observe(number, reward)
        self.outcomes.append(outcomes)


class Reversed(Diary):
    """The same with the last items."""

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        self.visits.append(visit)
        return visit.eligible[-self.slate_size :][::-1].copy()


def small(wait: Wait | None = None, *, candidates: int | None = None, rounds: int = 60) -> Recipe:
    return Recipe("", n_items=9, slate_size=3, n_customers=8, wait=wait or Constant(), candidates=candidates)


def test_who_hears_of_items_meets_the_same_as_others() -> None:
    shop = replace(small(), rewards=Bernoulli(0.3)).build("clicks", seed=2, rounds=60)
    one, other = Diary(3), DiaryOfItems(3)
    played = [play_in(shop, player, rounds=60, seed=4) for player in (one, other)]
    assert one.heard == other.heard
    assert np.array_equal(played[0].reward, played[1].reward)
    assert [outcomes.sum() for outcomes in other.outcomes] == [reward for _, _, reward in other.heard]
    silent = DiaryOfItems(3)
    play_in(small().build("noise", seed=2, rounds=60), silent, rounds=60, seed=4)
    assert (len(silent.heard), silent.outcomes) == (59, [])


def test_rewards_come_when_they_say() -> None:
    for wait, least, most in ((Constant(), 0, 0), (Constant(7), 7, 7), (Between(3, 11), 3, 11)):
        shop, diary = small(wait).build("s", seed=1, rounds=60), Diary(3)
        played = play_in(shop, diary, rounds=60, seed=5)
        late = [heard - 1 - number for heard, number, _ in diary.heard]
        assert (min(late), max(late)) == (least, most)
        numbers = [number for _, number, _ in diary.heard]
        assert len(set(numbers)) == len(numbers)
        assert set(range(59 - most)) <= set(numbers)
        assert [reward for _, _, reward in diary.heard] == played.reward[numbers].tolist()
        before = [sum(visits <= t for visits, _, _ in diary.heard) for t in range(60)]
        assert played.heard.tolist() == before


def test_all_policies_meet_the_same_requests_and_luck() -> None:
    shop = small(Between(0, 9), candidates=5).build("s", seed=1, rounds=60)
    one, other = Diary(3), Reversed(3)
    first, second = (play_in(shop, player, rounds=60, seed=5) for player in (one, other))
    for mine, theirs in zip(one.visits, other.visits, strict=True):
        assert mine.number == theirs.number
        assert mine.eligible.tolist() == theirs.eligible.tolist()
        assert mine.context.tolist() == theirs.context.tolist()
    assert [heard[:2] for heard in one.heard] == [heard[:2] for heard in other.heard]
    np.testing.assert_allclose(first.reward - first.expected, second.reward - second.expected, atol=1e-12)
    assert (first.best == second.best).all()
    again = play_in(shop, Diary(3), rounds=60, seed=6)
    assert not (first.reward == again.reward).any()


def test_what_is_noted_is_the_shop_s_truth() -> None:
    shop, diary = small(candidates=5).build("s", seed=1, rounds=30), Diary(3)
    played = play_in(shop, diary, rounds=30, seed=5)
    rng = np.random.default_rng([5, 1])
    for t in range(30):
        request = shop.request(t, rng)
        assert diary.visits[t].eligible.tolist() == request.eligible.tolist()  # type: ignore[union-attr]
        assert played.expected[t] == shop.expect_rewards(request, diary.visits[t].eligible[None, :3])[0]
        assert played.best[t] == shop.best(request)
    assert (played.regret >= 0.0).all()
    assert np.isnan(played.mean).all()
    assert np.isnan(played.regret_bound).all()


def test_the_service_s_figures_are_those_of_its_decisions() -> None:
    shop = small().build("s", seed=1, rounds=25)
    player = make_player(shipped_service(), shop, seed=5)
    assert isinstance(player, GpTopK)
    decisions = []
    choose = player.choose

    def noting(visit: Visit) -> NDArray[np.int32]:
        before = player.state
        ranking = choose(visit)
        assert player.last_decision is not None
        decisions.append(player.last_decision)
        moments = before.predict(visit.context, ranking[None])
        assert player.last_decision.mean == pytest.approx(float(moments.mean[0]))
        return ranking

    player.choose = noting  # type: ignore[method-assign]
    played = play_in(shop, player, rounds=25, seed=5)
    assert played.mean.tolist() == [one.mean for one in decisions]
    assert played.deviation.tolist() == [one.standard_deviation for one in decisions]
    assert played.regret_bound.tolist() == [one.regret_bound for one in decisions]
    assert played.estimated_regret.tolist() == [one.estimated_regret for one in decisions]


def test_the_shipped_policy_is_the_service_s() -> None:
    size = ProblemSize(20, 4, 6, 5)
    player = shipped_service().make(size, np.random.default_rng(0))
    assert isinstance(player, GpTopK)
    assert player.exploration is DEFAULT_EXPLORATION
    assert player.state.limits == MemoryBudget().limits(context_dim=6, slate_size=4)
    assert player.state.posterior.kernel.n_items == 20


def test_played_by_name_it_is_the_same_again() -> None:
    policy = partial(service_player, DEFAULT_EXPLORATION)
    one, same = (play("clicks-40", policy, 12, 3) for _ in range(2))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, same, strict=True))
    other = play("clicks-40", policy, 12, 4)
    assert not np.array_equal(one.expected, other.expected)
    shop = build("clicks-40", seed=3, rounds=12)
    direct = play_in(shop, make_player(policy, shop, seed=3), rounds=12, seed=3)
    assert one.expected.tolist() == direct.expected.tolist()


def test_given_factors_make_another_shop() -> None:
    factors = synthetic(np.random.default_rng(0), n_users=70, n_items=60)
    assert open_shop("candidates", seed=0, rounds=9, factors=factors).size.n_items == 60
    one, other = (play("noisy", random_slates(), 9, 0, factors=given).expected for given in (factors, None))
    assert not (one == other).any()


def test_a_player_that_shows_what_it_can_not() -> None:
    class Wrong(Diary):
        def choose(self, visit: Visit) -> NDArray[np.int32]:
            return super().choose(visit)[[0, 1, 0]]

    with pytest.raises(InvalidArgumentError, match="expected 3 different items"):
        play_in(small().build("s", seed=0, rounds=5), Wrong(3), rounds=5, seed=0)
