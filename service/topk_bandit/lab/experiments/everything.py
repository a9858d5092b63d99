"""`topk-bandit experiment all`: every experiment, one page of them all, and their tables in a dated file."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from topk_bandit.lab.experiments import plans
from topk_bandit.lab.experiments.arguments import OF_FACTORS, add_arguments
from topk_bandit.lab.experiments.command import QUICK_REMARK, command_of, is_up_to_date, make_folder, run, writing
from topk_bandit.lab.experiments.report import section_of, write_report, write_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["show", "words_of"]


def show(given: argparse.Namespace) -> int:
    """Run all experiments that are not written yet, with the flags of `arguments`; return the exit status.

    Raises
    ------
    ConfigurationError, InvalidArgumentError
        As `command.show`.
    """
    console = Console()
    make_folder(given.out)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name in given.only:
        one = parser.parse_args(words_of(name, given))
        console.print(f"\n[bold]{name}[/bold]", highlight=False)
        plan = plans.make_plan(one)
        if is_up_to_date(plan, given.out):
            console.print(f"{name}: written before, with these settings and this code", highlight=False)
        else:
            run(plan, one, console)
    page, remark = given.out / "report.html", QUICK_REMARK if given.quick else ""
    tables = given.out / f"experiments-{datetime.now(UTC):%Y-%m-%d}.md"
    with writing(given.out):
        sections = [section_of(name, given.out) for name in given.only]
        write_report(sections, page, command=command_of(given), remark=remark)
        write_tables(sections, tables, command=command_of(given), remark=remark)
    console.print(f"\nWrote {page}\nWrote {tables}", highlight=False, markup=False, soft_wrap=True)
    return 0


def words_of(name: str, given: argparse.Namespace) -> Sequence[str]:
    """Return the words with which one of all experiments is called."""
    words = [name, f"--out={given.out}", f"--processes={given.processes}"]
    if name != "table-2":  # nothing in it is random
        words.append(f"--seed={given.seed}")
    if name in OF_FACTORS:
        words += [f"--{flag}={vars(given)[flag]}" for flag in ("factors", "ratings") if vars(given)[flag] is not None]
    return [*words, *(["--quick"] if given.quick else [])]
