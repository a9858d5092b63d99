"""Tests beside busy loops: what is stopped goes on, what was started ends, and what failed is printed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE, until
from tools.stress import PARTS, Pauses, Seen, StopsOfTests, descendants, part, processes, table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")

FAILS_ONCE = """
import fcntl, os, signal, subprocess
from pathlib import Path
import pytest

def test_passes():
    pass

@pytest.mark.skip
def test_is_skipped():
    pass

class TestOne:
    def test_fails_once(self):
        ran = Path(__file__).with_suffix(".ran")
        is_first = not ran.exists()
        ran.touch()
        assert not is_first, "the first time\\nalways"

def test_what_it_stops_is_left_alone():
    child = subprocess.Popen(["sleep", "1000"])
    child.send_signal(signal.SIGSTOP)
    with (Path(os.environ["STRESS_LOCKS"]) / str(child.pid)).open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    child.kill()
    child.wait()
"""
HANGS = """
import subprocess, time
from pathlib import Path

def test_fails():
    raise ValueError("as it must")

def test_hangs():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(__file__).with_suffix(".hangs").touch()
    time.sleep(1000)
"""

HANGS_AT_ITS_END = """
import time
from pathlib import Path
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    (Path(__file__).parent / "ends").touch()
    time.sleep(1000)
