"""What decides whether a policy earns more: what assumes least, where what assumes more is apart from it."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.commands.log.verdicts import choose_estimate, verdict_of
from topk_bandit.learning.evaluation.estimators import Estimate, doubly_robust, ips, on_policy, pseudo_inverse, snips
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.slate_log import SlateLog, slate_log
from topk_bandit.learning.evaluation.targets import always

LOGS, REQUESTS = 20, 1000
WORTH = np.array([1.0, 0.95, 0.3, 0.3, 0.25, 0.2, 0.2, 0.1])
N, K = len(WORTH), 2
PAIR = np.array([0, 1])


def between(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, (high - low) / 4, low, high)


@pytest.mark.parametrize(
    ("ips_of", "snips_of", "robust", "said"),
    [
        (between(-1, 3), between(0, 2), between(0.5, 1.5), "by doubly robust, which takes it that items' parts add up"),
        (between(0.8, 1), between(0, 2), between(0.5, 1.5), "by ips"),
        (between(-1, 3), between(-1, 0.1), between(0.5, 1), "by snips, since doubly robust is apart from it: items' "),
        (between(-1, 0.2), between(-1, 2), between(0.5, 1), "by ips, since doubly robust is apart from it: items' "),
        # Intervals of 95 % are apart here, and those of 99 % are not.
        (
            between(-1, 3),
            between(-1, 0.4),
            between(0.5, 1),
            "by doubly robust, which takes it that items' parts add up",
        ),
        (between(-9, 9), Estimate(np.nan, np.inf, -np.inf, np.inf), between(0, 1), "by doubly robust, which takes it"),
    ],
)
def test_the_narrowest_decides_unless_what_assumes_nothing_says_otherwise(
    ips_of: Estimate, snips_of: Estimate, robust: Estimate, said: str
) -> None:
    balanced = between(0.69, 0.71)
    found = {"ips": ips_of, "snips": snips_of, "doubly robust": robust, "balanced": balanced}
    name, grounds = choose_estimate(found)
    assert grounds.startswith(said)
    assert grounds.startswith(f"by {name}")


def log_of(seed: int, *, together: float) -> SlateLog:
    """Return a log of a bandit that shows one of the two best items first, of which a slate has both by chance."""
    rng = np.random.default_rng(seed)
    best = np.tile([0, 2], (REQUESTS, 1))
    slates = best.copy()
    explored = rng.random(REQUESTS) < 0.4
    drawn = rng.permuted(np.tile(np.arange(N), (REQUESTS, 1)), axis=1)[:, :K]
    slates[explored] = drawn[explored]
    rewards = WORTH[slates] @ [1.0, 0.9]
    rewards[np.isin(slates, PAIR).all(axis=1)] = together
    rewards += 0.3 * rng.normal(size=REQUESTS)
    eligible = np.ones((REQUESTS, N), dtype=bool)
    contexts = np.ones((REQUESTS, 1))
    return slate_log(contexts, eligible, slates, rewards, best=best, near_share=0.0, uniform_share=0.4)


def verdict_on_the_pair(log: SlateLog) -> tuple[str, str]:
    target, model = always(log, np.tile(PAIR, (REQUESTS, 1))), learn_rewards(log)
    estimates = {
        "ips": ips(log, target),
        "snips": snips(log, target),
        "pseudo-inverse": pseudo_inverse(log, target),
        "doubly robust": doubly_robust(log, target, model),
    }
    name, grounds = choose_estimate(estimates)
    return verdict_of(on_policy(log), estimates[name]), grounds


def test_two_best_sellers_that_take_each_others_buyers_are_not_said_to_earn_more() -> None:
    """Together they earn .2 and others about 1; by their parts they would earn 1.86, which doubly robust believes."""
    said = [verdict_on_the_pair(log_of(seed, together=0.2)) for seed in range(LOGS)]
    assert sum("earns less" in verdict for verdict, _ in said) >= LOGS - 1
    assert not any("earns more" in verdict for verdict, _ in said)


def test_two_best_sellers_that_add_up_are_said_to_earn_more() -> None:
    """Each pair of intervals is apart by chance in less than one log of a hundred."""
    said = [verdict_on_the_pair(log_of(seed, together=1.0 + 0.9 * 0.95)) for seed in range(LOGS)]
    assert sum("earns more" in verdict for verdict, _ in said) >= LOGS - 1
    assert sum("do not add up" in grounds for _, grounds in said) <= 1
