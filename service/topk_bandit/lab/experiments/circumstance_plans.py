"""What happens in real shops: rewards that come late or never, items that come and go, preferences that change."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments import lineups
from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan
from topk_bandit.lab.experiments.regret_targets import lower_than
from topk_bandit.lab.experiments.shops import cost_of, cumulative, play_episode, player_rng, problem_size
from topk_bandit.lab.simulation import circumstances
from topk_bandit.lab.simulation.policies import SERVICE
from topk_bandit.learning.environments import NOISE, Objective

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from topk_bandit.lab.experiments.plan import Results, Target
    from topk_bandit.lab.simulation.circumstances import Circumstance
    from topk_bandit.lab.simulation.policies import Policy
    from topk_bandit.learning.environments import Factors

__all__ = ["drift", "late_rewards"]

FloatArray = NDArray[np.float64]

_OBJECTIVE = Objective.NDCG
_STREAM = 10
"""Random draws of these experiments; the paper's settings have others."""


def late_rewards(given: argparse.Namespace) -> Plan:
    """Return what rewards that come late or never cost, and what it is worth to count slates that wait for theirs."""
    late = ("5_late", "20_late", "geometric_20")
    return _plan(
        given,
        title="Rewards that come late or never, items that come and go: nDCG, 20 items, slates of 3, five users",
        happening=circumstances.LATE_REWARDS,
        policies=lineups.with_late_rewards(),
        targets=partial(_lower_where, than=lineups.PENDING_NOT_COUNTED, panels=late),
    )


def drift(given: argparse.Namespace) -> Plan:
    """Return what preferences that change cost, and what it is worth to forget."""
    every = tuple(one.key for one in circumstances.DRIFT)
    return _plan(
        given,
        title="Preferences that change: nDCG, 20 items, slates of 3, five users",
        happening=circumstances.DRIFT,
        policies=lineups.with_drift(),
        targets=partial(_lower_where, than="Random", panels=every),
    )


def _lower_where(results: Results, *, than: str, panels: Sequence[str]) -> list[Target]:
    """Return whether the service's policy has less regret than another, in some panels."""
    return [
        lower_than(results, p, ours=SERVICE, other=than)
        for p, panel in enumerate(results.plan.panels)
        if panel.key in panels
    ]


def _plan(
    given: argparse.Namespace,
    *,
    title: str,
    happening: Sequence[Circumstance],
    policies: Sequence[Policy],
    targets: Callable[[Results], list[Target]],
) -> Plan:
    factors, source = factors_of(given.factors, given.ratings, given.seed)
    axis = Axis.of_rounds(given.rounds)
    at_the_end = Axis.of_categories("circumstance", "panel", [f"{place}." for place in range(1, len(happening) + 1)])
    label = "cumulative regret"
    return Plan(
        name=given.experiment,
        title=title,
        panels=(
            *(
                Panel(one.key, f"{place}. {one.title}", "cumulative_regret", label, axis, from_zero=True)
                for place, one in enumerate(happening, start=1)
            ),
            Panel("end", "All, after the last round", "cumulative_regret", label, at_the_end, from_zero=True),
        ),
        methods=tuple(policy.name for policy in policies),
        jobs=tuple(
            Job(
                partial(_episode, one, policy, factors, seed=given.seed, trial=trial, rounds=given.rounds),
                cost=cost_of(policy, given.rounds, circumstances.SLATE_SIZE),
            )
            for one, policy, trial in product(happening, policies, range(given.trials))
        ),
        gathered=partial(_gather_panels, n_policies=len(policies), trials=given.trials),
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "rounds": given.rounds,
            "items": circumstances.N_ITEMS,
            "slate_size": circumstances.SLATE_SIZE,
            "users": circumstances.N_CUSTOMERS,
            "objective": _OBJECTIVE.value,
            "noise": NOISE,
            **source,
        },
        targets=targets,
    )


def _episode(
    happening: Circumstance, policy: Policy, factors: Factors, *, seed: int, trial: int, rounds: int
) -> FloatArray:
    """Play one trial, the same one in all circumstances: regret and reward of each round, shape (2, rounds)."""
    drawn = [seed, _STREAM, trial]
    scenario = happening.make(factors, np.random.default_rng([*drawn, 0]), objective=_OBJECTIVE, rounds=rounds)
    return play_episode(scenario, policy.make(problem_size(scenario.shop), player_rng(drawn)), drawn, rounds=rounds)


def _gather_panels(measured: Sequence[FloatArray], *, n_policies: int, trials: int) -> tuple[FloatArray, ...]:
    regrets = [values[0] for values in cumulative(measured, n_policies=n_policies, trials=trials)]
    return (*regrets, np.stack([values[:, :, -1] for values in regrets], axis=2))
