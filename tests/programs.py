"""Programs that some tests talk to and that this project does not install: without one a test is left out."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["IN_CI", "find_program", "leave_out", "summarize"]

IN_CI = os.environ.get("CI") == "true"

PACKAGES = {
    "chromedriver": "chromium-driver",
    "systemd-analyze": "systemd",
    "java": "default-jdk-headless",
    "go": "golang-go",
    "php": "php-cli php-curl",
    "promtool": "prometheus",
}
"""Debian's names of packages, where they are not the program's."""

WAYS = {"kubectl": "kubectl 1.27 or newer, which Debian 12 does not have"}
"""How to get what is no package."""

FOLDERS = f"{os.environ.get('PATH', '')}:/usr/sbin"
"""Debian's haproxy is where only root looks."""


def find_program(name: str) -> str:
    """Return the path of a program that the running test needs."""
    found = shutil.which(name, path=FOLDERS)
    return found or leave_out(name, WAYS.get(name, f"apt-get install {PACKAGES.get(name, name)}"))


def leave_out(what: str, remedy: str) -> NoReturn:
    """Leave the running test out, since something is missing; the gate must have it."""
    if IN_CI:
        pytest.fail(f"needs {what}: {remedy}")
    pytest.skip(f"needs {what}: {remedy}")


def summarize(reasons: Iterable[str]) -> str:
    """Return one line that says what was missing, for how many tests, and how to get it; nothing where nothing was."""
    told = [match for reason in reasons if (match := re.search(r"needs (.+): (.+)", reason))]
    counts = Counter(match[1] for match in told)
    remedies = dict.fromkeys(match[2] for match in told)
    packages = [one.removeprefix("apt-get install ") for one in remedies if one.startswith("apt-get")]
    others = [one for one in remedies if not one.startswith("apt-get")]
    ways = [*([f"apt-get install {' '.join(sorted(packages))}"] if packages else []), *sorted(others)]
    needs = ", ".join(f"{what} ({count})" for what, count in counts.most_common())
    if not counts:
        return ""
    return f"{counts.total()} tests were left out, since this machine has no {needs}. To have them: {'; '.join(ways)}"
