"""The words and flags of `topk-bandit study`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.domain.studies import AnswerKind

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Ask people a few well-chosen questions about your items, and learn from their answers what they prefer.

  topk-bandit study ask    --items items.csv --kind ranking --size 3 --count 20 --out study
  topk-bandit study learn  --items items.csv --kind ranking --answers answers.csv --out study
  topk-bandit study run    does both: learns from the answers, and says what to ask next

items.csv    item,feature,feature,...     one row an item; without features, each item is its own
queries.csv  query,feature,feature,...    optional: what the items are seen for, if tastes depend on it
answers.csv  one row an answer: the items, best first, after a query if there are queries;
             a choice has the chosen item first; ratings have the columns item and rating
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of `study` to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    for name, help_text in (
        ("run", "learn from the answers, and write what to ask next"),
        ("ask", "write which lists to ask people about"),
        ("learn", "learn utilities from answers"),
    ):
        word = words.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
        _add_common(word, answers=name != "ask", questions=name != "learn")
        word.set_defaults(run=_called, word=name)


def _add_common(parser: argparse.ArgumentParser, *, answers: bool, questions: bool) -> None:
    parser.add_argument("--items", type=Path, required=True, metavar="FILE", help="items and their features")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="queries and their features")
    parser.add_argument(
        "--kind",
        type=AnswerKind,
        choices=list(AnswerKind),
        default=AnswerKind.RANKING,
        metavar="KIND",
        help="what people say about a list: ranking (default), choice, pair or ratings",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write; made if need be")
    if answers:
        parser.add_argument("--answers", type=Path, required=True, metavar="FILE", help="what people answered")
    if questions:
        parser.add_argument(
            "--size", type=int, default=3, metavar="COUNT", help="items in a list (default: 3; a pair: 2)"
        )
        parser.add_argument("--count", type=int, default=20, metavar="COUNT", help="questions to write (default: 20)")
        parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="of the search's random starts")


def _called(given: argparse.Namespace) -> int:
    from topk_bandit.commands.study import command  # noqa: PLC0415 - other commands need not wait for it

    return {"run": command.run, "ask": command.ask, "learn": command.learn}[given.word](given)
