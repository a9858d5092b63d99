"""Fleets of workers under a thousand and ten thousand pairs a second, simulated with measured costs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Summary, Target
from topk_bandit.lab.experiments.tables import number_text
from topk_bandit.lab.fleet.costs import MEASURED, MEASURED_ON
from topk_bandit.lab.fleet.costs_file import read_costs
from topk_bandit.lab.fleet.scenario import Death, Fleet, Serving, Traffic
from topk_bandit.lab.fleet.simulation import simulate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results
    from topk_bandit.lab.fleet.costs import Costs
    from topk_bandit.lab.fleet.results import Results as Simulated

__all__ = ["capacity", "fleet"]

FloatArray = NDArray[np.float64]

METHODS = {
    "all follow": Serving.EVERYONE,
    "services apart": Serving.APART,
    "owners": Serving.OWNERS,
}

_ZIPFS = (0.0, 1.0)
_OF_PAPER = (1.25, 1.75, 2.5)
"""Workers, by how many would compute all the time if each pair were followed once."""

_BUSY_SHARD = 0.5
"""Of a shard's time that calls may take, for the number of shards."""

_FEW_WORKERS, _FEW_BANDITS = (1, 2, 4, 8), (1, 100)
_LONG_SECONDS, _MOST_LOST = 0.25, 0.001
"""What is too slow, and too many refused."""

_SETTLING_SHARE = 0.2
_HALVINGS = 7
_AFTER_DEATH_SECONDS = 20.0

_FIGURES = (
    ("p50", "median wait of a Recommend", "ms"),
    ("p99", "99th percentile of a Recommend", "ms"),
    ("refused", "Recommends refused or not answered", "share"),
    ("pairs", "pairs learned", "a second"),
    ("cores", "cores used by workers", "cores"),
    ("follow", "of which for following logs", "cores"),
    ("busiest", "busiest worker", "share of its core"),
    ("store_cores", "cores used by the store", "cores"),
    ("memory", "models of the fullest worker", "GB"),
    ("all_memory", "models of all workers", "GB"),
    ("behind", "not folded 10 s after the end, worst model", "events"),
    ("failed", "a worker dies: requests that this costs", "share"),
    ("recovery", "a worker dies: until all is as before", "s"),
)
_DRAWN = ("p99", "refused")
_TABLES = {
    "what callers see": ("p50", "p99", "refused", "pairs", "behind", "failed", "recovery"),
    "what it takes": ("cores", "follow", "busiest", "store_cores", "memory", "all_memory"),
}


class _Load(NamedTuple):
    pairs: int
    bandits: int
    zipf: float

    @property
    def title(self) -> str:
        """What a panel is called."""
        popularity = "Zipf" if self.zipf else "all alike"
        return f"{self.pairs:,} pairs a second, {self.bandits:,} bandits, {popularity}"


def fleet(given: argparse.Namespace) -> Plan:
    """Return the experiment.

    Raises
    ------
    ConfigurationError, InvalidArgumentError
        As `read_costs`; or there are not as many numbers of bandits as of pairs.
    """
    if len(given.pairs) != len(given.bandits):
        raise InvalidArgumentError("--bandits", f"expected {len(given.pairs)} numbers, as --pairs has")
    costs = read_costs(given.costs) if given.costs else MEASURED
    asked = zip(given.pairs, given.bandits, strict=True)
    loads = tuple(_Load(pairs, bandits, zipf) for (pairs, bandits), zipf in product(asked, _ZIPFS))
    return Plan(
        name="fleet",
        title="Fleets of workers of one core, simulated with measured costs",
        panels=(*_capacity_panels(), *(panel for load in loads for panel in _load_panels(load, costs))),
        methods=tuple(METHODS),
        jobs=tuple(job for trial in range(given.trials) for job in _jobs(loads, costs, given, trial)),
        gathered=partial(_gather_panels, len(loads), given.trials),
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "simulated_seconds": given.seconds,
            "costs": {name: getattr(costs, name) for name in costs.__slots__},
            "costs_from": given.costs.name if given.costs else MEASURED_ON,
            "seconds_from_slate_to_reward": Traffic(pairs=1.0, bandits=1).reward_seconds,
            "megabytes_of_a_model": Fleet(costs=costs, workers=1).model_bytes / 1e6,
            "shards": {load.title: _shards(load, costs) for load in loads},
        },
        targets=partial(_targets, loads),
        summaries=partial(_summaries, loads),
        across=2,
        notes=_NOTES,
    )


