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
from topk_bandit.learning.evaluation.estimators import (
    QUANTILE,
    average_weighted,
    doubly_robust_under_rules,
    normalise_weighted,
    on_policy,
    pool,
)
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.ruled_log import RuledLog
from topk_bandit.learning.evaluation.weights import Weights
from topk_bandit.learning.propensities import SlateDistribution

UNIFORM, NEAR = 0.2, 0.3
N_ITEMS = 16
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
    return log_of((policy_of(ruled),) * len(ruled.slates), ruled.slates, rewards)


def log_of(policies: tuple[SlateDistribution, ...], slates: np.ndarray, rewards: np.ndarray) -> RuledLog:
    """Return a log without contexts."""
    return RuledLog(np.empty((len(rewards), 0)), policies, slates, rewards, N_ITEMS)


def test_weights_are_those_of_the_definition_and_estimates_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    for ruled in universes():
        chances = by_definition(ruled, ruled.slates[0], UNIFORM, NEAR)
        earned = rng.normal(size=len(chances))
        log = every_slate(ruled, earned)
        wanted = len(chances) // 2
        fixed = log.always(np.tile(ruled.slates[wanted], (len(log), 1))).weights
        uniform = log.uniform().weights
        for weights, truth in ((fixed, earned[wanted]), (uniform, earned.mean())):
            assert chances @ weights.values == pytest.approx(1.0)
            assert chances @ (weights.values * earned) == pytest.approx(truth)
            np.testing.assert_allclose(weights.second_moments, chances @ weights.values**2, rtol=1e-9)


def test_a_slate_that_breaks_a_rule_is_completed_as_by_enumeration() -> None:
    rng, changed = np.random.default_rng(1), 0
    for ruled in universes():
        asked = np.array([rng.permutation(ruled.eligible)[:3] for _ in range(20)])
        log = log_of((policy_of(ruled),) * 20, np.tile(ruled.slates[0], (20, 1)), np.zeros(20))
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
        log_of((policy,), ruled.slates[:1], np.zeros(1)).uniform()


def test_what_is_expected_of_uniform_draws_is_the_mean_over_the_allowed_slates() -> None:
    rng, which = np.random.default_rng(3), np.arange(60) % len(universes())
    policies = tuple(policy_of(one) for one in universes())
    slates = np.array([universes()[one].slates[0] for one in which])
    contexts = rng.normal(size=(len(which), 2))
    log = RuledLog(contexts, tuple(policies[one] for one in which), slates, rng.normal(size=len(which)), N_ITEMS)
    model = learn_rewards(log)
    found = model.expect_shown(log.uniform().shown)
    of_slates = np.array([model.expect_shown(log.always(slates).shown)])
    np.testing.assert_allclose(log.rewards - of_slates[0], model.residuals(log))
    for row, one in enumerate(which):
        expected = []
        for slate in universes()[one].slates:
            shown = slates.copy()
            shown[row] = slate
            expected.append(model.expect_shown(log.always(shown).shown)[row])
        assert found[row] == pytest.approx(np.mean(expected))


def test_estimates_of_several_logs_are_those_of_all_requests() -> None:
    rng = np.random.default_rng(4)
    weights = Weights(rng.random(50), rng.random(50)), Weights(rng.random(150), rng.random(150))
    earned = rng.normal(size=50), rng.normal(size=150)
    each = [average_weighted(*pair) for pair in zip(weights, earned, strict=True)]
    values = np.concatenate([one.values * rewards for one, rewards in zip(weights, earned, strict=True)])
    found = pool(each, [50, 150])
    assert found.value == pytest.approx(values.mean())
    assert found.standard_error == pytest.approx(np.hypot(0.25 * each[0].standard_error, 0.75 * each[1].standard_error))
    assert found.high - found.value == pytest.approx(QUANTILE * found.standard_error)


