"""Figures beside their targets: on the screen, and as files."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from figures import Figure, Outcome
    from targets import Target, Targets

__all__ = ["absence", "overview", "save", "save_markdown", "table"]

_COLOURS = {"met": "green", "MISSED": "bold red", "INVALID": "bold red", "not measured": "yellow"}


def table(name: str, outcome: Outcome, targets: Targets, *, seconds: float) -> Table:
    """Return a benchmark's figures as they are shown."""
    shown = _headed(f"{name} ({seconds:.0f} s){escape(_flaw(outcome))}", "figure")
    for figure in outcome.figures:
        target = targets.get(figure.key)
        verdict = _verdict(outcome, figure, target) if target else ""
        shown.add_row(escape(figure.label), _reached(figure), _bound(target, figure.unit), _coloured(verdict))
    return shown


def overview(outcomes: Mapping[str, Outcome], targets: Mapping[str, Targets]) -> Table:
    """Return all targets of the benchmarks that were run in one table."""
    shown = _headed("All targets", "benchmark", "figure")
    for name, label, reached, bound, verdict in _judgements(outcomes, targets):
        shown.add_row(name, escape(label), reached, bound, _coloured(verdict))
    return shown


def absence(outcome: Outcome) -> str:
    """Return a sentence about the peers that are not installed; empty if all are."""
    return f"Not installed, so not measured: {', '.join(outcome.absent)}. `make peers` installs." * bool(outcome.absent)


def _flaw(outcome: Outcome) -> str:
    """Return what is said wherever the figures of an invalid run are shown."""
    return f" INVALID: {outcome.invalid}" if outcome.invalid else ""


def _headed(title: str, *first: str) -> Table:
    shown = Table(title=title, title_justify="left", title_style="bold")
    for heading in first:
        shown.add_column(heading)
    for heading in ("reached", "target", ""):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    return shown


def _coloured(verdict: str) -> str:
    return f"[{_COLOURS[verdict]}]{verdict}[/]" if verdict else ""


def _judgements(
    outcomes: Mapping[str, Outcome], targets: Mapping[str, Targets]
) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield benchmark, figure, what it reached, its target and the verdict, for every target."""
    for name, outcome in outcomes.items():
        figures = {figure.key: figure for figure in outcome.figures}
        for key, target in targets.get(name, {}).items():
            figure = figures.get(key)
            if figure is None:
                yield name, key.replace("_", " "), "", _bound(target, ""), "not measured"
            else:
                bound = _bound(target, figure.unit)
                yield name, figure.label, _reached(figure), bound, _verdict(outcome, figure, target)


def _verdict(outcome: Outcome, figure: Figure, target: Target) -> str:
    if outcome.invalid:
        return "INVALID"
    return "met" if target.is_met_by(figure.value) else "MISSED"


def _reached(figure: Figure) -> str:
    text = _written(figure.value, figure.unit)
    return text if figure.error is None else f"{text} ± {_written(figure.error, figure.unit)}"


def _bound(target: Target | None, unit: str) -> str:
    if target is None:
        return ""
    return f"{'at least' if target.at_least is not None else 'at most'} {_written(target.bound, unit)}"


def _written(value: float, unit: str) -> str:
    if math.isnan(value):
        return "none"
    if unit == "share":
        return f"{value:.2%}" if 0 < abs(value) < 0.01 else f"{value:.1%}"
    if value and abs(value) < 1e-3:
        return f"{value:.1e}{' ' * bool(unit)}{unit}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}{' ' * bool(unit)}{unit}"


def save(
    path: Path, outcomes: Mapping[str, Outcome], targets: Mapping[str, Targets], about: Mapping[str, object]
) -> None:
    """Write all figures, with what they were found on, as JSON; an infinity or a NaN becomes null.

    A run that is invalid met no target and missed none.
    """
    results = {
        name: {
            "settings": outcome.settings,
            "absent_peers": list(outcome.absent),
            "invalid": outcome.invalid,
            "figures": [_record(outcome, figure, targets.get(name, {}).get(figure.key)) for figure in outcome.figures],
            "histograms": dict(outcome.histograms),
        }
        for name, outcome in outcomes.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "results": results}, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _record(outcome: Outcome, figure: Figure, target: Target | None) -> dict[str, object]:
    record = {key: _finite(value) for key, value in asdict(figure).items()}
    if target is not None:
        bounds = {side: bound for side, bound in asdict(target).items() if bound is not None}
        record["target"] = {**bounds, "met": None if outcome.invalid else target.is_met_by(figure.value)}
    return record


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_markdown(
    path: Path, outcomes: Mapping[str, Outcome], targets: Mapping[str, Targets], about: Mapping[str, object]
) -> None:
    """Write all targets in one table, and then the figures of each benchmark, as Markdown."""
    parts = [_found_on(about), _lined(("benchmark", "figure", "reached", "target", ""), _judgements(outcomes, targets))]
    for name, outcome in outcomes.items():
        rows = ((figure.label, _reached(figure)) for figure in outcome.figures)
        notes = [note for note in (_flaw(outcome).strip(), absence(outcome)) if note]
        parts += [f"### {name}", *notes, _lined(("figure", "reached"), rows)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _found_on(about: Mapping[str, object]) -> str:
    machine, versions = about["machine"], about["versions"]
    assert isinstance(machine, dict)
    assert isinstance(versions, dict)
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    start = f"{about['started']}, commit {about['commit']}{', the quick run' if about['quick'] else ''}"
    return f"{start}; {machine['processor']}, {machine['cores']} cores, {machine['system']}; {installed}."


def _lined(heading: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
