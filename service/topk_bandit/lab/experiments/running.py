"""Jobs on all cores, with a progress bar; the numbers depend on the jobs only, not on who ran them, or when."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.stored_results import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from topk_bandit.lab.experiments.plan import Job

__all__ = ["run_jobs"]

_LINES = 10
"""How many lines of progress a log file gets."""


def run_jobs(
    jobs: Sequence[Job],
    before: Mapping[int, Measurement],
    keep: Callable[[int, Measurement], None],
    *,
    processes: int,
    console: Console,
    title: str,
) -> tuple[Measurement, ...]:
    """Return what all jobs measured, in their order; only those are run that were not before.

    Parameters
    ----------
    before
        What was measured before, by the jobs' numbers.
    keep
        Called with each of the others as soon as it is done.

    Raises
    ------
    InvalidArgumentError
        Naming ``--processes``: below 1.
    """
    if processes < 1:
        raise InvalidArgumentError("--processes", f"expected at least 1, got {processes}")
    found = dict(before)
    if found:
        console.print(f"{title}: {len(found)} of {len(jobs)} jobs are done", highlight=False)
    waiting = sorted((n for n in range(len(jobs)) if n not in found), key=lambda n: (-jobs[n].cost, n))
    done = _store_each(_run_in_pool(jobs, waiting, processes=processes), keep)
    found.update(_show_progress(done, jobs, waiting, console, title))
    return tuple(found[number] for number in range(len(jobs)))


def _store_each(
    measured: Iterator[tuple[int, Measurement]], keep: Callable[[int, Measurement], None]
) -> Iterator[tuple[int, Measurement]]:
    """Store each result before it is reported."""
    for number, values in measured:
        keep(number, values)
        yield number, values


def _time_job(job: Job) -> Measurement:
    start = time.process_time()
    values = np.asarray(job.run(), dtype=np.float64)
    return Measurement(values, time.process_time() - start)


def _run_in_pool(jobs: Sequence[Job], waiting: Sequence[int], *, processes: int) -> Iterator[tuple[int, Measurement]]:
    """Run the waiting jobs, the first ones first, and give each as it is done."""
    if processes == 1 or len(waiting) < 2:
        for number in waiting:
            yield number, _time_job(jobs[number])
        return
    pool = ProcessPoolExecutor(
        min(processes, len(waiting)), mp_context=get_context("spawn"), initializer=_end_with_the_parent
    )
    try:
        with _ctrl_c_held_back():
            numbers = {pool.submit(_time_job, jobs[number]): number for number in waiting}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_the_parent() -> None:
    """End this process when its parent was killed, which would otherwise leave it waiting for work forever."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Let processes start that leave Ctrl-C to this one, which hears it afterwards."""
    # Starting the tracker lets signals through again, so it has to run before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _show_progress(
    measured: Iterator[tuple[int, Measurement]],
    jobs: Sequence[Job],
    waiting: Sequence[int],
    console: Console,
    title: str,
) -> Iterator[tuple[int, Measurement]]:
    if not console.is_terminal:
        yield from _log_progress(measured, jobs, waiting, console, title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}/{task.fields[of]} jobs"))
    before = len(jobs) - len(waiting)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        cost = sum(jobs[number].cost for number in waiting)
        task = progress.add_task(title, total=cost, done=before, of=len(jobs))
        for done, (number, values) in enumerate(measured, start=before + 1):
            progress.update(task, advance=jobs[number].cost, done=done)
            yield number, values


def _log_progress(
    measured: Iterator[tuple[int, Measurement]],
    jobs: Sequence[Job],
    waiting: Sequence[int],
    console: Console,
    title: str,
) -> Iterator[tuple[int, Measurement]]:
    start, total = time.monotonic(), len(jobs)
    spent, left = 0.0, sum(jobs[number].cost for number in waiting)
    for done, (number, values) in enumerate(measured, start=total - len(waiting) + 1):
        spent, left = spent + jobs[number].cost, left - jobs[number].cost
        if done * _LINES // total > (done - 1) * _LINES // total:
            seconds = (time.monotonic() - start) * left / spent
            more = f", about {seconds:.0f} s left" if done < total else ""
            console.print(f"{title}: {done} of {total} jobs{more}", highlight=False)
        yield number, values
