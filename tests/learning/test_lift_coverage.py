"""A thousand shops, looked at after every request: how often an interval leaves out the truth, and when it decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.learning.groups import REWARDS, reach, totals_of, watch

from topk_bandit.domain.stages import LiftVerdict
from topk_bandit.learning.lift import estimate_lift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from tests.learning.groups import FloatArray, Watched

pytestmark = pytest.mark.slow

SHOPS, REQUESTS, AT_ONCE = 1_000, 10_000, 50


def played(
    kind: str, share: float, seed: int, requests: int = REQUESTS
) -> Iterator[tuple[FloatArray, NDArray[np.bool_]]]:
    """Yield rewards without a difference between groups, and which are of the control group, for fifty shops each."""
    rng = np.random.default_rng([seed, 44])
    for _ in range(SHOPS // AT_ONCE):
        yield REWARDS[kind](rng, (AT_ONCE, requests)), rng.random((AT_ONCE, requests)) < share


def check_decisions(rewards: FloatArray, in_control: NDArray[np.bool_], excluded: NDArray[np.bool_]) -> None:
    """Check that `estimate_lift` says the same when a shop first decides, and one request earlier."""
    for shop in np.flatnonzero(excluded.any(axis=1)):
        first = int(excluded[shop].argmax())
        for count, is_decided in ((first + 1, True), (first, False)):
            mask = in_control[shop, :count]
            lift = estimate_lift(totals_of(rewards[shop, :count][~mask]), totals_of(rewards[shop, :count][mask]))
            assert (lift.verdict in {LiftVerdict.BETTER, LiftVerdict.WORSE}) == is_decided


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("kind", REWARDS)
def test_without_a_difference_at_most_one_in_twenty_ever_sees_one(kind: str, share: float) -> None:
    ever, by_usual_intervals = 0, 0
    for rewards, in_control in played(kind, share, seed=1):
        watched = watch(rewards, in_control)
        errors = np.abs(watched.errors())
        excluded = errors > reach(watched.information, 0.025)
        ever += int(excluded.any(axis=1).sum())
        by_usual_intervals += int((errors > 1.96).any(axis=1).sum())
        check_decisions(rewards, in_control, excluded)
    print(f"{kind}, control {share}: {ever} of {SHOPS} ever exclude zero; {by_usual_intervals} by usual intervals")
    assert ever <= 0.05 * SHOPS
    if kind == "normal":
        assert by_usual_intervals > 0.2 * SHOPS


def truth_outside(watched: Watched, difference: FloatArray, ratio: FloatArray) -> tuple[int, int]:
    """Return in how many shops the intervals of the difference, and of the ratio, ever leave out the truth."""
    bound = reach(watched.information, 0.025)
    spread = np.hypot(watched.bandit_error, watched.control_error)
    off = np.abs(watched.bandit - watched.control - difference) > bound * spread
    missed = (np.abs(watched.errors(ratio)) > bound) & watched.is_late
    return int((off & watched.is_late).any(axis=1).sum()), int(missed.any(axis=1).sum())


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("kind", ["clicks", "baskets"])
def test_a_lift_that_grows_as_the_bandit_learns_is_in_the_intervals(kind: str, share: float) -> None:
    """The bandit's requests earn up to twice as often as the others, as it learns: the truth is the mean so far."""
    of_difference = of_ratio = 0
    grown = 1.0 + np.arange(REQUESTS) / (np.arange(REQUESTS) + 1_000.0)
    rng = np.random.default_rng(9)
    for rewards, in_control in played(kind, share, seed=2):
        more = REWARDS[kind](rng, rewards.shape) * (rng.random(rewards.shape) < grown - 1.0)
        watched = watch(rewards + np.where(in_control, 0.0, more), in_control)
        mean = {"clicks": 0.05, "baskets": 0.1 * np.exp(0.5)}[kind]
        with np.errstate(invalid="ignore"):
            ratio = np.cumsum(np.where(in_control, 0.0, grown), axis=1) / np.cumsum(~in_control, axis=1)
        missed = truth_outside(watched, mean * (ratio - 1.0), ratio)
        of_difference, of_ratio = of_difference + missed[0], of_ratio + missed[1]
    print(f"{kind}, control {share}: difference left out in {of_difference} of {SHOPS}, ratio in {of_ratio}")
    assert max(of_difference, of_ratio) <= 0.05 * SHOPS


def fixed_size(lift: float, power_errors: float) -> float:
    """Return how many requests, half of them control, a test of 5 % at one fixed time needs for a power."""
    return 4.0 * ((1.959964 + power_errors) / lift) ** 2


@pytest.mark.parametrize("kind", ["normal", "clicks", "baskets"])
def test_a_lift_of_a_tenth_of_the_spread_is_decided_soon(kind: str) -> None:
    """Half of the shops, and their mean, decide within 1.5 x the size of a fixed test with a power of 80 %."""
    requests, lift = 16_000, 0.1
    decided: list[int] = []
    for rewards, in_control in played(kind, 0.5, seed=3, requests=requests):
        spread = {"normal": 1.0, "clicks": (0.05 * 0.95) ** 0.5, "baskets": (0.1 * np.e**2 - 0.01 * np.e) ** 0.5}[kind]
        watched = watch(rewards + np.where(in_control, 0.0, lift * spread), in_control)
        above = watched.errors() > reach(watched.information, 0.025)
        decided += np.where(above.any(axis=1), above.argmax(axis=1) + 1, requests).tolist()
    after = np.array(decided)
    of_80, of_90 = fixed_size(lift, 0.841621), fixed_size(lift, 1.281552)
    print(
        kind,
        np.median(after) / of_80,
        after.mean() / of_80,
        (after <= 1.5 * of_80).mean(),
        (after <= 1.5 * of_90).mean(),
    )
    assert max(float(np.median(after)), float(after.mean())) <= 1.5 * of_80
    assert (after <= 1.5 * of_90).mean() >= 0.8
