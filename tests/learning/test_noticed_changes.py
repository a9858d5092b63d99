"""A shop that changes is noticed, and one that does not is left alone; densities against a dense process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from tests.learning.dense import WCK, sample
from tests.learning.happenings import CONTEXT_DIM, KERNEL, N_ITEMS, SLATE_SIZE
from tests.long_forms import usual_or_long

from topk_bandit.learning import noticed_changes
from topk_bandit.learning.kendall import adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.noticed_changes import describe_latest, notice_change
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import PendingSlates, Posterior
from topk_bandit.learning.state_changes import forget

NO_PENDING = PendingSlates(np.zeros((0, CONTEXT_DIM)), np.zeros((0, SLATE_SIZE), dtype=np.int32))
NOISE, COUNT, LATEST = 0.3, 80, 20
DATA = sample(
    WCK, np.random.default_rng(0), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=CONTEXT_DIM, count=COUNT
)
ROWS = ObservedRows.of(Observations(*DATA.rows))
LATE = np.where(np.arange(COUNT) < COUNT - LATEST, 0.0, 1.0)


def posterior_of(rows: ObservedRows) -> Posterior:
    fitted = Posterior.fit(KERNEL, rows, NO_PENDING, noise_variance=NOISE)
    return fitted.rescale(offset=0.4, amplitude=1.7)


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.03])
def test_the_density_is_that_of_a_dense_process_whose_earlier_rows_have_more_noise(weight: float) -> None:
    features = WCK.features(DATA.rankings, N_ITEMS)
    noise = np.where(np.arange(COUNT) < COUNT - LATEST, NOISE / weight, NOISE)
    covariance = 1.7 * ((DATA.contexts @ DATA.contexts.T) * (features @ features.T) + np.diag(noise))
    mean, before = np.full(COUNT, 0.4), COUNT - LATEST
    expected = multivariate_normal.logpdf(DATA.rewards, mean, covariance)
    expected -= multivariate_normal.logpdf(DATA.rewards[:before], mean[:before], covariance[:before, :before])
    faded = ROWS.fade_earlier(weight, n_latest=LATEST)
    got = describe_latest(posterior_of(ROWS), faded, n_latest=LATEST).log_density
    assert got - 0.5 * LATEST * np.log(2.0 * np.pi * 1.7) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("risen_by", [-5.0, 0.0, 0.5, 5.0])
def test_a_rise_of_all_of_the_latest_rewards_gains_what_the_best_one_does(risen_by: float) -> None:
    rewards = DATA.rewards + risen_by * LATE
    rows = ObservedRows.of(Observations(DATA.contexts, DATA.rankings, rewards))
    posterior = posterior_of(ROWS)
    latest = describe_latest(posterior, rows, n_latest=LATEST)

    def loss(rise: float) -> float:
        without = ObservedRows.of(Observations(DATA.contexts, DATA.rankings, rewards - rise * LATE))
        return -describe_latest(posterior, without, n_latest=LATEST).log_density

    best = minimize_scalar(loss, bounds=(0.0, 8.0), method="bounded", options={"xatol": 1e-6})
    expected = max(0.0, -best.fun - latest.log_density - 0.5 * np.log(LATEST))
    assert latest.gain_of_rise == pytest.approx(expected, abs=1e-3)
    assert (latest.gain_of_rise > 5.0) == (risen_by == 5.0)


def test_doubt_adds_up_and_is_never_below_zero() -> None:
    posterior = posterior_of(ROWS)
    plain, doubted = (
        describe_latest(posterior, rows, n_latest=LATEST)
        for rows in (ROWS, ROWS.fade_earlier(noticed_changes.DOUBTED, n_latest=LATEST))
    )
    gain = doubted.log_density - plain.log_density - plain.gain_of_rise - noticed_changes.DOUBT_TAKEN_OFF
    for before in (0.0, 1.0, 3.0):
        noticed = notice_change(posterior, ROWS, n_latest=LATEST, doubt=before)
        assert noticed.weight == 1.0
        assert noticed.doubt == pytest.approx(max(0.0, before + gain))
    noticed = notice_change(posterior, ROWS, n_latest=LATEST, doubt=noticed_changes.MOST_DOUBT - gain + 1e-9)
    assert noticed.weight in noticed_changes.WEIGHTS
    assert noticed.doubt == 0.0


@pytest.mark.parametrize(("count", "n_latest"), [(80, 15), (65, 16)])
def test_few_rewards_tell_nothing(count: int, n_latest: int) -> None:
    rows = ROWS.select(np.arange(count))
    assert notice_change(posterior_of(rows), rows, n_latest=n_latest, doubt=5.9) == (1.0, 5.9)


def learn(seed: int, *, change_at: int, rounds: int, rise_at: int = 10**9) -> tuple[State, list[int]]:
    """Return what is known of a shop with random slates that may change once, and when it noticed."""
    rng = np.random.default_rng(seed)
    state = State.initial(adaptive_kendall(10, 3), context_dim=2, limits=Limits(rows=120, pending_rows=8))
    worth, noticed = _draw_worth(rng), list[int]()
    for number in range(rounds):
        if number == change_at:
            worth = _draw_worth(rng)
        context, slate = np.array([1.0, rng.normal()]), rng.permutation(10)[:3].astype(np.int32)
        reward = float((worth[slate] @ context) @ [1.0, 0.6, 0.5] + rng.normal() + 2.0 * (number >= rise_at))
        before = state.changes
        state = state.shown(str(number), context, slate).rewarded(str(number), context, slate, reward=reward)
        noticed += [number] * (state.changes - before)
    return state, noticed


def _draw_worth(rng: np.random.Generator) -> np.ndarray:
    """Return what items are worth, with random slates worth 0 in the mean."""
    worth = rng.normal(size=(10, 2))
    return np.asarray(worth - worth.mean(axis=0))


SEEDS = usual_or_long(range(3), long=range(30))


@pytest.mark.slow
@pytest.mark.long_form
def test_shops_that_stay_as_they_are_are_left_alone() -> None:
    """Over 30 shops of 3,000 rewards, some 3,000 refits, one false alarm is allowed."""
    alarms = [at for seed in SEEDS for at in learn(seed, change_at=-1, rounds=usual_or_long(1000, long=3000))[1]]
    assert len(alarms) <= usual_or_long(0, long=1)


@pytest.mark.slow
@pytest.mark.long_form
def test_a_rise_of_all_rewards_is_no_change_of_preferences() -> None:
    for seed in SEEDS:
        assert not learn(seed, change_at=-1, rounds=1100, rise_at=800)[1]


@pytest.mark.slow
@pytest.mark.long_form
def test_shops_that_change_are_noticed_soon_and_learned_anew() -> None:
    for seed in SEEDS:
        state, noticed = learn(seed, change_at=800, rounds=1100)
        assert noticed, seed
        assert 800 < noticed[0] <= 950, (seed, noticed)
        assert state.changes == len(noticed)


def test_what_was_noticed_is_kept_with_the_state() -> None:
    lived = learn(0, change_at=-1, rounds=130)[0]
    assert lived.changes == 0
    state = replace(lived, doubt=2.5, changes=3)
    restored = State.restore(
        adaptive_kendall(10, 3), state.refit().checkpoint, limits=state.limits, prior_mean=None, leaving=state.leaving
    )
    assert (restored.doubt, restored.changes) == (state.refit().doubt, 3)
    forgotten = forget(restored, adaptive_kendall(10, 3))
    assert (forgotten.doubt, forgotten.changes) == (0.0, 3)
