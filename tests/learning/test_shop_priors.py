"""What a state makes of contexts that lack something, of rewards that never come, and of one that is wild."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.dense import DenseGp, assert_close
from tests.learning.shaped import kind_of

from topk_bandit.learning.kendall import Shape, adaptive_kendall
from topk_bandit.learning.kernel_choice import LEAST_SHARED, MOST_SHARED
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import all_rankings

N_ITEMS, SLATE_SIZE = 8, 3
KERNEL = adaptive_kendall(N_ITEMS, SLATE_SIZE)
EVERYTHING = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)


def initial(context_dim: int = 3) -> State:
    return State.initial(KERNEL, context_dim=context_dim, limits=Limits())


def live(state: State, *, count: int, seed: int, meaning: bool, wild: int = -1) -> State:
    """Return the state after rewards of slates that are the better the larger their first item is.

    Contexts are noise, or their first number says by how much, and with which sign.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        context = rng.normal(size=state.posterior.context_dim - 1) if state.shared else np.ones(1)
        ranking = rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)
        reward = (ranking[0] - 3.5) / 4.0 * (context[0] if meaning else 1.0) + 0.3 * float(rng.normal())
        if number == wild:
            reward = 1000.0 * (1.0 + abs(reward))
        state = state.rewarded(f"{seed}-{number}", context, ranking, reward=float(reward))
    return state


def correlation(state: State, context: np.ndarray) -> float:
    return float(np.corrcoef(state.predict(context, EVERYTHING).mean, EVERYTHING[:, 0])[0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_contexts_without_meaning_and_without_a_constant_do_no_harm(seed: int) -> None:
    state = live(initial(), count=150, seed=seed, meaning=False)
    asked = np.random.default_rng(99).normal(size=(5, 3))
    assert min(correlation(state, context) for context in asked) > 0.6
    assert state.shared > 1.0


def test_contexts_with_meaning_keep_it() -> None:
    state = live(initial(), count=150, seed=1, meaning=True)
    assert correlation(state, np.array([1.5, 0.0, 0.0])) > 0.6
    assert correlation(state, np.array([-1.5, 0.0, 0.0])) < -0.6
    assert state.shared < 1.0


def test_a_context_of_zeros_has_an_honest_spread() -> None:
    state = live(initial(), count=40, seed=2, meaning=False)
    deviation = np.sqrt(state.predict(np.zeros(3), EVERYTHING).variance)
    assert deviation.min() > 0.0
    assert deviation.max() > 0.05 * math.sqrt(state.posterior.amplitude * state.shared)


def test_what_is_shared_is_one_number_more_of_each_context() -> None:
    state = live(initial(2), count=30, seed=3, meaning=True)
    rng, shape = np.random.default_rng(3), state.posterior.kernel.shape
    assert shape is not None
    drawn = [(rng.normal(size=2), rng.permutation(N_ITEMS)[:SLATE_SIZE], rng.normal()) for _ in range(30)]
    contexts = np.array([np.append(context, math.sqrt(state.shared)) for context, _, _ in drawn])
    rankings = np.array([ranking for _, ranking, _ in drawn], dtype=np.int32)
    rewards = (rankings[:, 0] - 3.5) / 4.0 * contexts[:, 0] + 0.3 * np.array([noise for _, _, noise in drawn])
    posterior = state.posterior
    dense = DenseGp(
        kind_of(shape),
        N_ITEMS,
        posterior.noise_variance,
        contexts,
        rankings,
        rewards,
        offset=posterior.offset,
        amplitude=posterior.amplitude,
    )
    asked = np.array([0.3, -1.1])
    expected = dense.predict(np.append(asked, math.sqrt(state.shared)), EVERYTHING)
    assert_close(state.predict(asked, EVERYTHING), expected, atol=1e-7)


def test_contexts_of_one_number_and_fixed_kernels_stay_as_they_are() -> None:
    assert initial(1).shared == 0.0
    assert live(initial(1), count=40, seed=4, meaning=False).shared == 0.0
    assert LEAST_SHARED < initial(2).shared < MOST_SHARED


def test_of_slates_that_seldom_get_a_reward_few_count_as_pending() -> None:
    state, context, ranking = initial(1), np.ones(1), np.arange(SLATE_SIZE, dtype=np.int32)
    for number in range(400):
        state = state.shown(str(number), context, ranking)
        if number >= 100:
            old = str(number - 100)
            state = state.rewarded(old, context, ranking, reward=0.5) if number % 20 == 0 else state.closed(old)
    assert state.rewarded_share == pytest.approx((15 + 4) / (300 + 4))
    assert 5 <= len(state.pending_ids) <= 14, "about a twentieth, and a few more at first, of the hundred that are open"


def test_where_every_slate_gets_a_reward_every_slate_counts() -> None:
    state, context = initial(1), np.ones(1)
    for number in range(60):
        ranking = np.roll(np.arange(N_ITEMS), number)[:SLATE_SIZE].astype(np.int32)
        state = state.shown(str(number), context, ranking)
        if number >= 20:
            state = state.rewarded(str(number - 20), context, ranking, reward=0.5)
    assert state.pending_ids == tuple(map(str, range(40, 60)))


@pytest.mark.parametrize("seed", range(2))
def test_one_wild_reward_changes_next_to_nothing(seed: int) -> None:
    wild, calm = (live(initial(1), count=400, seed=seed, meaning=False, wild=wild) for wild in (200, -1))
    assert (wild.counted.wild_rewards, calm.counted.wild_rewards) == (1, 0)
    one, other = (state.predict(np.ones(1), EVERYTHING) for state in (wild, calm))
    spread = float(np.ptp(other.mean))
    assert np.abs(one.mean - other.mean).max() <= 0.08 * spread
    assert int(np.argmax(one.mean)) in np.argsort(-other.mean)[:12]
    np.testing.assert_allclose(np.sqrt(one.variance), np.sqrt(other.variance), rtol=0.25)


def test_what_is_at_the_end_of_its_range_is_reported() -> None:
    assert initial().edges_reached == ()
    rng, state = np.random.default_rng(0), initial(1)
    weights = rng.normal(size=N_ITEMS * (N_ITEMS - 1) // 2)
    for number in range(120):
        ranking = rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)
        features = kind_of(Shape()).features(ranking, N_ITEMS)[0, : len(weights)]
        state = state.rewarded(str(number), np.ones(1), ranking, reward=float(features @ weights))
    assert "noise" in state.edges_reached
    assert state.noise_at_edge
