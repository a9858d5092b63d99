"""Each command and flag that a message, a page, a console or an alert names as a remedy is one that there is."""

from __future__ import annotations

import argparse
import re
from itertools import takewhile
from pathlib import Path

from topk_bandit.commands.cli import _parser

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    *(ROOT / "service").rglob("*.py"),
    *(ROOT / "service").rglob("*.js"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "deploy").rglob("*.yml"),
    *(ROOT / "deploy").rglob("*.md"),
    ROOT / "README.md",
]
NAMED = re.compile(r"topk-bandit ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*| [A-Z]+| --[a-z-]+)*)")
SUBJECTS = {"experiment"}
"""Words whose own words are names of experiments."""


def words_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in found), {})


def problem_of(named: str, parser: argparse.ArgumentParser) -> str:
    """Return what of a command there is not, empty if there is all of it; what is no word is an argument."""
    for word in named.split():
        if word.startswith("--"):
            if word not in parser._option_string_actions:
                return f"no flag {word} in topk-bandit {named}"
        elif words := words_of(parser):
            if word.isupper():
                return ""
            if word not in words:
                return f"no word {word} in topk-bandit {named}"
            parser = words[word]
    return ""


def test_each_command_that_is_named_is_there() -> None:
    parser, named = _parser(), set()
    first = words_of(parser)
    for path in TEXTS:
        for match in NAMED.finditer(path.read_text(encoding="utf-8")):
            words = match[1].split()
            if words[0] not in first or words[0] in SUBJECTS:
                continue  # prose about the program: topk-bandit is...
            named.add(" ".join([words[0], *takewhile(lambda word: word != "and", words[1:])]))
    assert len(named) > 40
    assert [problem for one in sorted(named) if (problem := problem_of(one, parser))] == []
