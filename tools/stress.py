"""Run tests beside busy loops on all cores, with their processes stopped and continued at random.

Usage: ``python tools/stress.py [OPTIONS] -- COMMAND``, where COMMAND runs pytest; ``make test-stress`` gives that of
``make test``. Each round runs it once. All descendants of pytest may be stopped: its workers, and the services, stores
and browsers that tests start. At the end each test that ever failed is printed.

A process that a test stops is left alone until the test continues it. For this the module is a plugin of pytest, too.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pytest

__all__ = [
    "Pauses",
    "Process",
    "Reports",
    "Seen",
    "StopsOfTests",
    "descendants",
    "main",
    "part",
    "pytest_configure",
    "read",
    "table",
]

ROOT = Path(__file__).resolve().parents[1]
PARTS = 20
"""CI runs one of so many parts of the files."""

SHORTEST_PAUSE, LONGEST_PAUSE, LONGEST_GAP = 0.05, 2.0, 1.0
SECONDS_TO_END = 60.0
LONGEST_REASON = 200

_LOCKS, _REPORTS = "STRESS_LOCKS", "STRESS_REPORTS"
_SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    parent: int
    state: str
    name: str


class Seen(NamedTuple):
    """How a test went in a round; without a reason it passed."""

    seconds: float
    reason: str | None


class Round(NamedTuple):
    """The tests that ended in a round, and what failed beside tests; whether it was ended before pytest was."""

    tests: dict[str, Seen]
    fault: str | None
    is_cut: bool


def processes() -> dict[int, Process]:
    """Return all processes, as `ps` lists them on every system."""
    command = ["ps", "-A", "-o", "pid=,ppid=,state=,comm="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 3) for line in listed.splitlines())
    return {int(pid): Process(int(pid), int(parent), state, name) for pid, parent, state, name in rows}


def descendants(root: int) -> list[Process]:
    """Return the children of a process, theirs, and so on."""
    everything = processes()
    found = [root]
    for pid in found:
        found += [one.pid for one in everything.values() if one.parent == pid]
    return [everything[pid] for pid in found[1:]]


# What follows runs inside pytest and its workers.


def pytest_configure(config: pytest.Config) -> None:
    """Have each signal noticed that a test sends, and each report written where pytest has no workers above it."""
    folder = os.environ.get(_LOCKS)
    if folder is not None:
        sys.addaudithook(StopsOfTests(Path(folder)))
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Reports(Path(os.environ[_REPORTS])))


class Reports:
    """Writes how each test went, as a line of JSON as soon as that is known: so no end of pytest loses any."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write how a phase of a test went."""
        self._write(report, ends=report.when == "teardown", seconds=report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what can't be collected."""
        if report.failed:
            self._write(report, ends=True, seconds=0.0)

    def _write(self, report: pytest.TestReport | pytest.CollectReport, *, ends: bool, seconds: float) -> None:
        of_phase = {
            "test": report.nodeid,
            "seconds": seconds,
            "skipped": report.skipped,
            "ends": ends or report.failed,
            "reason": reason_of(report) if report.failed else None,
        }
        os.write(self._file, (json.dumps(of_phase) + "\n").encode())


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of why a test failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(report.longrepr if crash is None else crash.message).splitlines()
    return (lines or ["failed"])[0][:LONGEST_REASON]


class StopsOfTests:
    """Locks what a test stops, until the test lets it go; a pause of it ends first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[int, int] = {}  # descriptors of files

    def __call__(self, event: str, arguments: tuple[int, ...]) -> None:
        """Take note of a signal that is about to be sent."""
        if event != "os.kill":
            return
        pid, number = arguments
        if number == signal.SIGSTOP and pid not in self._locks:
            self._locks[pid] = os.open(self._folder / str(pid), os.O_CREAT | os.O_RDWR)
            fcntl.flock(self._locks[pid], fcntl.LOCK_EX)
        elif number in {signal.SIGCONT, signal.SIGKILL} and pid in self._locks:
            os.close(self._locks.pop(pid))


# And this runs beside it.


class Pauses:
    """Stops descendants of a process at random for up to two seconds each, until the end of the block."""

    def __init__(self, root: int, draw: random.Random, locks: Path) -> None:
        self._root = root
        self._draw = draw
        self._locks = locks
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(8)
        self._going: Future[None] | None = None

    def __enter__(self) -> Self:
        self._going = self._threads.submit(self._go_on)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._threads:
            if self._going is not None:
                self._going.result()

    def pause(self, pid: int, seconds: float) -> bool:
        """Stop a process for a while, unless a test has stopped it; return whether it was."""
        with (self._locks / str(pid)).open("w") as lock, contextlib.suppress(BlockingIOError, ProcessLookupError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.kill(pid, signal.SIGSTOP)
            try:
                self._over.wait(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
            return True
        return False

    def _go_on(self) -> None:
        while not self._over.wait(self._draw.uniform(0, LONGEST_GAP)):
            running = [one.pid for one in descendants(self._root) if one.state[0] not in "TZ"]
            if running:
                seconds = self._draw.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)
                self._threads.submit(self.pause, self._draw.choice(running), seconds)


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """Have processes that do nothing but run, until the end of the block or of this process."""
    command = [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid())]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started += (subprocess.Popen(command) for _ in range(number))
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


class Stress:
    """Runs rounds until the time is over or somebody ends it."""

    def __init__(self, asked: argparse.Namespace, command: Sequence[str]) -> None:
        self._command = command
        self._seed = asked.seed
        self._draw = random.Random(asked.seed)  # noqa: S311 - no secret
        self._pauses = asked.pauses
        self._out = asked.out
        self._minutes = asked.minutes
        self._end = float("inf")
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask)

    @property
    def is_over(self) -> bool:
        return self._asked or time.monotonic() > self._end

    def run(self, number: int) -> Round:
        """Run a round; what it printed is kept if something failed."""
        self._out.mkdir(parents=True, exist_ok=True)
        printed = self._out / f"seed-{self._seed}-round-{number}.txt"
        with tempfile.TemporaryDirectory(prefix="stress-") as name:
            status = self._run_pytest(Path(name), printed)
            tests = read(Path(name) / "reports")
        fault = None if status in {None, 0, 1} else f"pytest ended with status {status}"
        if fault or any(one.reason for one in tests.values()):
            print(f"Something failed in round {number}; all that it printed is in {printed}", flush=True)
        else:
            printed.unlink()
        return Round(tests, fault, is_cut=status is None)

    def _run_pytest(self, folder: Path, printed: Path) -> int | None:
        """Run pytest; return its status, None if it was ended."""
        (folder / "locks").mkdir()
        command = [*self._command, "-p", "tools.stress"]
        given = os.environ | {_LOCKS: str(folder / "locks"), _REPORTS: str(folder / "reports")}
        with printed.open("wb") as file, printed.open("rb") as shown:
            process = subprocess.Popen(
                command, cwd=ROOT, env=given, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
            try:
                with Pauses(process.pid, self._draw, folder / "locks") if self._pauses else contextlib.nullcontext():
                    self._wait(process, shown, folder / "reports")
            finally:
                was_ended = end(process)
            show(shown)
        return None if was_ended else process.returncode

    def _wait(self, process: subprocess.Popen[bytes], printed: IO[bytes], reports: Path) -> None:
        """Wait for pytest or the limit, which begins with the first test: to collect takes long on a slow machine."""
        while process.poll() is None and not self.is_over:
            if self._end == float("inf") and reports.exists() and reports.stat().st_size > 0:
                self._end = time.monotonic() + 60 * self._minutes
            time.sleep(0.1)
            show(printed)

    def _ask(self, *_: object) -> None:
        self._asked = True


def show(printed: IO[bytes]) -> None:
    """Print what was written to a file since the last time."""
    sys.stdout.buffer.write(printed.read())
    sys.stdout.buffer.flush()


def end(process: subprocess.Popen[bytes]) -> bool:
    """Interrupt pytest if it still runs, and end what it left; return whether it ran."""
    if process.poll() is not None:
        return False
    tree = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
    now = processes()
    for one in tree:
        if one.pid in now and now[one.pid].name == one.name:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
    return True


def read(file: Path) -> dict[str, Seen]:
    """Return the tests that ended and were not skipped, from what `Reports` wrote; none if pytest did not begin."""
    tests: dict[str, Seen] = {}
    ended: set[str] = set()
    skipped: set[str] = set()
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        phase = json.loads(line)
        name = phase["test"]
        before = tests.get(name, Seen(0.0, None))
        tests[name] = Seen(before.seconds + phase["seconds"], before.reason or phase["reason"])
        if phase["skipped"]:
            skipped.add(name)
        if phase["ends"]:
            ended.add(name)
    return {name: seen for name, seen in tests.items() if name in ended - skipped}


def table(rounds: Iterable[Mapping[str, Seen]]) -> list[str]:
    """Return the lines of a table of the tests that ever failed; none if there is no such test."""
    seen: dict[str, list[Seen]] = {}
    for one in rounds:
        for name, how in one.items():
            seen.setdefault(name, []).append(how)
    lines = [line for name in sorted(seen) for line in rows(name, seen[name])]
    return ["failed   ran   longest   test", *lines] if lines else []


def rows(name: str, seen: Sequence[Seen]) -> list[str]:
    """Return the table's lines for one test."""
    reasons = [one.reason for one in seen if one.reason is not None]
    longest = max(one.seconds for one in seen)
    shown = f"{len(reasons):6} {len(seen):5} {longest:7.1f} s   {name}"
    return [shown, *(f"{'':25}{reason}" for reason in dict.fromkeys(reasons))] if reasons else []


def part(files: Iterable[str], key: str) -> list[str]:
    """Return a part of the files, in a random order; the key says which."""
    draw = random.Random(key)  # noqa: S311 - no secret
    chosen = sorted(files)[draw.randrange(PARTS) :: PARTS]
    draw.shuffle(chosen)
    return chosen


def sample() -> list[str]:
    """Return the test files that this commit is tried with; without a commit the day says which."""
    command = [shutil.which("git") or "false", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    key = found.stdout.strip() or dt.datetime.now(dt.UTC).date().isoformat()
    files = part((str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")), key)
    print(f"The files for {key}:", *files, sep="\n  ", flush=True)
    return files


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run tests beside busy loops, with processes stopped at random.")
    parser.add_argument("--rounds", type=int, default=1, help="how often all tests run (default: 1)")
    parser.add_argument("--busy", type=int, default=4, help="busy processes for each core (default: 4)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of all draws; it is printed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="a limit from the first test on")
    parser.add_argument("--no-pauses", dest="pauses", action="store_false", help="stop no process")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/stress", metavar="FOLDER", help="what failing rounds print"
    )
    parser.add_argument("--sample", action="store_true", help="only some files, which change with the commit")
    parser.add_argument("command", nargs="+", help="what runs pytest")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the rounds that are asked for, and print what failed; return the exit status."""
    asked = options(arguments)
    number = asked.busy * (os.cpu_count() or 1)
    command = [*asked.command, *(sample() if asked.sample else ())]
    print(f"Seed {asked.seed}, {number} busy processes, {'with' if asked.pauses else 'without'} pauses", flush=True)
    stress = Stress(asked, command)
    rounds: list[Round] = []
    with busy(number):
        while len(rounds) < asked.rounds and not stress.is_over:
            rounds.append(stress.run(len(rounds) + 1))
    if len(rounds) < asked.rounds or any(one.is_cut for one in rounds):
        print("It was ended before all rounds were complete.")
    return report(rounds)


def report(rounds: Sequence[Round]) -> int:
    """Print what was seen; return the exit status, which is 1 where no test ended: nothing was tried then."""
    faults = [one.fault for one in rounds if one.fault]
    tests = {name for one in rounds for name in one.tests}
    failed = {name for one in rounds for name, how in one.tests.items() if how.reason is not None}
    for line in (*table(one.tests for one in rounds), *faults):
        print(line)
    print(f"{len(rounds)} rounds, {len(tests)} tests, {len(failed)} failed")
    return 1 if failed or faults or not tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
