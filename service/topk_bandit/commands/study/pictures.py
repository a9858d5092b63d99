"""What a study learned, to look at: a table for the terminal and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from topk_bandit.domain.optional import import_extra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from matplotlib.axes import Axes

    from topk_bandit.domain.studies import ModelScore
    from topk_bandit.preferences.utilities import Utilities

__all__ = ["describe_best", "draw", "load_figures", "scores_table", "table"]

_MOST_ITEMS = 30
_MOST_PANELS = 6
_BAR = 24
_CLEAR = 2.0
"""A difference of so many standard errors shows that a model is worse."""


def table(learned: Utilities, items: Sequence[str], *, title: str) -> Table:
    """Return the best items with their utilities, and a bar from one standard deviation below to one above."""
    shown = _best(learned)
    low = float((learned.mean - learned.standard_deviation)[shown].min())
    high = float((learned.mean + learned.standard_deviation)[shown].max())
    drawn = Table(title=Text(title, style="table.title"), box=SIMPLE_HEAD, pad_edge=False)
    for name in ("rank", "item", "utility", "± sd", ""):
        drawn.add_column(name, justify="left" if name in {"item", ""} else "right", no_wrap=True)
    for item in shown.tolist():
        mean, deviation = float(learned.mean[item]), float(learned.standard_deviation[item])
        bar = _bar(mean, deviation, low=low, high=high)
        drawn.add_row(str(learned.ranks[item]), Text(items[item]), f"{mean:+.2f}", f"{deviation:.2f}", bar)
    if len(items) > len(shown):
        drawn.caption = f"and {len(items) - len(shown)} more"
    return drawn


def scores_table(scores: Sequence[ModelScore], count: int) -> Table:
    """Return how well models predict so many answers, best first."""
    drawn = Table(title=Text(f"{count} answers held out", style="table.title"), box=SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "nats an answer", "± se", "behind", "± se "):
        drawn.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for one in scores:
        behind = (f"{one.behind:.4f}", f"{one.behind_standard_error:.4f}") if one.behind else ("", "")
        drawn.add_row(one.model, f"{one.log_probability:+.4f}", f"{one.standard_error:.4f}", *behind)
    return drawn


def describe_best(scores: Sequence[ModelScore]) -> str:
    """Return which model explains answers best, and which are not shown to be worse."""
    near = [one.model for one in scores[1:] if one.behind < _CLEAR * one.behind_standard_error]
    line = f"{scores[0].model} explains the answers best."
    return f"{line} Not shown to be worse: {', '.join(near)}." if near else line


def load_figures() -> ModuleType:
    """Return what draws figures; `ConfigurationError` is raised where Matplotlib is not installed."""
    figures: ModuleType = import_extra("matplotlib.figure", "a figure")
    return figures


def draw(
    path: Path, learned: Sequence[Utilities], items: Sequence[str], *, titles: Sequence[str], figures: ModuleType
) -> None:
    """Draw utilities with their spread as a PNG, a panel for each of the first queries."""
    panels = min(len(learned), _MOST_PANELS)
    height = 1.2 + 0.24 * min(len(items), _MOST_ITEMS)
    figure = figures.Figure(figsize=(5.5 * min(panels, 3), height * -(-panels // 3)), layout="constrained")
    axes = figure.subplots(-(-panels // 3), min(panels, 3), squeeze=False).reshape(-1)
    for panel, utilities, title in zip(axes, learned, titles, strict=False):
        _panel(panel, utilities, items, title)
    for panel in axes[panels:]:
        panel.set_visible(False)
    figure.savefig(path, dpi=150, format="png")


def _panel(axes: Axes, learned: Utilities, items: Sequence[str], title: str) -> None:
    shown = _best(learned)[::-1]
    heights = np.arange(len(shown))
    axes.errorbar(
        learned.mean[shown], heights, xerr=learned.standard_deviation[shown], fmt="o", color="#1f4e79", ms=5, lw=1.5
    )
    axes.set_yticks(heights, [items[item] for item in shown.tolist()], parse_math=False)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("utility ± one standard deviation")
    axes.set_title(title, parse_math=False)


def _best(learned: Utilities) -> np.ndarray:
    return np.argsort(learned.ranks)[:_MOST_ITEMS]


def _bar(mean: float, deviation: float, *, low: float, high: float) -> str:
    width = max(high - low, 1e-300)
    left, middle, right = (
        round((value - low) / width * (_BAR - 1)) for value in (mean - deviation, mean, mean + deviation)
    )
    cells = [" "] * left + ["─"] * (right - left + 1)
    cells[middle] = "●"
    return "".join(cells)
