from __future__ import annotations

import os
import signal

import pytest
from hypothesis import is_hypothesis_test, settings
from tests.long_forms import examples
from tests.programs import summarize

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

# A shell starts what runs in its background with Ctrl-C ignored, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(30))
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what draws examples: its long form draws more."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("long_form")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what this machine lacks, and how to get it."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
    if line := summarize(reasons):
        terminalreporter.write_line(line, yellow=True)