_NOTES = (
    "all follow: every worker serves every bandit, and follows each that it was asked for.",
    "services apart: as many services of one worker each on one store; the shop chooses the address by the bandit.",
    "owners: a bandit has one, a hot one several, and another takes over if one dies; to pass a call on costs nothing.",
    f"Met is a 99th percentile of {_LONG_SECONDS * 1e3:g} ms, {_MOST_LOST:.1%} refused, and models that keep up.",
)


def capacity(costs: Costs, serving: Serving, *, workers: int, bandits: int, seed: int, seconds: float) -> float:
    """Return how many pairs a second so few workers serve well: the most that a search by halves finds."""
    least, most = 0.0, 2.0 * workers / costs.asked
    for _ in range(_HALVINGS):
        rate = (least + most) / 2.0
        asked = _traffic(rate, bandits, 0.0, seconds)
        found = simulate(Fleet(costs=costs, workers=workers, shards=2, serving=serving), asked, seed=seed)
        lost = 1.0 - found.answered
        good = found.percentile(99) <= _LONG_SECONDS and lost <= _MOST_LOST and not found.behind
        least, most = (rate, most) if good else (least, rate)
    return least


def _traffic(pairs: float, bandits: int, zipf: float, seconds: float) -> Traffic:
    return Traffic(pairs=pairs, bandits=bandits, zipf=zipf, seconds=seconds, settling=_SETTLING_SHARE * seconds)


def _paper_cores(load: _Load, costs: Costs) -> float:
    """Return how many cores compute if each pair is followed once, each of its events by itself."""
    return load.pairs * (costs.asked + costs.following + 2.0 * costs.look)


def _workers(load: _Load, costs: Costs) -> tuple[int, ...]:
    counts: list[int] = []
    for share in _OF_PAPER:
        counts.append(max(int(np.ceil(share * _paper_cores(load, costs))), counts[-1] + 1 if counts else 1))
    return tuple(counts)


def _shards(load: _Load, costs: Costs) -> int:
    """Return how many shards have so much to do: two writes and two reads a pair."""
    return int(np.ceil(load.pairs * 4.0 * costs.store_call / _BUSY_SHARD))


def _capacity_panels() -> tuple[Panel, ...]:
    axis = Axis("workers", "workers", _FEW_WORKERS, log=True)
    titles = {bandits: f"At most, {bandits} bandit{'s' * (bandits > 1)}" for bandits in _FEW_BANDITS}
    return tuple(
        Panel(f"most_{bandits}", title, "pairs", "pairs a second", axis, lower_is_better=False, from_zero=True)
        for bandits, title in titles.items()
    )


def _load_panels(load: _Load, costs: Costs) -> tuple[Panel, ...]:
    axis, key = Axis("workers", "workers", _workers(load, costs)), f"{load.pairs}_zipf_{load.zipf:g}"
    return tuple(
        Panel(
            f"{key}_{name}", load.title, name, f"{told} ({unit})", axis, None, drawn=name in _DRAWN, log=name == "p99"
        )
        for name, told, unit in _FIGURES
    )


def _jobs(loads: Sequence[_Load], costs: Costs, given: argparse.Namespace, trial: int) -> list[Job]:
    """Return a trial: what few workers can do, then each load."""
    seed = 1000 * given.seed + trial
    few = [
        Job(partial(_capacity, costs, serving, bandits, seed, given.seconds), cost=300.0 * bandits**0.3)
        for bandits, serving in product(_FEW_BANDITS, METHODS.values())
    ]
    many = [
        Job(partial(_figures, load, costs, serving, workers, seed=seed, seconds=given.seconds), cost=float(load.pairs))
        for load, serving in product(loads, METHODS.values())
        for workers in _workers(load, costs)
    ]
    return [*few, *many]


def _capacity(costs: Costs, serving: Serving, bandits: int, seed: int, seconds: float) -> FloatArray:
    found = partial(capacity, costs, serving, bandits=bandits, seed=seed, seconds=seconds)
    return np.array([found(workers=workers) for workers in _FEW_WORKERS])


