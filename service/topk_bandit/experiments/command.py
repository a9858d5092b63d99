"""`topk-bandit experiment NAME`: run, draw, write, and tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from topk_bandit.errors import ConfigurationError
from topk_bandit.experiments import plans
from topk_bandit.experiments.plan import Results
from topk_bandit.experiments.running import repeated
from topk_bandit.experiments.tables import screen_tables, target_lines, write_csv, write_settings
from topk_bandit.extra import needed

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

__all__ = ["show"]


def show(given: argparse.Namespace) -> int:
    """Run an experiment with the flags of `arguments`; return the exit status.

    Raises
    ------
    ConfigurationError
        Matplotlib is not installed, or the folder can't be written to.
    InvalidArgumentError
        A flag, or a line of the data, can't be used.
    """
    needed("matplotlib", "drawing figures")
    console = Console()
    _make(given.out)
    console.print(f"Preparing {given.experiment} ...", highlight=False)
    plan = plans.made(given)
    values = repeated(plan.run, runs=given.runs, processes=given.processes, console=console, title=given.experiment)
    results = Results(plan, values)
    targets = plan.targets(results)
    files = [given.out / f"{plan.name}.{ending}" for ending in ("csv", "json", "png")]
    try:
        write_csv(results, files[0])
        write_settings(results, targets, files[1])
        _draw(results, files[2])
    except OSError as error:
        raise ConfigurationError(f"{given.out} can't be written to: {error.strerror or error}") from None
    for heading, table in screen_tables(results, width=console.width):
        console.print(f"\n{heading}", highlight=False, markup=False, soft_wrap=True)
        console.print(table)
    for line in (*plan.notes, "", *target_lines(targets), "", *(f"Wrote {file}" for file in files)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def _draw(results: Results, path: Path) -> None:
    from topk_bandit.experiments.figures import draw  # noqa: PLC0415 - only now is it known that matplotlib is there

    draw(results, path)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be made: {error.strerror or error}") from None
