"""Benchmarks one after the other, with progress on the screen and all that they find in files."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from figures import Bench
from machine import machine
from plots import draw
from report import absence, overview, save, save_markdown, table
from targets import missed, read_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from figures import Outcome
    from targets import Targets

    Benchmark = Callable[[Bench], Outcome]

__all__ = ["BUDGETS", "run_all"]

BUDGETS = Path(__file__).with_name("budgets.toml")


def run_all(benchmarks: Mapping[str, Benchmark], *, quick: bool, folder: Path) -> list[str]:
    """Run benchmarks, print a table after each and one of all targets, and write files.

    Returns what was missed, and which runs were invalid.
    """
    console, targets = Console(width=None if sys.stdout.isatty() else 120, highlight=False), read_targets(BUDGETS)
    start = datetime.now(UTC)
    about = {"started": start.isoformat(timespec="seconds"), "quick": quick, **machine()}
    path = folder / f"{start:%Y%m%dT%H%M%SZ}.json"
    outcomes: dict[str, Outcome] = {}
    for name, benchmark in benchmarks.items():
        began = time.monotonic()
        outcomes[name] = outcome = _run_one(name, benchmark, console, quick=quick)
        console.print(table(name, outcome, targets.get(name, {}), seconds=time.monotonic() - began))
        if outcome.absent:
            console.print(absence(outcome), markup=False)
        save(path, outcomes, targets, about)
        save_markdown(path.with_suffix(".md"), outcomes, targets, about)
        if outcome.charts:
            draw(name, outcome, path.with_name(f"{path.stem}-{name}.png"))
    failures = [one for name, outcome in outcomes.items() for one in _failures(name, outcome, targets.get(name, {}))]
    console.print("", overview(outcomes, targets))
    _conclude(console, failures, path, quick=quick)
    return failures


def _run_one(name: str, benchmark: Benchmark, console: Console, *, quick: bool) -> Outcome:
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return benchmark(Bench(quick=quick, report=report))


def _failures(name: str, outcome: Outcome, targets: Targets) -> list[str]:
    if outcome.invalid:
        return [f"{name}: INVALID: {outcome.invalid}"]
    return [f"{name}: {figure.label}" for figure in missed(outcome, targets)]


def _conclude(console: Console, failures: Sequence[str], path: Path, *, quick: bool) -> None:
    if failures:
        console.print(f"\n[bold red]{len(failures)} missed or invalid.[/bold red]")
    else:
        console.print("\n[green]No target was missed.[/green]")
    if quick:
        console.print("This was the quick run: too few trials to judge the targets by.")
    console.print(f"All figures: {path}, and as tables {path.with_suffix('.md')}")
