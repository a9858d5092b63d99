"""All benchmarks, one after the other, with progress on the screen."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from decision import decision
from designs import design_growth, design_large, design_lists, design_subsets
from doors import doors
from exports import export
from figures import Bench, Outcome
from forever import forever
from growth import growth
from inference import rank_aggregation, variational_posterior
from large_arms import large_arms
from latency import latency
from learning import late_rewards, learns
from load import open_loop
from long_log import long_log
from machine import machine
from many import many
from neighbourhood import append, neighbourhood
from preference_fit import preference_fit
from quality import quality
from report import absence, overview, save, save_markdown, table
from search import exhaustive, figure4
from table1 import table1
from targets import missed, read_targets
from topk_bandit.learning.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["names", "run"]

BENCHMARKS: dict[str, Callable[[Bench], Outcome]] = {
    "neighbourhood": neighbourhood,
    "append": append,
    "decision": decision,
    "quality": quality,
    "search-exhaustive": exhaustive,
    "search-figure4": figure4,
    "forever": forever,
    "table1": table1,
    "growth": growth,
    "many-bandits": many,
    "latency": latency,
    "doors": doors,
    "long-log": long_log,
    "export": export,
    "open-loop": open_loop,
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

BUDGETS = Path(__file__).with_name("budgets.toml")


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return list(BENCHMARKS)


def run(chosen: Sequence[str], *, quick: bool, folder: Path) -> list[str]:
    """Run benchmarks, print a table after each and one of all targets, and write files; return what was missed."""
    console, targets = Console(width=None if sys.stdout.isatty() else 120, highlight=False), read_targets(BUDGETS)
    start = datetime.now(UTC)
    about = {"started": start.isoformat(timespec="seconds"), "quick": quick, **machine()}
    path = folder / f"{start:%Y%m%dT%H%M%SZ}.json"
    console.print("Compiling (the first time on a machine, this takes a minute) ...")
    warm_up()
    outcomes: dict[str, Outcome] = {}
    for name in chosen:
        began = time.monotonic()
        outcomes[name] = outcome = _run_one(name, console, quick=quick)
        console.print(table(name, outcome, targets.get(name, {}), seconds=time.monotonic() - began))
        if outcome.absent:
            console.print(absence(outcome), markup=False)
        save(path, outcomes, targets, about)
        save_markdown(path.with_suffix(".md"), outcomes, targets, about)
    failures = [
        f"{name}: {figure.label}" for name, one in outcomes.items() for figure in missed(one, targets.get(name, {}))
    ]
    console.print("", overview(outcomes, targets))
    _conclude(console, failures, path, quick=quick)
    return failures


def _run_one(name: str, console: Console, *, quick: bool) -> Outcome:
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return BENCHMARKS[name](Bench(quick=quick, report=report))


def _conclude(console: Console, failures: Sequence[str], path: Path, *, quick: bool) -> None:
    if failures:
        console.print(f"\n[bold red]{len(failures)} missed.[/bold red]")
    else:
        console.print("\n[green]No target was missed.[/green]")
    if quick:
        console.print("This was the quick run: too few trials to judge the targets by.")
    console.print(f"All figures: {path}, and as tables {path.with_suffix('.md')}")
