from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare, geom

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.scenarios import (
    AllItems,
    Batches,
    ComingAndGoing,
    Constant,
    Drift,
    Feedback,
    Geometric,
    Incomplete,
    SuddenChange,
)

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("late", [0, 1, 7])
def test_a_constant_wait_is_the_same_for_all(late: int) -> None:
    assert [Constant(late).feedback(t, RNG) for t in range(4)] == [Feedback(t + 1 + late) for t in range(4)]


def test_a_batch_is_heard_after_its_last_round() -> None:
    due = [Batches(5).feedback(t, RNG).round_number for t in range(12)]
    assert due == [5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15, 15]
    assert [Batches(1).feedback(t, RNG) for t in range(3)] == [Constant().feedback(t, RNG) for t in range(3)]


@pytest.mark.parametrize("mean", [0.5, 20.0])
def test_geometric_waits_have_their_distribution(mean: float) -> None:
    rng, wait = np.random.default_rng(1), Geometric(mean)
    late = np.array([wait.feedback(3, rng).round_number - 4 for _ in range(4000)])
    assert late.min() == 0
    assert late.mean() == pytest.approx(mean, abs=4.0 * np.sqrt(mean * (1.0 + mean) / 4000))
    bins = np.array([0, 1, 2, 5, 10, 20, 40])
    shares = np.diff(geom.cdf([*bins, np.inf], 1.0 / (1.0 + mean)), prepend=0.0)
    counts = np.bincount(np.searchsorted(bins, late + 1), minlength=8)
    kept = shares > 1e-3
    assert chisquare(counts[kept], shares[kept] / shares[kept].sum() * counts[kept].sum()).pvalue > 1e-3


@pytest.mark.parametrize("default", [None, 0.0, 0.4])
def test_some_rewards_never_come_and_that_is_known_at_the_deadline(default: float | None) -> None:
    rng, wait = np.random.default_rng(2), Incomplete(Constant(3), missing=0.3, deadline=9, default=default)
    feedback = [wait.feedback(t, rng) for t in range(3000)]
    came = np.array([one.rewarded for one in feedback])
    assert 1.0 - came.mean() == pytest.approx(0.3, abs=4.0 * np.sqrt(0.21 / 3000))
    assert all(
        one == (Feedback(t + 4) if ok else Feedback(t + 10, rewarded=False, default=default))
        for t, (one, ok) in enumerate(zip(feedback, came, strict=True))
    )


def test_a_geometric_wait_with_mean_zero_is_none() -> None:
    assert [Geometric(0.0).feedback(t, RNG) for t in range(9)] == [Feedback(t + 1) for t in range(9)]


@pytest.mark.parametrize("late", [8, 9, 10, 30])
def test_a_reward_after_the_deadline_is_missing(late: int) -> None:
    wait = Incomplete(Constant(late), missing=0.0, deadline=9, default=None)
    assert wait.feedback(5, RNG) == (Feedback(6 + late) if late <= 9 else Feedback(15, rewarded=False))


def test_all_items_are_always_there() -> None:
    assert AllItems().eligible(7, 4).tolist() == [0, 1, 2, 3]


def test_one_item_goes_and_one_comes_at_a_time() -> None:
    stock = ComingAndGoing(size=3, every=2)
    shelves = [stock.eligible(t, 5).tolist() for t in range(12)]
    assert shelves[::2] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 3, 4], [0, 1, 4], [0, 1, 2]]
    assert shelves[1::2] == shelves[::2]
    assert stock.eligible(0, 5).dtype == np.int32
    assert ComingAndGoing(size=5, every=1).eligible(3, 5).tolist() == [0, 1, 2, 3, 4]


POPULATION = (
    np.random.default_rng(3).normal(size=(400, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 2.0]]) + 5.0
)


def drifted(step: float, rounds: int, *, n_customers: int = 20_000, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng, drift = np.random.default_rng(4), Drift(POPULATION, step=step, every=every)
    start = POPULATION[rng.integers(len(POPULATION), size=n_customers)]
    preferences = start
    for t in range(rounds):
        preferences = drift.change_preferences(preferences, t, rng)
    return start, preferences


def test_drift_keeps_the_populations_mean_and_covariance() -> None:
    _, preferences = drifted(0.4, 30)
    deviation = POPULATION.std(axis=0)
    np.testing.assert_allclose(
        preferences.mean(axis=0), POPULATION.mean(axis=0), atol=4.0 * deviation.max() / np.sqrt(20_000)
    )
    np.testing.assert_allclose(np.cov(preferences.T), np.cov(POPULATION.T, ddof=0), atol=0.05 * deviation.max() ** 2)


@pytest.mark.parametrize(("step", "rounds", "every"), [(0.3, 11, 1), (0.3, 11, 4), (0.8, 3, 1)])
def test_drifting_tastes_forget_what_they_were_at_the_rate_of_the_step(step: float, rounds: int, every: int) -> None:
    start, preferences = drifted(step, rounds, every=every)
    steps = (rounds - 1) // every
    for one, other in zip(start.T, preferences.T, strict=True):
        assert np.corrcoef(one, other)[0, 1] == pytest.approx((1.0 - step**2) ** (steps / 2), abs=0.03)


def test_tastes_without_a_step_stay_and_with_the_largest_are_drawn_anew() -> None:
    start, preferences = drifted(0.0, 5, n_customers=50)
    np.testing.assert_allclose(preferences, start, atol=1e-12)
    start, preferences = drifted(1.0, 2, n_customers=50)
    assert np.abs(preferences[:, None] - POPULATION[None]).max(axis=2).min(axis=1).max() < 1e-12
    assert (np.abs(preferences - start).max(axis=1) > 1e-3).mean() > 0.9


def test_tastes_that_do_not_move_are_the_same_array() -> None:
    preferences = POPULATION[:5]
    assert Drift(POPULATION, step=0.5, every=3).change_preferences(preferences, 4, RNG) is preferences
    assert Drift(POPULATION, step=0.5, every=3).change_preferences(preferences, 0, RNG) is preferences
    assert SuddenChange(POPULATION, at=9).change_preferences(preferences, 8, RNG) is preferences


def test_a_sudden_change_gives_everybody_the_taste_of_another() -> None:
    population, rng = POPULATION[:6], np.random.default_rng(5)
    preferences = SuddenChange(population, at=9).change_preferences(population, 9, rng)
    assert sorted(preferences.tolist()) == sorted(population.tolist())
    assert preferences.tolist() != population.tolist()


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("rounds", lambda: Constant(-1)),
        ("size", lambda: Batches(0)),
        ("mean", lambda: Geometric(-0.1)),
        ("mean", lambda: Geometric(float("nan"))),
        ("missing", lambda: Incomplete(Constant(), missing=1.1, deadline=3, default=None)),
        ("deadline", lambda: Incomplete(Constant(), missing=0.1, deadline=-3, default=None)),
        ("size", lambda: ComingAndGoing(size=0, every=1)),
        ("every", lambda: ComingAndGoing(size=1, every=0)),
        ("size", lambda: ComingAndGoing(size=6, every=1).eligible(0, 5)),
        ("step", lambda: Drift(POPULATION, step=1.1)),
        ("every", lambda: Drift(POPULATION, step=0.1, every=0)),
        ("at", lambda: SuddenChange(POPULATION, at=-1)),
        ("population", lambda: SuddenChange(POPULATION[:2], at=0).change_preferences(POPULATION[:3], 0, RNG)),
    ],
)
def test_what_can_not_be_is_refused_by_name(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.field == field
