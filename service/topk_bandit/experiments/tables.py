"""Results as a CSV file with the settings beside it, and as a table to read."""

from __future__ import annotations

import csv
import json
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from topk_bandit.experiments.plan import Results
    from topk_bandit.experiments.targets import Target

__all__ = ["screen_tables", "target_lines", "write_csv", "write_settings"]

_COLUMN, _MARGIN = 16, 4
"""Width of a point on a screen, and of what is around the names."""


def write_csv(results: Results, path: Path) -> None:
    """Write one line for each panel, method and point: mean, standard error and number of runs."""
    plan, mean, error = results.plan, results.mean, results.standard_error
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["panel", "metric", "method", plan.axis.name, "mean", "standard_error", "runs"])
        for p, m, x in np.ndindex(*mean.shape):
            panel, value = plan.panels[p], plan.axis.values[x]
            spread = f"{error[p, m, x]:.6g}" if np.isfinite(error[p, m, x]) else ""
            numbers = f"{value:g}", f"{mean[p, m, x]:.6g}", spread, results.runs
            lines.writerow([panel.key, panel.metric, plan.methods[m], *numbers])


def write_settings(results: Results, targets: Sequence[Target], path: Path) -> None:
    """Write all that the numbers depend on, as JSON, with what they should show and do."""
    plan = results.plan
    told = {
        "experiment": plan.name,
        "title": plan.title,
        "runs": results.runs,
        "settings": dict(plan.settings),
        "notes": list(plan.notes),
        "targets": [target._asdict() for target in targets],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("topk-bandit", "numpy", "scipy", "numba")},
        },
    }
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def screen_tables(results: Results, *, width: int) -> list[tuple[str, Table]]:
    """Return a heading and a table for each panel: a line for each method, points as they fit, the best bold."""
    plan, mean, error = results.plan, results.mean, results.standard_error
    last = len(plan.axis.values) - 1
    room = (width - max(map(len, (plan.axis.label, *plan.methods))) - _MARGIN) // _COLUMN
    points = np.unique(np.linspace(0, last, min(max(room, 2), last + 1)).round().astype(int))
    tables = []
    for p, panel in enumerate(plan.panels):
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(plan.axis.label, no_wrap=True)
        for x in points:
            table.add_column(f"{plan.axis.values[x]:g}", justify="right", no_wrap=True)
        best = (np.argmin if panel.lower_is_better else np.argmax)(mean[p], axis=0)
        for m, method in enumerate(plan.methods):
            table.add_row(method, *(_cell(mean[p, m, x], error[p, m, x], bold=best[x] == m) for x in points))
        tables.append((f"{panel.title}: {panel.label}", table))
    return tables


def _cell(mean: float, error: float, *, bold: bool) -> str:
    text = f"{mean:.3f}" if not np.isfinite(error) else f"{mean:.3f} ± {error:.3f}"
    return f"[bold]{text}[/bold]" if bold else text


def target_lines(targets: Sequence[Target]) -> list[str]:
    """Return a line for each target."""
    return [f"{'met   ' if target.met else 'MISSED'}  {target.claim}: {target.figure}" for target in targets]