class Shop:
    """Rewards of allowed slates: what each item does at its position in a context, and what slates have beside that."""

    def __init__(self, rng: np.random.Generator, *, beside: float) -> None:
        self._effects = rng.normal(size=(3, N_ITEMS, 3))
        self._beside = [beside * rng.normal(size=len(one.slates)) for one in universes()]

    def worth(self, rules: int, contexts: np.ndarray) -> np.ndarray:
        """Return the mean rewards of all allowed slates in contexts (N, 2), shape (N, A)."""
        slates = universes()[rules].slates
        of_items = self._effects[np.arange(3), slates].sum(axis=1)
        return self._beside[rules] + np.column_stack([np.ones(len(contexts)), contexts]) @ of_items.T


@pytest.mark.slow
@pytest.mark.parametrize("beside", [0.3, 3.0])
def test_intervals_hold_the_truth(beside: float) -> None:
    """Of logs of 400 requests under several rules at once, with rewards that are no sums over positions."""
    rng, n_logs, n_requests = np.random.default_rng(2), 120, 400
    rules, shop = universes(), Shop(np.random.default_rng(5), beside=beside)
    policies = [policy_of(one, int(rng.integers(len(one.slates)))) for one in rules]
    chances = [by_definition(one, policy.best, UNIFORM, NEAR) for one, policy in zip(rules, policies, strict=True)]
    targets = np.array([int(rng.integers(len(one.slates))) for one in rules])
    held: Counter[str] = Counter()
    errors, widths = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(n_logs):
        which, contexts = np.sort(rng.integers(len(rules), size=n_requests)), rng.normal(size=(n_requests, 2))
        order = rng.permutation(n_requests)
        worth = [row for one in range(len(rules)) for row in shop.worth(one, contexts[which == one])]
        which, contexts, worth = which[order], contexts[order], [worth[row] for row in order]
        drawn = [int(rng.choice(len(chances[one]), p=chances[one])) for one in which]
        slates = np.array([rules[one].slates[slate] for one, slate in zip(which, drawn, strict=True)])
        mean = np.array([of_all[slate] for of_all, slate in zip(worth, drawn, strict=True)])
        noisy = mean + 0.3 * rng.normal(size=n_requests)
        log = RuledLog(contexts, tuple(policies[one] for one in which), slates, noisy, N_ITEMS)
        model = learn_rewards(log)
        fixed = log.always(np.array([rules[one].slates[targets[one]] for one in which]))
        uniform = log.uniform()
        of_uniform = float(np.mean([one.mean() for one in worth]))
        of_fixed = float(np.mean([of_all[targets[one]] for of_all, one in zip(worth, which, strict=True)]))
        of_shown = float(np.mean([chances[one] @ of_all for of_all, one in zip(worth, which, strict=True)]))
        found = {
            "uniform": (average_weighted(uniform.weights, noisy), of_uniform),
            "uniform, snips": (normalise_weighted(uniform.weights, noisy), of_uniform),
            "uniform, doubly robust": (doubly_robust_under_rules(log, uniform, model), of_uniform),
            "fixed": (average_weighted(fixed.weights, noisy), of_fixed),
            "fixed, doubly robust": (doubly_robust_under_rules(log, fixed, model), of_fixed),
            "shown": (on_policy(log), of_shown),
        }
        for name, (told, truth) in found.items():
            held[name] += told.low <= truth <= told.high
            errors[name].append(told.value - float(truth))
            widths[name].append(told.high - told.low)
    for name, of_logs in errors.items():
        width, bias = np.mean(widths[name]), np.mean(of_logs)
        print(f"{beside} {name}: held {held[name] / n_logs:.1%}, width {width:.3f}, mean error {bias:.4f}")
        assert held[name] >= binom.ppf(0.001, n_logs, 0.95), (name, held[name])
        assert abs(bias) < 4.0 * np.std(of_logs) / np.sqrt(n_logs), name
    if beside < 1.0:  # where most of a reward is what items do at their positions, a model of that pays
        for target in ("uniform", "fixed"):
            assert np.mean(widths[f"{target}, doubly robust"]) < 0.7 * np.mean(widths[target])
