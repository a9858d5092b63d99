"""Every test that docs/reliability.md names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOLD = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", TOLD)))


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_is_named_is_there(named: str) -> None:
    path, _, function = named.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not function or function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_promise_and_each_fault_names_a_test() -> None:
    for title in ("## What is promised", "## What was found"):
        section = TOLD.partition(title)[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        bare = [row for row in rows if "tests/" not in row]
        assert all(re.match(r"\| (promise|class|fault) \|", row) for row in bare), bare
        assert len(rows) > 10
