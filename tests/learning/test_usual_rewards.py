"""One wild reward is learned as a usual one; what happens often is believed; nothing else is changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import PastRows, State
from topk_bandit.learning.usual_rewards import FARTHER, FEWEST_REWARDS, NO_REWARDS, UsualRewards


def after(rewards: list[float], usual: UsualRewards = NO_REWARDS) -> UsualRewards:
    for reward in rewards:
        usual = usual.admit(reward).usual
    return usual


SHOPS = {
    "clicks": lambda rng: (rng.random(3000) < 0.01).astype(float),
    "ratings": lambda rng: rng.integers(1, 6, 3000).astype(float),
    "noisy": lambda rng: rng.normal(size=3000),
    "heavy tails": lambda rng: rng.standard_t(3, size=3000),
    "purchases": lambda rng: np.where(rng.random(3000) < 0.05, rng.lognormal(3.0, 0.8, size=3000), 0.0),
    "losses": lambda rng: -1000.0 + rng.normal(size=3000),
    "all equal": lambda _: np.full(3000, 0.7),
}


@pytest.mark.parametrize("shop", SHOPS)
@pytest.mark.parametrize("seed", range(5))
def test_rewards_of_ordinary_shops_are_learned_as_they_are(shop: str, seed: int) -> None:
    usual = after(SHOPS[shop](np.random.default_rng(seed)).tolist())
    assert usual.outliers <= 1
    assert usual.n_rewards == 3000


@pytest.mark.parametrize("wild", [1e3, -1e3, 1e6, -1e100])
@pytest.mark.parametrize("shop", ["clicks", "ratings", "noisy", "purchases"])
def test_a_wild_reward_is_learned_as_the_farthest_usual_one(shop: str, wild: float) -> None:
    rewards = SHOPS[shop](np.random.default_rng(7))
    usual = after(rewards[:600].tolist())
    learned, then = usual.admit(wild * max(1.0, float(np.abs(rewards).max())))
    assert abs(learned) <= np.abs(rewards).max() + abs(rewards.mean()) + 1e-9
    assert then.outliers == usual.outliers + 1
    assert abs(then.mean - usual.mean) <= usual.deviation / 600


def test_rewards_that_stay_wild_are_believed_soon() -> None:
    usual = after(np.random.default_rng(0).random(600).tolist())
    learned = []
    for _ in range(9):
        reward, usual = usual.admit(1000.0)
        learned.append(reward)
    assert learned[0] < 1.2
    assert learned[-1] == 1000.0
    assert usual.outliers == 5


def test_rewards_that_differ_by_rounding_are_equal() -> None:
    usual = after([0.3, 0.1 + 0.2] * 20)
    assert usual.deviation > 0.0
    assert usual.admit(1.0).reward == 1.0


def test_few_rewards_are_believed_whatever_they_are() -> None:
    usual = after([0.5, 0.4] * (FEWEST_REWARDS // 2 - 1))
    assert usual.admit(1e9).reward == 1e9


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0.01, 100.0), st.floats(-1e3, 1e3))
def test_another_unit_and_origin_change_nothing(rewards: list[float], unit: float, origin: float) -> None:
    rewards = [round(reward, 3) for reward in rewards]
    one, other = NO_REWARDS, NO_REWARDS
    for reward in rewards:
        # Right on the edge rounding decides.
        if 0.0 < one.deviation < 1e-8 * max(abs(one.mean), abs(other.mean) / unit):
            return
        if one.deviation and abs(abs(reward - one.mean) / (FARTHER * one.deviation) - 1.0) < 1e-3:
            return
        learned, one = one.admit(reward)
        scaled, other = other.admit(unit * reward + origin)
        assert scaled == pytest.approx(unit * learned + origin, rel=1e-6, abs=1e-3 * unit)


def test_an_outlier_among_rewards_of_elsewhere_is_learned_as_the_farthest_usual_one() -> None:
    rng = np.random.default_rng(3)
    rewards = np.append(rng.random(600), 1e6)
    rankings = np.array([rng.permutation(9)[:3] for _ in rewards], dtype=np.int32)
    past = PastRows(np.ones((601, 1)), rankings, rewards, np.zeros(601))
    state = State.initial(weighted_convolutional_kendall(9, 3), context_dim=1, limits=Limits(rows=1000))
    learned = state.learn_history(past)
    assert learned.usual.outliers == 1
    assert float(learned.posterior.observations.rewards.max()) < 1.2
    assert rewards.max() == 1e6
