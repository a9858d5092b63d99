"""Runs that have a limit: what is left out is said, and other commits leave out other files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.time_limits import shuffle_files

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]


def run(*words: str) -> str:
    """Run this project's pytest on a quick file; return what it prints."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_long_forms.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_no_test_begins_after_the_limit_and_one_line_says_how_many_were_left_out() -> None:
    usual = run()
    count = int(usual.rsplit("=", 1)[0].split(" passed")[0].split()[-1])
    assert "left out" not in usual
    none = run("--minutes", "0")
    assert f"{count - 1} tests were left out, since the minutes of --minutes were over" in none
    assert f"1 passed, {count - 1} skipped" in none
    assert f"{count} passed" in run("--minutes", "60", "--order", "any")


def names(items: Sequence[pytest.Item]) -> list[str]:
    return [one.nodeid for one in items]


def test_each_order_begins_with_other_files_and_no_file_is_torn_apart() -> None:
    items = [
        cast("Any", SimpleNamespace(nodeid=f"tests/test_{number}.py::test_{one}"))
        for one in "ba"
        for number in range(30)
    ]
    orders = [names(shuffle_files(items, str(key))) for key in range(200)]
    assert orders == [names(shuffle_files(items, str(key))) for key in range(200)]
    for order in orders:
        assert sorted(order) == sorted(names(items))
        assert [one.rpartition("_")[2] for one in order] == ["b", "a"] * 30
        assert [one.partition("::")[0] for one in order[::2]] == [one.partition("::")[0] for one in order[1::2]]
    assert len({order[0] for order in orders}) == 30


def test_the_gate_has_a_limit_for_the_slow_ones() -> None:
    assert "step make test-slow MINUTES=12\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    dry = ["make", "--dry-run", "--assume-old=.venv/dev.stamp", "test-slow", "MINUTES=3"]
    printed = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = (line for line in printed.splitlines() if " -m pytest -n " in line)
    assert command.endswith(" --minutes 3 --order $(git rev-parse HEAD)")
