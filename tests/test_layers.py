"""The floors of the house, as ``pyproject.toml`` draws them, and the rooms, as ``docs/architecture.md`` lists them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
PACKAGE = PROJECT.parent / "service" / "topk_bandit"
PLAN = PROJECT.parent / "docs" / "architecture.md"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_no_module_imports_what_it_must_not() -> None:
    # In a process of its own: it sets up logging for the process that it runs in.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(PROJECT)]
    run = subprocess.run(command, cwd=PROJECT.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_room_is_on_a_floor_and_there_are_few() -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    floors = contracts[0]["layers"]
    drawn = {name.strip().rpartition(".")[2] for floor in floors for name in floor.split("|")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert modules | set(ROOMS) == drawn
    assert len(drawn - {"__main__", "v1"}) <= 15, "rooms that are written by hand"


def rows_of_the_table() -> dict[str, set[str]]:
    """Return the rooms that each room imports, as the table has them."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PLAN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", imported)) for room, imported in rows}


def test_the_table_names_the_rooms_that_a_room_imports() -> None:
    graph = grimp.build_graph("topk_bandit", cache_dir=None)  # with what only types need

    def imports_of(room: str) -> set[str]:
        modules = {f"topk_bandit.{room}", *graph.find_descendants(f"topk_bandit.{room}")}
        imported = {one for module in modules for one in graph.find_modules_directly_imported_by(module)}
        return {one.split(".")[1] for one in imported - {"topk_bandit"}} & set(ROOMS) - {room}

    assert rows_of_the_table() == {room: imports_of(room) for room in ROOMS}
