"""What is judged wild is not learned; what was judged wrongly is put right, as if it had been known at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.happenings import CONTEXT_DIM, N_ITEMS, SLATE_SIZE

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.corrections import _is_latest, can_correct, correct
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.recent_observations import PastRows, Verdict
from topk_bandit.learning.state_changes import change_contexts, vacate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.learning.posterior import Moments

EVERYTHING = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
ASK = np.array([0.6, -0.4])
WORTH = np.random.default_rng(0).normal(size=(N_ITEMS, CONTEXT_DIM))


def begun(kernel: Kernel = Kernel.WEIGHTED_CONVOLUTIONAL, *, half_life: float = np.inf) -> State:
    basis = kernel_of(kernel, N_ITEMS, SLATE_SIZE)
    return State.initial(basis, context_dim=CONTEXT_DIM, limits=Limits(), half_life=half_life)


def observed(number: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the context, the slate and the honest reward of a round."""
    rng = np.random.default_rng(number)
    context, ranking = rng.normal(size=CONTEXT_DIM), rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)
    return context, ranking, float(WORTH[ranking] @ context @ [0.5, 0.3, 0.2] + 0.1 * rng.normal())


def live(
    state: State,
    first: int,
    last: int,
    *,
    rewards: Mapping[int, float] | None = None,
    lengths: Mapping[int, float] | None = None,
) -> State:
    """Show and reward slates; those of some rounds with other rewards, or in contexts of another length."""
    for number in range(first, last):
        context, ranking, reward = observed(number)
        context = context * (lengths or {}).get(number, 1.0)
        state = state.shown(f"s{number}", context, ranking)
        given = (rewards or {}).get(number, reward)
        state = state.rewarded(f"s{number}", context, ranking, reward=given, at=float(number + 1))
    return state


def learned_at_once(rounds: list[int], *, at: float = 0.0, like: State | None = None) -> State:
    """Return the state of a bandit that begins with the honest observations of some rounds."""
    rows = [observed(number) for number in rounds]
    contexts, rankings, rewards = (np.array(part) for part in zip(*rows, strict=True))
    return (like or begun()).learn_history(
        PastRows(contexts, rankings, rewards, at - np.array(rounds, dtype=float) - 1.0), at=at
    )


def assert_close(one: Moments, other: Moments) -> None:
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)


@pytest.mark.parametrize("size", [30.0, -1e6, 1e100, 5e-324, -9e-101])
def test_a_wild_reward_changes_no_prediction(size: float) -> None:
    state = live(begun(), 0, 60)
    context, ranking, _ = observed(60)
    shown = state.shown("s60", context, ranking)
    wild = shown.rewarded("s60", context, ranking, reward=size)
    assert digest_state(replace(wild, observations=0, since_refit=0, recent=shown.recent)) == digest_state(
        replace(shown.closed("s60"), observations=0, since_refit=0)
    )
    assert (wild.observations, wild.counted.wild_rewards) == (61, 1)
    assert wild.counted.reward_sum == shown.counted.reward_sum
    assert wild.rewarded_share > shown.closed("s60").rewarded_share


@pytest.mark.parametrize("size", [0.0, 1e-100])
def test_nothing_is_a_reward_as_is_a_little(size: float) -> None:
    assert live(begun(), 0, 61, rewards={60: size}).counted.wild_rewards == 0


def test_a_wild_context_is_neither_pending_nor_learned() -> None:
    state = live(begun(), 0, 60)
    context, ranking, reward = observed(60)
    shown = state.shown("s60", 1e4 * context, ranking)
    assert shown.pending_ids == state.pending_ids
    wild = shown.rewarded("s60", 1e4 * context, ranking, reward=reward)
    assert (wild.counted.wild_contexts, wild.posterior.n_rows) == (1, state.posterior.n_rows)
    assert_close(wild.predict(ASK, EVERYTHING), state.predict(ASK, EVERYTHING))


@pytest.mark.parametrize("wild", [{0: 1e6}, {3: -50.0}, {0: 1e100, 1: -1e100}, {2: 40.0, 5: 1e3, 6: -1e9}])
def test_what_was_learned_before_it_could_be_judged_is_taken_back(wild: dict[int, float]) -> None:
    state = live(begun(), 0, 40, rewards=wild).refit(40.0)
    honest = [number for number in range(40) if number not in wild]
    assert state.counted.wild_rewards == len(wild)
    assert state.posterior.n_rows == len(honest)
    expected = learned_at_once(honest)
    assert_close(state.predict(ASK, EVERYTHING), expected.predict(ASK, EVERYTHING))
    assert state.counted.reward_sum == pytest.approx(sum(observed(number)[2] for number in honest))


def test_so_is_what_was_learned_in_wild_contexts() -> None:
    state = live(begun(), 0, 40, lengths={1: 1e6, 4: 1e5}).refit(40.0)
    honest = [number for number in range(40) if number not in {1, 4}]
    assert (state.counted.wild_contexts, state.posterior.n_rows) == (2, len(honest))
    assert_close(state.predict(ASK, EVERYTHING), learned_at_once(honest).predict(ASK, EVERYTHING))


def test_slates_in_wild_contexts_stop_being_pending_once_contexts_can_be_judged() -> None:
    state = begun()
    for number in range(8):
        context, ranking, _ = observed(number)
        state = state.shown(f"s{number}", context * (1e6 if number == 0 else 1.0), ranking)
        assert ("s0" in state.pending_ids) == (number < 7)


def test_a_run_of_wild_rewards_from_the_start_is_over_when_most_are_honest() -> None:
    wild = {number: (-1.0) ** number * 1e6 for number in range(30)}
    state = live(begun(), 0, 110, rewards=wild)
    assert state.counted.wild_rewards == 30
    honest = list(range(30, 110))
    assert_close(state.refit(110.0).predict(ASK, EVERYTHING), learned_at_once(honest).predict(ASK, EVERYTHING))


