"""A study before a bandit's first round: what people answered is in the utilities, and the utilities in the slates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.lab.simulation.warm_start import Study, Trial, WarmStart, studied_slopes, trial, warm_start
from topk_bandit.learning.environments import Shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SMALL = WarmStart(n_items=12, slate_size=3, rounds=25, delay=3, study=Study(questions=40, list_size=4))
SEEDS = range(4)


@pytest.fixture(scope="module")
def trials() -> Trial:
    return warm_start(SMALL, SEEDS)


def correlation(shop: Shop, slopes: np.ndarray) -> float:
    true = np.array([shop.relevance(customer) for customer in range(len(shop.customers))])
    return float(np.corrcoef((shop.customers @ slopes.T).ravel(), true.ravel())[0, 1])


def test_more_decisive_people_and_better_features_teach_more() -> None:
    shop = Shop.random(np.random.default_rng(1), n_items=15, slate_size=3)

    def taught(study: Study) -> float:
        drawn = [studied_slopes(shop, study, np.random.default_rng(seed)) for seed in range(3)]
        return float(np.mean([correlation(shop, slopes) for slopes in drawn]))

    good = Study(questions=60, list_size=4, decisiveness=6.0, feature_noise=0.0)
    assert taught(good) > 0.85
    assert taught(replace(good, decisiveness=0.5)) < taught(good) - 0.1
    assert taught(replace(good, feature_noise=2.0)) < taught(good) - 0.1
    assert taught(replace(good, questions=6)) < taught(good) - 0.05


def test_regrets_are_those_of_the_same_shop_and_customers(trials: Trial) -> None:
    assert trials.cold.shape == trials.warm.shape == trials.shuffled.shape == (4, 25)
    assert (np.array([trials.cold, trials.warm, trials.shuffled]) >= -1e-9).all()
    assert (trials.correlation > 0.5).all()
    assert len(np.unique(trials.cold[:, 0])) == 4


def test_utilities_spare_the_first_rounds_their_regret(trials: Trial) -> None:
    assert trials.warm.mean() < 0.8 * trials.cold.mean()
    assert trials.warm.mean() < 0.8 * trials.shuffled.mean()


def test_a_trial_is_a_function_of_its_seed_however_trials_are_run(trials: Trial) -> None:
    def backwards(one: Callable[[int], Trial], seeds: Iterable[int]) -> Iterator[Trial]:
        played = {seed: one(seed) for seed in reversed(list(seeds))}
        return iter([played[seed] for seed in sorted(played)])

    again = warm_start(replace(SMALL, rounds=10), [0, 1], run=backwards)
    assert again.warm.tobytes() == trials.warm[:2, :10].tobytes()
    assert again.shuffled.tobytes() == trials.shuffled[:2, :10].tobytes()
    assert trial(replace(SMALL, rounds=10), 1).cold.tobytes() == trials.cold[1, :10].tobytes()
