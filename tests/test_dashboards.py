"""Grafana's dashboards against Grafana's own types."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.programs import leave_out

ROOT = Path(__file__).parent.parent
BOARDS = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
FOLDER = ROOT / "tests/grafana"
COMPILER = FOLDER / "node_modules/.bin/tsc"
OPTIONS = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext")


@pytest.fixture(autouse=True)
def compiler() -> None:
    if not COMPILER.is_file():
        leave_out("Grafana's types", "make grafana")


def complaints(**boards: str) -> str:
    """Return what the compiler has against dashboards, given as JSON by their name."""
    folder = FOLDER / "generated"  # where it finds the package of the types
    folder.mkdir(exist_ok=True)
    files = [folder / f"{name}.ts" for name in boards]
    for file, board in zip(files, boards.values(), strict=True):
        file.write_text(f"import type {{ Board }} from '../board.js';\nexport const board: Board = {board};\n", "utf-8")
    run = subprocess.run([COMPILER, *OPTIONS, *files], capture_output=True, text=True, check=False, cwd=FOLDER)
    assert (run.returncode == 0) == (run.stdout == ""), run.stderr
    return run.stdout


def test_every_dashboard_is_what_grafana_takes() -> None:
    assert len(BOARDS) == 3
    assert complaints(**{board.stem: board.read_text(encoding="utf-8") for board in BOARDS}) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"graphMode": "area"', '"graphMode": "areas"'),
        ('"fillOpacity"', '"fillOpaqueness"'),
        ('"displayMode": "', '"displayMode": "no-'),
        ('"type": "stat"', '"type": "stats"'),
        ('"type": "datasource"', '"type": "source"'),
        ('"calcs"', '"calculations"'),
        ('"gridPos"', '"place"'),
        ('"unit"', '"units"'),
        ('"expr"', '"expression"'),
        ('"refresh": "30s"', '"refresh": 30'),
    ],
)
def test_what_grafana_does_not_take_is_found(right: str, wrong: str) -> None:
    board = next(board for board in BOARDS if board.stem == "service").read_text(encoding="utf-8")
    assert right in board
    assert "error TS" in complaints(wrong=board.replace(right, wrong, 1))