def test_rewards_of_another_scale_are_learned_and_those_before_are_not() -> None:
    """They are a million times as large for good, and judged wild at first."""
    larger = {number: 1e6 * observed(number)[2] for number in range(100, 300)}
    state = live(begun(), 0, 150, rewards=larger)
    assert state.counted.wild_rewards > 40
    state = live(state, 150, 300, rewards=larger).refit(300.0)
    assert state.counted.wild_rewards <= 10
    expected = learned_at_once(list(range(100, 300)))
    means = [one.predict(ASK, EVERYTHING).mean for one in (state, expected)]
    assert np.corrcoef(*means)[0, 1] > 0.98
    assert np.ptp(means[0]) == pytest.approx(1e6 * np.ptp(means[1]), rel=0.1)


FIRST_EIGHT = {number: 1e6 * (-1.0) ** number for number in range(8)}


def test_ageing_counts_from_when_rewards_came() -> None:
    state = begun(half_life=20.0)
    while not state.counted.wild_rewards:
        state = live(state, state.observations, state.observations + 1, rewards=FIRST_EIGHT)
    now = state.observations
    assert (state.counted.wild_rewards, state.since_refit) == (8, 0)
    like = replace(begun(half_life=20.0), observations=8)
    expected = learned_at_once(list(range(8, now)), at=float(now), like=like)
    assert_close(state.predict(ASK, EVERYTHING), expected.predict(ASK, EVERYTHING))


def test_a_wild_reward_can_be_amended_and_is_learned_then() -> None:
    state = live(begun(), 0, 100, rewards={60: 500.0})
    while "s60" not in state.recent.ids or _is_latest(state, state.recent.ids.index("s60")):
        state = live(state, state.observations, state.observations + 1)
    right = correct(state, "s60", observed(60)[2])
    assert (right.observations, right.counted.wild_rewards) == (state.observations, 0)
    assert right.posterior.n_rows == state.posterior.n_rows + 1
    expected = learned_at_once([*range(60), *range(61, state.observations), 60])
    alike = right.refit(float(state.observations))
    np.testing.assert_allclose(
        alike.predict(ASK, EVERYTHING).mean, expected.predict(ASK, EVERYTHING).mean, atol=0.05 * np.ptp(WORTH)
    )
    # The store is sent how long corrections can be taken in: numbers of numpy are none that it knows.
    assert type(right.rewards_before_refit) is int
    voided = correct(state, "s60", None)
    assert (voided.observations, voided.counted.wild_rewards) == (state.observations - 1, 0)
    assert digest_state(replace(voided, observations=0)) != ""
    assert not can_correct(voided, "s60")
    still = correct(state, "s60", -900.0)
    assert still.counted.wild_rewards == 1
    assert still.recent.rewards[still.recent.ids.index("s60")] == -900.0


def test_a_learned_reward_that_is_amended_to_a_wild_one_is_not_learned_any_more() -> None:
    state = live(begun(), 0, 61)
    assert _is_latest(state, len(state.recent) - 1)
    wild = correct(state, "s60", 1e5)
    assert wild.posterior.n_rows == state.posterior.n_rows - 1
    assert wild.counted.wild_rewards == 1
    assert_close(wild.predict(ASK, EVERYTHING), correct(state, "s60", None).predict(ASK, EVERYTHING))
    again = correct(wild, "s60", observed(60)[2])
    assert_close(again.predict(ASK, EVERYTHING), state.predict(ASK, EVERYTHING))


def test_a_checkpoint_has_what_is_not_believed() -> None:
    wild = dict.fromkeys(range(20, 30), 1e6)
    state = live(begun(), 0, 60, rewards=wild, lengths={40: 1e5})
    while state.since_refit:
        state = live(state, state.observations, state.observations + 1)
    restored = State.restore(state.posterior.kernel, state.checkpoint, limits=Limits())
    assert digest_state(restored) == digest_state(state)
    one, other = (live(life, life.observations, life.observations + 90, rewards=wild) for life in (state, restored))
    assert digest_state(one) == digest_state(other)
    assert one.counted == other.counted


def test_observations_of_items_that_are_gone_are_never_learned_anew() -> None:
    state = live(begun(), 0, 60, rewards={50: 1e6})
    gone = observed(50)[1][:1]
    left = vacate(state, gone, 60.0)
    assert not np.isin(left.recent.rankings, gone).any()
    assert left.counted == pytest.approx(state.counted)
    assert left.observations == 60


def test_what_is_judged_anew_is_in_the_coordinates_of_now() -> None:
    turn, _ = np.linalg.qr(np.random.default_rng(12).normal(size=(CONTEXT_DIM, CONTEXT_DIM)))

    def turned(contexts: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.column_stack([contexts[:, :CONTEXT_DIM] @ turn.T, contexts[:, CONTEXT_DIM:]])

    state = change_contexts(live(begun(), 0, 9, rewards=FIRST_EIGHT), turned)
    assert state.counted.wild_rewards == 0
    for number in range(9, 40):
        context, ranking, reward = observed(number)
        state = state.rewarded(f"s{number}", turn @ context, ranking, reward=reward)
    assert state.counted.wild_rewards == 8
    expected = learned_at_once(list(range(8, 40)))
    assert_close(state.refit(40.0).predict(turn @ ASK, EVERYTHING), expected.predict(ASK, EVERYTHING))


def test_verdicts_are_three() -> None:
    assert [one.name for one in Verdict] == ["BELIEVED", "WILD_REWARD", "WILD_CONTEXT"]
