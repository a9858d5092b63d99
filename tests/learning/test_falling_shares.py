"""The exploration's shares fall as rewards come in, by the rule that the documents state."""

import math
from dataclasses import replace

import numpy as np
import pytest

from topk_bandit.domain.bandits import ConstantBeta, Exploration, Kernel
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of

FALLING = Exploration(ConstantBeta(0.5), uniform_share=0.2, near_share=0.4, shares_fall_after=16)
EVERY = np.arange(6, dtype=np.int32)
CONTEXT = np.ones(1)


def learned(count: int, *, half_life: float = math.inf) -> State:
    rng = np.random.default_rng(7)
    state = State.initial(kernel_of(Kernel.ADAPTIVE, 6, 2), context_dim=1, limits=Limits(40), half_life=half_life)
    for number in range(count):
        slate = rng.permutation(EVERY)[:2].astype(np.int32)
        state = state.rewarded(str(number), CONTEXT, slate, reward=float(rng.random()), at=number)
    return state


@pytest.mark.parametrize(("observations", "left"), [(0, 1.0), (16, 1.0), (64, 0.5), (1600, 0.1)])
def test_shares_fall_with_the_root_of_the_rewards(observations: int, left: float) -> None:
    assert FALLING.after(observations) == Exploration(
        ConstantBeta(0.5), pytest.approx(0.2 * left), pytest.approx(0.4 * left)
    )


def test_shares_that_are_to_stay_stay() -> None:
    steady = replace(FALLING, shares_fall_after=0)
    assert steady.after(10**9) == steady


@pytest.mark.parametrize(("half_life", "left"), [(math.inf, 0.5), (30.0, 1.0)])
def test_a_decision_has_the_shares_of_its_state(half_life: float, left: float) -> None:
    """The propensity of the best of the 30 slates tells the shares."""
    state = learned(64, half_life=half_life)
    propensities = {
        decision.propensity
        for seed in range(8)
        if not (
            decision := decide(state, FALLING, context=CONTEXT, eligible=EVERY, rng=np.random.default_rng(seed))
        ).explored
    }
    uniform, near = 0.2 * left, (1.0 - 0.2 * left) * 0.4 * left
    assert list(propensities) == [pytest.approx(1.0 - uniform - near + uniform / 30)]
