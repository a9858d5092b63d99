"""`topk-bandit experiment NAME`: run, draw, write, and tell."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.lab.experiments import plans
from topk_bandit.lab.experiments.plan import Results
from topk_bandit.lab.experiments.running import run_jobs
from topk_bandit.lab.experiments.stored_results import StoredResults, digest_of
from topk_bandit.lab.experiments.tables import screen_tables, target_lines, write_csv, write_page, write_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from topk_bandit.lab.experiments.plan import Plan
    from topk_bandit.lab.experiments.stored_results import Measurement

__all__ = ["QUICK_REMARK", "command_of", "is_up_to_date", "make_folder", "run", "show", "writing"]

QUICK_REMARK = "A quick look, with few trials and rounds: what is met or missed says little."

ENDINGS = ("csv", "png", "json")
"""Of the files that are written; the last one is written last, and says that all are there."""


def show(given: argparse.Namespace) -> int:
    """Run an experiment with the flags of `arguments`; return the exit status.

    Raises
    ------
    ConfigurationError
        The folder can't be written to, or the same experiment is running in it.
    InvalidArgumentError
        A flag, or a line of the data, can't be used.
    """
    console = Console()
    make_folder(given.out)
    console.print(f"Preparing {given.experiment} ...", highlight=False)
    run(plans.make_plan(given), given, console)
    if given.quick:
        console.print(QUICK_REMARK, highlight=False)
    return 0


def run(plan: Plan, given: argparse.Namespace, console: Console) -> None:
    """Run what is not done yet of an experiment, write its files, and tell what came of it; errors as `show`."""
    start = time.monotonic()
    with writing(given.out), StoredResults(given.out, plan) as stored:
        before = stored.read_all(len(plan.jobs))
        measured = _measure(plan, before, stored.store, given, console)
        results = Results(plan, plan.gathered([one.values for one in measured]))
        took = {
            "processes": given.processes,
            "seconds": round(time.monotonic() - start, 1),
            "job_seconds": round(sum(one.seconds for one in measured), 1),
            "jobs": len(measured),
            "resumed_jobs": len(before),
        }
        _write(results, given, more=took)
        stored.remove()
    _tell(results, given.out, console)


def _measure(
    plan: Plan,
    before: Mapping[int, Measurement],
    keep: Callable[[int, Measurement], None],
    given: argparse.Namespace,
    console: Console,
) -> tuple[Measurement, ...]:
    """Return what the jobs measured that are needed, in their order; see `run_jobs`."""
    measured: tuple[Measurement, ...] = ()
    while len(measured) < (count := _count_needed(plan, measured)):
        known = {**before, **dict(enumerate(measured))}
        first = {number: one for number, one in known.items() if number < count}
        measured = run_jobs(plan.jobs[:count], first, keep, processes=given.processes, console=console, title=plan.name)
    return measured


def _count_needed(plan: Plan, measured: Sequence[Measurement]) -> int:
    if plan.jobs_needed is None:
        return len(plan.jobs)
    return plan.jobs_needed([one.values for one in measured])


def is_up_to_date(plan: Plan, out: Path) -> bool:
    """Return whether a folder has the result of this very experiment, with these settings and this code."""
    csv, png, settings = (out / f"{plan.name}.{ending}" for ending in ENDINGS)
    if not (csv.exists() and png.exists() and settings.exists()):
        return False
    try:
        return bool(json.loads(settings.read_text(encoding="utf-8")).get("digest") == digest_of(plan))
    except ValueError:
        return False


def command_of(given: argparse.Namespace) -> str:
    """Return what to type for the same numbers again."""
    words = ["topk-bandit", "experiment", given.experiment]
    for name, value in sorted(vars(given).items()):
        flag = f"--{name.replace('_', '-')}"
        if name == "pair":
            words += value
            continue
        if name in {"run", "experiment"} or value is None or value is False:
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(flag if value is True else f"{flag}={text}")
    return shlex.join(words)


def _write(results: Results, given: argparse.Namespace, *, more: Mapping[str, object]) -> None:
    from topk_bandit.lab.experiments.figures import draw  # noqa: PLC0415 - matplotlib is slow to import

    plan = results.plan
    csv, png, settings = (given.out / f"{plan.name}.{ending}" for ending in ENDINGS)
    settings.unlink(missing_ok=True)
    write_csv(results, csv)
    draw(results, png)
    if plan.summaries is not None:
        write_page(results, _page_of(plan, given.out), command=command_of(given))
    more = {"digest": digest_of(plan), "command": command_of(given), **more}
    write_settings(results, settings, more=more)


def _page_of(plan: Plan, out: Path) -> Path:
    """Return where the tables go of an experiment that has summaries."""
    return out / f"{plan.name}.md"


def _tell(results: Results, out: Path, console: Console) -> None:
    plan = results.plan
    for heading, table in screen_tables(results, width=console.width):
        console.print(f"\n{heading}", highlight=False, markup=False, soft_wrap=True)
        console.print(table)
    files = [out / f"{plan.name}.{ending}" for ending in ENDINGS]
    files += [_page_of(plan, out)] if plan.summaries is not None else []
    for line in (*plan.notes, "", *target_lines(plan.targets(results)), "", *(f"Wrote {file}" for file in files)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def make_folder(folder: Path) -> None:
    """Make a folder, if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be made: {error.strerror or error}") from None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise an error that a user can read where files cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be written to: {error.strerror or error}") from None
