from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from tests.long_forms import examples
from tests.programs import summarize
from tests.time_limits import TimeLimit, summarize_left

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

# A shell starts what runs in its background with Ctrl-C ignored, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(30))
settings.load_profile("repeatable")


SLOW = [Path(__file__).parent / name for name in ("faults", "lab", "simulation")]
"""Folders whose tests run whole services and wait for them, or are of the laboratory, on which no service depends."""

QUICK = {"test_bad_answers", "test_bad_calls", "test_cluster", "test_crash", "test_duplicates"}
"""Their modules that tell most in the least time."""


def _is_slow(path: Path) -> bool:
    return path.name.startswith("test_") and path.stem not in QUICK and any(one in path.parents for one in SLOW)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="begin no test later than this after the first")
    parser.addoption("--order", default="", help="which order the files have where --minutes is given")


def pytest_configure(config: pytest.Config) -> None:
    if (minutes := config.getoption("--minutes")) is not None:
        config.pluginmanager.register(TimeLimit(minutes, config.getoption("--order")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is slow where nothing slow is run: to import it takes each process some seconds."""
    wanted = config.option.markexpr
    return True if "not slow" in wanted and " or " not in wanted and _is_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what draws examples, since its long form draws more, and what is slow because of where it is."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("long_form")
        if _is_slow(item.path):
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line each what this machine lacks, and how to get it, and what there was no time for."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    for line in filter(None, (summarize(reasons), summarize_left(reasons))):
        terminalreporter.write_line(line, yellow=True)
