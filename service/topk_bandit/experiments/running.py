"""Runs on all cores, with a progress bar; the numbers depend on the runs' numbers only, not on who ran them."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from topk_bandit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from rich.console import Console

__all__ = ["repeated"]

_LINES = 10
"""How many lines of progress a log file gets."""


def repeated(
    run: Callable[[int], NDArray[np.float64]], *, runs: int, processes: int, console: Console, title: str
) -> NDArray[np.float64]:
    """Return what `runs` runs measured, stacked in the order of their numbers.

    Raises
    ------
    InvalidArgumentError
        Naming ``--runs`` or ``--processes``: below 1.
    """
    for flag, number in (("--runs", runs), ("--processes", processes)):
        if number < 1:
            raise InvalidArgumentError(flag, f"expected at least 1, got {number}")
    found = dict(_shown(_measured(run, runs=runs, processes=processes), runs, console, title))
    return np.stack([found[number] for number in range(runs)])


def _measured(
    run: Callable[[int], NDArray[np.float64]], *, runs: int, processes: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    if processes == 1 or runs == 1:
        for number in range(runs):
            yield number, run(number)
        return
    # Children read these when they import numpy: one thread each, so that the processes don't fight for the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    pool = ProcessPoolExecutor(min(processes, runs), mp_context=get_context("spawn"))
    try:
        with _ctrl_c_held_back():
            numbers = {pool.submit(run, number): number for number in range(runs)}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BaseException:
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


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


def _shown(
    measured: Iterator[tuple[int, NDArray[np.float64]]], runs: int, console: Console, title: str
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    if not console.is_terminal:
        yield from _told(measured, runs, console, title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(title, total=runs)
        for item in measured:
            progress.advance(task)
            yield item


def _told(
    measured: Iterator[tuple[int, NDArray[np.float64]]], runs: int, console: Console, title: str
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    for done, item in enumerate(measured, start=1):
        if done * _LINES // runs > (done - 1) * _LINES // runs:
            console.print(f"{title}: {done} of {runs} runs", highlight=False)
        yield item
