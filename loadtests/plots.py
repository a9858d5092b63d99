"""What a benchmark draws, as PNG."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from topk_bandit.lab.experiments.styles import styles_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from figures import Chart, Outcome

__all__ = ["draw"]

WIDTH, HEIGHT = 6.4, 3.2
INK, GRID, WARNING = "#333333", "#e4e4e4", "#b00020"


def draw(name: str, outcome: Outcome, path: Path) -> None:
    """Write one picture with all charts of a benchmark, one below the other; an invalid run says so on it."""
    figure = Figure(figsize=(WIDTH, HEIGHT * len(outcome.charts)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(len(outcome.charts), 1, squeeze=False).ravel().tolist()
    for place, chart in zip(places, outcome.charts, strict=True):
        _chart(place, chart)
    title, colour = (f"{name}: INVALID\n{outcome.invalid}", WARNING) if outcome.invalid else (name, INK)
    figure.suptitle(title, fontsize=11, color=colour, wrap=True)
    figure.savefig(path, format="png", metadata={"Software": None})


def _chart(place: Axes, chart: Chart) -> None:
    styles = styles_of(tuple(curve.label for curve in chart.curves))
    for curve, style in zip(chart.curves, itertools.cycle(styles.values())):
        mark = style.mark if len(curve.x) <= 40 else ""
        place.plot(curve.x, curve.y, label=curve.label, color=style.colour, linestyle=style.line, marker=mark, ms=4)
    place.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    if chart.log:
        place.set_yscale("log")
    else:
        place.set_ylim(bottom=0.0)
    place.grid(color=GRID)
    place.legend(frameon=False, fontsize=8)