"""


def stress(file: Path, *options: str, workers: int) -> list[str]:
    """Return the command that runs the tests of a file."""
    tool = [sys.executable, str(ROOT / "tools/stress.py"), "--seed", "3", "--out", str(file.parent / "out")]
    return [*tool, *options, "--", *PYTEST, f"-n{workers}", str(file)]


@pytest.mark.slow
def test_each_test_that_ever_failed_is_printed_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(FAILS_ONCE)
    command = stress(file, "--rounds", "2", "--busy", "0", "--no-pauses", workers=1)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    first, *_ = done.stdout.splitlines()
    *_, title, failed, reason, last = done.stdout.splitlines()
    assert first == "Seed 3, 0 busy processes, without pauses"
    assert title.split() == ["failed", "ran", "longest", "test"]
    assert re.fullmatch(r" +1 +2 +\d+\.\d s   \S*test_some\S+TestOne::test_fails_once", failed)
    assert reason.strip() == "AssertionError: the first time"
    assert last == "2 rounds, 3 tests, 1 failed"
    (kept,) = (tmp_path / "out").iterdir()
    assert kept.name == "seed-3-round-1.txt"
    assert kept.read_text() in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_it_is_ended_it_prints_what_it_has_seen_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(HANGS)
    with subprocess.Popen(stress(file, "--busy", "1", workers=0), stdout=subprocess.PIPE, text=True) as tool:
        until(file.with_suffix(".hangs").exists, what="the test hangs")
        started = descendants(tool.pid)
        tool.send_signal(number)
        printed, _ = tool.communicate(timeout=PATIENCE)
    *_, ended, _, failed, reason, last = printed.splitlines()
    assert failed.endswith("::test_fails")
    assert reason.strip() == "ValueError: as it must"
    assert (ended, last) == ("It was ended before all rounds were complete.", "1 rounds, 1 tests, 1 failed")
    assert {"sleep"} < {one.name for one in started}
    assert not any(map(runs, (one.pid for one in started)))


@pytest.mark.slow
def test_its_limit_begins_with_the_first_test(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(HANGS)
    command = stress(file, "--busy", "0", "--minutes", "0", workers=0)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    *_, ended, _, failed, _, last = done.stdout.splitlines()
    assert failed.endswith("::test_fails")
    assert (ended, last) == ("It was ended before all rounds were complete.", "1 rounds, 1 tests, 1 failed")


@pytest.mark.slow
def test_an_end_that_comes_while_pytest_ends_loses_no_test(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text("def test_passes():\n    pass\n")
    (tmp_path / "conftest.py").write_text(HANGS_AT_ITS_END)
    with subprocess.Popen(stress(file, "--busy", "0", workers=0), stdout=subprocess.PIPE, text=True) as tool:
        until((tmp_path / "ends").exists, what="all tests have ended")
        tool.send_signal(signal.SIGINT)
        printed, _ = tool.communicate(timeout=PATIENCE)
    assert printed.endswith("It was ended before all rounds were complete.\n1 rounds, 1 tests, 0 failed\n")
    assert tool.returncode == 0


@pytest.mark.slow
def test_tests_that_cannot_run_are_a_failure(tmp_path: Path) -> None:
    command = stress(tmp_path / "test_that_is_not_there.py", "--busy", "0", "--no-pauses", workers=0)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.endswith("pytest ended with status 4\n1 rounds, 0 tests, 0 failed\n")


def test_busy_processes_end_with_the_process_that_started_them() -> None:
    code = "import sys; from tools.stress import busy\nwith busy(1): print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        (spins,) = descendants(one.pid)
        one.kill()
    until(lambda: not runs(spins.pid), what="the busy process ends")


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """Have a process with two children."""
    with subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000 & wait"]) as root:
        until(lambda: [one.name for one in descendants(root.pid)] == ["sleep", "sleep"], what="the children run")
        children = descendants(root.pid)
        yield root
        root.kill()
        for child in children:
            os.kill(child.pid, signal.SIGKILL)


def runs(pid: int) -> bool:
    """Return whether a process has not ended; one that nobody waits for may still be listed."""
    found = processes().get(pid)
    return found is not None and not found.state.startswith("Z")


def is_stopped(pid: int) -> bool:
    return processes()[pid].state.startswith("T")


def test_each_descendant_is_stopped_and_continued_and_nothing_else(
    tree: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    first, second = (one.pid for one in descendants(tree.pid))
    with Pauses(tree.pid, random.Random(1), tmp_path):
        for pid in (first, second):
            until(lambda pid=pid: is_stopped(pid), what="a child is stopped")
            until(lambda pid=pid: not is_stopped(pid), what="it goes on")
        # Beside this one, `make test-stress` itself stops them too.
        until(lambda: len(list(tmp_path.iterdir())) == 2, what="two were stopped by this one")
    assert not is_stopped(first)
    assert not is_stopped(second)
    assert {int(file.name) for file in tmp_path.iterdir()} == {first, second}


def test_what_is_stopped_goes_on_at_the_end(tree: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pauses = Pauses(0, random.Random(1), tmp_path)
    pausing = threading.Thread(target=pauses.pause, args=(tree.pid, PATIENCE))
    with pauses:
        pausing.start()
        until(lambda: is_stopped(tree.pid), what="it is stopped")
    pausing.join(PATIENCE)
    assert not is_stopped(tree.pid)


def test_what_a_test_stops_is_left_alone_until_it_goes_on(tree: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pauses, stops = Pauses(0, random.Random(1), tmp_path), StopsOfTests(tmp_path)
    stops("os.kill", (tree.pid, signal.SIGSTOP))
    assert not pauses.pause(tree.pid, 0)
    stops("os.kill", (tree.pid, signal.SIGCONT))
    assert pauses.pause(tree.pid, 0)


def test_a_test_stops_nothing_before_its_pause_is_over(tree: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pauses, stops = Pauses(0, random.Random(1), tmp_path), StopsOfTests(tmp_path)
    pausing = threading.Thread(target=pauses.pause, args=(tree.pid, PATIENCE))
    seen: list[bool] = []

    def stop() -> None:
        stops("os.kill", (tree.pid, signal.SIGSTOP))
        seen.append(is_stopped(tree.pid))

    with pauses:
        pausing.start()
        until(lambda: is_stopped(tree.pid), what="it is stopped")
        stopping = threading.Thread(target=stop)
        stopping.start()
    stopping.join(PATIENCE)
    pausing.join(PATIENCE)
    stops("os.kill", (tree.pid, signal.SIGCONT))
    assert seen == [False]


def test_the_table_has_all_reasons_of_a_test_and_its_longest_time() -> None:
    rounds = [
        {"a": Seen(1.0, None), "b": Seen(2.0, "late"), "c": Seen(0.5, "away")},
        {"a": Seen(1.0, None), "b": Seen(70.25, "later")},
        {"b": Seen(3.0, None), "c": Seen(0.25, "away")},
    ]
    assert table(rounds) == [
        "failed   ran   longest   test",
        "     2     3    70.2 s   b",
        "                         late",
        "                         later",
        "     2     2     0.5 s   c",
        "                         away",
    ]
    assert table(rounds[:0]) == []


def test_parts_rotate_over_all_files_and_are_never_the_whole() -> None:
    files = [f"tests/test_{number}.py" for number in range(150)]
    parts = [part(files, str(key)) for key in range(200)]
    assert parts == [part(reversed(files), str(key)) for key in range(200)]
    assert {file for one in parts for file in one} == set(files)
    assert {len(one) for one in parts} == {150 // PARTS, 150 // PARTS + 1}


@pytest.mark.slow
def test_make_and_ci_run_the_tests_of_make_test() -> None:
    targets = ["test", "test-stress", "test-stress-sample"]
    given = ["TESTS=tests/store tests/rpc/test_fair_queue.py", "ROUNDS=3", "STRESS=--seed 4"]
    dry = ["make", "--dry-run", "--assume-old=.venv/dev.stamp", *targets, *given]
    printed = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    usual, whole, sample = (line for line in printed.splitlines() if " -m pytest -n " in line)
    command = usual.removesuffix(" --durations=10 --durations-min=5")
    tool = ".venv/bin/python tools/stress.py "
    assert whole == f"{tool}--rounds 3  --seed 4 -- {command} tests/store tests/rpc/test_fair_queue.py"
    assert sample == f"{tool}--sample --minutes 2 -- {command}"
    assert " make test-stress-sample\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")
