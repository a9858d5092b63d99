"""Each example runs as its first line says, and prints what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import clean_environment, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("data")) as service:
        yield service.address


def run(name: str, *arguments: str, heard: str = "") -> str:
    """Return what an example prints; on its standard error it says what matches `heard`."""
    command = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env=clean_environment(PYTHONUTF8="1")
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(heard, ended.stderr), ended.stderr
    return ended.stdout


def first_and_last(printed: str) -> tuple[float, float]:
    found = re.search(r"first 20 slates earned (\S+) each, the last 20 (\S+)", printed)
    assert found, printed
    return float(found[1]), float(found[2])


def test_the_storefront_earns_more_in_the_end(address: str) -> None:
    printed = run("storefront.py", address)
    first, last = first_and_last(printed)
    assert last > first + 0.1
    assert re.search(r"last slate: (coffee, cocoa|cocoa, coffee), ", printed), printed


def test_late_rewards_are_learned_or_replaced(address: str) -> None:
    lines = run(
        "late_rewards.py", address, heard=r"1 of the rewards posted to late-rewards came after .*\n"
    ).splitlines()
    assert re.fullmatch(r"[4-8] different slates on 8 screens", lines[0])
    assert lines[1:] == [
        "posted: accepted accepted accepted accepted",
        "posted again, as after a crash: duplicate duplicate duplicate duplicate",
        "learned from 8 slates, 4 of them by the default reward",
        "posted after the wait: late",
    ]


def test_a_study_starts_a_bandit_warm(address: str) -> None:
    lines = run("warm_start.py", address).splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["cocoa", "juice"]
    assert lines[-1] == "first slate: cocoa, juice, coffee"


def test_a_policy_of_ones_own_learns_without_a_service() -> None:
    first, last = first_and_last(run("own_policy.py"))
    assert last > first + 0.1


def test_every_example_is_tested_here_short_and_says_how_it_is_run() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for example in EXAMPLES:
        code = example.read_text(encoding="utf-8")
        assert f'"{example.name}"' in here
        assert f"python examples/{example.name}" in code.partition("\n")[0]
        assert len(code.splitlines()) < 60
