"""GP-TopK as a fold: the same happenings give the same state, and a refit state is its rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from tests.learning.contents import attributes
from tests.learning.dense import CK, WCK, WK, DenseGp, Kind, Sample, assert_close, same, sample
from tests.learning.happenings import (
    ASK_CONTEXT,
    CONTEXT_DIM,
    KERNEL,
    N_ITEMS,
    SLATE_SIZE,
    Closed,
    Earned,
    Happening,
    Shown,
    folded,
    happenings,
    initial,
)

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.kendall import CONSTANTS, CONTENTS, Shape, adaptive_kendall
from topk_bandit.learning.kernel_choice import LEAST_SHARED, MOST_SHARED
from topk_bandit.learning.limits import Limits, most_bytes_of
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.state_changes import change_contexts, change_kernel, forget

pytestmark = pytest.mark.bits

EVERYTHING = np.array(list(permutations(range(N_ITEMS), SLATE_SIZE)), dtype=np.int32)
LIMITS = [
    pytest.param(Limits(), id="large"),
    pytest.param(Limits(rows=50), id="few rows"),
    pytest.param(Limits(rows=60, pending_rows=4), id="few pending"),
]


def assert_same(left: State, right: State) -> None:
    assert left.pending_ids == right.pending_ids
    assert (left.observations, left.since_refit) == (right.observations, right.since_refit)
    one, other = left.posterior, right.posterior
    assert (one.n_rows, one.n_pending, one.noise_variance) == (other.n_rows, other.n_pending, other.noise_variance)
    assert (one.offset, one.amplitude) == (other.offset, other.amplitude)
    assert same(left.predict(ASK_CONTEXT, EVERYTHING), right.predict(ASK_CONTEXT, EVERYTHING))


def rebuilt(state: State) -> State:
    """Return a state of the same rows, pending slates and counts that has lived through nothing else."""
    old = state.posterior
    posterior = Posterior.fit(old.kernel, old.observed_rows, old.pending, noise_variance=old.noise_variance)
    return State(
        posterior=posterior,
        limits=state.limits,
        pending_ids=state.pending_ids,
        observations=state.observations,
        since_refit=state.since_refit,
    )


def test_a_difference_is_that_of_the_means_once_rewards_differ() -> None:
    first, second = EVERYTHING[3], EVERYTHING[-2]
    state = initial(Limits())
    for number, reward in enumerate((0.5, 0.5, 0.5, 2.0)):
        mean, variance = state.predict_difference(ASK_CONTEXT, first, second)
        assert (mean, variance > 0.0) == (0.0, True), "no reward differs yet"
        slate = f"s{number}", ASK_CONTEXT, EVERYTHING[number]
        state = state.shown(*slate).rewarded(*slate, reward=reward)
    mean, _ = state.predict_difference(ASK_CONTEXT, first, second)
    means = state.predict(ASK_CONTEXT, np.array([first, second])).mean
    assert mean == pytest.approx(means[0] - means[1], abs=1e-9)
    assert mean != 0.0


@pytest.mark.parametrize("limits", LIMITS)
def test_the_same_happenings_give_the_same_state_to_the_bit(limits: Limits) -> None:
    drawn = happenings(1, 250)
    assert_same(folded(initial(limits), drawn), folded(initial(limits), drawn))


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
def test_a_refit_twice_is_a_refit_once(limits: Limits) -> None:
    for seed in range(4):
        refit = folded(initial(limits), happenings(seed, 150)).refit()
        assert refit.since_refit == 0
        assert_same(refit.refit(), refit)


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
def test_a_refit_is_a_function_of_rows_pending_slates_and_counts(limits: Limits) -> None:
    for seed in range(4):
        state = folded(initial(limits), happenings(seed, 150))
        assert state.posterior.n_pending > 0
        assert_same(rebuilt(state).refit(), state.refit())


def test_slates_that_were_closed_leave_no_trace_in_a_refit() -> None:
    drawn = happenings(3, 80)
    closed: list[Happening] = []
    for place, ranking in enumerate(EVERYTHING[:30]):
        closed += [Shown(f"closed-{place}", ASK_CONTEXT, ranking), Closed(f"closed-{place}")]
    assert_same(folded(initial(), [*drawn, *closed]).refit(), folded(initial(), drawn).refit())


@pytest.mark.parametrize("limits", LIMITS)
def test_a_restored_state_goes_on_as_the_one_it_was_taken_from(limits: Limits) -> None:
    live = folded(initial(limits), happenings(1, 120)).refit()
    restored = State.restore(KERNEL, live.checkpoint, limits=limits)
    assert_same(restored, live)
    for happening in happenings(2, 120, prefix="later-"):
        live, restored = happening.fold(live), happening.fold(restored)
    assert_same(restored, live)


def test_a_restored_empty_state_is_the_initial_one() -> None:
    start = initial()
    assert_same(State.restore(KERNEL, start.checkpoint, limits=Limits()), start)
    assert_same(start.refit(), start)


@pytest.mark.parametrize("rows", [1, 5, 40, 100])
def test_there_are_never_more_rows_than_the_limit_and_a_quarter(rows: int) -> None:
    state = initial(Limits(rows=rows))
    most = 0
    for happening in happenings(3, 400):
        state = happening.fold(state)
        most = max(most, state.posterior.n_rows)
        if state.since_refit == 0:
            assert state.posterior.n_rows <= rows
    assert most <= max(rows * 5 // 4, rows + 8)
    assert state.observations > 200
    # There are 36 coordinates of a ranking for each of two coordinates of the context.
    assert state.posterior.n_rows >= min(rows, 72)


def test_memory_stays_within_what_its_limits_allow() -> None:
    for rows in (20, 60):
        limits = Limits(rows=rows, pending_rows=16)
        state = initial(limits)
        for happening in happenings(3, 400):
            state = happening.fold(state)
            assert state.memory_bytes <= most_bytes_of(limits, context_dim=CONTEXT_DIM, slate_size=SLATE_SIZE)


@pytest.mark.parametrize("pending_rows", [1, 128])
def test_the_rows_within_a_memory_are_the_most_that_fit(pending_rows: int) -> None:
    for megabytes in (1, 8, 64):
        memory_bytes = megabytes * 2**20
        limits = Limits.within(memory_bytes, context_dim=5, slate_size=6, pending_rows=pending_rows)
        assert limits.pending_rows == pending_rows
        assert most_bytes_of(limits, context_dim=5, slate_size=6) <= memory_bytes
        assert most_bytes_of(replace(limits, rows=limits.rows + 1), context_dim=5, slate_size=6) > memory_bytes


def test_a_memory_without_space_for_rows_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Limits.within(10_000, context_dim=5, slate_size=6, pending_rows=128)
    assert caught.value.field == "memory_bytes"


def test_the_oldest_pending_slates_stop_counting_first_and_are_still_learned_from() -> None:
    slates = [slate for slate in happenings(4, 12) if isinstance(slate, Shown)]
    state = folded(initial(Limits(pending_rows=5)), slates)
    assert state.pending_ids == tuple(slate.slate_id for slate in slates[-5:])
    newest = folded(initial(), slates[-5:])
    assert_close(state.predict(ASK_CONTEXT, EVERYTHING), newest.predict(ASK_CONTEXT, EVERYTHING), atol=1e-12)
    learned = Earned(slates[0], 2.5).fold(state)
    assert learned.pending_ids == state.pending_ids
    assert (learned.posterior.n_rows, learned.observations) == (1, 1)
    assert learned.posterior.observations.rankings[0].tolist() == slates[0].ranking.tolist()
    assert learned.posterior.observations.rewards.tolist() == [2.5]


def test_a_reward_is_learned_whether_its_slate_is_pending_or_not() -> None:
    slates = [slate for slate in happenings(4, 6) if isinstance(slate, Shown)]
    shown = folded(initial(), slates)
    through_pending = folded(shown, [Earned(slate, float(place)) for place, slate in enumerate(slates)])
    directly = folded(initial(), [Earned(slate, float(place)) for place, slate in enumerate(slates)])
    assert through_pending.pending_ids == directly.pending_ids == ()
    assert through_pending.observations == directly.observations == 6
    one = through_pending.predict(ASK_CONTEXT, EVERYTHING)
    assert_close(one, directly.predict(ASK_CONTEXT, EVERYTHING), atol=1e-10)


def test_a_closed_slate_was_never_shown() -> None:
    drawn = happenings(5, 40)
    state = folded(initial(), drawn)
    extra = Shown("extra", ASK_CONTEXT, EVERYTHING[77])
    closed = folded(state, [extra, Closed("extra")])
    assert closed.pending_ids == state.pending_ids
    assert closed.observations == state.observations
    after = closed.predict(ASK_CONTEXT, EVERYTHING)
    assert_close(after, state.predict(ASK_CONTEXT, EVERYTHING), atol=1e-10)
    shown = extra.fold(state).predict(ASK_CONTEXT, EVERYTHING)
    assert shown.variance[77] < after.variance[77] - 1e-3


def test_closing_what_is_not_pending_changes_nothing() -> None:
    state = folded(initial(), happenings(5, 10))
    assert_same(state.closed("nobody"), state)


def test_older_states_keep_their_answers() -> None:
    state = initial(Limits(rows=40))
    history = []
    for happening in happenings(6, 150):
        history.append((state, state.predict(ASK_CONTEXT, EVERYTHING)))
        state = happening.fold(state)
    for older, before in history:
        assert same(older.predict(ASK_CONTEXT, EVERYTHING), before)


def test_what_is_predicted_is_the_dense_process_at_its_best_offset_and_scale() -> None:
    drawn = happenings(7, 120)
    posterior = folded(initial(), drawn).posterior
    earned = [happening for happening in drawn if isinstance(happening, Earned)]
    rows = (
        np.array([each.slate.context for each in earned]),
        np.array([each.slate.ranking for each in earned]),
        np.array([each.reward for each in earned]),
    )
    dense = DenseGp(WCK, N_ITEMS, posterior.noise_variance, *rows, *posterior.pending)
    offset = dense.best_offset
    amplitude = dense.whitened_square(offset) / len(earned)
    assert posterior.offset == pytest.approx(offset, abs=1e-8)
    assert posterior.amplitude == pytest.approx(amplitude, rel=1e-8)
    expected = replace(dense, offset=offset, amplitude=amplitude).predict(ASK_CONTEXT, EVERYTHING)
    assert_close(posterior.predict(ASK_CONTEXT, EVERYTHING), expected, atol=1e-6)


@pytest.mark.parametrize(("factor", "shift"), [(1.0, 100.0), (1e4, 0.0), (1e-3, -5.0)])
def test_the_unit_and_the_zero_of_the_rewards_do_not_matter(factor: float, shift: float) -> None:
    drawn = happenings(8, 120)
    moved = [replace(each, reward=factor * each.reward + shift) if isinstance(each, Earned) else each for each in drawn]
    one = folded(initial(), drawn).predict(ASK_CONTEXT, EVERYTHING)
    other = folded(initial(), moved).predict(ASK_CONTEXT, EVERYTHING)
    np.testing.assert_allclose((other.mean - shift) / factor, one.mean, atol=1e-6)
    np.testing.assert_allclose(other.variance / factor**2, one.variance, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_equal_rewards_are_the_offset_and_leave_the_prior_variance(value: float) -> None:
    drawn = [replace(each, reward=value) if isinstance(each, Earned) else each for each in happenings(9, 60)]
    posterior = folded(initial(), drawn).posterior
    assert posterior.offset == pytest.approx(value)
    assert posterior.amplitude == 1.0
    moments = posterior.predict(ASK_CONTEXT, EVERYTHING)
    np.testing.assert_allclose(moments.mean, value, atol=1e-5)
    assert (moments.variance > 0.0).all()


def test_rewards_that_come_again_and_again_make_nothing_sure_that_was_not_shown() -> None:
    """A shop without noise whose bandit shows one slate: each of the others may be as good as before."""
    rankings, rewards = EVERYTHING[[0, 100, 200, 300, 400]], (0.0, 1.0, 0.5, 1.0, 0.0)
    seen = [Earned(Shown(str(n), ASK_CONTEXT, rankings[n]), rewards[n]) for n in range(5)]
    again = [Earned(Shown(f"again-{n}", ASK_CONTEXT, rankings[1]), 1.0) for n in range(600)]
    few, many = folded(initial(), seen + again[:60]), folded(initial(), seen + again)
    assert many.edges_reached == ("noise",)
    spreads = [np.sqrt(state.posterior.predict(ASK_CONTEXT, EVERYTHING[450:]).variance) for state in (few, many)]
    assert (spreads[1] > 0.5 * spreads[0]).all()


def test_noise_is_chosen_from_the_rewards() -> None:
    chosen = []
    for noise_variance in (0.01, 1.0):
        rng = np.random.default_rng(0)
        data: Sample = sample(
            WCK, rng, n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=2, count=200, noise_variance=noise_variance
        )
        slates = [
            Earned(Shown(str(place), c, r), float(y)) for place, (c, r, y) in enumerate(zip(*data.rows, strict=True))
        ]
        chosen.append(folded(initial(), slates).posterior.noise_variance)
    assert chosen[0] < 0.05 < 0.3 < chosen[1]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(Kernel.WEIGHTED_CONVOLUTIONAL, WCK), (Kernel.CONVOLUTIONAL, CK), (Kernel.WEIGHTED, WK)],
    ids=["wck", "ck", "wk"],
)
def test_settings_name_their_kernel(name: Kernel, kind: Kind) -> None:
    rankings = EVERYTHING[::17]
    features = kind.features(rankings, N_ITEMS)
    np.testing.assert_allclose(
        kernel_of(name, N_ITEMS, SLATE_SIZE).gram(rankings, rankings), features @ features.T, atol=1e-12
    )


@pytest.mark.parametrize("kind", [WCK, CK])
def test_a_kernel_for_more_items_gives_what_one_that_always_had_them_gives(kind: Kind) -> None:
    """The rows say the same of slates under either kernel, as long as none is a sum of others by accident."""
    drawn = happenings(5, 40)
    raised = folded(State.initial(kind.make(N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, limits=Limits()), drawn)
    wider = kind.make(3 * N_ITEMS, SLATE_SIZE)
    raised = change_kernel(raised, wider)
    always = folded(State.initial(wider, context_dim=CONTEXT_DIM, limits=Limits()), drawn).refit()
    assert (raised.observations, raised.pending_ids) == (always.observations, always.pending_ids)
    assert raised.posterior.noise_variance == pytest.approx(always.posterior.noise_variance, rel=1e-6)
    for mine, theirs in zip(
        raised.predict(ASK_CONTEXT, EVERYTHING), always.predict(ASK_CONTEXT, EVERYTHING), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8)


def test_what_was_learned_is_kept_when_an_adaptive_kernel_has_more_items() -> None:
    kernel = kernel_of(Kernel.ADAPTIVE, N_ITEMS, SLATE_SIZE)
    before = folded(State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits()), happenings(7, 200)).refit()
    after = change_kernel(before, kernel_of(Kernel.ADAPTIVE, 4 * N_ITEMS, SLATE_SIZE))
    assert after.posterior.kernel.n_items == 4 * N_ITEMS
    assert after.reward_range is before.reward_range
    assert (after.observations, after.since_refit) == (before.observations, 0)
    means = [state.predict(ASK_CONTEXT, EVERYTHING).mean for state in (before, after)]
    assert np.corrcoef(*means)[0, 1] > 0.97
    restored = State.restore(kernel_of(Kernel.ADAPTIVE, 4 * N_ITEMS, SLATE_SIZE), after.checkpoint, limits=Limits())
    assert_same(restored, after)


@pytest.mark.parametrize("n_pending", [0, 3])
def test_contexts_in_turned_coordinates_change_no_prediction(n_pending: int) -> None:
    """Own numbers are turned, and the one that all contexts share stays."""
    state = State.initial(kernel_of(Kernel.ADAPTIVE, N_ITEMS, SLATE_SIZE), context_dim=CONTEXT_DIM, limits=Limits())
    state = folded(state, happenings(11, 60))
    for number in range(n_pending):
        state = state.shown(f"more {number}", ASK_CONTEXT + number, EVERYTHING[7 * number])
    state = state.refit()
    turn, _ = np.linalg.qr(np.random.default_rng(12).normal(size=(CONTEXT_DIM, CONTEXT_DIM)))
    turned = change_contexts(
        state, lambda contexts, _: np.column_stack([contexts[:, :CONTEXT_DIM] @ turn.T, contexts[:, CONTEXT_DIM:]])
    )
    one, other = state.predict(ASK_CONTEXT, EVERYTHING), turned.predict(turn @ ASK_CONTEXT, EVERYTHING)
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.variance, one.variance, rtol=1e-6)


@pytest.mark.parametrize("encoded", [True, False])
def test_a_state_that_forgets_is_one_that_begins_but_for_its_counts(encoded: bool) -> None:  # noqa: FBT001
    begun = State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=Limits(), half_life=80.0, encoded=encoded)
    forgot = forget(folded(begun, happenings(3, 60)), KERNEL)
    assert (forgot.shared, forgot.half_life, forgot.pending_ids) == (begun.shared, 80.0, ())
    assert forgot.norm_range is begun.norm_range
    assert (forgot.remembered, forgot.observations > 20, forgot.unrewarded > 0) == (0, True, True)
    assert same(forgot.predict(ASK_CONTEXT, EVERYTHING), begun.predict(ASK_CONTEXT, EVERYTHING))


def shaped(shape: Shape, *, features: bool = False, **changes: float | bool) -> State:
    kernel = adaptive_kendall(N_ITEMS, SLATE_SIZE, shape)
    kernel = kernel.with_item_features(attributes(N_ITEMS, 2)) if features else kernel
    return replace(State.initial(kernel, context_dim=CONTEXT_DIM, limits=Limits()), **changes)


def test_the_largest_of_what_is_tried_is_an_edge_and_what_is_not_counted_has_none() -> None:
    for constant in CONSTANTS:
        expected = ("constant",) if constant == max(CONSTANTS) else ()
        assert shaped(Shape(constant=constant)).edges_reached == expected
    for content in CONTENTS:
        expected = ("content",) if content == max(CONTENTS) else ()
        assert shaped(Shape(content=content), features=True).edges_reached == expected
        assert shaped(Shape(content=content)).edges_reached == ()
        assert shaped(Shape(content=content), features=True).content_share == content
        assert shaped(Shape(content=content)).content_share == 0.0
    for shared, expected in ((LEAST_SHARED, ("shared",)), (1.0, ()), (MOST_SHARED, ("shared",))):
        assert shaped(Shape(), shared=shared).edges_reached == expected
    assert shaped(Shape(), noise_at_edge=True).edges_reached == ("noise",)
    everything = shaped(Shape(0.5, 1.0, max(CONSTANTS), max(CONTENTS)), features=True, shared=MOST_SHARED)
    assert replace(everything, noise_at_edge=True).edges_reached == ("noise", "constant", "content", "shared")
