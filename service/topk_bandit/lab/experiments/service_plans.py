"""Our own experiments with the service's policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments import lineups
from topk_bandit.lab.experiments.bandit_plans import BEST_OF_FAMILIES, BEST_OF_OPTIONS, REGRET, plan_of
from topk_bandit.lab.experiments.plan import Axis, Panel, Plan, Target, one_job_a_trial, stack_trials
from topk_bandit.lab.experiments.regret_targets import lower_than_each
from topk_bandit.lab.experiments.shops import FIGURE_2, FIGURE_3, FIGURE_5, Setting
from topk_bandit.lab.experiments.targets import regret_saved
from topk_bandit.lab.simulation import warm_start
from topk_bandit.lab.simulation.policies import SERVICE
from topk_bandit.learning.environments import Objective

if TYPE_CHECKING:
    import argparse

    from topk_bandit.lab.experiments.plan import Results

__all__ = ["protocol", "ratios", "rivals", "warm"]

FloatArray = NDArray[np.float64]

_RIVALRY = (
    Setting(8, 20, 3, 5, Objective.NDCG_DIVERSITY, 500),
    Setting(9, 50, 6, 5, Objective.NDCG_DIVERSITY, 500),
)
_MOST_RATIO = 0.7


def rivals(given: argparse.Namespace) -> Plan:
    """Return the service's policy beside what a shop would otherwise use."""
    policies, notes = lineups.rivals()
    return plan_of(
        given,
        title="This service and what a shop would otherwise use: nDCG + diversity, five users",
        settings=_RIVALRY,
        policies=policies,
        panels=[(s, REGRET) for s in range(len(_RIVALRY))],
        targets=partial(lower_than_each, ours=SERVICE),
        notes=(BEST_OF_OPTIONS, *notes),
    )


def protocol(given: argparse.Namespace) -> Plan:
    """Return the service's policy beside the paper's nine, under the paper's batches and rounds."""
    settings = (*FIGURE_2, *FIGURE_3, *FIGURE_5)
    policies = (lineups.of_the_service(), *lineups.the_nine())
    plan = plan_of(
        given,
        title="This service's policy and the paper's, in all settings of Figures 2, 3 and 5",
        settings=settings,
        policies=policies,
        panels=[(s, REGRET) for s in range(len(settings))],
        targets=_judge_regret,
        notes=(BEST_OF_FAMILIES, _RATIOS),
    )
    axis = Axis.of_categories("setting", "panel", [*(f"{s}." for s in range(1, len(settings) + 1)), "mean"])
    title = f"{SERVICE} beside the best of the paper's nine"
    of_ratios = Panel("ratio", title, "ratio_of_regrets", "regret / regret of the best", axis, from_zero=True)
    return replace(
        plan,
        panels=(*(replace(panel, title=f"{s}. {panel.title}") for s, panel in enumerate(plan.panels, 1)), of_ratios),
        gathered=lambda measured: _with_ratios(plan.gathered(measured)),
        across=3,
    )


_RATIOS = (
    "The last panel shows the regret of the service's policy divided by that of the best of the nine, chosen anew in "
    "each setting by its mean; standard errors are of ratios of means over paired trials, to first order."
)


def _with_ratios(regrets: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    """Append the panel of ratios; only the first policy, ours, has some."""
    last = np.stack([values[:, :, -1] for values in regrets])
    of_ours = ratios(last[:, :, 0], last[:, :, 1:])
    trials, n_policies = last.shape[1:]
    shown = np.full((trials, n_policies, len(regrets) + 1), np.nan)
    shown[:, 0] = np.column_stack([of_ours.T, of_ours.mean(axis=0)])
    return (*regrets, shown)


def ratios(ours: FloatArray, others: FloatArray) -> FloatArray:
    """Return what trials say of the ratio of mean regrets, ours by the best other's, to first order.

    ::

        r + (o_t - r b_t) / mean(b),    r = mean(o) / mean(b)

    whose mean over trials is r, and whose standard error that of r by the delta method.

    Parameters
    ----------
    ours
        Regrets o at the end, shape (settings, trials).
    others
        Shape (settings, trials, policies): b are those of the policy with the least mean in its setting.

    Returns
    -------
    Shape (settings, trials).
    """
    chosen = others.mean(axis=1).argmin(axis=1)
    best = np.take_along_axis(others, chosen[:, None, None], axis=2)[:, :, 0]
    mean = best.mean(axis=1, keepdims=True)
    ratio = ours.mean(axis=1, keepdims=True) / mean
    return np.asarray(ratio + (ours - ratio * best) / mean)


def _judge_regret(results: Results) -> list[Target]:
    mean, error = results.mean[-1][0, -1], results.standard_error[-1][0, -1]
    spread = "" if np.isnan(error) else f" ± {error:.3f}"
    claim = f"{SERVICE}: regret <= {_MOST_RATIO:g} x that of the paper's best, mean over the settings"
    return [Target(claim, bool(mean <= _MOST_RATIO), f"{mean:.3f}{spread} x")]


def warm(given: argparse.Namespace) -> Plan:
    """Return what a study is worth to a bandit."""
    experiment = warm_start.WarmStart(rounds=given.rounds)
    study = experiment.study
    shop = f"{experiment.n_items} items, slates of {experiment.slate_size}"
    axis = Axis.of_rounds(given.rounds)
    run = partial(_cumulative_regret, experiment, given.seed)
    return Plan(
        name="warm-start",
        title=f"A bandit of {shop}: cold, and with {study.questions} designed questions' answers",
        panels=(
            Panel(
                "regret", "Regret so far", "cumulative_regret", "cumulative regret (reward lost)", axis, from_zero=True
            ),
        ),
        methods=("warm (ours)", "cold", "shuffled utilities"),
        jobs=one_job_a_trial(run, trials=given.trials),
        gathered=stack_trials,
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "items": experiment.n_items,
            "slate_size": experiment.slate_size,
            "reward_delay": experiment.delay,
            "questions": study.questions,
            "list_size": study.list_size,
            "decisiveness": study.decisiveness,
            "feature_noise": study.feature_noise,
        },
        targets=regret_saved,
    )


def _cumulative_regret(experiment: warm_start.WarmStart, seed: int, number: int) -> FloatArray:
    """Return a trial's regret so far, (1, methods, rounds); neighbouring seeds share no trials below a thousand."""
    trial = warm_start.trial(experiment, 1000 * seed + number)
    return np.cumsum(np.array([[trial.warm, trial.cold, trial.shuffled]]), axis=2)
