"""A limit for a run: after so many minutes no further test begins, and another order begins with other files."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TimeLimit", "shuffle_files", "summarize_left"]

LEFT = "the time is over"


class TimeLimit:
    """Skips the tests that would begin later than so many minutes after the first one of this process."""

    def __init__(self, minutes: float, order: str) -> None:
        self._seconds = 60.0 * minutes
        self._order = order
        self._end = float("inf")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the files into the order that was asked for."""
        items[:] = shuffle_files(items, self._order)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test that comes too late."""
        now = time.monotonic()
        self._end = min(self._end, now + self._seconds)
        if now > self._end:
            pytest.skip(LEFT)


def shuffle_files(items: Iterable[pytest.Item], key: str) -> list[pytest.Item]:
    """Return tests with their files in an order that the key decides; a file's tests stay together, in their order."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    draw = random.Random(key)
    return [item for file in draw.sample(sorted(files), len(files)) for item in files[file]]


def summarize_left(reasons: Iterable[str]) -> str:
    """Return one line that says how many tests were left out because of the limit; nothing where none was."""
    count = sum(LEFT in reason for reason in reasons)
    return f"{count} tests were left out, since the minutes of --minutes were over" if count else ""
