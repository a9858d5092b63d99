"""What an experiment is: methods compared in one or more panels, measured job by job; and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


__all__ = ["Axis", "Job", "Panel", "Plan", "Results", "Summary", "Target", "one_job_a_trial", "stack_trials"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a panel's points are over.

    Attributes
    ----------
    name
        Heading of the column in the CSV.
    label
        What the figure says, with its unit.
    marked
        Whether every value gets a mark; curves of very many values are drawn as lines with bands.
    log
        Whether the axis is logarithmic.
    categories
        What the values stand for, if they are no numbers: then there are bars instead of curves.
    """

    name: str
    label: str
    values: tuple[float, ...]
    marked: bool = True
    log: bool = False
    categories: tuple[str, ...] = ()

    @classmethod
    def of_rounds(cls, rounds: int) -> Axis:
        """Return the rounds of a bandit, from 1."""
        return cls("round", "round T", tuple(range(1, rounds + 1)), marked=False)

    @classmethod
    def of_categories(cls, name: str, label: str, categories: Sequence[str]) -> Axis:
        """Return an axis of things that have names."""
        return cls(name, label, tuple(range(len(categories))), categories=tuple(categories))

    @property
    def texts(self) -> tuple[str, ...]:
        """What tables and the CSV call the values."""
        return self.categories or tuple(f"{value:g}" for value in self.values)


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of a figure.

    Attributes
    ----------
    key
        What the CSV calls it.
    metric
        Heading of what is measured in the CSV.
    label
        What the figure's vertical axis says, with its unit.
    lower_is_better
        For losses; False for gains; None for what has no better and worse.
    from_zero
        Whether the figure's vertical axis begins at zero.
    log
        Whether it is logarithmic.
    drawn
        Whether the figure has it; the CSV has it in any case.
    """

    key: str
    title: str
    metric: str
    label: str
    axis: Axis
    lower_is_better: bool | None = True
    from_zero: bool = False
    log: bool = False
    drawn: bool = True


class Target(NamedTuple):
    """Something the results should show, whether they do, and the figure that says so."""

    claim: str
    met: bool
    figure: str


class Summary(NamedTuple):
    """A table that says what the panels come to: headings, and rows of as many texts."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Job(NamedTuple):
    """A piece of work that depends on nothing but what it holds.

    Attributes
    ----------
    run
        What measures. It is called in other processes, so it must be something that can be pickled, and its randomness
        comes from what it holds.
    cost
        About how long it takes, in any unit that the experiment's jobs share: long ones are begun first.
    """

    run: Callable[[], FloatArray]
    cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """An experiment that is ready to run.

    Attributes
    ----------
    jobs
        Its work, in an order that is part of the experiment.
    gathered
        From what the jobs measured, in their order, to the values of each panel, all of shape
        (trials, methods, points); NaN is what a method does not have.
    methods
        Names; the first is ours, if any is.
    settings
        All that the numbers depend on, kept beside them.
    families
        For each method; of a family a figure shows the method with the best last mean. None: each is its own.
    across
        Panels side by side in the figure.
    notes
        Sentences for the reader of the figure.
    targets
        From the results to what they should show.
    summaries
        From the results to tables that are shown instead of one for each panel; None for the latter.
    jobs_needed
        From what the first jobs measured, none at first, to how many are to be run in all; as many as these if they
        are enough. None: all are run.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    methods: tuple[str, ...]
    jobs: tuple[Job, ...]
    gathered: Callable[[Sequence[FloatArray]], tuple[FloatArray, ...]]
    settings: Mapping[str, object]
    targets: Callable[[Results], list[Target]]
    families: tuple[str, ...] | None = None
    across: int = 3
    notes: tuple[str, ...] = ()
    summaries: Callable[[Results], tuple[Summary, ...]] | None = None
    jobs_needed: Callable[[Sequence[FloatArray]], int] | None = None

    @property
    def family_names(self) -> tuple[str, ...]:
        """The family of each method."""
        return self.methods if self.families is None else self.families


def one_job_a_trial(run: Callable[[int], FloatArray], *, trials: int) -> tuple[Job, ...]:
    """Return jobs of an experiment whose trials are not cut; `run` measures the trial with a number."""
    return tuple(Job(partial(run, number)) for number in range(trials))


def stack_trials(measured: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Gather trials that measured shape (panels, methods, points) each."""
    return tuple(np.moveaxis(np.stack(measured), 1, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What all trials measured.

    Attributes
    ----------
    values
        For each panel, shape (trials, methods, points).
    """

    plan: Plan
    values: tuple[FloatArray, ...]

    @property
    def trials(self) -> int:
        """How many trials there were."""
        return len(self.values[0])

    @property
    def mean(self) -> tuple[FloatArray, ...]:
        """Over the trials, of each panel, shape (methods, points)."""
        return tuple(values.mean(axis=0) for values in self.values)

    @property
    def standard_error(self) -> tuple[FloatArray, ...]:
        """Of the mean, of each panel, shape (methods, points); NaN for one trial."""
        if self.trials < 2:
            return tuple(np.full(values.shape[1:], np.nan) for values in self.values)
        return tuple(values.std(axis=0, ddof=1) / np.sqrt(self.trials) for values in self.values)

    def losses(self, p: int) -> FloatArray:
        """Return what has to be low to be good in panel `p`, (methods, points): infinite where nothing is measured."""
        mean, sign = self.mean[p], {True: 1.0, False: -1.0, None: 0.0}[self.plan.panels[p].lower_is_better]
        return np.where(np.isnan(mean), np.inf, sign * mean)

    def best_of_families(self, p: int) -> list[int]:
        """Return the method of each family with the best last mean in panel `p`, in the order of the families."""
        families, ranked = self.plan.family_names, self.losses(p)[:, -1]
        best: dict[str, int] = {}
        for m, family in enumerate(families):
            if family not in best or ranked[m] < ranked[best[family]]:
                best[family] = m
        return [m for m in best.values() if np.isfinite(ranked[m])]
