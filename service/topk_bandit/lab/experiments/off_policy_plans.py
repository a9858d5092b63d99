"""What other policies would have earned, estimated from a log: the widths of the intervals, and if they hold."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Axis, Panel, Plan, Target, one_job_a_trial, stack_trials
from topk_bandit.lab.simulation.off_policy import TARGETS, Logging, log_in, questions
from topk_bandit.learning.evaluation.estimators import balanced, doubly_robust, ips, pseudo_inverse, snips
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.weights import importance_weights, pseudo_inverse_weights

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target as Policy

__all__ = ["off_policy"]

FloatArray = NDArray[np.float64]

_STREAM = 12
"""Random draws of this experiment; the others have others."""

_WIDEST, _HELD = 0.2, 0.9
"""Of the way from random to best, and of the trials."""

_ESTIMATORS: dict[str, Callable[[SlateLog, Policy, RewardModel], Estimate]] = {
    "IPS": lambda log, policy, _: ips(log, policy),
    "self-normalised IPS": lambda log, policy, _: snips(log, policy),
    "pseudo-inverse": lambda log, policy, _: pseudo_inverse(log, policy),
    "doubly robust, IPS": lambda log, policy, model: doubly_robust(log, policy, model, importance_weights),
    "doubly robust, pseudo-inverse": lambda log, policy, model: doubly_robust(
        log, policy, model, pseudo_inverse_weights
    ),
    "doubly robust, balanced": balanced,
}


def off_policy(given: argparse.Namespace) -> Plan:
    """Return width, coverage and error of intervals for three policies, by estimator."""
    how = Logging(rounds=given.rounds, near_share=given.near_share, uniform_share=given.uniform_share)
    axis = Axis.of_categories("policy", "policy", TARGETS)
    way = "share of the way from random to best"
    return Plan(
        name=given.experiment,
        title=f"Three other policies from {how.rounds:,} logged slates of {how.slate_size} of {how.n_items} items",
        panels=(
            Panel("covered", "Truth in the interval of 95 %", "covered", "share of trials", axis, lower_is_better=None),
            Panel("width", "Width of the interval", "width", way, axis, log=True),
            Panel("error", "Error of the value", "absolute_error", way, axis, log=True),
        ),
        methods=tuple(_ESTIMATORS),
        jobs=one_job_a_trial(partial(_trial, how, given.seed), trials=given.trials),
        gathered=stack_trials,
        settings={"seed": given.seed, "trials": given.trials, **asdict(how)},
        targets=_targets,
        notes=(_SHOP,),
    )


_SHOP = (
    "Rewards are sums over positions, linear in contexts, with noise as large as what the best fixed slate earns more "
    "than random ones. The logged policy goes on learning from the log. Way: to the best slate of each request."
)


def _trial(how: Logging, seed: int, trial: int) -> FloatArray:
    """Return whether the truth is covered, width and absolute error, shape (3, estimators, policies)."""
    drawn = int(np.random.SeedSequence([seed, _STREAM, trial]).generate_state(1)[0])
    logged = log_in(how, seed=drawn)
    model, measured = learn_rewards(logged.log), np.empty((3, len(_ESTIMATORS), len(TARGETS)))
    for p, question in enumerate(questions(logged, seed=drawn)):
        for m, estimator in enumerate(_ESTIMATORS.values()):
            estimate = estimator(logged.log, question.target, model)
            covered = estimate.low <= question.truth <= estimate.high
            error = abs(estimate.value - question.truth)
            measured[:, m, p] = covered, (estimate.high - estimate.low) / logged.way, error / logged.way
    return np.where(np.isfinite(measured), measured, np.nan)  # of logs that have none of a policy's slates


def _targets(results: Results) -> list[Target]:
    """Return whether every interval holds, and whether the narrowest that hold are narrow enough."""
    covered, width, _ = results.mean
    targets = []
    for m, name in enumerate(results.plan.methods):
        figure = ", ".join(f"{value:.0%}" for value in covered[m])
        claim = f"{name}: the truth is in the interval in at least {_HELD:.0%} of the trials, for each policy"
        targets.append(Target(claim, bool((covered[m] >= _HELD).all()), figure))
    for p, policy in enumerate(TARGETS):
        held = [m for m in range(len(width)) if covered[m, p] >= _HELD and np.isfinite(width[m, p])]
        best = min(held, key=lambda m: float(width[m, p]), default=None)
        claim = f"{policy}: the narrowest interval that holds is at most {_WIDEST:.0%} of the way from random to best"
        figure = "none holds" if best is None else f"{width[best, p]:.1%}, {results.plan.methods[best]}"
        targets.append(Target(claim, best is not None and bool(width[best, p] <= _WIDEST), figure))
    return targets
