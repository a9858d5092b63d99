"""The paper's Table 1, measured: how costs grow with T rounds, contexts of c numbers, and slates of k items."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.plan import Axis, Job, Panel, Plan, Target
from topk_bandit.lab.simulation import round_costs
from topk_bandit.lab.simulation.round_costs import (
    DEFAULT_SERVICE,
    FEATURE,
    FEW_ROWS_SERVICE,
    KERNEL,
    METHODS,
    NAIVE,
    Size,
    costs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.lab.experiments.plan import Results

__all__ = ["Exponent", "exponents", "growth_exponent", "marks_of", "plan_of"]

FloatArray = NDArray[np.float64]

CONTEXT_DIMS, SLATE_SIZES, SIZE_ROUNDS = (1, 2, 5, 10), (3, 6, 12, 24), 100
"""By c and by k the costs of so many rounds are measured."""

LEAST_ROUNDS = 64

_DOUBLINGS = 4
_FITTED = 3
"""Points of a fit, the last ones: two doublings."""

_PRODUCTS = round_costs.ITERATIONS

_NEAR = 0.1
"""How far a fitted exponent may be from the one it tends to."""


class _Quantity(NamedTuple):
    """A row of Table 1, and the unit it is shown in."""

    key: str
    title: str
    metric: str
    label: str
    unit: float


_WORK = "multiplications"
_QUANTITIES = (
    _Quantity("compute", "Compute", f"million_{_WORK}", f"million {_WORK}", 1e6),
    _Quantity("memory", "Memory", "kilobytes", "kB", 1e3),
    _Quantity("mvm", "Product with the kernel matrix", f"thousand_{_WORK}", f"thousand {_WORK}", 1e3),
    _Quantity("update", "Update by one row", f"thousand_{_WORK}", f"thousand {_WORK}", 1e3),
)

_IN_ROUNDS = {
    FEATURE: {"compute": 2, "memory": 1, "mvm": 1, "update": 0},
    KERNEL: {"compute": 3, "memory": 2, "mvm": 2, "update": 1},
    NAIVE: {"compute": 4},
}
"""The paper's exponents of T: Table 1, and Section 4 for the naive approach."""

_IN_SIZES = {"c": 1, "k": 2}
"""The paper's exponents for each row of the feature approach."""


class Exponent(NamedTuple):
    """How a quantity grows: as `of` (T, c or k) to the power `fitted`; `paper` is what the paper says, if it does."""

    method: str
    quantity: str
    of: str
    fitted: float
    paper: int | None


def plan_of(*, seed: int, trials: int = 1, rounds: int = 800) -> Plan:
    """Return the experiment.

    Parameters
    ----------
    seed
        Of slates, contexts and rewards; it changes little, since only the items that slates share matter.
    trials
        How often slates, contexts and rewards are drawn.
    rounds
        The largest T; the others are halves of it.

    Raises
    ------
    InvalidArgumentError
        There are too few rounds.
    """
    marks = marks_of(rounds)
    return Plan(
        name="table-1",
        title=f"Work and memory of GP-TopK: each round predicts {round_costs.PREDICTED} slates and learns one reward",
        panels=_panels(marks),
        methods=METHODS,
        jobs=tuple(job for trial in range(trials) for job in _jobs([seed, trial], marks)),
        gathered=_gather_panels,
        settings={
            "seed": seed,
            "items": round_costs.N_ITEMS,
            "context_numbers": Size().context_dim,
            "slate_size": Size().slate_size,
            "predicted_each_round": round_costs.PREDICTED,
            "conjugate_gradient_iterations": round_costs.ITERATIONS,
            "noise_variance": round_costs.NOISE_VARIANCE,
            "rounds_by_c_and_k": SIZE_ROUNDS,
            "exponents_fitted_to_the_last_points": _FITTED,
        },
        targets=_targets,
        across=len(_QUANTITIES),
        notes=_NOTES,
    )


_NOTES = (
    "Work is counted, not timed: multiplications, divisions and square roots.",
    "The service's work grows with T^3 until its rows are as many as they may become, and from then on with T.",
    "The service also chooses its noise and scale anew at its refits, which the paper's approaches do not here.",
    f"In place of a product with the kernel matrix the service predicts one slate; others need {_PRODUCTS} for that.",
)


