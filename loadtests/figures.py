"""What a benchmark returns, and what it is given to work with."""

from __future__ import annotations

import math
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from numpy.typing import ArrayLike

    Report = Callable[[int, int], None]

__all__ = [
    "Bench",
    "Chart",
    "Curve",
    "Figure",
    "Outcome",
    "exponent",
    "mean_with_error",
    "percentiles",
    "ratio_with_error",
    "repeat",
]

Job = TypeVar("Job")
Result = TypeVar("Result")

PROCESSES = 2
REPORT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    Attributes
    ----------
    key
        Its name in results and in ``budgets.toml``.
    label
        Its name for people.
    unit
        Empty for a count or a ratio; "share" is printed in per cent.
    error
        Standard error, where there is one.
    """

    key: str
    label: str
    value: float
    unit: str = ""
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Points to be drawn, joined in their order."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over one axis.

    Attributes
    ----------
    x_label, y_label
        With the units.
    log
        Whether y is drawn on a logarithmic scale.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a benchmark found, and the settings that it was found with.

    Attributes
    ----------
    absent
        Peers that are not installed: the figures that need them are left out.
    invalid
        Why the figures say nothing of what was measured; empty when they do.
    charts
        What is drawn.
    histograms
        By name, pairs of a bucket's upper end in microseconds and how many durations fell into it.
    """

    figures: Sequence[Figure]
    settings: dict[str, object] = field(default_factory=dict)
    absent: Sequence[str] = ()
    invalid: str = ""
    charts: Sequence[Chart] = ()
    histograms: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """How a benchmark is to be run.

    Attributes
    ----------
    quick
        Whether to show only that all works.
    report
        Is told how far the benchmark is: steps done, and steps in all.
    """

    quick: bool
    report: Report

    def scaled(self, full: int, quick: int) -> int:
        """Return how many trials to make."""
        return quick if self.quick else full

    def each(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> list[Result]:
        """Return the results of independent jobs, in their order, from processes of their own."""
        waiting = list(jobs)
        done: list[Result] = []
        self.report(0, len(waiting))
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            for result in pool.map(function, waiting):
                done.append(result)
                self.report(len(done), len(waiting))
        return done

    def alone(self, function: Callable[[Job, Report], Result], job: Job) -> Result:
        """Return the result of one job from a fresh process, which reports from there how far it is."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(function, job, theirs))
        process.start()
        theirs.close()
        try:
            while True:
                kind, message = ours.recv()
                if kind == "result":
                    result: Result = message
                    return result
                self.report(*message)
        except EOFError:
            raise RuntimeError(f"the process of {function.__name__} died; what it wrote is above") from None
        finally:
            process.join()


def _answer(function: Callable[[Job, Report], Result], job: Job, line: Connection) -> None:
    told = -math.inf

    def report(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() >= told + REPORT_SECONDS:  # telling must cost nothing beside what is timed
            told = time.monotonic()
            line.send(("progress", (done, total)))

    line.send(("result", function(job, report)))


def mean_with_error(key: str, label: str, values: ArrayLike, *, unit: str = "") -> Figure:
    """Return a mean with its standard error."""
    sample = np.asarray(values, dtype=np.float64)
    return Figure(key, label, float(sample.mean()), unit, _standard_error(sample))


def ratio_with_error(key: str, label: str, values: ArrayLike, others: ArrayLike) -> Figure:
    """Return mean(values) / mean(others) of pairs, with its standard error to first order."""
    sample, other = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    ratio = float(sample.mean() / other.mean())
    return Figure(key, label, ratio, error=_standard_error(sample - ratio * other) / float(other.mean()))


def percentiles(key: str, label: str, seconds: Sequence[float], ranks: Sequence[int] = (50, 95, 99)) -> list[Figure]:
    """Return percentiles of durations in milliseconds; NaN without any."""
    values = np.percentile(np.array(seconds) * 1e3, ranks) if len(seconds) else np.full(len(ranks), math.nan)
    return [
        Figure(f"{key}_p{rank}", f"{label}, p{rank}", float(value), "ms")
        for rank, value in zip(ranks, values, strict=True)
    ]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return e of cost = constant * size^e, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def _standard_error(sample: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(sample.std(ddof=1) / math.sqrt(len(sample))) if len(sample) > 1 else math.nan


def repeat(call: Callable[[], None], times: int) -> None:
    """Make a call so often."""
    for _ in range(times):
        call()
