"""The times that a state is given: none at all, and those of a clock that was set back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.dense import WCK
from tests.learning.happenings import N_ITEMS, SLATE_SIZE
from tests.learning.test_ageing import live

from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.state_changes import change_kernel, forget, vacate

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = WCK.make(N_ITEMS, SLATE_SIZE)
HALF_LIFE = 80.0
PAST = PastRows(np.ones((12, 1)), np.tile(np.arange(SLATE_SIZE, dtype=np.int32), (12, 1)), np.zeros(12), np.zeros(12))


def learned(half_life: float = HALF_LIFE) -> State:
    return live(State.initial(KERNEL, context_dim=1, limits=Limits(), half_life=half_life), count=20, at=0.0, seed=1)


def rewarded_until_refit(state: State) -> State:
    while True:
        state = state.rewarded("late", np.ones(1), PAST.rankings[0], reward=0.5)
        if state.since_refit == 0:
            return state


@pytest.mark.parametrize(
    "change",
    [
        State.refit,
        rewarded_until_refit,
        lambda state: state.learn_history(PAST),
        lambda state: forget(state, KERNEL),
        lambda state: change_kernel(state, WCK.make(N_ITEMS + 3, SLATE_SIZE)),
        lambda state: vacate(state, np.arange(N_ITEMS, dtype=np.int32)),
    ],
    ids=["refit", "rewards", "history", "forget", "kernel", "vacate"],
)
def test_without_a_time_a_refit_is_at_the_beginning(change: Callable[[State], State]) -> None:
    state = State.initial(KERNEL, context_dim=1, limits=Limits(), half_life=HALF_LIFE)
    for number in range(3):
        state = state.rewarded(f"{number}", np.ones(1), PAST.rankings[0], reward=float(number))
    after = change(state)
    assert (after.since_refit, after.aged_at) == (0, 0.0)


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (lambda state: state.refit(50.0), 0),
        (lambda state: state.learn_history(PAST, at=50.0), 12),
        (lambda state: vacate(state, np.arange(0), 50.0), 0),
    ],
    ids=["refit", "history", "nothing"],
)
def test_a_clock_that_was_set_back_ages_no_reward_twice(change: Callable[[State], State], more: int) -> None:
    state = learned().refit(100.0)
    counted = state.posterior.n_observations
    after = change(state)
    assert after.aged_at == 100.0
    assert after.posterior.n_observations == pytest.approx(counted + more)
    later = after.refit(160.0).posterior.n_observations
    assert later == pytest.approx((counted + more) * 0.5 ** (60.0 / HALF_LIFE))


def test_rewards_that_are_never_forgotten_have_no_age() -> None:
    state = learned(math.inf).refit(100.0).refit(1e12)
    assert state.posterior.n_observations == pytest.approx(20.0)


def test_a_reward_of_elsewhere_counts_by_its_age() -> None:
    ages = HALF_LIFE * np.arange(12.0)
    state = State.initial(KERNEL, context_dim=1, limits=Limits(), half_life=HALF_LIFE)
    learned = state.learn_history(PAST._replace(ages=ages), at=1e6)
    assert learned.posterior.n_observations == pytest.approx(2.0 - 2.0**-11)
    assert learned.observations == 12
