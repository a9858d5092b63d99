"""Evaluation under rules, against the definition, written out over all allowed slates."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binom
from tests.learning.test_ruled_propensities import Ruled, by_definition, draw

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.evaluation.estimators import average_weighted, normalise_weighted, on_policy
from topk_bandit.learning.evaluation.ruled_log import RuledLog
from topk_bandit.learning.propensities import SlateDistribution

UNIFORM, NEAR = 0.2, 0.3
EXPLORATION = Exploration(ConstantBeta(1.0), uniform_share=UNIFORM, near_share=NEAR)


@lru_cache
def universes() -> list[Ruled]:
    """Return random rules that bind, and the slates that they allow."""
    drawn = (draw(seed) for seed in range(60))
    found = [one for one in drawn if one is not None and len(one.slates) > 3 and not one.rules.allow_all]
    assert len(found) > 15
    return found[:15]


def policy_of(ruled: Ruled, best: int = 0) -> SlateDistribution:
    return SlateDistribution.of(EXPLORATION, ruled.slates[best], ruled.eligible, AllowedSlates(ruled.rules))


def every_slate(ruled: Ruled, rewards: np.ndarray) -> RuledLog:
    """Return a log that has each allowed slate of one request once."""
    return RuledLog((policy_of(ruled),) * len(ruled.slates), ruled.slates, rewards)


def test_weights_are_those_of_the_definition_and_estimates_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    for ruled in universes():
        chances = by_definition(ruled, ruled.slates[0], UNIFORM, NEAR)
        earned = rng.normal(size=len(chances))
        log = every_slate(ruled, earned)
        wanted = len(chances) // 2
        fixed = log.weights_of(np.tile(ruled.slates[wanted], (len(log), 1)))
        uniform = log.weights_of_uniform()
        for weights, truth in ((fixed, earned[wanted]), (uniform, earned.mean())):
            assert chances @ weights.values == pytest.approx(1.0)
            assert chances @ (weights.values * earned) == pytest.approx(truth)
            np.testing.assert_allclose(weights.second_moments, chances @ weights.values**2, rtol=1e-9)


def test_a_slate_that_breaks_a_rule_is_completed_as_by_enumeration() -> None:
    rng, changed = np.random.default_rng(1), 0
    for ruled in universes():
        asked = np.array([rng.permutation(ruled.eligible)[:3] for _ in range(20)])
        log = RuledLog((policy_of(ruled),) * 20, np.tile(ruled.slates[0], (20, 1)), np.zeros(20))
        for slate, completed in zip(asked, log.complete(asked), strict=True):
            kept = (ruled.slates == slate).sum(axis=1)
            assert (ruled.slates == completed).all(axis=1).any()
            assert (completed == slate).sum() == kept.max()
            changed += (completed != slate).any()
    assert changed > 50


def test_items_that_rules_leave_out_and_slates_that_never_come_are_refused() -> None:
    ruled = universes()[0]
    log = every_slate(ruled, np.zeros(len(ruled.slates)))
    with pytest.raises(InvalidArgumentError, match="not eligible"):
        log.complete(np.tile([0, 2, 4], (len(log), 1)))
    best_alone = Exploration(ConstantBeta(1.0), uniform_share=0.0)
    policy = SlateDistribution.of(best_alone, ruled.slates[0], ruled.eligible, AllowedSlates(ruled.rules))
    with pytest.raises(InvalidArgumentError, match="a uniform share above 0"):
        RuledLog((policy,), ruled.slates[:1], np.zeros(1)).weights_of_uniform()


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """Of logs of 400 requests under several rules at once, with rewards that are no sums over positions."""
    rng, n_logs, n_requests = np.random.default_rng(2), 300, 400
    rules = universes()
    worth = [rng.normal(size=len(one.slates)) for one in rules]
    policies = [policy_of(one, int(rng.integers(len(one.slates)))) for one in rules]
    chances = [by_definition(one, policy.best, UNIFORM, NEAR) for one, policy in zip(rules, policies, strict=True)]
    targets = [int(rng.integers(len(one.slates))) for one in rules]
    held: Counter[str] = Counter()
    errors: dict[str, list[float]] = defaultdict(list)
    for _ in range(n_logs):
        which = rng.integers(len(rules), size=n_requests)
        drawn = [int(rng.choice(len(chances[one]), p=chances[one])) for one in which]
        rewards = np.array([worth[one][slate] for one, slate in zip(which, drawn, strict=True)])
        slates = np.array([rules[one].slates[slate] for one, slate in zip(which, drawn, strict=True)])
        noisy = rewards + 0.3 * rng.normal(size=n_requests)
        log = RuledLog(tuple(policies[one] for one in which), slates, noisy)
        fixed = log.weights_of(np.array([rules[one].slates[targets[one]] for one in which]))
        of_uniform = float(np.mean([worth[one].mean() for one in which]))
        found = {
            "uniform": (average_weighted(log.weights_of_uniform(), noisy), of_uniform),
            "uniform, snips": (normalise_weighted(log.weights_of_uniform(), noisy), of_uniform),
            "fixed": (average_weighted(fixed, noisy), np.mean([worth[one][targets[one]] for one in which])),
            "shown": (on_policy(log), np.mean([chances[one] @ worth[one] for one in which])),
        }
        for name, (told, truth) in found.items():
            held[name] += told.low <= truth <= told.high
            errors[name].append(told.value - float(truth))
    for name, of_logs in errors.items():
        assert held[name] >= binom.ppf(0.001, n_logs, 0.95), (name, held[name])
        assert abs(np.mean(of_logs)) < 4.0 * np.std(of_logs) / np.sqrt(n_logs), name
