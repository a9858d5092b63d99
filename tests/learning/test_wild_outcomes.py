"""Outcomes of any size, at any place: wild ones are as if nobody had said so, and a bandit goes on."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.learning.test_magnitudes import (
    LIMITS,
    N_ITEMS,
    ROUNDS,
    SIZES,
    WRONG,
    beside,
    kernel,
    usual_contexts,
    with_features,
)
from tests.learning.told import (
    ASKED,
    Shop,
    assert_predict_alike,
    assert_same_feedback,
    begun,
    past_of,
    some_rankings,
    told,
    with_wild,
)
from tests.long_forms import usual_or_long

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.policy import State

SHOP = Shop()
SLATES = SHOP.slates(150)
TWENTY = tuple(range(60, 80))
PLACES = {
    "the first": (0,),
    "an early one": (3,),
    "a later one": (40,),
    "the last": (149,),
    "twenty from the start": tuple(range(20)),
    "twenty in the middle": TWENTY,
    "twenty at the end": tuple(range(130, 150)),
}
each_place = pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())


@cache
def with_one(value: float, places: tuple[int, ...]) -> State:
    """Return the state that was told this of one item of some slates."""
    return told(begun(), with_wild(SLATES, dict.fromkeys(places, value)), shown=False).refit(150.0)


def untold(places: tuple[int, ...]) -> State:
    """Return the state that was told nothing of one item of some slates."""
    return with_one(math.nan, places)


@pytest.mark.slow
@each_place
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0], ids=["above", "below", "both"])
@pytest.mark.parametrize("size", [30.0, 1e3, 1e30, 1e77, 1e100])
def test_wild_outcomes_are_as_if_nobody_had_said_so(size: float, sign: float, places: tuple[int, ...]) -> None:
    signs = [sign or (-1.0) ** number for number in range(len(places))]
    wild = {place: one * size for place, one in zip(places, signs, strict=True)}
    state = told(begun(), with_wild(SLATES, wild), shown=False).refit(150.0)
    assert_predict_alike(state, untold(places))


@pytest.mark.long_form
@pytest.mark.parametrize("seed", usual_or_long(range(3), long=range(30)))
def test_so_are_wild_outcomes_of_many_sizes_anywhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.choice(150, int(rng.integers(1, 21)), replace=False).tolist()
    wild = {place: float(rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(2.0, 100.0)) for place in places}
    state = told(begun(), with_wild(SLATES, wild), shown=False).refit(150.0)
    assert_predict_alike(state, untold(tuple(places)))


def test_other_outcomes_of_the_slate_and_its_reward_are_learned() -> None:
    state = told(begun(), with_wild(SLATES, {3: 1e9, 40: -1e30}), shown=False).refit(150.0)
    nothing = [one._replace(outcomes=None) if place in {3, 40} else one for place, one in enumerate(SLATES)]
    without = told(begun(), nothing, shown=False).refit(150.0)
    asked = state.encode(ASKED[0])
    mine, theirs = (one.posterior.predict(asked, some_rankings()).mean for one in (state, without))
    assert np.abs(mine - theirs).max() > 1e-4
    assert state.counted.wild_rewards == 0
    assert state.posterior.n_rows == 150


def test_sums_of_what_left_the_latest_have_no_wild_outcomes() -> None:
    slates, wild = SHOP.slates(300), {3: 1e9, 20: -1e100, 43: 1e30}
    state = told(begun(), with_wild(slates, wild), shown=False).refit(300.0)
    other = told(begun(), with_wild(slates, dict.fromkeys(wild, math.nan)), shown=False).refit(300.0)
    assert state.feedback is not None
    assert other.feedback is not None
    alike = replace(
        state, recent=other.recent, feedback=replace(state.feedback, outcome_range=other.feedback.outcome_range)
    )
    assert_same_feedback(alike, other)
    assert_predict_alike(state, other)


def test_a_history_with_wild_outcomes_is_learned_without_them() -> None:
    wild = dict.fromkeys(TWENTY, 1e9)
    state = begun().learn_history(past_of(with_wild(SLATES, wild), at=150.0), at=150.0)
    assert_predict_alike(state, untold(tuple(wild)))


@pytest.mark.parametrize(
    ("size", "places"), [(5e-324, TWENTY), (1e-320, (0,)), (1e-200, TWENTY), (1e-101, (0,)), (-1e-30, TWENTY)]
)
def test_outcomes_next_to_zero_are_zeros(size: float, places: tuple[int, ...]) -> None:
    assert_predict_alike(with_one(size, places), with_one(0.0, places))


@pytest.mark.parametrize("factor", [1000.0, -1000.0, 0.001])
def test_outcomes_whose_scale_changes_for_good_are_learned(factor: float) -> None:
    """As if they were cents from some day on: utilities are as good as before, and worth as much less."""
    more = [
        one._replace(outcomes=1.0 + factor * (one.outcomes - 1.0))
        for one in SHOP.slates(250, first=150)
        if one.outcomes is not None
    ]
    state = told(with_one(1.0, ()), more, shown=False).refit(400.0)
    assert state.feedback is not None
    assert state.feedback.outcome_range.reach == pytest.approx(11.7 * abs(factor), rel=0.5)
    assert state.posterior.prior_mean is not None
    assert state.posterior.prior_mean.covariances is not None
    context = np.array([0.3, -0.5])
    believed = state.posterior.prior_mean.utilities(state.encode(context), np.arange(20))
    truth = SHOP.tastes @ np.append(1.0, context)
    assert math.copysign(1.0, factor) * np.corrcoef(believed, truth)[0, 1] > 0.85
    rankings = some_rankings()
    found = state.predict(context, rankings).mean
    assert np.corrcoef(found, SHOP.expected(context, rankings))[0, 1] > 0.85


def live(
    outcomes: np.ndarray, state: State, *, rewards: np.ndarray | None = None, contexts: np.ndarray | None = None
) -> State:
    """Return the state after slates whose items did that; every decision has finite figures."""
    rng = np.random.default_rng(0)
    rewards = np.random.default_rng(3).random(len(outcomes)) if rewards is None else rewards
    contexts = usual_contexts() if contexts is None else contexts
    eligible = np.arange(N_ITEMS, dtype=np.int32)
    for number, (did, reward) in enumerate(zip(outcomes, rewards.tolist(), strict=True)):
        context = contexts[number]
        decision = decide(state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=rng)
        figures = decision.mean, decision.standard_deviation, decision.regret_bound, decision.estimated_regret
        assert all(map(math.isfinite, figures)), (number, figures)
        shown = f"{number}", context, decision.ranking
        state = state.shown(*shown).rewarded(*shown, reward=reward, at=float(number), outcomes=did)
    return state


def fresh() -> State:
    return State.initial(kernel(), context_dim=2, limits=LIMITS)


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((ROUNDS, 2))


each_size = pytest.mark.parametrize("size", SIZES)


@each_size
def test_outcomes_of_one_size(size: float) -> None:
    live(size * np.random.default_rng(2).choice([-1.0, 0.0, 1.0], (ROUNDS, 2)), fresh())


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "place"), beside(0, 9, 40))
def test_outcomes_among_zeros(size: float, place: int) -> None:
    outcomes = np.zeros((ROUNDS, 2))
    outcomes[place : place + 20] = size
    live(outcomes, fresh())


@each_size
def test_outcomes_among_usual_ones(size: float) -> None:
    outcomes = drawn(4)
    outcomes[10:30, 1] = size
    outcomes[20:60, 0] = np.nan
    live(outcomes, fresh())


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "of_rewards"), beside(1e-99, 1e99))
def test_outcomes_beside_rewards_of_another_size(size: float, of_rewards: float) -> None:
    live(size * drawn(5), fresh(), rewards=of_rewards * np.random.default_rng(6).random(ROUNDS))


@pytest.mark.parametrize(
    ("size", "dim"), [(0.0, 2), (5e-324, 1), (1e-161, 2), (1e-101, 1), (1e-30, 2), (1e6, 1), (1e6, 2)]
)
def test_outcomes_in_contexts_of_one_size(size: float, dim: int) -> None:
    """Up to the largest contexts that requests may have."""
    state = State.initial(kernel(), context_dim=dim, limits=LIMITS)
    live(drawn(7), state, contexts=size * (usual_contexts() if dim == 2 else np.ones((ROUNDS, 1))))


@pytest.mark.long_form
@pytest.mark.parametrize(("size", "kind"), beside("half-life", "encoded", "item features"))
def test_outcomes_that_fade_or_are_of_described_customers_and_items(size: float, kind: str) -> None:
    state = replace(fresh(), half_life=12.0) if kind == "half-life" else fresh()
    contexts = usual_contexts()
    if kind == "encoded":
        state, contexts = State.initial(kernel(), context_dim=2, limits=LIMITS, encoded=True), contexts / 4.0
    if kind == "item features":
        state = with_features(state)
    outcomes = drawn(8)
    outcomes[:15] = size
    live(outcomes, state, contexts=contexts)


USUAL = np.array([0.5, 0.2])


@cache
def before_and_after_wrong_ones() -> tuple[State, State]:
    """Return the state that has just been told wrong outcomes, and the one it becomes in more slates than it waits."""
    state = live(drawn(9), fresh()).rewarded("wrong", *WRONG, reward=0.5, at=100.0, outcomes=USUAL)
    return state, live(drawn(10)[:40], state)


@each_size
def test_outcomes_that_are_corrected_and_revised(size: float) -> None:
    state, later = before_and_after_wrong_ones()
    assert can_correct(state, "wrong")
    wild = np.array([size, -size])
    live(drawn(10)[:20], correct(state, "wrong", 0.5, outcomes=wild))
    revised = revise(later, "wrong", *WRONG, before=0.5, reward=0.5, at=100.0, before_outcomes=USUAL, outcomes=wild)
    assert revised is not None
    live(drawn(11)[:20], revised)
