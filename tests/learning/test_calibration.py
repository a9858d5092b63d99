"""Spreads are widened where the latest rewards lie farther from what was expected than they should, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Utilities
from tests.learning.dense import WCK
from tests.learning.happenings import CONTEXT_DIM, N_ITEMS, SLATE_SIZE
from tests.learning.test_judged_observations import ASK, EVERYTHING, begun, live, observed

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.learning.calibration import NO_SURPRISES, Calibration
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.state_changes import change_prior_mean, forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topk_bandit.learning.policy import State

N_SHOPS, N_REWARDS = 400, 200


def calibrated(surprises: Iterable[float]) -> Calibration:
    calibration = NO_SURPRISES
    for one in surprises:
        calibration = calibration.after(one)
    return calibration


WIDE = calibrated([4.0] * 40)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=N_REWARDS),
        lambda rng: rng.uniform(-(3.0**0.5), 3.0**0.5, N_REWARDS),
        lambda rng: ((rng.random(N_REWARDS) < 0.05) - 0.05) / (0.05 * 0.95) ** 0.5,
    ],
    ids=["normal", "uniform", "clicks"],
)
def test_right_spreads_are_seldom_widened(draw: Callable[[np.random.Generator], np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    factors = [calibrated((draw(rng) ** 2).tolist()).spread_factor for _ in range(N_SHOPS)]
    assert np.mean(np.array(factors) > 1.0) <= 0.02
    assert max(factors) < 1.2


def test_the_factor_is_the_root_of_the_lower_limit_of_the_mean() -> None:
    surprises = (3.0 * np.random.default_rng(2).normal(size=150)) ** 2
    weights = (63.0 / 64.0) ** np.arange(149, -1, -1)
    mean = np.average(surprises, weights=weights)
    error = np.sqrt(np.average((surprises - mean) ** 2, weights=weights) / weights.sum())
    factor = calibrated(surprises.tolist()).spread_factor
    assert factor == pytest.approx(np.sqrt(mean - 2.5 * error))
    assert factor > 2.0


def test_few_surprises_tell_nothing_and_small_ones_narrow_nothing() -> None:
    assert calibrated([81.0] * 15).spread_factor == 1.0
    assert calibrated([81.0] * 30).spread_factor == pytest.approx(9.0)
    assert calibrated([0.01] * 30).spread_factor == 1.0


def test_the_first_rewards_tell_no_surprise() -> None:
    """Kernel and noise are not chosen yet."""
    assert [live(begun(), 0, count).calibration.weight for count in (15, 16, 17)] == [0.0, 0.0, 1.0]


def test_a_surprise_has_a_limit() -> None:
    assert calibrated([1e300] * 40).spread_factor == pytest.approx(1e4)


@pytest.mark.parametrize("has_prior", [False, True])
def test_a_surprise_is_what_a_dense_process_says(has_prior: bool) -> None:  # noqa: FBT001
    state = live(begun(), 0, 60)
    if has_prior:
        utilities = Utilities.draw(np.random.default_rng(4), n_items=N_ITEMS, context_dim=CONTEXT_DIM, of="contexts")
        state = change_prior_mean(state, utilities.prior_mean(WCK, SLATE_SIZE))
    before = state.posterior
    context, ranking, reward = observed(60)
    encoded = state.encode(context)
    after = before.observe(encoded, ranking, reward)
    moments = before.predict(encoded, ranking[None], with_pending=False)
    noise = before.amplitude * before.noise_variance
    expected = (reward - float(moments.mean[0])) ** 2 / (float(moments.variance[0]) + noise)
    assert after.surprise_of_newest(before) == pytest.approx(expected, rel=1e-9)


def test_a_factor_widens_what_is_predicted_and_what_is_explored() -> None:
    state = live(begun(), 0, 60)
    wide = replace(state, calibration=WIDE)
    assert wide.spread_factor == pytest.approx(2.0)
    one, other = (each.predict(ASK, EVERYTHING) for each in (state, wide))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_allclose(other.variance, 4.0 * one.variance)
    gains = [each.predict_difference(ASK, EVERYTHING[0], EVERYTHING[-1]) for each in (state, wide)]
    assert gains[1] == (gains[0][0], pytest.approx(4.0 * gains[0][1]))

    def shown(state: State) -> tuple[list[int], float]:
        chosen = decide(
            state, DEFAULT_EXPLORATION, context=ASK, eligible=np.arange(9, dtype=np.int32), rng=np.random.default_rng(3)
        )
        predicted = state.posterior.predict(state.encode(ASK), chosen.ranking[None], with_pending=False)
        assert chosen.standard_deviation == pytest.approx(state.spread_factor * float(predicted.variance[0]) ** 0.5)
        return chosen.ranking.tolist(), chosen.regret_bound

    (_, bound), (_, wide_bound) = shown(state), shown(wide)
    assert wide_bound > bound


def noisier(state: State, first: int, last: int, *, noise: float) -> State:
    """Go on with rewards whose noise is another, which the state knows nothing of."""
    rewards = {}
    for number in range(first, last):
        draw = np.random.default_rng([number, 1]).normal()
        rewards[number] = observed(number)[2] + noise * float(draw)
    return live(state, first, last, rewards=rewards)


def test_rewards_that_vary_more_widen_spreads_until_that_is_known() -> None:
    state = live(begun(), 0, 250)
    assert state.spread_factor == 1.0
    widest = 1.0
    for first in range(250, 450, 10):
        state = noisier(state, first, first + 10, noise=1.2)
        widest = max(widest, state.spread_factor)
    assert widest > 1.3
    assert state.spread_factor < 1.2


def test_a_bandit_that_begins_anew_has_no_surprises() -> None:
    state = replace(live(begun(), 0, 60), calibration=WIDE)
    assert forget(state, state.posterior.kernel).spread_factor == 1.0
    assert Calibration(*state.checkpoint.calibration) == WIDE
