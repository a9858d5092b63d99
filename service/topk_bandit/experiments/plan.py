"""What an experiment is: methods compared over an axis, in one or more panels, run by run; and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.experiments.targets import Target

__all__ = ["Axis", "Panel", "Plan", "Results"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a figure's points are over.

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
    """

    name: str
    label: str
    values: tuple[float, ...]
    marked: bool = True
    log: bool = False


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
        For losses; False for gains.
    """

    key: str
    title: str
    metric: str
    label: str
    lower_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """An experiment that is ready to run.

    Attributes
    ----------
    run
        From a run's number to what it measured, shape (panels, methods, points). It is called in other processes, so
        it must be something that can be pickled, and its randomness comes from the number.
    methods
        Names; the first is ours.
    settings
        All that the numbers depend on, kept beside them.
    across
        Panels side by side in the figure.
    notes
        Sentences for the reader of the figure.
    targets
        From the results to what they should show.
    """

    name: str
    title: str
    axis: Axis
    panels: tuple[Panel, ...]
    methods: tuple[str, ...]
    run: Callable[[int], FloatArray]
    settings: Mapping[str, object]
    targets: Callable[[Results], list[Target]]
    across: int = 3
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What all runs measured.

    Attributes
    ----------
    values
        Shape (runs, panels, methods, points).
    """

    plan: Plan
    values: FloatArray

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self.values)

    @property
    def mean(self) -> FloatArray:
        """Over the runs, shape (panels, methods, points)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def standard_error(self) -> FloatArray:
        """Of the mean, shape (panels, methods, points); NaN for one run."""
        if self.runs < 2:
            return np.full(self.values.shape[1:], np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(self.runs))
