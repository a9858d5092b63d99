"""A campaign: many simulated days, each of a seed of its own, and a report of the first that breaks a promise."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.actions import plan
from tests.simulation.running import as_it_is, simulate
from tests.simulation.shrinking import shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from tests.simulation.running import Outcome
    from tests.simulation.server import Stores

__all__ = ["DAY_HOURS", "describe_violation", "show"]

DAY_HOURS = 20
"""The longest that a bandit of its own is simulated for: long enough for snapshots in two generations."""

MOST_TRIALS = 200


def show(
    *,
    seed: int,
    hours: int,
    only: Container[int] | None = None,
    wrap: Callable[[Stores], Stores] = as_it_is,
) -> int:
    """Simulate hours, print what came of them, and return the exit status: 1 if a promise was broken.

    The parameters are those of `tests.simulation.running.simulate`; hours beyond `DAY_HOURS` are days of their
    own, with the next seeds.
    """
    began, totals = time.perf_counter(), [0, 0, 0, 0]
    days = _split(seed, hours)
    for (one, _), outcome in zip(days, _simulate_days(days, only=only, wrap=wrap), strict=True):
        counts = (outcome.hours, outcome.calls, outcome.events, outcome.failovers)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        print(f"seed {one}: {_describe(counts)}, trace {outcome.trace_hash}", flush=True)
        if outcome.violations:
            print(describe_violation(one, outcome, only=only, wrap=wrap))
            return 1
    minutes = (time.perf_counter() - began) / 60.0
    print(f"{_describe(totals)}: no promise broken; {totals[0] / minutes:.0f} hours a minute")
    return 0


def describe_violation(
    seed: int,
    outcome: Outcome,
    *,
    only: Container[int] | None = None,
    wrap: Callable[[Stores], Stores] = as_it_is,
) -> str:
    """Return what was broken, the fewest actions found that break a promise, and the command that repeats them."""
    hours = outcome.hours
    numbers = [action.number for action in plan(seed, hours=hours) if only is None or action.number in only]

    def fails(part: Container[int]) -> bool:
        return bool(simulate(seed, hours=hours, only=part, wrap=wrap).violations)

    fewest = shrink(numbers, fails, most_trials=MOST_TRIALS)
    again = simulate(seed, hours=hours, only=fewest, wrap=wrap)
    steps = [f"  {at:12.6f} s  {'check' if number < 0 else f'#{number}'}  {words}" for at, number, words in again.trace]
    listed = ",".join(str(number) for number in fewest) or "none"
    return "\n".join(
        [
            f"seed {seed}, hour {hours}: a promise is broken",
            *(f"  {violation}" for violation in outcome.violations[:10]),
            f"{len(fewest)} of {len(numbers)} actions are enough:",
            *(f"  {violation}" for violation in again.violations[:10]),
            *steps,
            f"again: python -m tests.simulation --seed {seed} --hours {hours} --only {listed}",
        ]
    )


def _split(seed: int, hours: int) -> list[tuple[int, int]]:
    """Return seeds and hours of the days that so many hours are simulated as."""
    return [(seed + day, min(DAY_HOURS, hours - start)) for day, start in enumerate(range(0, hours, DAY_HOURS))]


def _simulate_days(
    days: list[tuple[int, int]], *, only: Container[int] | None, wrap: Callable[[Stores], Stores]
) -> Iterator[Outcome]:
    """Yield the outcome of each day, in order; several are simulated at a time, each in one process."""
    if len(days) == 1:
        yield _simulate_day(days[0], only=only, wrap=wrap)
        return
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        try:
            yield from processes.map(partial(_simulate_day, only=only, wrap=wrap), days)
        finally:
            processes.shutdown(wait=False, cancel_futures=True)


def _simulate_day(day: tuple[int, int], *, only: Container[int] | None, wrap: Callable[[Stores], Stores]) -> Outcome:
    return simulate(day[0], hours=day[1], only=only, wrap=wrap)


def _describe(counts: list[int] | tuple[int, ...]) -> str:
    hours, calls, events, failovers = counts
    return f"{hours} hours, {calls} calls and faults, {events} events, {failovers} failovers"
