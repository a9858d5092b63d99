"""Where a range of rewards is trusted each reward is learned, however rare; a bandit finds the item that earns so."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.test_judged_observations import (
    ASK,
    EVERYTHING,
    assert_close,
    begun,
    learned_at_once,
    live,
    observed,
)

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.state_changes import forget

RARE = {7: 60.0, 30: -1e3, 55: 400.0}
"""Rewards far beyond all others, which are about one."""


def trusting() -> State:
    return begun().with_trust(trusts_rewards=True)


def learned_of(count: int) -> State:
    """Return the state of a bandit that trusts rewards, and begins with some of them as its history."""
    rows = [observed(number) for number in range(count)]
    rewards = np.array([RARE.get(number, row[2]) for number, row in enumerate(rows)])
    ages = float(count) - np.arange(count) - 1.0
    contexts, rankings = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    return trusting().learn_history(PastRows(contexts, rankings, rewards, ages), at=float(count))


def assert_learned(state: State) -> None:
    """All of sixty rewards are rows, and count."""
    assert (state.counted.wild_rewards, state.posterior.n_rows) == (0, 60)
    expected = sum(RARE.get(number, observed(number)[2]) for number in range(60))
    assert state.counted.reward_sum == pytest.approx(expected)
    assert_close(state.predict(ASK, EVERYTHING), learned_of(60).predict(ASK, EVERYTHING))


def test_each_reward_is_learned_at_once() -> None:
    assert live(begun(), 0, 60, rewards=RARE).counted.wild_rewards == len(RARE)
    state = live(trusting(), 0, 60, rewards=RARE)
    assert state.reward_in_range(1e9) == 1e9
    assert_learned(state.refit(60.0))


def test_a_range_that_is_trusted_later_teaches_what_was_left_out() -> None:
    state = live(begun(), 0, 60, rewards=RARE).with_trust(trusts_rewards=True)
    assert_learned(state.refit(60.0))


def test_a_range_that_is_trusted_no_more_takes_it_back() -> None:
    state = live(trusting(), 0, 60, rewards=RARE).with_trust(trusts_rewards=False).refit(60.0)
    assert state.counted.wild_rewards == len(RARE)
    honest = [number for number in range(60) if number not in RARE]
    assert_close(state.predict(ASK, EVERYTHING), learned_at_once(honest).predict(ASK, EVERYTHING))


@pytest.mark.parametrize("settled", [False, True])
def test_a_correction_to_a_rare_reward_is_learned(*, settled: bool) -> None:
    state = live(trusting(), 0, 60, rewards={**RARE, 55: 0.5})
    if settled:
        state = state.refit(60.0)
        context, ranking, _ = observed(55)
        revised = revise(state, "s55", context, ranking, before=0.5, reward=RARE[55], at=56.0)
        assert revised is not None
        state = revised
    else:
        assert can_correct(state, "s55"), "it was refit just now"
        state = correct(state, "s55", RARE[55])
    assert_learned(state.refit(60.0))


def test_trust_outlives_a_checkpoint_and_a_reset() -> None:
    state = live(trusting(), 0, 60, rewards=RARE).refit(60.0)
    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, 6, 3)
    again = State.restore(state.posterior.kernel, state.checkpoint, limits=Limits(), trusts_rewards=True)
    for one in (again, forget(state, state.posterior.kernel, 60.0)):
        assert one.reward_in_range(1e9) == 1e9
    assert not State.initial(kernel, context_dim=2, limits=Limits()).trusts_rewards


N_ITEMS, SIZE, EVERY = 6, 2, np.arange(6, dtype=np.int32)


def earned(rng: np.random.Generator, slate: np.ndarray, *, best: int) -> float:
    """Return what a visit earns: 24 or so in 15 %, and by the best item, which earns most, 750 beside in 3 %."""
    order = 24.0 * rng.lognormal(0.0, 0.3) if rng.random() < 0.15 else 0.0
    return order + 750.0 * (best in slate and rng.random() < 0.03)


def shop(*, trusts_rewards: bool) -> State:
    kernel = kernel_of(Kernel.ADAPTIVE, N_ITEMS, SIZE)
    return State.initial(kernel, context_dim=1, limits=Limits(), trusts_rewards=trusts_rewards)


@pytest.mark.slow
def test_an_item_that_earns_by_rare_large_orders_is_found() -> None:
    """In each of eight shops; a bandit that takes such orders for outliers misses some, which is why this is there."""
    shares = []
    for seed in range(8):
        rng, state, shown = np.random.default_rng(seed), shop(trusts_rewards=True), []
        best = int(rng.integers(N_ITEMS))
        for number in range(1500):
            slate = decide(state, DEFAULT_EXPLORATION, context=np.ones(1), eligible=EVERY, rng=rng).ranking
            shown.append(best in slate)
            state = state.shown(str(number), np.ones(1), slate)
            state = state.rewarded(str(number), np.ones(1), slate, reward=earned(rng, slate, best=best))
        shares.append(float(np.mean(shown[-375:])))
    assert min(shares) > 0.8
