"""Rewards and contexts of any size that the wire takes: a bandit goes on, and what it says is finite."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest
from tests.long_forms import usual_or_long

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.state_changes import change_item_features

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel

T = TypeVar("T")

SIZES = (5e-324, 1e-161, 1e-101, 1e-99, 1e-30, 1e30, 1e100)
"""The least number, one whose square is none, those on both sides of what counts as nothing, and large ones."""
N_ITEMS, ROUNDS = 6, 70
LIMITS = Limits(rows=24, pending_rows=4)


def beside(*others: T) -> list[tuple[float, T]]:
    """Return each size beside one of the others, in turn; in the long form beside each."""
    in_turn = [(size, others[place % len(others)]) for place, size in enumerate(SIZES)]
    return usual_or_long(in_turn, long=list(product(SIZES, others)))


def kernel() -> KendallKernel:
    return kernel_of(Kernel.ADAPTIVE, N_ITEMS, 2)


def live(rewards: np.ndarray, contexts: np.ndarray, begun: State | None = None) -> State:
    """Return the state after slates with these rewards in these contexts; every decision has finite figures."""
    rng = np.random.default_rng(0)
    state = begun or State.initial(kernel(), context_dim=contexts.shape[1], limits=LIMITS)
    eligible = np.arange(N_ITEMS, dtype=np.int32)
    for number, (reward, context) in enumerate(zip(rewards.tolist(), contexts, strict=True)):
        decision = decide(state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=rng)
        figures = decision.mean, decision.standard_deviation, decision.regret_bound, decision.estimated_regret
        assert all(map(math.isfinite, figures)), (number, figures)
        state = state.shown(str(number), context, decision.ranking)
        state = state.rewarded(str(number), context, decision.ranking, reward=reward, at=float(number))
    return state


FEATURES = np.random.default_rng(6).uniform(-0.5, 0.5, size=(N_ITEMS, 3))


def with_features(state: State) -> State:
    return change_item_features(state, FEATURES)


def usual_contexts() -> np.ndarray:
    return np.column_stack([np.ones(ROUNDS), np.random.default_rng(1).normal(size=ROUNDS)])


@pytest.mark.parametrize("size", SIZES)
def test_rewards_of_one_size(size: float) -> None:
    live(size * np.random.default_rng(2).choice([-1.0, 0.0, 1.0], ROUNDS), usual_contexts())


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "place"), beside(0, 9, 40))
def test_rewards_among_zeros(size: float, place: int) -> None:
    rewards = np.zeros(ROUNDS)
    rewards[place : place + 20] = size
    live(rewards, usual_contexts())


@pytest.mark.parametrize("size", SIZES)
def test_rewards_among_usual_ones(size: float) -> None:
    rewards = np.random.default_rng(3).random(ROUNDS)
    rewards[10:30] = size
    live(rewards, usual_contexts())


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "others"), beside(0.0, 1.0))
def test_contexts(size: float, others: float) -> None:
    contexts = others * usual_contexts()
    contexts[5:25] = size * usual_contexts()[5:25]
    live(np.random.default_rng(4).random(ROUNDS), contexts)


@pytest.mark.parametrize("size", SIZES)
def test_all_contexts_of_one_size(size: float) -> None:
    live(np.random.default_rng(5).random(ROUNDS), size * usual_contexts())


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "kind"), beside("half-life", "encoded", "item features"))
def test_rewards_that_fade_or_are_of_described_customers_and_items(size: float, kind: str) -> None:
    begun, contexts = (
        {
            "half-life": State.initial(kernel(), context_dim=2, limits=LIMITS, half_life=12.0),
            "encoded": State.initial(kernel(), context_dim=2, limits=LIMITS, encoded=True),
            "item features": with_features(State.initial(kernel(), context_dim=2, limits=LIMITS)),
        }[kind],
        usual_contexts(),
    )
    if begun.shared:
        contexts /= 4.0
    rewards = np.random.default_rng(7).random(ROUNDS)
    rewards[:15] = size
    live(rewards, contexts, begun)


@pytest.mark.parametrize("size", SIZES)
def test_rewards_of_a_history(size: float) -> None:
    rng = np.random.default_rng(8)
    rankings = np.array([rng.choice(N_ITEMS, 2, replace=False) for _ in range(40)], dtype=np.int32)
    rewards = np.where(np.arange(40) < 25, size, rng.random(40))
    begun = State.initial(kernel(), context_dim=2, limits=LIMITS)
    past = PastRows(usual_contexts()[:40], rankings, rewards, np.zeros(40))
    live(rng.random(ROUNDS), usual_contexts(), begun.learn_history(past))


WRONG = usual_contexts()[0], np.array([2, 1], dtype=np.int32)
"""Context and ranking of a slate of which something wrong is told."""


@cache
def before_and_after_a_wrong_one() -> tuple[State, State]:
    """Return the state that has just been told a wrong reward, and the one it becomes in more slates than it waits."""
    begun = live(np.random.default_rng(9).random(ROUNDS), usual_contexts())
    state = begun.rewarded("wrong", *WRONG, reward=0.5, at=100.0)
    return state, live(np.random.default_rng(10).random(40), usual_contexts()[:40], state)


@pytest.mark.parametrize("size", SIZES)
def test_rewards_that_are_corrected_and_revised(size: float) -> None:
    state, later = before_and_after_a_wrong_one()
    assert can_correct(state, "wrong")
    live(np.random.default_rng(10).random(20), usual_contexts()[:20], correct(state, "wrong", size))
    revised = revise(later, "wrong", *WRONG, before=0.5, reward=size, at=100.0)
    live(np.random.default_rng(11).random(20), usual_contexts()[:20], revised)
