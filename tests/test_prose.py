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


def sentences(path: Path) -> int:
    """Return how many sentences a module says of itself."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    prose = " ".join(line for line in said.splitlines() if not line.startswith(" "))
    return len(re.findall(r"[.?!](?=\s|$)", prose))


def test_a_module_says_in_a_few_sentences_what_it_is() -> None:
    counts = {str(path.relative_to(PACKAGE)): sentences(path) for path in MODULES}
    assert len(counts) > 100
    assert {path: count for path, count in counts.items() if not 1 <= count <= MOST_SENTENCES} == {}
