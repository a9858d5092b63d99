"""GP-TopK with a prior mean: it follows the utilities, learns how far to, and stays a function of what happened."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.believed import Believer, Utilities
from tests.learning.dense import CK, WCK, DenseGp, Kind, assert_close, rankings_of
from tests.learning.happenings import ASK_CONTEXT, CONTEXT_DIM, KERNEL, N_ITEMS, SLATE_SIZE, folded, happenings
from tests.learning.test_policy import LIMITS, assert_same

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.kendall import adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.state_changes import change_prior_mean, change_prior_of_new_items

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.bits

GREEDY = Exploration(ConstantBeta(1.0), uniform_share=0.0)
OF = ["contexts", "items"]
each_of = pytest.mark.parametrize("of", OF)
each_limits = pytest.mark.parametrize(
    ("limits", "of"), [pytest.param(*limits.values, of) for limits, of in zip(LIMITS, cycle(OF))]
)


def utilities(seed: int, *, of: str = "contexts", n_items: int = N_ITEMS) -> Utilities:
    rng = np.random.default_rng(seed)
    return Utilities.draw(rng, n_items=n_items, context_dim=CONTEXT_DIM, of=of)


def initial(limits: Limits, *, of: str) -> State:
    prior_mean = utilities(1, of=of).prior_mean(WCK, SLATE_SIZE)
    return State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=limits, prior_mean=prior_mean)


def best(state: State, context: NDArray[np.float64], *, eligible: NDArray[np.int32] | None = None) -> list[int]:
    items = np.arange(state.posterior.kernel.n_items, dtype=np.int32) if eligible is None else eligible
    decision = decide(state, GREEDY, context=context, eligible=items, rng=np.random.default_rng(0))
    return list(decision.ranking.tolist())


@each_limits
def test_the_same_happenings_give_the_same_state_to_the_bit(limits: Limits, of: str) -> None:
    drawn = happenings(1, 250)
    one, other = (folded(initial(limits, of=of), drawn) for _ in range(2))
    assert_same(one, other)
    assert one.posterior.slope == other.posterior.slope != 0.0


@each_limits
def test_a_restored_state_goes_on_as_the_one_it_was_taken_from(limits: Limits, of: str) -> None:
    for count in (2, 120):
        live = folded(initial(limits, of=of), happenings(1, count)).refit()
        prior_mean = live.posterior.prior_mean
        restored = State.restore(KERNEL, live.checkpoint, limits=limits, prior_mean=prior_mean)
        assert_same(restored, live)
        assert_same(live.refit(), live)
        for happening in happenings(2, 60, prefix="later-"):
            live, restored = happening.fold(live), happening.fold(restored)
        assert_same(restored, live)
        assert restored.posterior.slope == live.posterior.slope


@each_of
def test_the_state_is_the_posterior_at_its_best_offset_slope_and_amplitude(of: str) -> None:
    state = initial(Limits(rows=500), of=of)
    believed = utilities(1, of=of)
    rng = np.random.default_rng(3)
    contexts, rankings = rng.normal(size=(60, CONTEXT_DIM)), rankings_of(N_ITEMS, SLATE_SIZE, 60, rng)
    rewards = rng.normal(size=60) + 1.5 * believed.h(WCK, contexts, rankings)
    for place, (context, ranking, reward) in enumerate(zip(contexts, rankings, rewards.tolist(), strict=True)):
        state = state.rewarded(str(place), context, ranking, reward=reward)
    posterior = state.posterior
    gp = DenseGp(WCK, N_ITEMS, posterior.noise_variance, contexts, rankings, rewards, offset=posterior.offset,
                 amplitude=posterior.amplitude)  # fmt: skip
    expected = Believer(gp, believed, posterior.slope).predict(ASK_CONTEXT, rankings)
    assert_close(posterior.predict(ASK_CONTEXT, rankings), expected, atol=1e-8)
    # With a wide prior on the slope, s and b are about those of generalised least squares.
    h, ones = believed.h(WCK, contexts, rankings), np.ones(60)
    design = np.column_stack([ones, h])
    weights = np.linalg.inv(gp.noisy(gp.rewarded))
    offset, slope = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ rewards)
    assert posterior.slope == pytest.approx(slope, abs=0.1)
    assert posterior.offset == pytest.approx(offset, abs=0.1)
    rest = rewards - design @ [offset, slope]
    assert posterior.amplitude == pytest.approx(rest @ weights @ rest / 60, rel=0.1)


@each_of
@pytest.mark.parametrize("kind", [WCK, CK], ids=lambda kind: kind.name)
def test_the_first_slate_follows_the_utilities(kind: Kind, of: str) -> None:
    for n_items, slate_size in ((9, 3), (60, 6), (400, 4)):
        believed = utilities(4, of=of, n_items=n_items)
        prior_mean = believed.prior_mean(kind, slate_size)
        state = State.initial(
            kind.make(n_items, slate_size), context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean
        )
        for context in (ASK_CONTEXT, -2.0 * ASK_CONTEXT):
            order = np.argsort(-(believed.constants + believed.slopes @ context))
            assert best(state, context) == order[:slate_size].tolist()
            odd = np.arange(1, n_items, 2, dtype=np.int32)
            assert best(state, context, eligible=odd) == [item for item in order.tolist() if item % 2][:slate_size]


@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_it_follows_them_while_the_first_rewards_are_awaited_however_long_contexts_are(length: float) -> None:
    believed = utilities(5, of="items", n_items=40)
    prior_mean = believed.prior_mean(WCK, 3)
    state = State.initial(WCK.make(40, 3), context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean)
    top = set(np.argsort(-believed.constants)[:10].tolist())
    for place in range(8):
        context = length * np.array([np.cos(place), np.sin(place)])
        slate = best(state, context)
        assert len(top & set(slate)) >= 2
        state = state.shown(str(place), context, np.array(slate, dtype=np.int32))


@pytest.mark.usefixtures("without_draws")
@pytest.mark.parametrize("count", [0, 1, 4, 12])
def test_the_best_slate_is_the_best_of_all_though_only_some_new_items_are_searched(count: int) -> None:
    for seed in range(6):
        believed = utilities(seed, n_items=12)
        kernel = WCK.make(12, 2)
        prior_mean = believed.prior_mean(WCK, 2)
        state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean)
        rng = np.random.default_rng(seed)
        # Four items at most are ever shown, so that eight are new and two of these stand for them.
        for place, ranking in enumerate(rankings_of(4, 2, count, rng)):
            state = state.rewarded(str(place), rng.normal(size=CONTEXT_DIM), ranking, reward=float(rng.normal()))
        everything = all_rankings(np.arange(12), slate_size=2)
        moments = state.predict(ASK_CONTEXT, everything)
        bounds = moments.mean + np.sqrt(moments.variance)
        assert best(state, ASK_CONTEXT) == everything[int(np.argmax(bounds))].tolist()


def test_new_items_of_which_nothing_is_known_stand_for_each_other() -> None:
    prior_mean = PriorMean.of(WCK.make(30, 3), np.array([1.0, -1.0]), np.zeros((2, 2)), np.full(30, -1, dtype=np.intp))
    state = State.initial(WCK.make(30, 3), context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean)
    chosen = set()
    for place in range(12):
        slate = best(state, ASK_CONTEXT)
        chosen.update(slate)
        state = state.shown(str(place), ASK_CONTEXT, np.array(slate, dtype=np.int32))
    assert len(chosen) > 12


def played(state: State, truth: Utilities, sign: float, *, rounds: int) -> State:
    rng = np.random.default_rng(6)
    for place in range(rounds):
        context = rng.normal(size=CONTEXT_DIM)
        slate = np.array(best(state, context), dtype=np.int32)
        reward = 5.0 + 10.0 * sign * float(truth.h(WCK, context[None], slate[None])[0]) + rng.normal()
        state = state.rewarded(str(place), context, slate, reward=reward)
    return state


@pytest.mark.parametrize(("sign", "low", "high"), [(1.0, 6.0, 14.0), (-1.0, -14.0, 0.5)])
def test_how_far_to_follow_is_learned_in_the_unit_of_the_rewards(sign: float, low: float, high: float) -> None:
    state = played(initial(Limits(), of="contexts"), utilities(1), sign, rounds=60)
    assert low < state.posterior.slope < high


def test_a_prior_that_comes_later_changes_nothing_that_was_learned() -> None:
    drawn = happenings(7, 100)
    prior_mean = utilities(8).prior_mean(WCK, SLATE_SIZE)
    plain = State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=Limits())
    later = change_prior_mean(folded(plain, drawn), prior_mean)
    first = folded(
        State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean), drawn
    ).refit()
    asked = rankings_of(N_ITEMS, SLATE_SIZE, 30, np.random.default_rng(9))
    assert (later.observations, later.pending_ids) == (first.observations, first.pending_ids)
    assert later.since_refit == 0
    assert later.posterior.slope == pytest.approx(first.posterior.slope, rel=1e-6)
    assert_close(later.predict(ASK_CONTEXT, asked), first.predict(ASK_CONTEXT, asked), atol=1e-6)
    without = change_prior_mean(later, None)
    assert_same(without, folded(plain, drawn).refit().refit())


def test_items_that_arrive_later_are_believed_in_at_once() -> None:
    kernel = WCK.make(8, 2)
    constants = np.array([0.0, 1.0, 2.0, 3.0, 9.0])
    known = np.array([0, 1, 2, 3, -1, -1, -1, -1])
    prior_mean = PriorMean.of(kernel, constants, np.zeros((5, CONTEXT_DIM)), known)
    state = State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits(), prior_mean=prior_mean)
    few = np.arange(4, dtype=np.int32)
    assert best(state, ASK_CONTEXT, eligible=few) == [3, 2]
    state = state.rewarded("one", ASK_CONTEXT, np.array([3, 2], dtype=np.int32), reward=0.5)
    wider = change_prior_of_new_items(state, prior_mean.with_rows(np.array([0, 1, 2, 3, -1, 4, -1, -1])))
    asked = all_rankings(np.arange(4), slate_size=2)
    assert wider.predict(ASK_CONTEXT, asked).mean.tobytes() == state.predict(ASK_CONTEXT, asked).mean.tobytes()
    assert best(wider, ASK_CONTEXT, eligible=np.arange(6, dtype=np.int32))[0] == 5


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_rewards_that_are_all_equal_keep_the_amplitude_and_wear_the_slope_down(value: float) -> None:
    state = initial(Limits(), of="contexts")
    rng = np.random.default_rng(10)
    slopes = [state.posterior.slope]
    for place, ranking in enumerate(rankings_of(N_ITEMS, SLATE_SIZE, 30, rng)):
        state = state.rewarded(str(place), rng.normal(size=CONTEXT_DIM), ranking, reward=value)
        slopes.append(state.posterior.slope)
        assert state.posterior.amplitude == 1.0
    assert slopes[1] == pytest.approx(slopes[0])
    assert slopes[0] > 0.5
    assert 0.0 < slopes[-1] < 0.3 * slopes[0]


@each_of
def test_means_are_in_the_unit_of_the_rewards_from_the_first_slate_on(of: str) -> None:
    # README's example: 6 items where there is capacity for 50, a study of four of them, and a first reward of 0.7.
    rows = np.array([0, 1, 2, 3, *[-1] * 46])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        believed = Utilities.draw(rng, n_items=4, context_dim=2, of=of)
        kernel = adaptive_kendall(50, 3)
        prior_mean = PriorMean.of(kernel, believed.constants, believed.slopes, rows)
        state = State.initial(kernel, context_dim=2, limits=Limits(), prior_mean=prior_mean)
        means, rewards = [], [0.7, *(0.7 + 0.2 * rng.normal(size=13)).tolist()]
        for place, reward in enumerate(rewards):
            context = np.array([1.0, 0.3 if place == 0 else rng.normal()])
            decision = decide(state, GREEDY, context=context, eligible=np.arange(6, dtype=np.int32), rng=rng)
            means.append(decision.mean)
            state = state.rewarded(str(place), context, decision.ranking, reward=reward)
        assert means[0] == 0.0
        assert means[1] == pytest.approx(0.7)
        np.testing.assert_allclose(means[2:], 0.7, atol=1.5)


@each_of
def test_means_are_those_of_rewards_that_are_all_equal_in_every_context(of: str) -> None:
    state, rng = initial(Limits(), of=of), np.random.default_rng(11)
    for place, ranking in enumerate(rankings_of(N_ITEMS, SLATE_SIZE, 12, rng)):
        state = state.rewarded(str(place), rng.normal(size=CONTEXT_DIM), ranking, reward=7.0)
        decision = decide(
            state,
            GREEDY,
            context=3.0 * rng.normal(size=CONTEXT_DIM),
            eligible=np.arange(N_ITEMS, dtype=np.int32),
            rng=rng,
        )
        assert decision.mean == pytest.approx(7.0)
