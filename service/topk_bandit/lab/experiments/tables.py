"""Results as a CSV file with the settings beside it, and as a table to read."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from topk_bandit.lab.experiments.versions import versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from topk_bandit.lab.experiments.plan import Results, Summary, Target

__all__ = [
    "BEST",
    "markdown_table",
    "number_text",
    "screen_tables",
    "spread_points",
    "target_lines",
    "write_csv",
    "write_page",
    "write_settings",
]

BEST = "*"
"""Marks the best method of a family that has several."""

_LARGE = 1e5

_COLUMN, _PLAIN_COLUMN, _MARGIN = 16, 11, 4
"""Width of a point on a screen, with its standard error and without, and of what is around the names."""


def write_csv(results: Results, path: Path) -> None:
    """Write one line for each panel, method and point: mean, standard error and number of trials."""
    plan = results.plan
    axes = {panel.axis.name for panel in plan.panels}
    heading = axes.pop() if len(axes) == 1 else "point"
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["panel", "metric", "method", heading, "mean", "standard_error", "trials"])
        for panel, mean, error in zip(plan.panels, results.mean, results.standard_error, strict=True):
            for m, x in np.ndindex(*mean.shape):
                if np.isfinite(mean[m, x]):
                    spread = f"{error[m, x]:.6g}" if np.isfinite(error[m, x]) else ""
                    numbers = panel.axis.texts[x], f"{mean[m, x]:.6g}", spread, results.trials
                    lines.writerow([panel.key, panel.metric, plan.methods[m], *numbers])


def write_settings(results: Results, path: Path, *, more: Mapping[str, object]) -> None:
    """Write all that the numbers depend on, as JSON, with what they should show and do, and `more`."""
    plan = results.plan
    settings = {
        "experiment": plan.name,
        "title": plan.title,
        "trials": results.trials,
        "settings": dict(plan.settings),
        "panels": [_panel(results, p) for p in range(len(plan.panels))],
        "summaries": [summary._asdict() for summary in _summaries(results)],
        "notes": list(plan.notes),
        "targets": [target._asdict() for target in plan.targets(results)],
        "versions": versions(),
        **more,
    }
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def write_page(results: Results, path: Path, *, command: str) -> None:
    """Write the summaries and targets as Markdown, for results that have summaries."""
    plan = results.plan
    parts = [f"# {plan.title}", f"    {command}", *plan.notes]
    for summary in _summaries(results):
        parts += [f"## {summary.title}", markdown_table(summary.heads, summary.rows)]
    judged = [("met" if target.met else "MISSED", target.claim, target.figure) for target in plan.targets(results)]
    parts += ["## Targets", markdown_table(("", "target", "reached"), judged)] if judged else []
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _panel(results: Results, p: int) -> dict[str, object]:
    plan = results.plan
    panel = plan.panels[p]
    return {
        "panel": panel.key,
        "title": panel.title,
        "label": panel.label,
        "axis": panel.axis.label,
        "lower_is_better": panel.lower_is_better,
        "drawn": panel.drawn,
        "best_of_families": {plan.family_names[m]: plan.methods[m] for m in results.best_of_families(p)},
    }


def screen_tables(results: Results, *, width: int) -> list[tuple[str, Table]]:
    """Return headings and tables: the summaries, or one for each panel, points as they fit, the best bold."""
    if results.plan.summaries is not None:
        return [(summary.title, _summary_table(summary)) for summary in _summaries(results)]
    return [_screen_table(results, p, width=width) for p in range(len(results.plan.panels))]


def _summaries(results: Results) -> tuple[Summary, ...]:
    return () if results.plan.summaries is None else results.plan.summaries(results)


def _summary_table(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(summary.heads):
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=place == 0)
    for row in summary.rows:
        table.add_row(*row)
    return table


def _screen_table(results: Results, p: int, *, width: int) -> tuple[str, Table]:
    plan, panel, mean, error = results.plan, results.plan.panels[p], results.mean[p], results.standard_error[p]
    names = _mark_best(results, p)
    column = _COLUMN if results.trials > 1 else _PLAIN_COLUMN
    capacity = (width - max(map(len, (panel.axis.label, *names))) - _MARGIN) // column
    points = spread_points(len(panel.axis.values), max(capacity, 2))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(panel.axis.label, no_wrap=True)
    for x in points:
        table.add_column(panel.axis.texts[x], justify="right", no_wrap=not panel.axis.categories)
    losses, best = results.losses(p), results.losses(p).min(axis=0)
    compared = panel.lower_is_better is not None
    for m in range(len(plan.methods)):
        if np.isfinite(mean[m]).any():
            cells = (_cell(mean[m, x], error[m, x], bold=compared and bool(losses[m, x] == best[x])) for x in points)
            table.add_row(names[m], *cells)
    return f"{panel.title}: {panel.label}", table


def _mark_best(results: Results, p: int) -> list[str]:
    """Return the methods' names, with a mark at the best of a family of several."""
    plan, best = results.plan, results.best_of_families(p)
    families = plan.family_names
    several = {family for family in families if families.count(family) > 1}
    return [f"{name} {BEST}" if m in best and families[m] in several else name for m, name in enumerate(plan.methods)]


def spread_points(count: int, most: int) -> NDArray[np.intp]:
    """Return at most so many points of `count`, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.intp))


def number_text(value: float) -> str:
    """Return a number as tables show it."""
    if not np.isfinite(value):
        return ""
    if abs(value) >= _LARGE:
        return f"{value:.2e}"
    return f"{value:,.3f}" if abs(value) < 1000.0 else f"{value:,.0f}"


def _cell(mean: float, error: float, *, bold: bool) -> str:
    text = number_text(mean) if not np.isfinite(error) else f"{number_text(mean)} ± {number_text(error)}"
    return f"[bold]{text}[/bold]" if bold else text


def target_lines(targets: Sequence[Target]) -> list[str]:
    """Return a line for each target."""
    return [f"{'met   ' if target.met else 'MISSED'}  {target.claim}: {target.figure}" for target in targets]
