"""How long prose may be: pages that interpret figures, and what a module says of itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "service" / "topk_bandit"
MODULES = [path for room in ("bandits", "store", "process") for path in sorted((PACKAGE / room).rglob("*.py"))]
MOST_WORDS = 1_000
MOST_SENTENCES = 5


@pytest.mark.parametrize("page", ["performance.md", "experiments.md"])
def test_figures_are_interpreted_on_a_short_page(page: str) -> None:
    """Tables of runs have pages of their own, in ``docs/runs``; what is no prose does not count."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    assert 100 < len(" ".join(prose).split()) <= MOST_WORDS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_in_a_few_sentences_what_it_is(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said, "a module says what it is"
    prose = " ".join(line for line in said.splitlines() if not line.startswith(" "))
    assert 1 <= len(re.findall(r"[.?!](?=\s|$)", prose)) <= MOST_SENTENCES
