"""Every test that docs/reliability.md names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOLD = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"\btests/[\w/]+\.py(?:::\w+)?", TOLD)))


@cache
def functions_of(path: str) -> set[str]:
    """Return the names of a file's functions, and "" for the file itself; none of a file that is not there."""
    if not (ROOT / path).is_file():
        return set()
    return {"", *re.findall(r"^ *def (\w+)\(", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE)}


def test_the_tests_that_are_named_are_there() -> None:
    assert len(NAMED) > 50
    assert [named for named in NAMED if named.partition("::")[2] not in functions_of(named.partition("::")[0])] == []


def test_each_promise_and_each_fault_names_a_test() -> None:
    for title in ("## What is promised", "## What was found"):
        section = TOLD.partition(title)[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        bare = [row for row in rows if "tests/" not in row]
        assert all(re.match(r"\| (promise|class|fault) \|", row) for row in bare), bare
        assert len(rows) > 10
