"""Figures as PNG: means over trials with bars or bands of one standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topk_bandit.lab.experiments.styles import styles_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from topk_bandit.lab.experiments.plan import Panel, Results
    from topk_bandit.lab.experiments.styles import Style

__all__ = ["draw"]

_WIDTH, _HEIGHT = 4.6, 3.6
_INK, _GRID, _ERROR = "#333333", "#e4e4e4", "#999999"
_HEAD, _LEGEND_LINE, _HANDLE, _LETTER = 0.6, 0.22, 0.75, 0.085
"""Inches."""

_BETWEEN_MARKS = 0.12
"""Share of the figure."""

_BARS = 0.82


def draw(results: Results, path: Path) -> None:
    """Write the figure of all panels."""
    plan = results.plan
    drawn = [p for p, panel in enumerate(plan.panels) if panel.drawn]
    across = min(len(drawn), plan.across)
    down = -(-len(drawn) // across)
    width, names = max(_WIDTH * across, 6.4), set(plan.family_names)
    columns = max(int(width / (_HANDLE + _LETTER * max(map(len, names)))), 1)
    legend = _LEGEND_LINE * -(-len(names) // columns)
    size = width, _HEIGHT * down + _HEAD + legend
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False)
    for at in range(down * across):
        place = axes[at // across, at % across]
        if at < len(drawn):
            _panel(place, results, drawn[at])
        else:
            place.set_axis_off()
    handles = _handles(axes.ravel().tolist())
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2
    )
    subtitle = f"mean of {results.trials} trials ± 1 standard error" if results.trials > 1 else ""
    figure.suptitle(f"{plan.title}\n{subtitle}".strip(), fontsize=11, color=_INK)
    figure.savefig(path, format="png", metadata={"Software": None})


def _handles(axes: list[Axes]) -> dict[str, Artist]:
    """Return what each family looks like where it is seen first."""
    seen: dict[str, Artist] = {}
    for place in axes:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            seen.setdefault(label, handle)
    return seen


def _panel(place: Axes, results: Results, p: int) -> None:
    plan, panel = results.plan, results.plan.panels[p]
    shown = results.best_of_families(p)
    styles = styles_of(plan.family_names)
    for rank, m in enumerate(shown):
        style, label = styles[plan.family_names[m]], plan.family_names[m]
        if panel.axis.categories:
            _bars(place, results, p, m, style=style, label=label, at=(rank, len(shown)))
        else:
            _curve(place, results, p, m, style=style, label=label)
    place.set_title(panel.title, fontsize=10, color=_INK)
    place.set_xlabel(panel.axis.label)
    place.set_ylabel(panel.label)
    if panel.log:
        place.set_yscale("log")
    elif panel.from_zero:
        place.set_ylim(bottom=0.0)
    elif place.get_ylim()[0] < 0.0 < place.get_ylim()[1]:
        place.axhline(0.0, color=_INK, linewidth=0.8, zorder=2)
    _horizontal(place, panel)
    place.grid(color=_GRID, linewidth=0.8, axis="y" if panel.axis.categories else "both")
    place.set_axisbelow(True)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)


def _horizontal(place: Axes, panel: Panel) -> None:
    axis = panel.axis
    if axis.categories:
        place.set_xticks(axis.values, axis.categories)
    elif axis.log:
        place.set_xscale("log")
        if axis.marked:
            place.set_xticks(axis.values, [f"{value:,g}" for value in axis.values])
            place.minorticks_off()
    else:
        place.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _curve(place: Axes, results: Results, p: int, m: int, *, style: Style, label: str) -> None:
    axis = results.plan.panels[p].axis
    seen = np.isfinite(results.mean[p][m])
    x, mean = np.array(axis.values)[seen], results.mean[p][m][seen]
    error = np.nan_to_num(results.standard_error[p][m][seen])
    width, above = (2.4, 4) if m == 0 else (1.6, 3)
    drawn: Any = {
        "color": style.colour,
        "linestyle": style.line,
        "marker": style.mark,
        "markersize": 5.0,
        "zorder": above,
    }
    if axis.marked:
        place.errorbar(x, mean, yerr=error, label=label, linewidth=width, capsize=2.5, **drawn)
    else:
        # Curves of many points carry a few marks, at different places, so that they do not hide each other.
        first = _BETWEEN_MARKS * m / len(results.plan.methods)
        place.plot(x, mean, label=label, linewidth=width, markevery=(first, _BETWEEN_MARKS), **drawn)
        place.fill_between(x, mean - error, mean + error, color=style.colour, alpha=0.18, linewidth=0)


def _bars(place: Axes, results: Results, p: int, m: int, *, style: Style, label: str, at: tuple[int, int]) -> None:
    """Draw one method's bars; `at` is its place among how many."""
    axis = results.plan.panels[p].axis
    place_of, count = at
    width = _BARS / count
    x = np.array(axis.values) + (place_of + 0.5) * width - 0.5 * _BARS
    error = np.nan_to_num(results.standard_error[p][m])
    place.bar(
        x, results.mean[p][m], width, yerr=error if error.any() else None, label=label, color=style.colour,
        hatch=style.hatch, edgecolor="white", linewidth=0.6, error_kw={"ecolor": _ERROR, "capsize": 2.0},
    )  # fmt: skip
