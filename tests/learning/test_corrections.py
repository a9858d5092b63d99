"""A reward that is amended or voided leaves the state of a life in which it was so from the beginning."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.domain.bandits import Kernel
from topk_bandit.learning.corrections import can_correct, correct
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import Observations, ObservedRows, project
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.learning.state_changes import change_prior_mean

N_ITEMS, SLATE_SIZE, DIM = 9, 3, 2
ITEMS = np.arange(N_ITEMS, dtype=np.int32)
MOST_APART = 1e-8
Slate = tuple[str, np.ndarray, np.ndarray]


def begun(*, kernel: Kernel, rows: int, prior: bool) -> State:
    basis = kernel_of(kernel, N_ITEMS, SLATE_SIZE)
    state = State.initial(basis, context_dim=DIM, limits=Limits(rows=rows, pending_rows=8), half_life=400.0)
    if not prior:
        return state
    constants = np.random.default_rng(2).normal(size=N_ITEMS)
    return change_prior_mean(state, PriorMean.of(basis, constants, np.zeros((N_ITEMS, DIM)), np.arange(N_ITEMS)))


class Life:
    """Slates that are shown and rewarded, with one reward that is wrong at first."""

    def __init__(self, state: State, seed: int) -> None:
        self.state = state
        self.rng = np.random.default_rng(seed)
        self.number = 0

    def show(self) -> Slate:
        self.number += 1
        shown = (
            f"s{self.number}",
            self.rng.normal(size=DIM),
            random_rankings(ITEMS, slate_size=SLATE_SIZE, count=1, rng=self.rng)[0],
        )
        self.state = self.state.shown(*shown)
        return shown

    def reward(self, shown: Slate, value: float) -> None:
        self.state = self.state.rewarded(*shown, reward=value, at=float(self.number))

    def live(self, rounds: int) -> None:
        """Show slates, and reward all but the newest three."""
        waiting = [self.show() for _ in range(3)]
        for _ in range(rounds):
            waiting.append(self.show())
            self.reward(waiting.pop(0), float(self.rng.normal()))
        for shown in waiting:
            self.reward(shown, float(self.rng.normal()))

    def until_after_a_refit(self) -> None:
        while self.state.since_refit or not self.state.observations:
            self.reward(self.show(), float(self.rng.normal()))


def assert_alike(one: State, other: State) -> None:
    assert one.since_refit == other.since_refit
    for name in ("count", "outliers", "reach"):
        assert getattr(one.reward_range, name) == getattr(other.reward_range, name), name
    assert one.recent.ids == other.recent.ids
    for name in ("contexts", "rankings", "rewards", "times", "verdicts") if one.recent.ids else ():
        assert np.array_equal(getattr(one.recent, name), getattr(other.recent, name)), name
    assert one.compared == other.compared
    mine, theirs = one.posterior.observed_rows, other.posterior.observed_rows
    assert np.abs(mine.targets - theirs.targets).max(initial=0.0) <= MOST_APART
    assert_predicts_alike(one, other)


def assert_predicts_alike(one: State, other: State) -> None:
    """What is not learned at first, because it is wild, is a later row once it is corrected."""
    assert (one.observations, one.unrewarded) == (other.observations, other.unrewarded)
    assert one.counted == pytest.approx(other.counted)
    assert one.pending_ids == other.pending_ids
    mine, theirs = one.posterior, other.posterior
    assert mine.kernel.shape == theirs.kernel.shape
    for name in ("noise_variance", "amplitude", "offset", "slope", "context_square", "n_observations"):
        assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=MOST_APART, abs=1e-12), name
    rng = np.random.default_rng(7)
    rankings = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=30, rng=rng)
    for context in rng.normal(size=(4, DIM)):
        expected, found = other.predict(context, rankings), one.predict(context, rankings)
        unit = np.sqrt(theirs.amplitude) * np.linalg.norm(context)
        assert np.abs(found.mean - expected.mean).max() <= MOST_APART * unit
        assert np.abs(found.variance - expected.variance).max() <= MOST_APART * unit**2


CASES = [
    (Kernel.ADAPTIVE, 200, False),
    (Kernel.ADAPTIVE, 20, False),
    (Kernel.CONVOLUTIONAL, 20, True),
    (Kernel.WEIGHTED_CONVOLUTIONAL, 200, True),
]


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 5, 60])
@pytest.mark.parametrize(("kernel", "rows", "prior"), CASES)
@pytest.mark.parametrize(("wrong", "right"), [(1.5, 0.25), (1e4, 0.25), (0.25, -1e4), (0.25, None), (1e4, None)])
def test_a_corrected_state_is_that_of_the_corrected_life(
    wrong: float, right: float | None, kernel: Kernel, rows: int, before: int, *, prior: bool
) -> None:
    """Also when it has folded and projected, has been refit since, and thought of a wild reward as one."""
    mistaken, truthful = (Life(begun(kernel=kernel, rows=rows, prior=prior), seed=before) for _ in range(2))
    slates: list[Slate] = []
    for life, value in ((mistaken, wrong), (truthful, right)):
        if before:
            life.live(before)
            life.until_after_a_refit()
        wild = life.show()
        others = [life.show() for _ in range(4)]
        if value is not None:
            life.reward(wild, value)
        for shown in others[:3]:
            life.reward(shown, float(life.rng.normal()))
        slates.append(wild)
    assert can_correct(mistaken.state, slates[0][0])
    mistaken.state = correct(mistaken.state, slates[0][0], right)
    if right is None:
        truthful.state = truthful.state.closed(slates[0][0])
    is_wild = max(abs(wrong), abs(right or 0.0)) > 100.0
    compare = assert_predicts_alike if is_wild else assert_alike
    compare(mistaken.state, truthful.state)
    if is_wild and not before:
        return  # a few that are judged anew are refit at once
    for life in (mistaken, truthful):
        life.live(40)  # beyond the next refits
    compare(mistaken.state, truthful.state)


def test_a_correction_can_be_corrected() -> None:
    life, other = (Life(begun(kernel=Kernel.ADAPTIVE, rows=200, prior=False), seed=3) for _ in range(2))
    for one in (life, other):
        for shown in [one.show() for _ in range(6)]:
            one.reward(shown, float(one.rng.normal()))
    state = correct(correct(correct(correct(life.state, "s2", 5.0), "s4", None), "s2", -1.0), "s5", 2.0)
    expected = correct(correct(correct(other.state, "s5", 2.0), "s2", -1.0), "s4", None)
    assert_alike(state, expected)
    assert not can_correct(state, "s4")


def test_all_rewards_can_be_voided() -> None:
    life = Life(begun(kernel=Kernel.ADAPTIVE, rows=200, prior=False), seed=3)
    fresh = Life(life.state, seed=3)
    for one in (life, fresh):
        slates = [one.show() for _ in range(3)]
    for shown in slates:
        life.reward(shown, 1.5)
    for name, _, _ in slates:
        life.state, fresh.state = correct(life.state, name, None), fresh.state.closed(name)
    assert_alike(life.state, fresh.state)
    for one in (life, fresh):
        one.live(10)
    assert_alike(life.state, fresh.state)


def test_older_states_stay_as_they_are_when_a_later_one_is_corrected() -> None:
    life = Life(begun(kernel=Kernel.ADAPTIVE, rows=200, prior=False), seed=4)
    life.live(30)
    life.until_after_a_refit()
    for shown in [life.show() for _ in range(4)]:
        life.reward(shown, float(life.rng.normal()))
    before = life.state
    numbers = [np.array(one, copy=True) if isinstance(one, np.ndarray) else one for one in before.posterior.numbers]
    branch = Life(correct(before, before.recent.ids[-2], 9.0), seed=9)
    branch.live(12)
    life.live(12)
    for then, now in zip(numbers, before.posterior.numbers, strict=True):
        assert np.array_equal(np.asarray(then, dtype=object), np.asarray(now, dtype=object)) or np.array_equal(
            then, now
        )


def test_a_refit_ends_what_can_be_corrected() -> None:
    life = Life(begun(kernel=Kernel.ADAPTIVE, rows=200, prior=False), seed=5)
    for count in range(1, 60):
        due = life.state.rewards_before_refit
        shown = life.show()
        life.reward(shown, float(life.rng.normal()))
        assert can_correct(life.state, shown[0]) or due <= 1, count
        assert can_correct(life.state, shown[0]) == (life.state.since_refit > 0), count
        assert sum(map(bool, life.state.recent.ids)) == life.state.since_refit


def test_a_refit_of_doubt_comes_no_sooner_than_was_said() -> None:
    """Rewards become smaller for good: then the first ones are doubted, and learned anew before rows have grown."""
    life, early = Life(begun(kernel=Kernel.ADAPTIVE, rows=200, prior=False), seed=1), 0
    for count in range(1, 120):
        due, growth = life.state.rewards_before_refit, life.state._rewards_before_growth
        life.reward(life.show(), float(life.rng.normal()) * (30.0 if count < 60 else 1.0))
        if not life.state.since_refit:
            assert due <= 1, count
            early += growth > 1
    assert early


def test_a_row_that_is_taken_back_leaves_the_mean_square_of_contexts_as_it_was() -> None:
    """Of rows that were projected onto others nobody can tell it by the contexts that are left."""
    rng = np.random.default_rng(8)
    basis = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, N_ITEMS, SLATE_SIZE)
    rankings = random_rankings(ITEMS, slate_size=SLATE_SIZE, count=60, rng=rng)
    rows = ObservedRows.of(Observations(rng.normal(size=(60, DIM)), rankings, rng.normal(size=60)))
    few = project(basis, rows, most_rows=20, noise_variance=0.2)
    nobody = PendingSlates(np.zeros((0, DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
    before = Posterior.fit(basis, few, nobody, noise_variance=0.2).observe(np.full(DIM, 3.0), rankings[0], 1.0)
    left = before.observe(np.full(DIM, 0.1), rankings[1], 2.0).without_row(before.n_rows)
    assert left.n_observations == pytest.approx(before.n_observations)
    assert left.context_square == pytest.approx(before.context_square)
