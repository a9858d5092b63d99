"""A state goes on that has no rows left: their items are gone and others take their places, or all rows have aged."""

import math
from itertools import cycle

import numpy as np
import pytest

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.state_changes import change_kernel, vacate

N_ITEMS, SIZE = 6, 2
GONE, LEFT = np.arange(3, dtype=np.int32), np.arange(3, N_ITEMS, dtype=np.int32)


def initial(kind: Kernel, rows: int, *, half_life: float = math.inf) -> State:
    kernel = kernel_of(kind, N_ITEMS, SIZE)
    return State.initial(kernel, context_dim=3, limits=Limits(rows), half_life=half_life)


def learn(state: State, items: np.ndarray, *, begin: int, count: int) -> State:
    rng = np.random.default_rng(begin)
    for number in range(begin, begin + count):
        slate = rng.permutation(items)[:SIZE].astype(np.int32)
        context = rng.standard_normal(3)
        state = state.rewarded(str(number), context, slate, reward=float(context[0] + rng.random()), at=number)
    return state


@pytest.mark.parametrize(("kind", "rows"), list(zip(Kernel, cycle([4, 64]))))
def test_it_grows_and_learns_on(kind: Kernel, rows: int) -> None:
    state = vacate(learn(initial(kind, rows), GONE, begin=0, count=90).refit(90.0), GONE, 90.0)
    assert state.posterior.n_rows == 0
    state = change_kernel(state, kernel_of(kind, N_ITEMS + 4, SIZE), 91.0)
    assert state.posterior.n_rows == 0
    state = learn(state, LEFT, begin=100, count=40).refit(150.0)
    goes_on(state)


@pytest.mark.slow
@pytest.mark.parametrize("kind", Kernel)
@pytest.mark.parametrize("rows", [4, 64])
@pytest.mark.parametrize("idle", [90.0, 1e4, 1e9])
def test_it_learns_after_a_long_rest(kind: Kernel, rows: int, idle: float) -> None:
    """After so many half lives nothing counts that was learned before."""
    state = learn(initial(kind, rows, half_life=1.0), GONE, begin=1, count=90).refit(90.0)
    grown = change_kernel(state, kernel_of(kind, N_ITEMS + 4, SIZE), idle)
    goes_on(learn(grown, LEFT, begin=int(idle) + 1, count=40).refit(idle + 42.0))
    goes_on(learn(state.refit(idle), LEFT, begin=int(idle) + 1, count=40).refit(idle + 42.0))


def goes_on(state: State) -> None:
    moments = state.posterior.predict(np.append(np.ones(3), np.zeros(state.posterior.context_dim - 3)), LEFT[None, :2])
    assert state.posterior.n_rows > 0
    assert np.isfinite([*moments.mean, *moments.variance]).all()


@pytest.mark.parametrize("kind", Kernel)
@pytest.mark.parametrize(("rows", "context_dim"), [(4, 3), (64, 1)])
def test_contexts_of_zeros_fill_its_rows_and_it_goes_on(kind: Kernel, rows: int, context_dim: int) -> None:
    """Where they share nothing no row tells anything of another: all are noise, and one stands for them."""
    rng = np.random.default_rng(0)
    state = State.initial(kernel_of(kind, N_ITEMS, SIZE), context_dim=context_dim, limits=Limits(rows))
    for number in range(100):
        slate = rng.permutation(N_ITEMS)[:SIZE].astype(np.int32)
        state = state.rewarded(str(number), np.zeros(context_dim), slate, reward=float(rng.random()))
    assert 0 < state.refit().posterior.n_rows <= rows
    state = vacate(state, GONE, 0.0)
    for number in range(100, 200):
        slate = rng.permutation(LEFT)[:SIZE].astype(np.int32)
        state = state.rewarded(str(number), np.ones(context_dim), slate, reward=float(slate[0] == LEFT[0]))
    best, worst = state.posterior.predict(
        np.append(np.ones(context_dim), np.zeros(state.posterior.context_dim - context_dim)),
        np.array([LEFT[:2], LEFT[1:]]),
    ).mean
    assert best > worst + 0.3
