"""Write Grafana's dashboards from their description in `panels`.

``make dashboards`` writes them; with ``--check`` nothing is written, and one that is out of date is an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panels import BOARDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panels import Board, Panel, Row

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("deploy/grafana/dashboards")
DATASOURCE_UID = "topk-bandit-prometheus"
SOURCE = {"type": "prometheus", "uid": "${source}"}
COLUMNS = 24
PANELS_IN_A_ROW = {"timeseries": 3, "stat": 4}
HEIGHTS = {"timeseries": 8, "stat": 5}
SCHEMA_VERSION = 39


def render(board: Board) -> str:
    """Return the JSON that Grafana reads."""
    return json.dumps(build(board), indent=2) + "\n"


def build(board: Board) -> dict[str, Any]:
    """Return a dashboard as Grafana's schema has it."""
    return {
        "uid": f"topk-bandit-{board.name}",
        "title": board.title,
        "description": board.description,
        "tags": ["topk-bandit"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [_LINKS],
        "templating": {"list": _variables()},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_place(board.rows), start=1)],
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {
            "name": "source",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {"text": "Prometheus", "value": DATASOURCE_UID},
        },
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": "label_values(topk_bandit_workers, job)", "refId": "jobs"},
            "current": {"text": "topk-bandit", "value": "topk-bandit"},
            "refresh": 1,
        },
    ]


def _place(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """Yield rows and their panels from top to bottom, those of one kind side by side."""
    top = 0
    for row in rows:
        yield {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _at(0, top, COLUMNS, 1)}
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            width = COLUMNS // PANELS_IN_A_ROW[panel.kind]
            if left + width > COLUMNS:
                left, top, height = 0, top + height, 0
            yield _draw(panel, at=_at(left, top, width, HEIGHTS[panel.kind]))
            left, height = left + width, max(height, HEIGHTS[panel.kind])
        top += height


def _style(panel: Panel) -> dict[str, Any]:
    """Return how values are shown: from 0 on, but for those that may be less and have no unit."""
    if panel.kind == "stat":
        return {"unit": panel.unit}
    least = {} if panel.unit == "none" else {"min": 0}
    return {"unit": panel.unit, **least, "custom": {"fillOpacity": 5, "showPoints": "never"}}


def _at(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _draw(panel: Panel, *, at: dict[str, int]) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": at,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _style(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": _targets(panel),
    }


def _targets(panel: Panel) -> list[dict[str, Any]]:
    targets: list[dict[str, Any]] = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    if panel.exemplars:
        targets[-1]["exemplar"] = True
    return targets


_LINKS: dict[str, Any] = {
    "type": "dashboards",
    "title": "topk-bandit",
    "icon": "external link",
    "tags": ["topk-bandit"],
    "tooltip": "",
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "graphMode": "area"},
}


def main(arguments: list[str]) -> int:
    """Write the dashboards that are out of date, or with ``--check`` only name them; return the exit status."""
    status = 0
    for board in BOARDS:
        path, text = FOLDER / f"{board.name}.json", render(board)
        target = ROOT / path
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            print(f"{path} is out of date: run make dashboards")
            status = 1
        else:
            target.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
