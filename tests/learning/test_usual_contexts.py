"""One wild context is taken as a usual one; what happens often is believed; nothing else is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.kendall import adaptive_kendall, weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.usual_contexts import FEWEST_CONTEXTS, NO_CONTEXTS, UsualContexts

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOPS = {
    "normal": lambda rng: rng.normal(size=(2000, 4)),
    "one number": lambda rng: 1.0 + rng.random((2000, 1)),
    "one-hot": lambda rng: np.eye(6)[rng.integers(6, size=2000)],
    "with a constant": lambda rng: np.column_stack([np.ones(2000), 0.01 * rng.normal(size=(2000, 3))]),
    "mostly zeros": lambda rng: rng.normal(size=(2000, 3)) * (rng.random((2000, 1)) < 0.2),
}


def after(contexts: np.ndarray, usual: UsualContexts = NO_CONTEXTS) -> UsualContexts:
    for context in contexts:
        usual = usual.admit(context)
    return usual


@pytest.mark.parametrize("shop", SHOPS)
@pytest.mark.parametrize("seed", range(3))
def test_contexts_of_ordinary_shops_are_taken_as_they_are(shop: str, seed: int) -> None:
    contexts = SHOPS[shop](np.random.default_rng(seed))
    usual = after(contexts)
    assert usual.outliers <= 2
    for context in contexts[-200:]:
        np.testing.assert_array_equal(usual.shorten(context), context)


@pytest.mark.parametrize("shop", SHOPS)
@pytest.mark.parametrize("n_before", [3, 10, 500])
def test_a_wild_context_is_as_long_as_a_usual_one(shop: str, n_before: int) -> None:
    contexts = SHOPS[shop](np.random.default_rng(1))
    before = contexts[np.linalg.norm(contexts, axis=1) > 0.0][:n_before]
    usual, wild = after(before), 1e4 * before[0]
    shortened = usual.shorten(wild)
    assert np.linalg.norm(shortened) <= np.linalg.norm(before, axis=1).max() * (1.0 + 1e-12)
    np.testing.assert_allclose(shortened / np.linalg.norm(shortened), wild / np.linalg.norm(wild))
    assert usual.admit(wild).outliers == usual.outliers + 1


def test_contexts_that_stay_long_are_believed_soon() -> None:
    usual = after(SHOPS["normal"](np.random.default_rng(0))[:500])
    taken = 0
    long = 1000.0 * np.ones(4)
    while not np.array_equal(usual.shorten(long), long):
        usual, taken = usual.admit(long), taken + 1
    assert taken <= 6


@pytest.mark.parametrize("count", [4, 10, FEWEST_CONTEXTS])
@pytest.mark.parametrize("wild_at", range(3))
def test_a_wild_first_context_is_shortened_once_a_few_are_known(wild_at: int, count: int) -> None:
    rng = np.random.default_rng(2)
    contexts = rng.normal(size=(count, 3))
    contexts[wild_at] *= 1e4
    state = State.initial(adaptive_kendall(8, 3), context_dim=3, limits=Limits(rows=50, pending_rows=8))
    for n, context in enumerate(contexts):
        ranking = rng.permutation(8)[:3].astype(np.int32)
        state = state.shown(str(n), context, ranking)
        state = state.rewarded(str(n), context, ranking, reward=float(rng.random()))
    norms = np.linalg.norm(state.posterior.observed_rows.contexts[:, :-1], axis=1)
    # Rows are sums of at most so many contexts of one ranking.
    assert norms.max() < 10.0 * np.linalg.norm(np.delete(contexts, wild_at, axis=0), axis=1).max()


@pytest.mark.parametrize("wild_at", range(3))
def test_a_wild_first_context_does_not_make_the_first_choice_of_a_kernel_take_all_for_noise(wild_at: int) -> None:
    noise = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        worth = rng.normal(size=(10, 3))
        state = State.initial(adaptive_kendall(10, 3), context_dim=3, limits=Limits(rows=300, pending_rows=8))
        for n in range(15):
            context, slate = rng.normal(size=3), rng.permutation(10)[:3].astype(np.int32)
            reward = float((worth[slate] @ context) @ [1.0, 0.6, 0.5] + 0.1 * rng.normal())
            told = context * (1e4 if n == wild_at else 1.0)
            state = state.shown(str(n), told, slate).rewarded(str(n), told, slate, reward=reward)
        noise.append(state.posterior.noise_variance)
    assert np.median(noise) < 10.0  # in one of the seeds all seems noise without anything wild, too


WILD = {"one number": [1.0, 1e4, 1.0], "all numbers": [1e4, -1e4, 1e4], "zeros": [0.0, 0.0, 0.0]}


@pytest.fixture(scope="module")
def undisturbed() -> np.ndarray:
    return np.mean([_figures(_learn(seed)) for seed in SEEDS], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("wild_at", [0, 60])
@pytest.mark.parametrize("wild", WILD)
def test_after_one_wild_request_a_bandit_is_as_it_would_be_without(
    undisturbed: np.ndarray, wild: str, wild_at: int
) -> None:
    """Issue 14, for the same slates and under one kernel, so that nothing differs but the context."""
    disturbed = np.mean([_figures(_learn(seed, wild=WILD[wild], wild_at=wild_at)) for seed in SEEDS], axis=0)
    np.testing.assert_allclose(disturbed, undisturbed, rtol=0.03)


SEEDS = range(8)


def _figures(state: State) -> np.ndarray:
    """Return mean, spread and regret bound of the best slates of some contexts, averaged."""
    eligible, rng = np.arange(10, dtype=np.int32), np.random.default_rng(8)
    figures = []
    for context in np.column_stack([np.ones(10), rng.normal(size=(10, 2))]):
        one = decide(state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=np.random.default_rng(0))
        figures.append((one.mean, one.standard_deviation, one.regret_bound))
    return np.mean(figures, axis=0)


def _learn(seed: int, *, wild: Sequence[float] = (1.0, 1.0, 1.0), wild_at: int = 0) -> State:
    """Return what is known after 260 random slates; in the round `wild_at` the context that is told is a wild one."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(10, 3)) * [1.0, 0.5, 0.5]
    state = State.initial(weighted_convolutional_kendall(10, 3), context_dim=3, limits=Limits(rows=300, pending_rows=8))
    for n in range(260):
        context, slate = np.array([1.0, *rng.normal(size=2)]), rng.permutation(10)[:3].astype(np.int32)
        reward = float((worth[slate] @ context) @ [1.0, 0.6, 0.5] + rng.normal())
        told = context * wild if n == wild_at else context
        state = state.shown(str(n), told, slate).rewarded(str(n), told, slate, reward=reward)
    return state
