"""What exploration costs, against all slates of small shops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Exploration, Kernel
from topk_bandit.lab.simulation.battery.prices import price_exploration
from topk_bandit.learning.decisions import search_best, slates_of
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.rankings import all_rankings, random_rankings

N_ITEMS, SLATE_SIZE = 6, 3
ELIGIBLE = np.array([0, 1, 2, 4, 5], dtype=np.int32)
CONTEXT = np.array([1.0, 0.5])


def learned(seed: int) -> State:
    rng = np.random.default_rng(seed)
    state = State.initial(kernel_of(Kernel.ADAPTIVE, N_ITEMS, SLATE_SIZE), context_dim=2, limits=Limits())
    for number in range(40):
        ranking = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=1, rng=rng)[0]
        context = np.array([1.0, rng.normal()])
        state = state.rewarded(str(number), context, ranking, reward=float(ranking[0] + rng.normal()))
    return state


def values(rankings: np.ndarray) -> np.ndarray:
    return np.asarray(rankings @ np.array([1.0, 0.5, 0.2]) - 0.1 * rankings[:, 0] * rankings[:, 2])


def every_slate() -> np.ndarray:
    return all_rankings(ELIGIBLE, slate_size=SLATE_SIZE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "exploration", [DEFAULT_EXPLORATION, replace(DEFAULT_EXPLORATION, uniform_share=0.2, near_share=0.3)], ids=repr
)
def test_prices_add_up_to_what_all_slates_say(seed: int, exploration: Exploration) -> None:
    state, slates = learned(seed), every_slate()
    prices = price_exploration(state, exploration, context=CONTEXT, eligible=ELIGIBLE, expect=values)
    moments = state.predict(CONTEXT, slates)
    best = search_best(state, exploration, state.encode(CONTEXT), ELIGIBLE)
    own = slates[[int(np.argmax(moments.mean))]]
    bound = slates[[int(np.argmax(moments.mean + math.sqrt(best.beta) * np.sqrt(moments.variance)))]]
    shown = slates_of(state, exploration, best, ELIGIBLE)
    assert prices.bound == pytest.approx(float(values(own)[0] - values(bound)[0]))
    assert prices.draw == pytest.approx(float(values(bound)[0] - values(best.ranking[None])[0]))
    expected = sum(shown.propensity(slate) * float(values(slate[None])[0]) for slate in slates)
    # Uniform slates are some of all: their mean is known to a few parts in a hundred.
    error = 4.0 * exploration.uniform_share * values(slates).std() / math.sqrt(128)
    assert sum(prices) == pytest.approx(float(values(own)[0]) - expected, abs=error)
    exact = shown.near_share * (values(best.ranking[None])[0] - values(shown.near.slates).mean())
    assert prices.near == pytest.approx(float(exact))


def test_slates_near_the_best_are_those_that_the_share_draws() -> None:
    state = learned(0)
    exploration = replace(DEFAULT_EXPLORATION, uniform_share=0.0, near_share=0.5)
    shown = slates_of(state, exploration, search_best(state, exploration, state.encode(CONTEXT), ELIGIBLE), ELIGIBLE)
    drawn = {tuple(slate) for slate in every_slate().tolist() if 0.0 < shown.propensity(np.array(slate)) < 0.5}
    assert {tuple(slate) for slate in shown.near.slates.tolist()} == drawn
    assert len(drawn) == len(shown.near) == 3 * 2 + 3
