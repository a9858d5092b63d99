"""Everything in one page that needs no network: figures, tables, targets, settings, versions; and tables alone."""

from __future__ import annotations

import base64
import csv
import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.domain.optional import import_extra
from topk_bandit.lab.experiments.tables import BEST, markdown_table, number_text, spread_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Section", "section_of", "write_report", "write_tables"]

_POINTS = 6
"""Columns of a table."""


class _Table(NamedTuple):
    """A panel's numbers: of each method its name, and for each point its text and whether it is the best."""

    title: str
    label: str
    axis: str
    heads: list[str]
    rows: list[tuple[str, list[tuple[str, bool]]]]


class Section(NamedTuple):
    """What the page says of one experiment.

    Attributes
    ----------
    stored
        What is in its JSON file.
    figure
        The PNG, in base64.
    description
        What the figure shows, for those who do not see it.
    """

    name: str
    stored: Mapping[str, Any]
    figure: str
    description: str
    tables: list[_Table]

    @property
    def settings(self) -> list[tuple[str, str]]:
        """Settings as text."""
        return [(key.replace("_", " "), _as_text(value)) for key, value in self.stored["settings"].items()]

    @property
    def met(self) -> int:
        """How many targets are met."""
        return sum(target["met"] for target in self.stored["targets"])


def section_of(name: str, folder: Path) -> Section:
    """Read the three files of an experiment."""
    stored = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    by_panel = {key: list(group) for key, group in groupby(lines, key=lambda line: line[0])}
    drawn = [panel for panel in stored["panels"] if panel["drawn"]]
    tables = [_table(panel, by_panel[panel["panel"]]) for panel in drawn]
    figure = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
    return Section(name, stored, figure, _description(stored["title"], drawn, tables), tables)


def write_report(sections: Sequence[Section], path: Path, *, command: str, remark: str = "") -> None:
    """Write the page.

    Parameters
    ----------
    command
        What makes it again.
    remark
        What has to be known of all the numbers.

    Raises
    ------
    ConfigurationError
        Jinja is not installed.
    OSError
        The page can't be written.
    """
    jinja2 = import_extra("jinja2", "writing the report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("topk_bandit.lab.experiments", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html").render(
        sections=sections,
        command=command,
        remark=remark,
        versions=sections[0].stored["versions"],
        met=sum(section.met for section in sections),
        targets=sum(len(section.stored["targets"]) for section in sections),
        job_seconds=sum(section.stored["job_seconds"] for section in sections),
        seconds=sum(section.stored["seconds"] for section in sections),
    )
    path.write_text(page, encoding="utf-8")


def write_tables(sections: Sequence[Section], path: Path, *, command: str, remark: str = "") -> None:
    """Write the tables and targets as Markdown; parameters and errors as of `write_report`, Jinja apart."""
    parts = ["# Tables of the experiments", f"    {command}", *([remark] if remark else [])]
    for section in sections:
        parts += [
            f"## {section.name}",
            section.stored["title"] + ".",
            markdown_table(("setting", "value"), section.settings),
        ]
        for table in section.tables:
            cells = [(name, *(text for text, _ in numbers)) for name, numbers in table.rows]
            parts += [f"{table.title}: {table.label}, by {table.axis}.", markdown_table(("", *table.heads), cells)]
        judged = [
            ("met" if target["met"] else "MISSED", target["claim"], target["figure"])
            for target in section.stored["targets"]
        ]
        parts += [markdown_table(("", "target", "reached"), judged)] if judged else []
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _table(panel: Mapping[str, Any], lines: Sequence[Sequence[str]]) -> _Table:
    by_method = {name: list(group) for name, group in groupby(lines, key=lambda line: line[2])}
    texts = list(dict.fromkeys(line[3] for line in lines))
    heads = [texts[point] for point in spread_points(len(texts), _POINTS)]
    best = {head: _best(panel, [float(line[4]) for line in lines if line[3] == head]) for head in heads}
    stars = {method for method in panel["best_of_families"].values() if method not in panel["best_of_families"]}
    rows = []
    for name, own in by_method.items():
        numbers = {line[3]: line for line in own}
        cells = [_cell(numbers.get(head), best[head]) for head in heads]
        rows.append((f"{name} {BEST}" if name in stars else name, cells))
    return _Table(panel["title"], panel["label"], panel["axis"], heads, rows)


def _best(panel: Mapping[str, Any], means: Sequence[float]) -> float | None:
    if panel["lower_is_better"] is None:
        return None
    return min(means) if panel["lower_is_better"] else max(means)


def _cell(line: Sequence[str] | None, best: float | None) -> tuple[str, bool]:
    if line is None:
        return "", False
    mean = float(line[4])
    spread = f" ± {number_text(float(line[5]))}" if line[5] else ""
    return number_text(mean) + spread, mean == best


def _description(title: str, panels: Sequence[Mapping[str, Any]], tables: Sequence[_Table]) -> str:
    """Return the figure in words: each panel's last point."""
    said = []
    for panel, table in zip(panels, tables, strict=True):
        shown = {name.removesuffix(f" {BEST}"): cells[-1][0] for name, cells in table.rows}
        ends = ", ".join(
            f"{family} {shown[method]}" for family, method in panel["best_of_families"].items() if shown.get(method)
        )
        said.append(f"{table.title}, {table.label}, {table.axis} {table.heads[-1]}: {ends}.")
    return f"{title}. {' '.join(said)}"


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_as_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_as_text, value))
    return str(value)