def marks_of(rounds: int) -> tuple[int, ...]:
    """Return the numbers of rounds that are looked at, each about twice the one before."""
    if rounds < LEAST_ROUNDS:
        raise InvalidArgumentError("rounds", f"expected at least {LEAST_ROUNDS}, got {rounds}")
    return tuple(rounds // 2**halvings for halvings in range(_DOUBLINGS, -1, -1))


def _panels(marks: tuple[int, ...]) -> tuple[Panel, ...]:
    axes = (
        ("by rounds", Axis("T", "rounds T", marks, log=True)),
        (f"{SIZE_ROUNDS} rounds, by context", Axis("c", "context numbers c", CONTEXT_DIMS, log=True)),
        (f"{SIZE_ROUNDS} rounds, by slate", Axis("k", "slate items k", SLATE_SIZES, log=True)),
    )
    return tuple(
        Panel(f"{row.key}_by_{axis.name}", f"{row.title}, {way}", row.metric, row.label, axis, log=True)
        for (way, axis), row in product(axes, _QUANTITIES)
    )


_EXPENSE = {NAIVE: 4.0, KERNEL: 2.0, FEATURE: 2.0, DEFAULT_SERVICE: 1.0, FEW_ROWS_SERVICE: 0.5}
"""About how long a round takes."""


def _jobs(seed: list[int], marks: tuple[int, ...]) -> tuple[Job, ...]:
    """Return what a trial measures: each method by T, then the feature approach by c and by k."""
    by_rounds = (Job(partial(costs, name, seed, marks=marks), cost=_EXPENSE[name] * marks[-1]) for name in METHODS)
    dims = [Size(context_dim=dim) for dim in CONTEXT_DIMS]
    slates = [Size(slate_size=k) for k in SLATE_SIZES]
    by_sizes = (Job(partial(_feature_costs, sizes, seed), cost=4.0 * SIZE_ROUNDS) for sizes in (dims, slates))
    return (*by_rounds, *by_sizes)


def _feature_costs(sizes: Sequence[Size], seed: list[int]) -> FloatArray:
    """Return the feature approach's costs by size, shape (quantities, sizes)."""
    return np.hstack([costs(FEATURE, seed, marks=(SIZE_ROUNDS,), size=size) for size in sizes])


def _gather_panels(measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Return the values of each panel, in its unit, shape (trials, methods, points)."""
    in_trial = len(METHODS) + len(_IN_SIZES)
    shown = [costs_of / np.array([[row.unit] for row in _QUANTITIES]) for costs_of in measured]
    trials = [shown[first : first + in_trial] for first in range(0, len(shown), in_trial)]
    by_rounds = np.array([trial[: len(METHODS)] for trial in trials])
    panels = [by_rounds[:, :, row] for row in range(len(_QUANTITIES))]
    for place, row in product(range(len(METHODS), in_trial), range(len(_QUANTITIES))):
        of_feature = np.array([trial[place][row] for trial in trials])
        values = np.full((len(trials), len(METHODS), of_feature.shape[1]), np.nan)
        values[:, METHODS.index(FEATURE)] = of_feature
        panels.append(values)
    return tuple(panels)


def growth_exponent(sizes: Sequence[float], values: FloatArray) -> float:
    """Return the slope of log values by log sizes, by least squares over the last few points."""
    return float(np.polyfit(np.log(sizes[-_FITTED:]), np.log(values[-_FITTED:]), 1)[0])


def exponents(results: Results) -> list[Exponent]:
    """Return how each row of the table grows for each method, in T and, for the feature approach, in c and k."""
    found = []
    for panel, mean in zip(results.plan.panels, results.mean, strict=True):
        of, row = panel.axis.name, panel.key.removesuffix(f"_by_{panel.axis.name}")
        for method, values in zip(results.plan.methods, mean, strict=True):
            if np.isfinite(values).all():
                paper = _IN_SIZES[of] if of in _IN_SIZES else _IN_ROUNDS.get(method, {}).get(row)
                found.append(Exponent(method, row, of, growth_exponent(panel.axis.values, values), paper))
    return found


def _targets(results: Results) -> list[Target]:
    said = [_as_the_paper_says(one, one.paper) for one in exponents(results) if one.paper is not None]
    return [*said, *_judge_bounded_rows(results), *(_cheaper(results, than) for than in (FEATURE, KERNEL, NAIVE))]


def _as_the_paper_says(one: Exponent, paper: int) -> Target:
    """In T the exponent itself must come out; in c and k the paper's is what it tends to from below."""
    figure = f"{one.of}^{one.fitted:.2f}"
    if one.of == "T":
        return Target(f"{one.method}: {one.quantity} grows as T^{paper}", abs(one.fitted - paper) <= _NEAR, figure)
    claim = f"{one.method}: {one.quantity} grows no faster than {one.of}^{paper}"
    return Target(claim, one.fitted <= paper + _NEAR, figure)


def _judge_bounded_rows(results: Results) -> list[Target]:
    """Return whether a further round costs what the last one did, and memory stays what it is, with bounded rows."""
    marks, m = results.plan.panels[0].axis.values, METHODS.index(FEW_ROWS_SERVICE)
    compute, memory = (results.mean[p][m] for p in range(2))
    further = growth_exponent(marks[1:], np.diff(compute) / np.diff(marks))
    grown = (("the work of a further round", further), ("memory", growth_exponent(marks, memory)))
    return [
        Target(f"{FEW_ROWS_SERVICE}: {what} stops growing", fitted <= _NEAR, f"T^{fitted:.2f}")
        for what, fitted in grown
    ]


def _cheaper(results: Results, than: str) -> Target:
    """Compare the default service's compute with that of another method, at the largest T."""
    mean, last = results.mean[0], results.plan.panels[0].axis.values[-1]
    share = mean[METHODS.index(DEFAULT_SERVICE)] / mean[METHODS.index(than)]
    figure = f"{share[-1]:.2f} x; less at {np.count_nonzero(share < 1.0)} of {len(share)} T"
    return Target(f"{DEFAULT_SERVICE}: less compute than {than}, T = {last:g}", bool(share[-1] < 1.0), figure)
