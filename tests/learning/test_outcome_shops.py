"""Shops with known tastes, and what outcomes of items do there: they help, do no harm, and spreads hold."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.told import Shop, begun, past_of, some_rankings, without_outcomes

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of

SEEDS = range(8)


def learned(shop: Shop, *, hears: bool, kernel: Kernel = Kernel.WEIGHTED_CONVOLUTIONAL) -> State:
    """Return a bandit after 200 rewards, which came in four parts."""
    slates, state = shop.slates(200), begun(kernel)
    for first in range(0, 200, 50):
        part = slates[first : first + 50] if hears else without_outcomes(slates[first : first + 50])
        state = state.learn_history(past_of(part, at=first + 50.0), at=first + 50.0)
    return state


def scores(state: State, shop: Shop) -> tuple[float, float]:
    """Return how predictions of random slates correlate with the truth, and their error beside a constant."""
    correlations, squares = [], []
    for context in np.random.default_rng(9).normal(size=(12, shop.dim)):
        rankings = some_rankings(60, seed=3)
        found, truth = state.predict(context, rankings).mean, shop.expected(context, rankings)
        correlations.append(np.corrcoef(found, truth)[0, 1])
        squares.append(float(np.var(found - truth)))
    return float(np.mean(correlations)), float(np.sqrt(np.mean(squares)))


def paired(*, says_all: bool, kernel: Kernel) -> np.ndarray:
    """Return by how much scores are larger with outcomes than without, shape (seeds, 2)."""
    found = []
    for seed in SEEDS:
        shop = Shop(seed=seed, says_all=says_all)
        with_them, without = (scores(learned(shop, hears=hears, kernel=kernel), shop) for hears in (True, False))
        found.append(np.subtract(with_them, without))
    return np.array(found)


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [Kernel.WEIGHTED_CONVOLUTIONAL, Kernel.ADAPTIVE])
def test_outcomes_that_say_nothing_of_rewards_do_no_harm(kernel: Kernel) -> None:
    """Of correlations of about a half no more than 0.02 is lost, which is more than four standard errors."""
    correlations, errors = paired(says_all=False, kernel=kernel).T
    assert correlations.mean() > -0.02
    assert standard_error(correlations) < 0.005
    assert errors.mean() < 0.05
    assert standard_error(errors) < 0.0125


@pytest.mark.slow
def test_outcomes_that_say_all_help() -> None:
    """The error of predictions is a third smaller and more, by far more than it differs between shops."""
    correlations, errors = paired(says_all=True, kernel=Kernel.WEIGHTED_CONVOLUTIONAL).T
    assert -errors.mean() > 3.0 * standard_error(errors)
    assert -errors.mean() > 0.4
    assert correlations.mean() > max(3.0 * standard_error(correlations), 0.2)


N_ITEMS, SLATE_SIZE, DIM, REWARDS = 40, 4, 3, 300


def off_by(seed: int) -> np.ndarray:
    """Return how far off predictions of random slates are, in spreads, where rewards are sums of clicks."""
    rng = np.random.default_rng(seed)
    tastes = rng.normal(size=(N_ITEMS, 1 + DIM)) * np.array([0.8, 0.5, 0.5, 0.5])
    looks = 1.0 / np.log2(np.arange(SLATE_SIZE) + 2.0)

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(size=DIM) / np.sqrt(DIM), rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)

    def probabilities(context: np.ndarray, ranking: np.ndarray) -> np.ndarray:
        return np.asarray(looks / (1.0 + np.exp(1.0 - tastes[ranking] @ np.append(1.0, context))))

    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, N_ITEMS, SLATE_SIZE)
    state = State.initial(kernel, context_dim=DIM, limits=Limits())
    for number in range(REWARDS):
        context, ranking = drawn()
        clicks = (rng.random(SLATE_SIZE) < probabilities(context, ranking)).astype(np.float64)
        state = state.rewarded(
            str(number), context, ranking, reward=float(clicks.sum()), at=float(number + 1), outcomes=clicks
        )
    off = []
    for _ in range(60):
        context, _ = drawn()
        rankings = np.array([drawn()[1] for _ in range(20)])
        moments = state.predict(context, rankings)
        truth = np.array([probabilities(context, ranking).sum() for ranking in rankings])
        off.append((moments.mean - truth) / np.sqrt(moments.variance))
    return np.abs(np.concatenate(off))


@pytest.mark.slow
def test_spreads_of_what_clicks_tell_hold() -> None:
    """Without each row's own outcomes left out, 0.83 of slates are within one of them; with certain utilities 0.54."""
    off = np.array([off_by(seed) for seed in range(12)])
    within_one, within_two = (off < 1.0).mean(axis=1), (off < 2.0).mean(axis=1)
    assert 0.6 < within_one.mean() < 0.8
    assert within_two.mean() > 0.92
    assert standard_error(within_one) < 0.04
    assert (within_one > 0.5).all()
    assert (within_two > 0.85).all()
