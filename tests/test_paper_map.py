"""Each function and test that ``docs/paper-map.md`` names is there, and each part has a test or a reason."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

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


def is_defined(name: str, link: str) -> bool:
    """Return whether a name is one of the linked module, which defines it itself."""
    module = ".".join(target(link).relative_to(PACKAGE).with_suffix("").parts)
    found: object = importlib.import_module(f"topk_bandit.{module}")
    for part in name.removeprefix(f"{module}.").split("."):
        found = getattr(found, part, None)
    own = getattr(found, "__module__", f"topk_bandit.{module}") == f"topk_bandit.{module}"
    return found is not None and own and name.startswith(f"{module}.")


def test_a_name_is_defined_in_the_module_that_is_linked() -> None:
    assert len(CODE) > 50
    assert [one for one in CODE if not is_defined(*one)] == []


def is_there(name: str, link: str) -> bool:
    """Return whether a test is in the linked file."""
    file, _, function = name.partition("::")
    text = target(link).read_text(encoding="utf-8")
    return file == target(link).name and re.search(rf"^def {function}\(", text, flags=re.MULTILINE) is not None


def test_a_test_is_in_the_file_that_is_linked() -> None:
    assert len(TESTS) > 50
    assert [one for one in TESTS if not is_there(*one)] == []


def test_a_part_has_a_test_or_says_why_it_is_not_there() -> None:
    cells = [row.split("|") for row in ROWS]
    assert len(cells) > 50
    assert [row for row, (_, _, where, held, _) in zip(ROWS, cells, strict=True) if not is_held(where, held)] == []


def is_held(where: str, held: str) -> bool:
    return "::" in held or where.strip().startswith("not ")
