"""Figures as PNG: means over runs with bars or bands of one standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from topk_bandit.experiments.plan import Results

__all__ = ["draw"]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's, which people with any colour vision can tell apart."""

_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_WIDTH, _HEIGHT = 4.6, 3.9
_INK, _GRID = "#333333", "#e4e4e4"
_HEAD = 0.9


def draw(results: Results, path: Path) -> None:
    """Write the figure of all panels."""
    plan = results.plan
    across = min(len(plan.panels), plan.across)
    down = -(-len(plan.panels) // across)
    figure = Figure(figsize=(max(_WIDTH * across, 6.4), _HEIGHT * down + _HEAD), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False)
    for p in range(down * across):
        place = axes[p // across, p % across]
        if p < len(plan.panels):
            _panel(place, results, p)
        else:
            place.set_axis_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3 * across), frameon=False)
    figure.suptitle(f"{plan.title}\nmean of {results.runs} runs ± 1 standard error", fontsize=11, color=_INK)
    figure.savefig(path, format="png", metadata={"Software": None})


def _panel(place: Axes, results: Results, p: int) -> None:
    plan, panel = results.plan, results.plan.panels[p]
    for m in range(len(plan.methods)):
        _curve(place, results, p, m)
    place.set_title(panel.title, fontsize=10, color=_INK)
    place.set_xlabel(plan.axis.label)
    place.set_ylabel(panel.label)
    if plan.axis.log:
        place.set_xscale("log")
        place.set_xticks(plan.axis.values, [f"{value:,g}" for value in plan.axis.values])
        place.minorticks_off()
    else:
        place.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    place.grid(color=_GRID, linewidth=0.8)
    place.set_axisbelow(True)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)


def _curve(place: Axes, results: Results, p: int, m: int) -> None:
    axis = results.plan.axis
    x, mean = np.array(axis.values), results.mean[p, m]
    error = np.nan_to_num(results.standard_error[p, m])
    colour, ours = _COLOURS[m % len(_COLOURS)], m == 0
    label, width, above = results.plan.methods[m], 2.4 if ours else 1.4, 3 + ours
    if axis.marked:
        mark = _MARKS[m % len(_MARKS)]
        place.errorbar(
            x, mean, yerr=error, color=colour, linewidth=width, label=label, zorder=above, marker=mark, markersize=5,
            capsize=2.5,
        )  # fmt: skip
    else:
        place.plot(x, mean, color=colour, linewidth=width, label=label, zorder=above)
        place.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
