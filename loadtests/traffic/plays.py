"""Scenarios as benchmarks: each is played on a service of its own, of one checkout or of two in turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np

from figures import Figure, Outcome, mean_with_error, ratio_with_error
from machine import commit_of
from traffic.checkouts import HERE, serving
from traffic.generator import Generator
from traffic.histogram import Histogram
from traffic.scenarios import SCENARIOS
from traffic.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from figures import Bench, Chart
    from traffic.found import Found
    from traffic.scenario import Scenario

__all__ = ["LATEST_P99", "How", "benchmarks", "flaw", "play"]

LATEST_P99 = 0.010
"""Seconds that the generator may be behind its schedule at the 99th percentile. Beyond, a run is invalid: what it
measured is the generator, or a machine that others fill."""


@dataclass(frozen=True, slots=True)
class How:
    """How scenarios are played.

    Attributes
    ----------
    seconds
        How long the main part lasts; None: as the scenario's short or long form.
    against
        Another checkout, whose service is played in turns with this one's.
    turns
        How often each is played.
    """

    seconds: float | None = None
    against: Path | None = None
    turns: int = 1


@dataclass(frozen=True, slots=True)
class _Play:
    found: Found
    lateness: float


def benchmarks(how: How = How()) -> dict[str, Callable[[Bench], Outcome]]:
    """Return each scenario as a benchmark, by its name."""
    return {name: partial(play, scenario, how) for name, scenario in SCENARIOS.items()}


def play(scenario: Scenario, how: How, bench: Bench) -> Outcome:
    """Play a scenario; return what it found, beside what it found of the other checkout and as a ratio to that."""
    seconds = how.seconds or (scenario.seconds if bench.quick else scenario.long_seconds)
    sides = [HERE] if how.against is None else [HERE, how.against]
    plays: dict[Path, list[_Play]] = {side: [] for side in sides}
    # This one first in one turn and the other in the next, so that a machine that grows slower favours neither.
    order = [side for turn in range(how.turns) for side in sides[:: -1 if turn % 2 else 1]]
    with Generator() as generator:
        for number, side in enumerate(order):
            plays[side].append(_played(scenario, seconds, side, generator))
            bench.report(number + 1, len(order))
    settings = {"about": scenario.about, "seconds": seconds, "turns": how.turns, "flags": list(scenario.flags)}
    settings |= {"arrivals": "Poisson", "measured": "from the time that a call was meant to be sent at"}
    settings |= {"against": str(how.against), "against_commit": commit_of(how.against)} if how.against else {}
    return _outcome(list(plays.values()), settings)


def _played(scenario: Scenario, seconds: float, checkout: Path, generator: Generator) -> _Play:
    with serving(checkout, scenario.flags) as service:
        stage = Stage(service, generator)
        found = scenario.play(stage, seconds)
    return _Play(found, reduce(Histogram.__add__, stage.lateness, Histogram()).percentile(99))


def _outcome(sides: Sequence[Sequence[_Play]], settings: dict[str, object]) -> Outcome:
    every = [one for side in sides for one in side]
    lateness = float(np.max([one.lateness for one in every]))  # NaN if any is
    own = _figures([one.found for one in sides[0]])
    compared = _compared(own, [_values(side) for side in sides], sides[1]) if len(sides) > 1 else []
    behind = Figure("lateness_p99", "generator behind its schedule, p99", lateness * 1e3, "ms")
    return Outcome(
        [*own, behind, *compared],
        {**settings, "lateness_allowed_ms": LATEST_P99 * 1e3},
        invalid=flaw((one.found for one in every), lateness),
        charts=[chart for side, name in zip(sides, ("", "against: "), strict=False) for chart in _charts(side, name)],
        histograms=dict(_histograms(sides)),
    )


def flaw(found: Iterable[Found], lateness: float) -> str:
    """Return why plays say nothing, or an empty text, with the seconds that the generator was late (p99, of any).

    Without a call nobody knows how late one would have been.
    """
    if not lateness <= LATEST_P99:
        late, allowed = lateness * 1e3, LATEST_P99 * 1e3
        return f"the generator was {late:.1f} ms behind its schedule (p99), and {allowed:g} are allowed"
    return next((one.problem for one in found if one.problem), "")


def _values(plays: Sequence[_Play]) -> dict[str, list[float]]:
    each = [{figure.key: figure.value for figure in one.found.figures} for one in plays]
    return {key: [one[key] for one in each] for key in each[0] if all(key in one for one in each)}


def _figures(found: Sequence[Found]) -> list[Figure]:
    """Return each figure as it is, or as the mean of several turns."""
    if len(found) == 1:
        return list(found[0].figures)
    each = [{figure.key: figure.value for figure in one.figures} for one in found]
    return [
        mean_with_error(figure.key, figure.label, [one[figure.key] for one in each], unit=figure.unit)
        for figure in found[0].figures
        if all(figure.key in one for one in each)
    ]


def _compared(own: Sequence[Figure], values: Sequence[dict[str, list[float]]], others: Sequence[_Play]) -> list[Figure]:
    theirs = _figures([one.found for one in others])
    told = [replace(one, key=f"against_{one.key}", label=f"against: {one.label}") for one in theirs]
    return told + [one for figure in own for one in _ratio(figure, *(side.get(figure.key, []) for side in values))]


def _ratio(figure: Figure, ours: list[float], theirs: list[float]) -> Iterator[Figure]:
    """Give ours / theirs, if there is such a number."""
    if len(ours) != len(theirs) or not np.isfinite([*ours, *theirs]).all() or not sum(theirs):
        return
    ratio = ratio_with_error(f"ratio_{figure.key}", f"ratio: {figure.label}", ours, theirs)
    yield ratio if len(ours) > 1 else replace(ratio, error=None)


def _charts(plays: Sequence[_Play], name: str) -> list[Chart]:
    """Return the charts of the first turn."""
    return [replace(chart, title=f"{name}{chart.title}") for chart in plays[0].found.charts]


def _histograms(sides: Sequence[Sequence[_Play]]) -> Iterator[tuple[str, list[list[int]]]]:
    for side, name in zip(sides, ("", "against_"), strict=False):
        for key in side[0].found.histograms:
            of_turns = (one.found.histograms.get(key, Histogram()) for one in side)
            yield f"{name}{key}", reduce(Histogram.__add__, of_turns).written()
