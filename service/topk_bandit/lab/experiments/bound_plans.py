"""The paper's Table 3: its bounds on regret beside the regret that is measured, and the information gain."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.experiments import lineups
from topk_bandit.lab.experiments.factors_file import factors_of
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Target
from topk_bandit.lab.experiments.regret_targets import first_fitted, sublinear
from topk_bandit.lab.experiments.shops import (
    BATCH,
    FIGURE_2,
    FIGURE_3,
    FIGURE_5,
    cost_of,
    play_episode,
    player_rng,
    problem_size,
)
from topk_bandit.lab.simulation.regret_bounds import (
    DELTA,
    Assumption,
    BoundSetting,
    Recorder,
    closed_forms,
    fitted_exponent,
    information_gain,
    least_norm,
    regret_bound,
)
from topk_bandit.lab.simulation.scenarios import Batches, Scenario
from topk_bandit.learning.environments import NOISE
from topk_bandit.learning.policy import kernel_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.lab.experiments.shops import Setting
    from topk_bandit.lab.simulation.policies import Policy
    from topk_bandit.learning.environments import Factors

__all__ = ["table_3"]

FloatArray = NDArray[np.float64]

_SETTINGS = (*FIGURE_2, *FIGURE_3, *FIGURE_5)

MEASURED = "regret of WCK, measured"
FITTED = "power of T, fitted"
GAIN = "information gain of what was played"
_PROPOSITION = {one: f"Proposition 1, assumption {one.value}" for one in Assumption}
_THIS_WORK = {one: f"Table 3, this work, assumption {one.value}" for one in Assumption}
_SRINIVAS = {one: f"Table 3, Srinivas et al., assumption {one.value}" for one in Assumption}
METHODS = (MEASURED, FITTED, GAIN, *_PROPOSITION.values(), *_THIS_WORK.values(), *_SRINIVAS.values())


def table_3(given: argparse.Namespace) -> Plan:
    """Return bounds and measured regret of WCK, with the best beta_gp of each setting, in all settings."""
    factors, source = factors_of(given.factors, given.ratings, given.seed)
    policies = [policy for policy in lineups.the_nine() if policy.family == "WCK"]
    rounds = [given.rounds or setting.rounds for setting in _SETTINGS]
    return Plan(
        name=given.experiment,
        title="Table 3: bounds on the regret of WCK and what is measured",
        panels=tuple(_panel(setting, count) for setting, count in zip(_SETTINGS, rounds, strict=True)),
        methods=METHODS,
        jobs=tuple(
            Job(
                partial(_episode, setting, policy, factors, seed=given.seed, trial=trial, rounds=count),
                cost=cost_of(policy, count, setting.slate_size),
            )
            for (setting, count), policy, trial in product(
                zip(_SETTINGS, rounds, strict=True), policies, range(given.trials)
            )
        ),
        gathered=partial(
            _gather_panels, n_policies=len(policies), trials=given.trials, context_dim=factors.users.shape[1]
        ),
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "rounds": rounds,
            "update_every": BATCH,
            "noise": NOISE,
            "delta": DELTA,
            **source,
            "settings": [setting.settings() for setting in _SETTINGS],
        },
        targets=_targets,
        notes=(_FOR_WHOM, _WITH_WHAT),
    )


_FOR_WHOM = (
    f"The bounds hold with a probability of {1.0 - DELTA:g}, for players with their beta_t who learn each reward at "
    "once; the paper's beta_t is much smaller, and rewards come five at a time."
)
_WITH_WHAT = (
    "Proposition 1 with the information gain of what was played, 1/2 log det(I + K / noise^2), and the least norm "
    "B that the largest expected reward allows; Table 3 without the logarithms that it leaves out."
)


def _panel(setting: Setting, rounds: int) -> Panel:
    axis = Axis("round", "round T", tuple(range(1, rounds + 1)), marked=False, log=True)
    return Panel(setting.key, setting.title, "regret_or_gain", "regret, gain", axis, lower_is_better=None, log=True)


def _episode(setting: Setting, policy: Policy, factors: Factors, *, seed: int, trial: int, rounds: int) -> FloatArray:
    """Play one trial, the same as in the figures: cumulative regret, gain, largest c.c, and B, (4, rounds)."""
    drawn = [seed, setting.number, trial]
    shop = setting.shop(factors, drawn)
    player = Recorder(policy.make(problem_size(shop), player_rng(drawn)))
    regret, _ = play_episode(Scenario(shop, Batches(BATCH)), player, drawn, rounds=rounds)
    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, setting.n_items, setting.slate_size)
    gain = information_gain(kernel, player.contexts, player.rankings, noise=NOISE)
    best = np.array([shop.best(customer) for customer in range(setting.n_customers)])
    variance, norm = (shop.customers**2).sum(axis=1).max(), least_norm(shop.customers, best)
    return np.array([regret.cumsum(), gain, np.full(rounds, variance), np.full(rounds, norm)])


def _gather_panels(
    measured: Sequence[FloatArray], *, n_policies: int, trials: int, context_dim: int
) -> tuple[FloatArray, ...]:
    """Return of each setting regret and bounds of the policy that is best at the end, (trials, methods, rounds)."""
    panels, per_setting = [], n_policies * trials
    for s, setting in enumerate(_SETTINGS):
        values = np.stack(measured[s * per_setting : (s + 1) * per_setting])
        by_policy = values.reshape(n_policies, trials, *values.shape[1:])
        best = by_policy[int(by_policy[:, :, 0, -1].mean(axis=1).argmin())]
        panels.append(np.array([_rows(setting, one, context_dim) for one in best]))
    return tuple(panels)


def _rows(setting: Setting, trial: FloatArray, context_dim: int) -> FloatArray:
    """Return what `METHODS` names for one trial, shape (methods, rounds)."""
    regret, gain, variance, norm = trial
    of = BoundSetting(
        setting.n_items, setting.slate_size, context_dim, setting.n_customers, NOISE, norm[0], variance[0]
    )
    counts = range(1, len(regret) + 1)
    forms = {one: [closed_forms(of, count, one) for count in counts] for one in Assumption}
    return np.array(
        [
            regret,
            _fit(regret),
            gain,
            *(regret_bound(gain, of, one) for one in Assumption),
            *([form.this_work for form in forms[one]] for one in Assumption),
            *([form.srinivas for form in forms[one]] for one in Assumption),
        ]
    )


def _fit(regret: FloatArray) -> FloatArray:
    """Return the power of T that fits, NaN in the rounds that it is not fitted to, or all if there are too few."""
    rounds, start = np.arange(1, len(regret) + 1), first_fitted(len(regret))
    if len(regret) - start < 2:
        return np.full(len(regret), np.nan)
    fit = fitted_exponent(regret, from_round=start)
    return np.where(rounds < start, np.nan, np.exp(fit.intercept) * rounds**fit.exponent)


def _targets(results: Results) -> list[Target]:
    """Return whether regret stays below the bounds, and grows less than linearly."""
    methods, targets, regrets = results.plan.methods, [], []
    for panel, values in zip(results.plan.panels, results.values, strict=True):
        regret = values[:, methods.index(MEASURED)]
        regrets.append((panel.title, regret))
        for name in _PROPOSITION.values():
            share = (regret / values[:, methods.index(name)])[:, -1]
            below = bool((regret <= values[:, methods.index(name)]).all())
            claim = f"{panel.title}: regret below {name} in every round of every trial"
            targets.append(Target(claim, below, f"{share.mean():.2g} x the bound at the end"))
    return [*targets, *sublinear(regrets)]
