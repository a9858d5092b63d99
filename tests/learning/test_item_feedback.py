"""A state that hears what became of single items: however it hears of it, it knows the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.outcomes import added_up
from tests.learning.told import (
    DIM,
    N_ITEMS,
    SLATE_SIZE,
    Shop,
    Told,
    assert_predict_alike,
    assert_same_feedback,
    begun,
    past_of,
    replaced,
    study_of,
    told,
    without_outcomes,
)

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.item_feedback import extend_images
from topk_bandit.learning.item_outcomes import OutcomeRows, extend_contexts
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.state_changes import (
    change_contexts,
    change_kernel,
    change_prior_mean,
    change_prior_of_new_items,
    forget,
    vacate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SHOP = Shop(gaps=0.1)
SLATES = SHOP.slates(150)
with_study = pytest.mark.parametrize("study", [False, True], ids=["no study", "a study"])


def rows_of(slates: Sequence[Told], weights: FloatArray | float = 1.0) -> OutcomeRows:
    past = past_of(slates, at=0.0)
    assert past.outcomes is not None
    extended = extend_contexts(past.contexts, context_dim=2)
    every = np.broadcast_to(weights, (len(slates),)).astype(np.float64)
    return OutcomeRows(extended, past.rankings, past.outcomes, every, past.rewards)


def sums_of(state: State) -> tuple[FloatArray, ...]:
    assert state.feedback is not None
    settled = state.feedback.settled
    return settled.squares, settled.shifts, settled.shown, settled.by_position, settled.with_rewards


def assert_sums(state: State, expected: OutcomeRows) -> None:
    sums = added_up(expected)
    assert state.feedback is not None
    np.testing.assert_array_equal(state.feedback.settled.items, sums.items)
    wanted = sums.squares, sums.shifts, sums.shown, sums.by_position, sums.with_rewards
    for mine, theirs in zip(sums_of(state), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@cache
def after(count: int, *, study: bool = False, half_life: float = np.inf) -> State:
    """Return the state that was told so many slates, a multiple of ten, one after the other."""
    if not count:
        return begun(study=study, half_life=half_life)
    before = after(count - 10, study=study, half_life=half_life)
    return told(before, SHOP.slates(10, first=count - 10), shown=False)


@pytest.mark.parametrize(
    ("one_by_one", "study"), [((0, 0), False), ((45, 120), True), ((53, 100), False), ((60, 61), True)]
)
def test_outcomes_come_in_any_parts(one_by_one: tuple[int, int], *, study: bool) -> None:
    """Also where a history comes between slates that were rewarded since the last refit."""
    first, last = one_by_one
    expected = after(150, study=study).refit(150.0)
    state = told(begun(study=study), SLATES[:first], shown=False)
    for part in (SLATES[first:last], SLATES[last:140]):
        state = state.learn_history(past_of(part, at=part[-1].at), at=part[-1].at) if part else state
    state = told(state, SLATES[140:], shown=False).refit(150.0)
    assert_same_feedback(state, expected)
    assert_predict_alike(state, expected)
    assert state.posterior.prior_mean is not None
    assert state.posterior.prior_mean.covariances is not None


def test_a_history_of_more_rows_than_are_learned_at_once_has_its_outcomes() -> None:
    slates = SHOP.slates(300)
    state = begun(rows=400).learn_history(past_of(slates, at=300.0), at=300.0)
    assert state.recent.outcomes is not None
    assert state.recent.outcomes.shape == (256, SLATE_SIZE)
    assert_sums(state, rows_of(slates[:44]))
    np.testing.assert_array_equal(state.recent.outcomes, past_of(slates[44:], at=0.0).outcomes)


@pytest.mark.parametrize("half_life", [np.inf, 40.0])
def test_sums_have_the_outcomes_that_left_the_latest_as_they_count(half_life: float) -> None:
    slates = SHOP.slates(330)
    state = after(330, half_life=half_life).refit(330.0)
    ages = 330.0 - np.array([one.at for one in slates[:74]])
    assert len(state.recent) == 256
    assert_sums(state, rows_of(slates[:74], 0.5 ** (ages / half_life)))
    later = state.refit(350.0)
    assert_sums(later, rows_of(slates[:74], 0.5 ** ((ages + 20.0) / half_life)))


def test_slates_of_which_nothing_is_told_are_between_the_others() -> None:
    some = [one if place % 3 else one._replace(outcomes=None) for place, one in enumerate(SHOP.slates(280))]
    state = told(begun(), some, shown=False).refit(280.0)
    assert_sums(state, rows_of([one for one in some[:24] if one.outcomes is not None]))
    assert state.recent.outcomes is not None
    assert np.isnan(state.recent.outcomes).all(axis=1).tolist() == [one.outcomes is None for one in some[24:]]


def test_outcomes_that_come_first_after_many_rewards_are_learned() -> None:
    before = told(begun(), without_outcomes(SLATES[:60]), shown=False)
    assert before.feedback is None
    state = told(before, SLATES[60:], shown=False).refit(150.0)
    mixed = [*without_outcomes(SLATES[:60]), *SLATES[60:]]
    expected = begun().learn_history(past_of(mixed, at=150.0), at=150.0)
    assert_predict_alike(state, expected)
    assert_same_feedback(state, expected)


CORRECTED = SLATES[70]
OTHER = np.array([2.0, -1.5, 0.4])
ENDS = [(0.3, OTHER), (CORRECTED.reward, OTHER), (0.3, None), (0.3, np.array([np.nan, 9.0, np.nan]))]
each_end = pytest.mark.parametrize(("reward", "outcomes"), ENDS, ids=["both", "outcomes", "none", "gaps"])
CASES = [
    (Kernel.WEIGHTED_CONVOLUTIONAL, 200, True),
    pytest.param(Kernel.ADAPTIVE, 200, False, marks=pytest.mark.slow),
    pytest.param(Kernel.ADAPTIVE, 20, False, marks=pytest.mark.slow),
    pytest.param(Kernel.CONVOLUTIONAL, 20, True, marks=pytest.mark.slow),
    pytest.param(Kernel.WEIGHTED, 200, False, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kernel", "rows", "study"), CASES)
@pytest.mark.parametrize(
    ("before", "reward", "outcomes"),
    [(0, *ENDS[0]), (0, *ENDS[2]), (5, *ENDS[1]), (5, *ENDS[3]), *((70, *end) for end in ENDS)],
)
def test_a_corrected_slate_is_as_if_it_had_been_so(
    before: int, kernel: Kernel, rows: int, reward: float, outcomes: FloatArray | None, *, study: bool
) -> None:
    """One of four since the last refit: with outcomes in the place of others, of none, and the other way about."""
    truth = replaced(SLATES, before, reward, outcomes)
    start = begun(kernel, rows=rows, study=study, half_life=400.0)
    start = told(start, SLATES[:before]).refit(float(before)) if before else start
    truthful = and_later(told(start, truth[before : before + 4]), before + 4)
    for wrong in (SLATES, replaced(SLATES, before, 1.0, None)):
        mistaken = told(start, wrong[before : before + 4])
        assert can_correct(mistaken, f"s{before}")
        mistaken = correct(mistaken, f"s{before}", reward, outcomes=outcomes)
        for one, other in zip(and_later(mistaken, before + 4), truthful, strict=True):
            assert_same_feedback_but_for_none(one, other)
            assert_predict_alike(one, other)


def and_later(state: State, first: int) -> tuple[State, State, State]:
    """Return a state, and what it is after eight more slates and after forty more than these."""
    later = told(state, SLATES[first : first + 8])
    return state, later, told(later, SLATES[first + 8 : first + 48])


def assert_same_feedback_but_for_none(one: State, other: State) -> None:
    """Where the only outcomes were taken back, that nothing is known of any is kept."""
    if other.feedback is None:
        assert one.recent.outcomes is None or np.isnan(one.recent.outcomes).all()
        return
    assert_same_feedback(one, other)


def test_a_slate_that_ended_without_a_reward_after_all_has_no_outcomes() -> None:
    start = after(70).refit(70.0)
    mistaken = correct(told(start, SLATES[70:74]), "s71", None)
    truthful = told(start, SLATES[70:71]).shown(*SLATES[71][:3])
    truthful = told(truthful, SLATES[72:74]).closed("s71")
    assert_same_feedback(mistaken, truthful)
    assert_predict_alike(mistaken, truthful)
    for more in (8, 40):
        mistaken, truthful = (told(life, SLATES[74 : 74 + more]) for life in (mistaken, truthful))
        assert_same_feedback(mistaken, truthful)
        assert_predict_alike(mistaken, truthful)


def test_outcomes_that_only_come_by_corrections_are_learned() -> None:
    """As those of provisional rewards do: each slate has none at first."""
    state = begun()
    for one in SLATES[:60]:
        state = told(state, without_outcomes([one]), shown=False)
        if can_correct(state, one.slate_id):
            state = correct(state, one.slate_id, one.reward, outcomes=one.outcomes)
    assert state.feedback is not None
    assert state.feedback.outcome_range.count > 40
    assert state.posterior.prior_mean is not None
    assert state.posterior.prior_mean.covariances is not None


def revised(state: State, one: Told, reward: float | None, outcomes: FloatArray | None) -> State:
    changed = revise(
        state, *one[:3], before=one.reward, reward=reward, at=one.at, before_outcomes=one.outcomes, outcomes=outcomes
    )
    assert changed is not None
    return changed


def slates_of_which_one_may_have_none(*, none_before: bool) -> list[Told]:
    slates = SHOP.slates(330)
    return replaced(slates, 5, slates[5].reward, None) if none_before else slates


@cache
def after_these(half_life: float, *, none_before: bool) -> State:
    slates = slates_of_which_one_may_have_none(none_before=none_before)
    state = told(begun(half_life=half_life), slates, shown=False) if none_before else after(330, half_life=half_life)
    return state.refit(330.0)


@each_end
@pytest.mark.parametrize(("half_life", "none_before"), [(200.0, False), (np.inf, True)])
def test_a_revised_slate_that_left_the_latest_changes_the_sums_as_if_it_had_been_so(
    reward: float, outcomes: FloatArray | None, half_life: float, *, none_before: bool
) -> None:
    slates = slates_of_which_one_may_have_none(none_before=none_before)
    state = after_these(half_life, none_before=none_before)
    assert state.recent.find_settled("s5") is None
    other = replaced(slates, 5, reward, outcomes)
    assert_sums(revised(state, slates[5], reward, outcomes), rows_as_they_count(other[:74], half_life))
    gone = [one for one in slates[:74] if one.slate_id != "s5"]
    assert_sums(revised(state, slates[5], None, OTHER), rows_as_they_count(gone, half_life))


def rows_as_they_count(slates: Sequence[Told], half_life: float) -> OutcomeRows:
    some = [one for one in slates if one.outcomes is not None]
    return rows_of(some, 0.5 ** ((330.0 - np.array([one.at for one in some])) / half_life))


@cache
def after_a_hundred(reward: float | None = None, *, study: bool = False) -> State:
    """Return the state after slates of which one may have had only this reward."""
    if reward is None:
        return after(100, study=study).refit(100.0)
    return told(begun(study=study), replaced(SLATES, 30, reward, None)[:100], shown=False).refit(100.0)


@each_end
@with_study
def test_a_revised_slate_among_the_latest_is_as_if_it_had_been_so(
    reward: float, outcomes: FloatArray | None, *, study: bool
) -> None:
    """Also what its own row knows of its outcomes, so that a refit gives the same as if all had been told then."""
    truth = replaced(SLATES, 30, reward, outcomes)
    expected = begun(study=study).learn_history(past_of(truth[:105], at=105.0), at=105.0)
    for wrong in (SLATES[30], SLATES[30].ending(1.0, None)):
        state = after_a_hundred(None if wrong is SLATES[30] else 1.0, study=study)
        assert not can_correct(state, "s30")
        found = told(revised(state, wrong, reward, outcomes), SLATES[100:105], shown=False).refit(105.0)
        assert_predict_alike(found, expected, within=1e-7)
        mine, theirs = (one.posterior.observed_rows.feedback for one in (found, expected))
        assert mine is not None
        assert theirs is not None
        np.testing.assert_array_equal(mine.outcomes, theirs.outcomes)
        np.testing.assert_allclose(mine.own, theirs.own, atol=1e-8)
        assert found.recent.outcomes is not None
        np.testing.assert_array_equal(found.recent.outcomes, past_of(truth[:105], at=0.0).outcomes)


def test_a_slate_that_counts_for_nothing_after_all_has_no_outcomes_any_more() -> None:
    state = after_a_hundred()
    found = revised(state, SLATES[30], None, None).refit(100.0)
    others = [one for one in SLATES[:100] if one.slate_id != "s30"]
    assert_predict_alike(found, begun().learn_history(past_of(others, at=100.0), at=100.0), within=1e-7)


def test_a_slate_whose_other_reward_is_wild_has_no_outcomes_until_it_is_corrected() -> None:
    state = after_a_hundred()
    found = revised(state, SLATES[30], 1e9, OTHER)
    others = [one for one in SLATES[:100] if one.slate_id != "s30"]
    expected = begun().learn_history(past_of(others, at=100.0), at=100.0)
    assert_predict_alike(found.refit(100.0), expected, within=1e-7)
    corrected = correct(found, "s30", 0.4, outcomes=OTHER).refit(100.0)
    truth = [*others, SLATES[30].ending(0.4, OTHER)]
    assert_predict_alike(corrected, begun().learn_history(past_of(truth, at=100.0), at=100.0), within=1e-7)


def test_outcomes_that_only_come_by_revisions_are_learned() -> None:
    state = told(begun(), without_outcomes(SLATES[:60]), shown=False).refit(60.0)
    for one in SLATES[:60]:
        state = revised(state, one._replace(outcomes=None), one.reward, one.outcomes)
    expected = begun().learn_history(past_of(SLATES[:60], at=60.0), at=60.0)
    assert_predict_alike(state.refit(60.0), expected, within=1e-7)
    assert state.feedback is not None
    assert state.feedback.outcome_range.count == 60


def doubting(state: State, weight: float) -> State:
    """Return the state that has noticed a change of its shop."""
    return state._doubt_outcomes(weight)


def test_what_came_before_a_change_counts_for_less() -> None:
    state = after(70).refit(70.0)
    later = told(state, SLATES[70:74], shown=False)
    assert later.since_refit == 4
    doubted = doubting(later, 0.25)
    assert_sums(doubted, rows_of(SLATES[:70], 0.25))
    assert doubted.recent.outcomes is not None
    assert np.isnan(doubted.recent.outcomes[:70]).all()
    np.testing.assert_array_equal(doubted.recent.outcomes[70:], past_of(SLATES[70:74], at=0.0).outcomes)
    assert doubting(told(begun(), without_outcomes(SLATES[:9])), 0.25).feedback is None


def test_a_slate_that_is_revised_after_a_change_counts_once() -> None:
    state = doubting(after(70).refit(70.0), 0.25)
    assert state.recent.find_settled("s30") == 30
    found = revised(state, SLATES[30], 0.3, OTHER)
    truth = replaced(SLATES, 30, 0.3, OTHER)
    latest = found.feedback
    assert latest is not None
    rows = latest.rows_of(found.recent, at=70.0, half_life=np.inf, centre=found.recent.outcome_centre)
    every = latest.settled.plus(rows, most_items=1000)
    counted = np.where(np.arange(70) == 30, 1.0, 0.25)
    expected = added_up(rows_of(truth[:70], counted))
    left = added_up(rows_of(SLATES[30:31], -0.75))
    np.testing.assert_allclose(every.by_position, expected.by_position + left.by_position, atol=1e-9)
    np.testing.assert_allclose(every.by_position[0], [0.25 * 69 + 0.25] * 3 - 0.25 * missing(SLATES[:70]), atol=1e-9)
    gone = revised(state, SLATES[30], None, None)
    np.testing.assert_allclose(sums_of(gone)[3], expected.by_position + left.by_position
                               - added_up(rows_of(truth[30:31])).by_position, atol=1e-9)  # fmt: skip


def missing(slates: Sequence[Told]) -> FloatArray:
    outcomes = past_of(slates, at=0.0).outcomes
    assert outcomes is not None
    return np.asarray(np.isnan(outcomes).sum(axis=0), dtype=np.float64)


def test_wild_rewards_keep_their_outcomes_beyond_a_change() -> None:
    """They are in no sum, and are learned once later rewards show that they are in range."""
    slates = replaced(SLATES, 40, 1e7, SLATES[40].outcomes)
    state = told(begun(), slates[:70], shown=False).refit(70.0)
    assert state.counted.wild_rewards == 1
    doubted = doubting(state, 0.25)
    assert doubted.recent.outcomes is not None
    known = np.isfinite(doubted.recent.outcomes).any(axis=1)
    assert np.flatnonzero(known).tolist() == [40]
    others = [one for one in slates[:70] if one.slate_id != "s40"]
    assert_sums(doubted, rows_of(others, 0.25))


def test_what_was_summed_up_before_a_bandit_began_anew_is_not_taken_out_again() -> None:
    state = doubting(after(70).refit(70.0), 0.25)
    begun_anew = replace(state._begin_again(71.0)[0], begun_at=71.0)
    assert begun_anew.feedback is not None
    found = revised(begun_anew, SLATES[30], 0.3, None)
    assert not any(one.any() for one in sums_of(found))


def test_the_utilities_that_are_too_few_by_now_leave_nothing_of_their_own_in_the_rows() -> None:
    """With a short half-life fewer than eight slates are left; then a study says what is believed, and rows have it."""
    state = told(begun(study=True, half_life=12.0), SLATES[:60], shown=False)
    assert state.posterior.prior_mean is not None
    assert state.posterior.prior_mean.covariances is not None
    late = state.refit(80.0)
    assert late.posterior.prior_mean is not None
    assert late.posterior.prior_mean.covariances is None
    rows = late.posterior.observed_rows
    assert rows.feedback is not None
    assert not rows.feedback.own.any()
    expected = late.posterior.prior_mean.of_rows(rows.contexts, rows.rankings, rows.targets[1])
    np.testing.assert_allclose(rows.targets[2], expected, atol=1e-9)


def test_the_weighted_kernel_ignores_outcomes() -> None:
    """It compares pairs alone, and takes no prior mean."""
    with_them = told(begun(Kernel.WEIGHTED), SLATES)
    without = told(begun(Kernel.WEIGHTED), without_outcomes(SLATES))
    assert with_them.posterior.prior_mean is None
    assert with_them.feedback is not None
    assert_predict_alike(with_them, without, within=0.0)


def test_whole_rankings_under_it_are_compared_and_take_one() -> None:
    shop = Shop(n_items=4, slate_size=4)
    state = told(begun(Kernel.WEIGHTED, n_items=4, slate_size=4), shop.slates(60))
    assert state.posterior.prior_mean is not None
    assert state.posterior.prior_mean.covariances is not None


def test_a_state_that_never_heard_of_items_has_nothing_of_them() -> None:
    state = told(begun(study=True), without_outcomes(SLATES[:80])).refit(80.0)
    nothing = told(begun(study=True), [one._replace(outcomes=None) for one in SLATES[:80]]).refit(80.0)
    corrected = correct(told(state, without_outcomes(SLATES[80:82])), "s81", 0.5)
    again = revised(corrected.refit(82.0), without_outcomes(SLATES)[80], 0.1, None)
    for one in (state, nothing, corrected, again):
        assert one.feedback is None
        assert one.recent.outcomes is None
        assert one.posterior.observed_rows.feedback is None
        assert one.posterior.prior_mean is not None
        assert one.posterior.prior_mean.covariances is None
    assert digest_state(state) == digest_state(nothing)


def test_each_number_of_the_feedback_counts_for_digests() -> None:
    state = told(begun(study=True), SHOP.slates(270)).refit(270.0)
    feedback, rows = state.feedback, state.posterior.observed_rows.feedback
    assert feedback is not None
    assert rows is not None
    assert feedback.study is not None
    assert state.recent.outcomes is not None
    settled, usual = feedback.settled, feedback.outcome_range
    others = [
        replace(state, feedback=replace(feedback, settled=replace(settled, **{name: 2 * getattr(settled, name)})))
        for name in ("items", "squares", "shifts", "shown", "by_position", "with_rewards")
    ]
    others.append(replace(state, feedback=replace(feedback, outcome_range=replace(usual, count=1))))
    others.append(replace(state, feedback=replace(feedback, outcome_range=replace(usual, told=2 * usual.told))))
    study = replace(feedback.study, constants=2 * feedback.study.constants, slopes=2 * feedback.study.slopes)
    others.append(replace(state, feedback=replace(feedback, study=study)))
    others.append(replace(state, recent=replace(state.recent, outcomes=2 * state.recent.outcomes)))
    fitted = state.posterior._fitted
    for name in ("outcomes", "own"):
        changed = replace(fitted, feedback=rows._replace(**{name: 2 * getattr(rows, name)}))
        others.append(replace(state, posterior=replace(state.posterior, _fitted=changed)))
    digests = {digest_state(one) for one in (state, *others)}
    assert len(digests) == len(others) + 1
    again = told(begun(study=True), SHOP.slates(270)).refit(270.0)
    assert digest_state(again) == digest_state(state)


def test_memory_counts_what_is_kept_of_items() -> None:
    state = after(300).refit(300.0)
    assert state.feedback is not None
    settled = state.feedback.settled
    kept = sum(getattr(settled, name).nbytes for name in ("items", "squares", "shifts", "shown"))
    assert state.feedback.nbytes == kept
    assert state.posterior.prior_mean is not None
    assert state.memory_bytes == state.posterior.memory_bytes + kept + state.posterior.prior_mean.nbytes
    rows = state.posterior.observed_rows
    assert rows.feedback is not None
    without = replace(rows, feedback=None).nbytes
    assert rows.nbytes == without + rows.feedback.own.nbytes + rows.feedback.outcomes.nbytes


def test_of_more_items_than_there_is_memory_for_sums_are_not_kept() -> None:
    state = begun()
    limits = replace(state.limits, part_bytes=8 * 3 * (8 + SLATE_SIZE) * 6)
    state = told(replace(state, limits=limits), SHOP.slates(300), shown=False).refit(300.0)
    assert state.feedback is not None
    assert limits.most_outcome_items(DIM, SLATE_SIZE) == 6
    assert len(state.feedback.settled.items) == 6
    assert state.feedback.nbytes <= limits.part_bytes + state.feedback.settled.items.nbytes


def test_items_that_lose_their_places_leave_nothing_to_those_that_take_them() -> None:
    slates = SHOP.slates(300)
    state = after(300).refit(300.0)
    gone = np.array([2, 11], dtype=np.int32)
    left = vacate(state, gone, 300.0)
    assert left.feedback is not None
    assert left.recent.outcomes is not None
    assert not np.isin(left.feedback.settled.items, gone).any()
    assert not np.isin(left.recent.rankings, gone).any()
    assert not np.isin(left.posterior.observed_rows.rankings, gone).any()
    kept = [masked(one, gone) for one in slates]
    showing = [bool(np.isin(one.ranking, gone).any()) for one in slates]
    expected = added_up(rows_of([one for place, one in enumerate(kept) if place < 44 or showing[place]]))
    np.testing.assert_array_equal(left.feedback.settled.items, expected.items)
    np.testing.assert_allclose(left.feedback.settled.squares, expected.squares, atol=1e-9)
    np.testing.assert_allclose(left.feedback.settled.shifts, expected.shifts, atol=1e-9)
    before = SHOP.expected(np.zeros(DIM), np.arange(N_ITEMS)[:, None].repeat(3, axis=1))
    believed = left.posterior.prior_mean
    assert believed is not None
    utilities = believed.utilities(np.zeros(DIM), np.arange(N_ITEMS))
    others = np.setdiff1d(np.arange(N_ITEMS), gone)
    assert (utilities[gone] == 0.0).all()
    assert np.corrcoef(utilities[others], before[others])[0, 1] > 0.9


def masked(one: Told, items: NDArray[np.int32]) -> Told:
    assert one.outcomes is not None
    return one._replace(outcomes=np.where(np.isin(one.ranking, items), np.nan, one.outcomes))


def test_an_item_that_only_a_wild_slate_shows_is_forgotten_with_its_outcomes() -> None:
    """No row shows it, and it is in no sum: but another item would have what it did once its reward is in range."""
    item = np.array([N_ITEMS - 1], dtype=np.int32)
    others = [one for one in SLATES if item[0] not in one.ranking]
    odd = next(one for one in SLATES if item[0] in one.ranking).ending(1e7, np.ones(SLATE_SIZE))
    state = told(begun(), [*others[:40], odd, *others[40:60]], shown=False).refit(150.0)
    assert state.counted.wild_rewards == 1
    assert not np.isin(state.posterior.all_rows.rankings, item).any()
    left = vacate(state, item, 150.0)
    assert not np.isin(left.recent.rankings, item).any()
    assert left.counted.wild_rewards == 1
    fresh = told(begun(), others[:40])
    assert vacate(fresh, item) is fresh


def test_a_kernel_for_more_items_knows_the_same() -> None:
    for study in (False, True):
        small = after(80, study=study)
        grown = change_kernel(small, kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, N_ITEMS + 5, SLATE_SIZE), 80.0)
        grown = told(grown, SLATES[80:100], shown=False).refit(100.0)
        always = begun(n_items=N_ITEMS + 5)
        if study:
            kernel = always.posterior.kernel
            always = State.initial(
                kernel, context_dim=DIM, limits=always.limits, prior_mean=study_of().with_kernel(kernel)
            )
        expected = told(always, SLATES[:100], shown=False).refit(100.0)
        assert_predict_alike(grown, expected, within=1e-7)
        assert_same_feedback(grown, expected)


def test_an_adaptive_kernel_that_changes_takes_utilities_and_study_along() -> None:
    state = told(begun(Kernel.ADAPTIVE, study=True, encoded=True), inside(SHOP.slates(120))).refit(120.0)
    assert state.feedback is not None
    assert state.feedback.study is not None
    assert state.posterior.prior_mean is not None
    kernel = state.posterior.kernel
    assert kernel.shape != begun(Kernel.ADAPTIVE).posterior.kernel.shape, "the kernel never changed"
    for prior_mean in (state.feedback.study, state.posterior.prior_mean):
        expected = kernel.n_items * kernel.item_weight + kernel.divergence
        np.testing.assert_array_equal(prior_mean.position_weights, expected)
    rows = state.posterior.observed_rows
    assert rows.feedback is not None
    weights = state.posterior.prior_mean.position_weights
    h = state.posterior.prior_mean.of_rows(rows.contexts, rows.rankings, rows.targets[1])
    h -= rows.feedback.own @ weights / np.linalg.norm(weights)
    np.testing.assert_allclose(rows.targets[2], h, atol=1e-9)


def inside(slates: Sequence[Told]) -> list[Told]:
    """Return slates with contexts as encoded features have them: of a length of one at most."""
    return [one._replace(context=one.context / max(1.0, float(np.linalg.norm(one.context)))) for one in slates]


@with_study
def test_a_schema_that_grows_and_a_recoding_are_as_if_contexts_had_always_been_so(*, study: bool) -> None:
    """Contexts are turned, moved by a part of what all share, and get a number more, which was zero until then."""
    slates, shift, turn = inside(SHOP.slates(300)), np.array([0.2, -0.1]), np.array([[0.8, -0.6], [0.6, 0.8]])
    state = told(begun(study=study, encoded=True), slates[:290], shown=False).refit(290.0)
    root = np.sqrt(state.shared)

    def change(contexts: FloatArray, _sizes: FloatArray) -> FloatArray:
        own, last = contexts[:, :2], contexts[:, 2:]
        return np.column_stack([own @ turn + last / root * shift, np.zeros(len(own)), last])

    recoded = change_contexts(state, change)
    assert recoded.posterior.context_dim == 4
    turned = [one._replace(context=np.append(one.context @ turn + shift, 0.0)) for one in slates]
    rows = rows_of(turned[:34])
    assert_sums(recoded, rows)
    more = [one._replace(context=one.context + np.array([0.0, 0.0, 0.3])) for one in turned[290:]]
    recoded = told(recoded, more, shown=False).refit(300.0)
    assert recoded.feedback is not None
    assert recoded.feedback.context_dim == 4
    if not study:  # a study's utilities are of contexts as they were
        always = told(begun(dim=3, encoded=True), [*turned[:290], *more], shown=False).refit(300.0)
        contexts = np.array([[0.3, -0.2, 0.1], [0.0, 0.0, 0.0]])
        assert_same_feedback(recoded, always)
        assert recoded.posterior.prior_mean is not None
        assert always.posterior.prior_mean is not None
        for context in contexts:
            mine, theirs = (
                one.posterior.prior_mean.utilities(one.encode(context), np.arange(N_ITEMS))  # type: ignore[union-attr]
                for one in (recoded, always)
            )
            np.testing.assert_allclose(mine, theirs, atol=1e-7)


@pytest.mark.parametrize("shared", [0.0, 0.25, 4.0])
@pytest.mark.parametrize("dim", [1, 3])
def test_images_of_contexts_are_images_of_what_outcomes_are_learned_in(shared: float, dim: int) -> None:
    """x of the images of contexts is the image of their x, whatever a context has beside what all share."""
    if dim == 1 and not shared:
        np.testing.assert_array_equal(extend_images(np.array([[3.0]]), 0.0), [[3.0]])
        return
    rng = np.random.default_rng(2)
    own, images = rng.normal(size=(7, dim)), rng.normal(size=(dim + bool(shared), dim + 2 + bool(shared)))
    root, size = np.sqrt(shared), dim + bool(shared)
    if shared:
        images[:-1, -1], images[-1, -1] = 0.0, 1.0  # what all share stays what it is
    before = np.column_stack([own, np.full(7, root)]) if shared else own
    after = before @ images
    x = extend_contexts(own, context_dim=max(size, 2))
    expected = extend_contexts(after[:, :-1] if shared else after, context_dim=3)
    np.testing.assert_allclose(x @ extend_images(images, shared), expected, atol=1e-12)


@pytest.mark.parametrize("kernel", [Kernel.ADAPTIVE, Kernel.WEIGHTED_CONVOLUTIONAL])
def test_a_study_that_comes_later_is_as_if_it_had_been_there(kernel: Kernel) -> None:
    later = change_prior_mean(told(begun(kernel), SLATES[:80], shown=False), study_of())
    first = told(begun(kernel, study=True), SLATES[:80], shown=False).refit(80.0)
    if kernel is Kernel.WEIGHTED_CONVOLUTIONAL:
        assert_predict_alike(later, first, within=1e-6)
    assert later.study_mean is not None
    assert later.posterior.prior_mean is not None
    assert later.posterior.prior_mean.covariances is not None
    gone = change_prior_mean(later, None)
    assert gone.study_mean is None
    assert gone.feedback is not None
    if kernel is Kernel.WEIGHTED_CONVOLUTIONAL:
        assert_predict_alike(gone, told(begun(kernel), SLATES[:80], shown=False).refit(80.0), within=1e-6)


def test_a_study_s_new_items_are_believed_in_beside_outcomes() -> None:
    """The study knew nothing of the last items; then it does, in the unit that outcomes have shown."""
    state = after(150, study=True).refit(150.0)
    before = state.study_mean
    assert before is not None
    constants = np.append(before.constants[:-1], [3.0, 0.0])
    slopes = np.concatenate([before.slopes[:-1], np.zeros((2, DIM))])
    row_of = before.row_of.copy()
    row_of[N_ITEMS - 1] = len(constants) - 2
    known = PriorMean.restore(state.posterior.kernel, constants, slopes, row_of)
    found = change_prior_of_new_items(state, known)
    assert found.study_mean is not None
    assert found.study_mean.row_of[N_ITEMS - 1] == len(constants) - 2
    again = change_prior_mean(after(150), known)
    assert_predict_alike(found, again, within=1e-6)


def test_a_bandit_that_forgets_begins_with_its_study() -> None:
    state = after(270, study=True)
    anew = forget(state, kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, N_ITEMS, SLATE_SIZE), 270.0)
    assert anew.feedback is None
    assert anew.recent.outcomes is None
    assert anew.posterior.prior_mean is not None
    assert anew.posterior.prior_mean.covariances is None
    expected = begun(study=True)
    asked = np.array([0.6, -0.7])
    assert expected.posterior.prior_mean is not None
    np.testing.assert_allclose(
        anew.posterior.prior_mean.utilities(asked, np.arange(N_ITEMS)),
        expected.posterior.prior_mean.utilities(asked, np.arange(N_ITEMS)),
        rtol=1e-9,
    )
    learned = told(anew, SHOP.slates(60, first=300), shown=False)
    assert_predict_alike(learned, told(expected, SHOP.slates(60, first=300), shown=False), within=1e-6)


def test_what_fades_leaves_outcomes_as_rewards() -> None:
    """Outcomes of a shop that was another one, many half-lives ago, say next to nothing."""
    before, now = Shop(seed=1).slates(100), SHOP.slates(100)
    state = told(begun(half_life=30.0), before, shown=False)
    state = told(state, [one._replace(at=one.at + 600.0) for one in now], shown=False).refit(700.0)
    alone = told(begun(half_life=30.0), now, shown=False).refit(100.0)
    assert state.posterior.prior_mean is not None
    assert alone.posterior.prior_mean is not None
    for context in np.eye(DIM):
        mine, theirs = (
            one.posterior.prior_mean.utilities(context, np.arange(N_ITEMS))  # type: ignore[union-attr]
            for one in (state, alone)
        )
        np.testing.assert_allclose(mine, theirs, atol=0.01 * np.ptp(theirs))


def test_a_restored_state_goes_on_as_the_one_it_was_taken_from() -> None:
    for kernel in (Kernel.ADAPTIVE, Kernel.CONVOLUTIONAL):
        live = told(begun(kernel, rows=40, study=True), SHOP.slates(280)).refit(280.0)
        restored = State.restore(
            kernel_of(kernel, N_ITEMS, SLATE_SIZE),
            live.checkpoint,
            limits=live.limits,
            prior_mean=live.posterior.prior_mean,
        )
        assert digest_state(restored) == digest_state(live)
        assert digest_state(live.refit(280.0)) == digest_state(live)
        later = SHOP.slates(40, first=280)
        assert digest_state(told(restored, later)) == digest_state(told(live, later))