def _figures(load: _Load, costs: Costs, serving: Serving, workers: int, *, seed: int, seconds: float) -> FloatArray:
    """Return what `_FIGURES` names; a worker's death is tried with the middle number of workers."""
    many = Fleet(costs=costs, workers=workers, shards=_shards(load, costs), serving=serving)
    asked = _traffic(load.pairs, load.bandits, load.zipf, seconds)
    calm = _calm(simulate(many, asked, seed=seed))
    dies = workers == _workers(load, costs)[len(_OF_PAPER) // 2]
    return np.array([*calm, *(_death(many, asked, seed) if dies else (np.nan, np.nan))])


def _calm(found: Simulated) -> tuple[float, ...]:
    return (
        1e3 * found.percentile(50),
        1e3 * found.percentile(99),
        1.0 - found.answered,
        found.pairs,
        found.cores_used,
        found.computed["follow"],
        found.busiest,
        found.store_cores,
        found.models_bytes / 1e9,
        found.all_models_bytes / 1e9,
        float(found.behind),
    )


def _death(many: Fleet, asked: Traffic, seed: int) -> tuple[float, float]:
    longer = replace(asked, seconds=asked.seconds + _AFTER_DEATH_SECONDS)
    found = simulate(many, longer, seed=seed, deaths=[Death(asked.seconds, 0)])
    return found.failed, found.recovery_seconds(asked.seconds)


def _gather_panels(n_loads: int, trials: int, measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Return the values of all panels, each of shape (trials, methods, workers)."""
    of_trial = len(measured) // trials
    parts = [_panels_of(n_loads, measured[first : first + of_trial]) for first in range(0, len(measured), of_trial)]
    return tuple(np.stack(values) for values in zip(*parts, strict=True))


def _panels_of(n_loads: int, measured: Sequence[FloatArray]) -> list[FloatArray]:
    n_few = len(_FEW_BANDITS) * len(METHODS)
    few = np.stack(measured[:n_few]).reshape(len(_FEW_BANDITS), len(METHODS), len(_FEW_WORKERS))
    many = np.stack(measured[n_few:]).reshape(n_loads, len(METHODS), len(_OF_PAPER), len(_FIGURES))
    return [*few, *(load[:, :, figure] for load in many for figure in range(len(_FIGURES)))]


def _summaries(loads: Sequence[_Load], results: Results) -> tuple[Summary, ...]:
    few = [_few_summary(results, p) for p in range(len(_FEW_BANDITS))]
    firsts = range(len(_FEW_BANDITS), len(results.plan.panels), len(_FIGURES))
    many = product(zip(loads, firsts, strict=True), _TABLES)
    return (*few, *(_load_summary(results, load, first, told) for (load, first), told in many))


def _few_summary(results: Results, p: int) -> Summary:
    panel, mean = results.plan.panels[p], results.mean[p]
    heads = ("pairs a second", *(f"{workers} worker{'s' * (workers > 1)}" for workers in _FEW_WORKERS))
    rows = tuple((method, *(f"{value:.0f}" for value in mean[m])) for m, method in enumerate(results.plan.methods))
    return Summary(f"{panel.title}, all alike", heads, rows)


def _load_summary(results: Results, load: _Load, first: int, told: str) -> Summary:
    panels, names = results.plan.panels[first : first + len(_FIGURES)], [name for name, _, _ in _FIGURES]
    shown = [names.index(name) for name in _TABLES[told]]
    heads = ("", "workers", *(f"{names[figure].replace('_', ' ')}, {_FIGURES[figure][2]}" for figure in shown))
    rows = tuple(
        (method, panels[0].axis.texts[x], *(_text(results.mean[first + figure][m, x]) for figure in shown))
        for m, method in enumerate(results.plan.methods)
        for x in range(len(_OF_PAPER))
    )
    return Summary(f"{load.title}: {told}", heads, rows)


def _text(value: float) -> str:
    return "" if np.isnan(value) else number_text(value) if value < 10.0 else f"{value:,.0f}"


def _targets(loads: Sequence[_Load], results: Results) -> list[Target]:
    names = [name for name, _, _ in _FIGURES]
    targets = []
    for number, load in enumerate(loads):
        first = len(_FEW_BANDITS) + number * len(_FIGURES)
        p99, lost, behind = (results.mean[first + names.index(name)] for name in ("p99", "refused", "behind"))
        good = (p99 <= 1e3 * _LONG_SECONDS) & (lost <= _MOST_LOST) & (behind == 0.0)
        for m, method in enumerate(results.plan.methods):
            workers = [
                int(n) for n, is_good in zip(results.plan.panels[first].axis.values, good[m], strict=True) if is_good
            ]
            figure = (
                f"with {workers[0]:,} workers" if workers else f"not with {results.plan.panels[first].axis.texts[-1]}"
            )
            targets.append(Target(f"{load.title}: {method}", bool(workers), figure))
    return targets
