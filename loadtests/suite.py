"""All benchmarks, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changes import changes
from decision import decision
from designs import design_growth, design_large, design_lists, design_subsets
from doors import doors
from exports import export
from forever import forever
from growth import growth
from inference import rank_aggregation, variational_posterior
from large_arms import large_arms
from latency import latency
from learning import late_rewards, learns
from long_log import long_log
from long_slates import long_slates
from many import many
from neighbourhood import append, neighbourhood
from operating import operating
from preference_fit import preference_fit
from price import price
from quality import quality
from runner import run_all
from search import exhaustive, figure4
from several_workers import several_workers
from table1 import table1
from topk_bandit.learning.warm_up import warm_up
from traffic.plays import benchmarks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from figures import Bench, Outcome

__all__ = ["names", "run"]

BENCHMARKS: dict[str, Callable[[Bench], Outcome]] = {
    "neighbourhood": neighbourhood,
    "append": append,
    "decision": decision,
    "quality": quality,
    "long-slates": long_slates,
    "search-exhaustive": exhaustive,
    "search-figure4": figure4,
    "forever": forever,
    "table1": table1,
    "growth": growth,
    "many-bandits": many,
    "latency": latency,
    "doors": doors,
    "long-log": long_log,
    **benchmarks(),
    "several-workers": several_workers,
    "price": price,
    "changes": changes,
    "export": export,
    "operating": operating,
    "learns": learns,
    "late-rewards": late_rewards,
    "large-arms": large_arms,
    "design-lists": design_lists,
    "design-growth": design_growth,
    "design-subsets": design_subsets,
    "design-large": design_large,
    "preference-fit": preference_fit,
    "variational": variational_posterior,
    "rank-aggregation": rank_aggregation,
}


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return list(BENCHMARKS)


def run(chosen: Sequence[str], *, quick: bool, folder: Path) -> list[str]:
    """Compile, and run benchmarks; return what was missed."""
    print("Compiling (the first time on a machine, this takes a minute) ...", flush=True)
    warm_up()
    return run_all({name: BENCHMARKS[name] for name in chosen}, quick=quick, folder=folder)
