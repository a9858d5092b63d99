from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress
from tests.learning.dense import KINDS

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.episodes import ProblemSize, play
from topk_bandit.lab.simulation.paper_gp import PaperGpTopK
from topk_bandit.lab.simulation.regret_bounds import (
    Assumption,
    BoundSetting,
    Recorder,
    closed_forms,
    fitted_exponent,
    information_gain,
    least_norm,
    regret_bound,
)
from topk_bandit.lab.simulation.scenarios import Batches, Incomplete, Scenario
from topk_bandit.learning.environments import Objective, Shop
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import Kind

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int32]


def played(seed: int, *, rounds: int, n_items: int = 7) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rounds, 2)), random_rankings(np.arange(n_items), slate_size=3, count=rounds, rng=rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_gain_is_half_the_log_determinant_of_every_beginning(kind: Kind) -> None:
    contexts, rankings = played(1, rounds=25)
    features = kind.features(rankings, 7)
    covariance = (contexts @ contexts.T) * (features @ features.T)
    gain = information_gain(kind.make(7, 3), contexts, rankings, noise=0.3)
    for t in (1, 2, 10, 25):
        _, log_determinant = np.linalg.slogdet(np.eye(t) + covariance[:t, :t] / 0.09)
        assert gain[t - 1] == pytest.approx(0.5 * log_determinant)


@given(st.sampled_from(list(Kernel)), st.integers(0, 10_000), st.permutations(range(7)), st.floats(0.02, 2.0))
def test_gain_grows_and_does_not_know_items_by_name(kind: Kernel, seed: int, names: list[int], noise: float) -> None:
    (contexts, rankings), kernel = played(seed, rounds=12), kernel_of(kind, 7, 3)
    gain = information_gain(kernel, contexts, rankings, noise=noise)
    assert (np.diff(gain, prepend=0.0) > 0.0).all()
    renamed = np.array(names, dtype=np.int32)[rankings]
    np.testing.assert_allclose(information_gain(kernel, contexts, renamed, noise=noise), gain, rtol=1e-9)
    assert information_gain(kernel, contexts[::-1], rankings[::-1], noise=noise)[-1] == pytest.approx(gain[-1])


@given(st.sampled_from(list(Kernel)), st.integers(0, 10_000))
def test_a_slate_tells_less_each_time_and_less_the_more_is_known(kind: Kernel, seed: int) -> None:
    (contexts, rankings), kernel = played(seed, rounds=8), kernel_of(kind, 7, 3)
    again = [0] * 6
    repeated = np.diff(information_gain(kernel, contexts[again], rankings[again], noise=0.2), prepend=0.0)
    assert (np.diff(repeated) < 0.0).all()
    for shorter, longer in (([0, 7], [0, 1, 7]), ([7], [2, 3, 4, 7]), ([1, 2, 7], [*range(8)])):
        few = np.diff(information_gain(kernel, contexts[shorter], rankings[shorter], noise=0.2), prepend=0.0)
        many = np.diff(information_gain(kernel, contexts[longer], rankings[longer], noise=0.2), prepend=0.0)
        assert many[-1] <= few[-1] + 1e-9


SETTING = BoundSetting(20, 3, 5, 5, noise=0.05, norm=2.0)


def test_bounds_are_proposition_1_written_out() -> None:
    gain = np.array([1.0, 1.5, 4.0])
    constant = 8.0 / math.log(1.0 + 0.05**-2)
    arms = 5 * len(list(permutations(range(20), 3)))
    drawn = 2.0 * math.log(arms * 9.0 * math.pi**2 / (6.0 * 0.1))
    bounded = 2.0 * 4.0 + 300.0 * 4.0 * math.log(3.0 / 0.1) ** 3
    for assumption, beta in ((Assumption.DRAWN_FROM_PRIOR, drawn), (Assumption.BOUNDED_NORM, bounded)):
        bound = regret_bound(gain, SETTING, assumption)
        assert bound[2] == pytest.approx(math.sqrt(constant * 3.0 * 4.0 * beta) + 2.0)
        assert (np.diff(bound) > 0.0).all()


def test_widths_of_what_was_played_add_up_to_less_than_the_bound() -> None:
    """sum of 2 sqrt(beta_T) sd_t <= sqrt(C_1 T gain beta_T): what Proposition 1 makes of the variances played."""
    contexts, rankings = played(3, rounds=30)
    setting = BoundSetting(7, 3, 2, 30, 0.3, 1.0, largest_variance=float((contexts**2).sum(axis=1).max()))
    kernel = weighted_convolutional_kendall(7, 3)
    gain = information_gain(kernel, contexts, rankings, noise=0.3)
    variances = 0.09 * np.expm1(2.0 * np.diff(gain, prepend=0.0))
    beta = 2.0 * math.log(30 * 210 * 900.0 * math.pi**2 / (6.0 * 0.1))
    width = 2.0 * math.sqrt(beta) * np.sqrt(variances).sum()
    assert width + 2.0 <= regret_bound(gain, setting, Assumption.DRAWN_FROM_PRIOR)[-1] + 1e-9
    assert setting.constant > replace(setting, largest_variance=0.5).constant


def test_closed_forms_are_table_3_s() -> None:
    constant, root = 8.0 / math.log(1.0 + 0.05**-2), math.sqrt
    log_rounds = math.log(200.0**2 * math.pi**2 / 0.6)
    first, second = (closed_forms(SETTING, 200, assumption) for assumption in Assumption)
    expected = root(constant * 200 * 5 * (math.log(5) + 3 + log_rounds))
    assert first == pytest.approx((20.0 * expected, 20.0**1.5 * expected))
    cubed = 300.0 * 5 * math.log(200.0 / 0.1) ** 3
    printed = root(constant * 200 * 5 * (8.0 + 400.0 * cubed))
    assert second == pytest.approx((20.0 * printed, 20.0**1.5 * printed))


def test_least_norm_is_reached_by_a_function_of_one_value() -> None:
    """Of all functions with f(x) = y the one of least norm is y k(x, .) / k(x, x), of norm |y| / sqrt(k(x, x))."""
    assert least_norm(np.array([[3.0, 4.0], [0.6, 0.8]]), np.array([10.0, -1.5])) == pytest.approx(2.0)


@given(st.floats(0.1, 2.0), st.floats(0.1, 10.0), st.integers(1, 40))
def test_a_power_is_fitted_exactly(exponent: float, scale: float, from_round: int) -> None:
    growth = fitted_exponent(scale * np.arange(1, 61.0) ** exponent, from_round=from_round)
    assert growth.exponent == pytest.approx(exponent)
    assert math.exp(growth.intercept) == pytest.approx(scale)
    assert growth.error == pytest.approx(0.0, abs=1e-6)
    assert growth.r_squared == pytest.approx(1.0)


def test_a_fit_is_a_linear_regression_of_the_later_rounds() -> None:
    cumulative = np.random.default_rng(0).exponential(size=80).cumsum()
    growth = fitted_exponent(cumulative, from_round=21)
    expected = linregress(np.log(np.arange(21, 81)), np.log(cumulative[20:]))
    assert growth.exponent == pytest.approx(expected.slope)
    assert growth.intercept == pytest.approx(expected.intercept)
    assert growth.error == pytest.approx(expected.stderr)
    assert growth.r_squared == pytest.approx(expected.rvalue**2)
    assert growth.from_round == 21


def test_what_cannot_be_computed_is_refused() -> None:
    kernel, (contexts, rankings) = weighted_convolutional_kendall(7, 3), played(0, rounds=4)
    with pytest.raises(InvalidArgumentError, match="noise"):
        information_gain(kernel, contexts, rankings, noise=0.0)
    with pytest.raises(InvalidArgumentError, match="contexts"):
        information_gain(kernel, contexts[1:], rankings, noise=1.0)
    with pytest.raises(InvalidArgumentError, match="from_round"):
        fitted_exponent(np.ones(10), from_round=9)
    with pytest.raises(InvalidArgumentError, match="cumulative"):
        fitted_exponent(np.zeros(10), from_round=3)


def test_a_recorder_keeps_what_its_player_played_and_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    market = Shop.random(rng, n_items=6, slate_size=3, context_dim=2, n_customers=3, objective=Objective.DCG)
    scenario = Scenario(market, Incomplete(Batches(2), missing=0.2, deadline=3, default=None))

    def player() -> PaperGpTopK:
        return PaperGpTopK(ProblemSize(6, 3, 2, 3), kernel=Kernel.CONVOLUTIONAL, beta=0.1, rng=np.random.default_rng(1))

    recorder = Recorder(player())
    episode = play(scenario, recorder, rounds=30, rng=np.random.default_rng(2))
    alone = play(scenario, player(), rounds=30, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(episode.reward, alone.reward)
    customers = [market.customers.tolist().index(context) for context in recorder.contexts.tolist()]
    shown = [market.expect_rewards(u, row[None])[0] for u, row in zip(customers, recorder.rankings, strict=True)]
    np.testing.assert_allclose(shown, episode.reward)


@pytest.mark.parametrize(
    ("field", "value"), [("n_items", 0), ("noise", 0.0), ("largest_variance", math.inf), ("norm", -1.0), ("delta", 1.0)]
)
def test_settings_that_make_no_bound_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        replace(SETTING, **{field: value})
    assert error.value.field == field
    with pytest.raises(InvalidArgumentError, match="rounds"):
        closed_forms(SETTING, 0, Assumption.BOUNDED_NORM)
