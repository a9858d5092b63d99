"""The floors of the house, as ``pyproject.toml`` draws them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def test_no_module_imports_what_it_must_not() -> None:
    # In a process of its own: it sets up logging for the process that it runs in.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(PROJECT)]
    run = subprocess.run(command, cwd=PROJECT.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_room_is_on_a_floor_and_there_are_few() -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    floors = contracts[0]["layers"]
    drawn = {name.strip().rpartition(".")[2] for floor in floors for name in floor.split("|")}
    package = PROJECT.parent / "service" / "topk_bandit"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} == drawn
    assert len(drawn - {"__main__"}) <= 12
