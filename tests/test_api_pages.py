"""``docs/api`` says what the docstrings say, and its examples do what they say."""

from __future__ import annotations

import doctest
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "api"
EXAMPLES = ("learning", "preferences.designs", "preferences.models")


def generate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "api_pages.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_are_those_of_the_docstrings() -> None:
    done = generate("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_page_that_is_out_of_date_is_named(tmp_path: Path) -> None:
    copied = tmp_path / "tools" / "api_pages.py"
    shutil.copytree(ROOT / "service", tmp_path / "service", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    assert subprocess.run([sys.executable, str(copied)], check=False).returncode == 0
    page = tmp_path / "docs/api/learning.md"
    assert page.read_bytes() == (PAGES / "learning.md").read_bytes()
    page.write_text("something else")
    done = subprocess.run([sys.executable, str(copied), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "docs/api/learning.md is out of date: run make docs")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_does_what_it_says(name: str) -> None:
    module = importlib.import_module(f"topk_bandit.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 5
    assert found.failed == 0
    [page] = [file for file in PAGES.glob("*.md") if file.stem == name.partition(".")[0]]
    assert ">>> import numpy as np" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["learning.policy", "learning.posterior", "preferences.models.variational", "client"])
def test_everything_that_is_exported_is_described(name: str) -> None:
    module = importlib.import_module(f"topk_bandit.{name}")
    text = (PAGES / f"{name.partition('.')[0]}.md").read_text(encoding="utf-8")
    described = [one for one in module.__all__ if callable(getattr(module, one))]
    assert [one for one in described if f"\n### {one}\n" not in text] == []


def test_what_a_client_can_do_is_described_with_what_it_inherits() -> None:
    text = (PAGES / "client.md").read_text(encoding="utf-8")
    for method in ("recommend", "reward", "create_bandit", "create_study", "next_questions"):
        assert f"#### Client.{method}\n" in text
        assert f"#### AsyncClient.{method}\n" in text
