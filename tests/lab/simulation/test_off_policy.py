"""Logs with known truth: drawn with the shares that are logged, by a policy that gets better."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from topk_bandit.lab.simulation.off_policy import TARGETS, Logged, Logging, log_in, questions
from topk_bandit.learning.rankings import all_rankings

HOW = Logging(rounds=6000, n_items=8, near_share=0.3, uniform_share=0.2, learns_every=1000)


@lru_cache(maxsize=1)
def logged() -> Logged:
    return log_in(HOW, seed=3)


def test_slates_are_drawn_with_the_propensities_that_are_logged() -> None:
    policy = logged().log.policy
    is_best, is_near = policy.places(logged().log.slates)
    near = 8 - 3  # items that can replace one
    for found, expected in ((is_best, 0.5 + 0.2 / 336), (is_near, 0.3 + 0.2 * (3 * near + 3) / 336)):
        assert found.mean() == pytest.approx(expected, abs=4.0 * np.sqrt(0.25 / len(found)))
    changed = (logged().log.slates != policy.best).sum(axis=1)
    swapped = (is_near & (changed == 2)).sum() / is_near.sum()
    assert swapped == pytest.approx(3 / (3 * near + 3), abs=4.0 * np.sqrt(0.25 / is_near.sum()))


def test_rewards_are_those_of_the_shop() -> None:
    slates, log = logged().slates, logged().log
    pairs = zip(logged().customers.tolist(), log.slates, strict=True)
    expected = np.array([slates.expect_rewards(customer, 0, ranking[None])[0] for customer, ranking in pairs])
    assert (log.rewards - expected).std() == pytest.approx(HOW.noise, rel=0.05)
    assert (log.rewards - expected).mean() == pytest.approx(0.0, abs=4.0 / np.sqrt(len(log)))


def test_the_policy_learns_from_what_is_logged() -> None:
    still = log_in(Logging(**{**settings(), "learns_every": HOW.rounds}), seed=3)
    slates, last = logged().slates, np.arange(5000, 6000)

    def earned(one: Logged) -> float:
        best = one.log.policy.best
        return float(np.mean([slates.expect_rewards(int(one.customers[t]), 0, best[t][None])[0] for t in last]))

    assert earned(logged()) > earned(still)


def settings() -> dict[str, float]:
    return {name: getattr(HOW, name) for name in HOW.__dataclass_fields__}


def test_the_truth_is_the_mean_over_all_slates_of_a_policy() -> None:
    slates, log = logged().slates, logged().log
    asked = questions(logged(), seed=3)
    assert len(asked) == len(TARGETS)
    every = all_rankings(np.arange(8), slate_size=3)
    worth = np.array([slates.expect_rewards(customer, 0, every).mean() for customer in range(2000)])
    assert asked[0].truth == pytest.approx(worth[logged().customers].mean())
    for question in asked[1:]:
        [column] = question.target.slates.swapaxes(0, 1)
        pairs = zip(logged().customers.tolist(), column, strict=True)
        expected = [slates.expect_rewards(customer, 0, ranking[None])[0] for customer, ranking in pairs]
        assert question.truth == pytest.approx(np.mean(expected))
    assert (asked[1].target.slates == asked[1].target.slates[0]).all()
    assert len(np.unique(asked[2].target.slates[:, 0], axis=0)) > 3
    assert asked[0].truth < asked[1].truth < asked[2].truth
    assert len(log) == HOW.rounds
