"""All benchmarks, one after the other, with progress on the screen."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from figures import Bench, Outcome
from growth import growth
from latency import latency
from learning import late_rewards, learns
from load import open_loop
from report import machine, missed, read_targets, save, table
from search import exhaustive, figure4
from topk_bandit.learning.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["names", "run"]

BENCHMARKS: dict[str, Callable[[Bench], Outcome]] = {
    "search-exhaustive": exhaustive,
    "search-figure4": figure4,
    "growth": growth,
    "latency": latency,
    "open-loop": open_loop,
    "learns": learns,
    "late-rewards": late_rewards,
}

BUDGETS = Path(__file__).with_name("budgets.toml")


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return list(BENCHMARKS)


def run(chosen: Sequence[str], *, quick: bool, folder: Path) -> list[str]:
    """Run benchmarks, print a table after each, and write one file about all; return which targets were missed."""
    console, targets = Console(width=None if sys.stdout.isatty() else 110, highlight=False), read_targets(BUDGETS)
    start = datetime.now(UTC)
    about = {"started": start.isoformat(timespec="seconds"), "quick": quick, **machine()}
    console.print("Compiling (the first time on a machine, this takes a minute) ...")
    warm_up()
    outcomes: dict[str, Outcome] = {}
    failures: list[str] = []
    for name in chosen:
        began = time.monotonic()
        outcomes[name] = _run_one(name, console, quick=quick)
        mine = targets.get(name, {})
        console.print(table(name, outcomes[name], mine, seconds=time.monotonic() - began))
        failures += [f"{name}: {figure.label}" for figure in missed(outcomes[name], mine)]
        path = folder / f"{start:%Y%m%dT%H%M%SZ}.json"
        save(path, outcomes, targets, about)
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
        console.print(f"\n[bold red]{len(failures)} missed:[/bold red] " + "; ".join(failures))
    else:
        console.print("\n[green]No target was missed.[/green]")
    if quick:
        console.print("This was the quick run: too few trials to judge the targets by.")
    console.print(f"All figures: {path}")
