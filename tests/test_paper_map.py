"""Each function and test that ``docs/paper-map.md`` names is there, and each part has a test or a reason."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs" / "paper-map.md"
PACKAGE = ROOT / "service" / "topk_bandit"
LINKS = re.findall(r"\[`([^`\]]+)`\]\(([^)]+)\)", MAP.read_text(encoding="utf-8"))
TESTS = sorted({link for link in LINKS if "::" in link[0]})
CODE = sorted({link for link in LINKS if "service/topk_bandit/" in link[1]})
ROWS = [
    line for line in MAP.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "| part |" not in line
]


def target(link: str) -> Path:
    return (MAP.parent / link).resolve()


def test_every_file_that_is_linked_is_there() -> None:
    assert [link for _, link in LINKS if not target(link).is_file()] == []


@pytest.mark.parametrize(("name", "link"), CODE)
def test_a_name_is_defined_in_the_module_that_is_linked(name: str, link: str) -> None:
    module = ".".join(target(link).relative_to(PACKAGE).with_suffix("").parts)
    assert name.startswith(f"{module}."), link
    found: object = importlib.import_module(f"topk_bandit.{module}")
    for part in name.removeprefix(f"{module}.").split("."):
        found = getattr(found, part)
    assert getattr(found, "__module__", f"topk_bandit.{module}") == f"topk_bandit.{module}"


@pytest.mark.parametrize(("name", "link"), TESTS)
def test_a_test_is_in_the_file_that_is_linked(name: str, link: str) -> None:
    file, _, function = name.partition("::")
    assert file == target(link).name
    tree = ast.parse(target(link).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_a_part_has_a_test_or_says_why_it_is_not_there(row: str) -> None:
    _, _, where, held, _ = row.split("|")
    assert "::" in held or where.strip().startswith("not "), row
