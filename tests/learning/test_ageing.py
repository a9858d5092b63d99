"""Rewards that count less as they age: against a dense process whose old rows have more noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tests.learning.dense import WCK, DenseGp, FloatArray, assert_close, rankings_of, sample
from tests.learning.happenings import ASK_CONTEXT, CONTEXT_DIM, KERNEL, N_ITEMS, SLATE_SIZE
from tests.learning.test_policy import EVERYTHING

from topk_bandit.learning.hyperparameters import best_noise
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.observed_rows import Observations, ObservedRows, compact, project
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.recent_observations import PastRows

NOISE = 0.2
DATA = sample(WCK, np.random.default_rng(0), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=40)
NO_PENDING = PendingSlates(np.zeros((0, CONTEXT_DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
WEIGHTS = np.linspace(0.1, 1.0, 40)


def faded() -> ObservedRows:
    return ObservedRows.of(Observations(*DATA.rows)).fade(WEIGHTS)


@dataclass(frozen=True)
class _Faded(DenseGp):
    """The textbook's process, whose rows have noise of their own."""

    weights: FloatArray = field(default_factory=lambda: WEIGHTS)

    def noisy(self, rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self.covariance(rows, rows) + np.diag(self.noise_variance / self.weights)


def test_a_faded_row_has_more_noise() -> None:
    posterior = Posterior.fit(KERNEL, faded(), NO_PENDING, noise_variance=NOISE)
    dense = _Faded(WCK, N_ITEMS, NOISE, *DATA.rows)
    assert_close(posterior.predict(ASK_CONTEXT, EVERYTHING), dense.predict(ASK_CONTEXT, EVERYTHING), atol=1e-8)
    assert posterior.n_observations == pytest.approx(WEIGHTS.sum())


def test_fading_twice_is_fading_once_by_the_product_and_folding_keeps_it() -> None:
    twice = faded().fade(np.full(40, 0.5))
    once = ObservedRows.of(Observations(*DATA.rows)).fade(0.5 * WEIGHTS)
    for rows in (
        once,
        compact(KERNEL, twice),
        compact(KERNEL, faded()).fade(np.full(compact(KERNEL, faded()).n_rows, 0.5)),
    ):
        one, other = (Posterior.fit(KERNEL, each, NO_PENDING, noise_variance=NOISE) for each in (twice, rows))
        assert other.n_observations == pytest.approx(one.n_observations)
        assert other.best_offset == pytest.approx(one.best_offset)
        assert other.whitened_square(0.3) == pytest.approx(one.whitened_square(0.3))
        assert_close(one.predict(ASK_CONTEXT, EVERYTHING), other.predict(ASK_CONTEXT, EVERYTHING), atol=1e-8)


def test_rows_that_count_for_next_to_nothing_go() -> None:
    weights = np.where(np.arange(40) < 10, 1e-5, 1.0)
    left = ObservedRows.of(Observations(*DATA.rows)).fade(weights)
    assert left.n_rows == 30
    np.testing.assert_array_equal(left.rankings, DATA.rankings[10:])


def test_noise_is_found_as_large_when_all_rows_have_faded_alike() -> None:
    """The likelihood to a power has its maximum where it had it, but for what fewer observations tell of the prior."""
    rng = np.random.default_rng(0)
    rankings = rankings_of(N_ITEMS, SLATE_SIZE, 400, rng)
    rewards = rankings[:, 0] / 4.0 + rng.normal(size=400)
    fresh = ObservedRows.of(Observations(np.ones((400, 1)), rankings, rewards))
    found = [best_noise(KERNEL, rows).noise_variance for rows in (fresh, fresh.fade(np.full(400, 0.25)))]
    amplitudes = [
        Posterior.fit(KERNEL, rows, PendingSlates(np.zeros((0, 1)), NO_PENDING.rankings), noise_variance=noise)
        for rows, noise in zip((fresh, fresh.fade(np.full(400, 0.25))), found, strict=True)
    ]
    noises = [
        noise * one.whitened_square(one.best_offset) / one.n_observations
        for noise, one in zip(found, amplitudes, strict=True)
    ]
    assert 0.8 <= noises[0] <= 1.3
    assert 0.8 <= noises[1] <= 1.3


HALF_LIFE = 20.0


class Aged:
    """Rewards and what each counts for, by the definition: a plain number each, brought up to date at each refit."""

    def __init__(self) -> None:
        self.state = State.initial(KERNEL, context_dim=CONTEXT_DIM, limits=Limits(), half_life=HALF_LIFE)
        self.weights: list[float] = []
        self.refits = 0
        self._refit_at: float | None = None
        self._since_refit = 0

    def learn(self, at: float) -> None:
        row = len(self.weights)
        context, ranking, reward = DATA.contexts[row], DATA.rankings[row], float(DATA.rewards[row])
        self.state = self.state.rewarded(f"{row}", context, ranking, reward=reward, at=at)
        self.weights.append(1.0)
        self._since_refit += 1
        if self.state.since_refit == 0:
            self._age(at)

    def learn_past(self, ages: list[float], at: float) -> None:
        rows = slice(len(self.weights), len(self.weights) + len(ages))
        past = PastRows(DATA.contexts[rows], DATA.rankings[rows], DATA.rewards[rows], np.array(ages))
        self.state = self.state.learn_history(past, at=at)
        self._age(at)
        self.weights += [0.5 ** (age / HALF_LIFE) for age in ages]

    def _age(self, at: float) -> None:
        """Let what was there at the refit before age by all the time since, and what came later by half of it."""
        passed = 0.0 if self._refit_at is None else max(at - self._refit_at, 0.0)
        old = len(self.weights) - self._since_refit
        for row in range(len(self.weights)):
            self.weights[row] *= 0.5 ** (passed / HALF_LIFE if row < old else passed / HALF_LIFE / 2.0)
        self._refit_at = at if self._refit_at is None else max(at, self._refit_at)
        self._since_refit = 0
        self.refits += 1

    def check(self) -> None:
        posterior, count = self.state.posterior, len(self.weights)
        gp = _Faded(WCK, N_ITEMS, posterior.noise_variance, *DATA[:count].rows, weights=np.array(self.weights))
        amplitude = gp.whitened_square(gp.best_offset) / sum(self.weights)
        expected = replace(gp, offset=gp.best_offset, amplitude=amplitude).predict(ASK_CONTEXT, EVERYTHING)
        assert_close(self.state.predict(ASK_CONTEXT, EVERYTHING), expected, atol=1e-8)
        assert posterior.n_observations == pytest.approx(sum(self.weights))


def test_every_reward_counts_for_its_age_by_the_refits_that_it_has_lived_through() -> None:
    """Rewards come at uneven times, some of them late since the refit before; once the clock is set back."""
    aged, times = Aged(), 5.0 + np.cumsum(np.random.default_rng(11).choice([0.1, 1.0, 9.0], size=28))
    times[23] = times[15] - 4.0  # refits come every eight rewards
    for at in times[:27].tolist():
        aged.learn(at)
    aged.check()
    aged.learn_past([0.0, 7.0, 30.0], float(times[27]))
    aged.check()
    for at in (times[27] + np.arange(10.0)).tolist():
        aged.learn(at)
    aged.check()
    assert aged.refits == 5


def live(state: State, *, count: int, at: float, seed: int, sign: float = 1.0) -> State:
    """Return the state after one reward a time unit; slates are the better the larger their first item is."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        ranking = rng.permutation(N_ITEMS)[:SLATE_SIZE].astype(np.int32)
        reward = sign * (ranking[0] - 4.0) / 4.0 + 0.3 * float(rng.normal())
        state = state.rewarded(f"{seed}-{number}", np.ones(1), ranking, reward=reward, at=at + number)
    return state


def first_items(state: State) -> float:
    """Return how much the state believes that a large first item is better: a correlation."""
    return float(np.corrcoef(state.predict(np.ones(1), EVERYTHING).mean, EVERYTHING[:, 0])[0, 1])


@pytest.mark.slow
def test_a_half_life_lets_a_bandit_learn_what_has_changed() -> None:
    old = {
        half_life: live(
            State.initial(KERNEL, context_dim=1, limits=Limits(), half_life=half_life), count=800, at=0.0, seed=1
        )
        for half_life in (math.inf, 80.0)
    }
    new = {half_life: live(state, count=240, at=800.0, seed=2, sign=-1.0) for half_life, state in old.items()}
    assert min(map(first_items, old.values())) > 0.8
    assert first_items(new[80.0]) < -0.8
    assert first_items(new[math.inf]) > 0.0
    assert new[80.0].posterior.n_observations < 300 < new[math.inf].posterior.n_observations


def test_without_a_half_life_time_changes_nothing() -> None:
    states = [live(State.initial(KERNEL, context_dim=1, limits=Limits()), count=60, at=at, seed=3) for at in (0.0, 1e9)]
    asked = [state.predict(np.ones(1), EVERYTHING).mean for state in states]
    assert asked[0].tobytes() == asked[1].tobytes()


def test_a_new_half_life_counts_from_now_on() -> None:
    state = live(State.initial(KERNEL, context_dim=1, limits=Limits()), count=100, at=0.0, seed=4)
    same = state.with_half_life(10.0)
    assert same.posterior is state.posterior
    later = live(same, count=40, at=100.0, seed=5)
    assert later.posterior.n_observations < 60.0


@pytest.mark.bits
def test_a_restored_state_ages_as_the_one_it_was_taken_from() -> None:
    state = live(
        State.initial(KERNEL, context_dim=1, limits=Limits(rows=50), half_life=60.0), count=130, at=5.0, seed=6
    ).refit(140.0)
    restored = State.restore(KERNEL, state.checkpoint, limits=state.limits, half_life=60.0)
    for one in (restored, state.refit(140.0)):
        left, right = (live(each, count=70, at=141.0, seed=7) for each in (one, state))
        assert left.posterior.n_observations == right.posterior.n_observations
        expected = right.predict(np.ones(1), EVERYTHING)
        assert left.predict(np.ones(1), EVERYTHING).mean.tobytes() == expected.mean.tobytes()


def test_as_many_observations_are_left_when_some_rows_of_a_fold_are_dropped() -> None:
    """One row of a fold has the counts of all, which may be less than there are rows."""
    old = ObservedRows.of(Observations(*DATA.rows)).fade(np.full(40, 1e-2))
    folded = project(KERNEL, old, most_rows=6, noise_variance=NOISE)
    assert folded.noise_shape is not None
    assert folded.n_observations == pytest.approx(0.4)
    variances = np.sort(np.diag(folded.noise_shape))
    weight = 1e-4 * float(variances[2] + variances[3]) / 2.0
    dropped = folded.fade(np.full(6, weight))
    assert dropped.n_rows == 3
    assert dropped.n_observations == pytest.approx(0.4 * weight)
    np.testing.assert_allclose(dropped.left_products, folded.left_products * weight)
