"""The experiments by name, made ready from the flags they are called with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.lab.experiments import (
    bandit_plans,
    battery_plans,
    bound_plans,
    circumstance_plans,
    comparison_plans,
    growth_of_cost,
    mishap_plans,
    off_policy_plans,
    order_plans,
    preference_plans,
    service_plans,
    table_plans,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from topk_bandit.lab.experiments.plan import Plan

__all__ = ["make_plan"]


def _table_1(given: argparse.Namespace) -> Plan:
    return growth_of_cost.plan_of(seed=given.seed, trials=given.trials, rounds=given.rounds)


_MAKERS: dict[str, Callable[[argparse.Namespace], Plan]] = {
    "table-1": _table_1,
    "table-2": table_plans.table_2,
    "table-3": bound_plans.table_3,
    "figure-2": bandit_plans.figure_2,
    "figure-3": bandit_plans.figure_3,
    "figure-4": table_plans.figure_4,
    "figure-5": bandit_plans.figure_5,
    "order": order_plans.order,
    "rivals": service_plans.rivals,
    "protocol": service_plans.protocol,
    "shops": battery_plans.shops,
    "mishaps": mishap_plans.mishaps,
    "compare": comparison_plans.compare,
    "late-rewards": circumstance_plans.late_rewards,
    "drift": circumstance_plans.drift,
    "warm-start": service_plans.warm,
    "off-policy": off_policy_plans.off_policy,
    "dope": preference_plans.dope,
    "dopewolfe": preference_plans.dopewolfe,
    "graded": preference_plans.graded,
    "aggregation": preference_plans.aggregation,
}


def make_plan(given: argparse.Namespace) -> Plan:
    """Return the experiment that was asked for.

    Raises
    ------
    InvalidArgumentError
        A flag or the data can't be used.
    ConfigurationError
        A file can't be read, or a package that is needed is not installed.
    """
    return _MAKERS[given.experiment](given)
