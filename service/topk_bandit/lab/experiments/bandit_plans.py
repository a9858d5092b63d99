"""The paper's figures of regret and reward: GP-TopK beside policies without ranking kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.experiments.lineups import of_the_paper
from topk_bandit.lab.experiments.plan import Axis, Panel, Plan
from topk_bandit.lab.experiments.regret_targets import order, sublinear
from topk_bandit.lab.experiments.shops import BATCH, FIGURE_2, FIGURE_3, FIGURE_5, cumulative, episodes
from topk_bandit.learning.environments import NOISE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from topk_bandit.lab.experiments.plan import Results, Target
    from topk_bandit.lab.experiments.shops import Setting
    from topk_bandit.lab.simulation.policies import Policy

__all__ = [
    "BEST_OF_FAMILIES",
    "BEST_OF_OPTIONS",
    "REGRET",
    "REWARD",
    "Measure",
    "figure_2",
    "figure_3",
    "figure_5",
    "plan_of",
]


class Measure(NamedTuple):
    """What a panel shows of a setting's episodes."""

    row: int
    metric: str
    label: str
    lower_is_better: bool


REGRET = Measure(0, "cumulative_regret", "cumulative regret", lower_is_better=True)
REWARD = Measure(1, "cumulative_reward", "cumulative reward", lower_is_better=False)


def plan_of(
    given: argparse.Namespace,
    *,
    title: str,
    settings: Sequence[Setting],
    policies: Sequence[Policy],
    panels: Sequence[tuple[int, Measure]],
    targets: Callable[[Results], list[Target]],
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return an experiment that plays all policies in all settings; a panel shows a measure of one setting."""
    factors, source = factors_of(given.factors, given.ratings, given.seed)
    gathered = partial(cumulative, n_policies=len(policies), trials=given.trials)
    return Plan(
        name=given.experiment,
        title=title,
        panels=tuple(_panel(settings[s], measure, given.rounds or settings[s].rounds) for s, measure in panels),
        methods=tuple(policy.name for policy in policies),
        families=tuple(policy.family for policy in policies),
        jobs=episodes(settings, policies, factors, trials=given.trials, seed=given.seed, rounds=given.rounds),
        gathered=lambda measured: tuple(gathered(measured)[s][measure.row] for s, measure in panels),
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "rounds": [given.rounds or setting.rounds for setting in settings],
            "update_every": BATCH,
            "noise": NOISE,
            **source,
            "settings": [setting.settings() for setting in settings],
        },
        targets=targets,
        across=2,
        notes=notes,
    )


BEST_OF_OPTIONS = (
    "Of VW and linear Thompson the figure shows the options that are best at the end, marked * in the table."
)
BEST_OF_FAMILIES = (
    "Of each family (epsilon, beta) the figure shows the policy that is best at the end, marked * in the table; "
    "the CSV holds all."
)


def figure_2(given: argparse.Namespace) -> Plan:
    """Return Figure 2: 6,840 slates, one user and five."""
    title = "Figure 2: regret of policies with and without ranking kernels, 20 items, slates of 3"
    return _of_the_paper(given, title, FIGURE_2, (REGRET,))


def figure_3(given: argparse.Namespace) -> Plan:
    """Return Figure 3: more slates than can be looked at."""
    return _of_the_paper(given, "Figure 3: regret with 50 items, five users, nDCG", FIGURE_3, (REGRET,))


def figure_5(given: argparse.Namespace) -> Plan:
    """Return Figure 5: the paper shows rewards; regret, which the simulator knows, is shown below."""
    title = "Figure 5: reward, and regret, with 50 items, five users, nDCG + diversity"
    return _of_the_paper(given, title, FIGURE_5, (REWARD, REGRET))


def _of_the_paper(
    given: argparse.Namespace, title: str, settings: Sequence[Setting], measures: Sequence[Measure]
) -> Plan:
    return plan_of(
        given,
        title=title,
        settings=settings,
        policies=of_the_paper(),
        panels=[(s, measure) for measure in measures for s in range(len(settings))],
        targets=_targets,
        notes=(BEST_OF_FAMILIES,),
    )


def _panel(setting: Setting, measure: Measure, rounds: int) -> Panel:
    return Panel(
        f"{setting.key}_{measure.metric.rpartition('_')[2]}",
        setting.title,
        measure.metric,
        measure.label,
        Axis.of_rounds(rounds),
        lower_is_better=measure.lower_is_better,
        from_zero=True,
    )


def _targets(results: Results) -> list[Target]:
    """Return whether the paper's order holds, and whether the regret of WCK grows less than linearly."""
    plan, regrets = results.plan, []
    for p, panel in enumerate(plan.panels):
        if panel.metric == REGRET.metric:
            [best] = (m for m in results.best_of_families(p) if plan.family_names[m] == "WCK")
            regrets.append((panel.title, results.values[p][:, best]))
    return [*order(results), *sublinear(regrets)]
