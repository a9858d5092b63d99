"""The command that prints which settings `serve` would use, and where each came from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from topk_bandit.commands.printing import print_lines
from topk_bandit.commands.tables import table
from topk_bandit.process import settings

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's words, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    text = "Print each setting, its value and where it came from, with the flags and variables that serve would get."
    printed = words.add_parser("print", help="print every setting, its value and where it came from", description=text)
    settings.add_arguments(printed)
    printed.set_defaults(run=_print)


def _print(given: argparse.Namespace) -> int:
    rows = ((one.name, one.value or None, one.origin) for one in settings.explain(given, os.environ))
    print_lines(table(("setting", "value", "from"), rows), sys.stdout)
    return 0
