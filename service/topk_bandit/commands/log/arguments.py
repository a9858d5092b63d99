"""The words and flags of `topk-bandit log`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.names import add_bandit
from topk_bandit.commands.numbers import position
from topk_bandit.process import settings

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments", "add_challengers"]

DESCRIPTION = """\
Look at what a bandit has learned from. Nothing in the store is changed.

  topk-bandit log dump shop/home > home.jsonl    write its log down, one JSON event a line
  topk-bandit log replay home.jsonl --to 4711    fold it up to a position, and print what the model is
  topk-bandit log diff home.jsonl other.jsonl    the first event that differs, and what differs in the models
  topk-bandit log find shop/home --group-key v7  what a visitor was shown and did, also from the cold log
  topk-bandit log evaluate home.jsonl            what other policies would have earned on its requests
"""

_STORE = ("redis_url", "data_dir", "fsync", "key_prefix", "store_timeout_seconds")
_MODEL = ("bandit_memory_mib",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of `log` to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    dump = words.add_parser(
        "dump",
        help="write a log down",
        description="Write a log down, one JSON event a line, from the files of the cold log and the store: from event "
        "1 on, or from the oldest snapshot if older events are gone.",
    )
    add_bandit(dump)
    dump.add_argument("--out", type=Path, metavar="FILE", help="where to write (default: standard output)")
    settings.add_arguments(dump, names=(*_STORE, "cold_log_dir"))
    replay = words.add_parser(
        "replay", help="fold a log that was written down", description="Fold a log, and print what the model is."
    )
    replay.add_argument("log", type=Path, metavar="FILE", help="what `dump`, `events export` or `backup` wrote")
    diff = words.add_parser(
        "diff",
        help="show how two logs and their models differ",
        description="Show the first event that differs and what differs in the models; exit 1 if anything does.",
    )
    diff.add_argument("logs", type=Path, nargs=2, metavar="FILE", help="what `dump`, `events export` or `backup` wrote")
    evaluate = words.add_parser(
        "evaluate",
        help="print what other policies would have earned",
        description="Print what was earned, and what slates drawn uniformly and other policies would have earned on "
        "the same requests, each by five estimators with intervals of 95 % (docs/off-policy.md).",
    )
    evaluate.add_argument("log", type=Path, metavar="FILE", help="what `dump`, `events export` or `backup` wrote")
    evaluate.add_argument(
        "--slate",
        dest="slates",
        action="append",
        default=[],
        metavar="ITEM,ITEM,...",
        help="ids of a slate to show always, best first; can be given again for another one",
    )
    evaluate.add_argument(
        "--slates",
        dest="files",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a table with the slate of a policy to each recommendation: recommendation_id, item_1, item_2, ...",
    )
    evaluate.add_argument(
        "--function",
        dest="functions",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a Python function that gets a context and the ids of items, and returns the slate of a policy",
    )
    add_challengers(evaluate)
    evaluate.set_defaults(run=_run_command, word="evaluate")
    find = words.add_parser(
        "find",
        help="print the events of a recommendation or of a visitor",
        description="Print the events that have a name, oldest first, from the files of the cold log and the store.",
    )
    add_bandit(find)
    names = find.add_mutually_exclusive_group(required=True)
    names.add_argument("--recommendation-id", metavar="ID", help="what Recommend returned")
    names.add_argument("--request-id", metavar="ID", help="the id that the request had")
    names.add_argument("--group-key", metavar="KEY", help="the key that the request gave for its group")
    settings.add_arguments(find, names=(*_STORE, "cold_log_dir"))
    find.set_defaults(run=_run_command, word="find")
    for word, parsed in (("dump", dump), ("replay", replay), ("diff", diff)):
        parsed.add_argument("--to", dest="last", type=position, metavar="POSITION", help="last event (default: all)")
        parsed.set_defaults(run=_run_command, word=word)
    for parsed in (replay, diff, evaluate):
        settings.add_arguments(parsed, names=_MODEL)


def add_challengers(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the flag that names the settings of challengers."""
    parser.add_argument(
        "--under",
        dest="challengers",
        action="append",
        default=[],
        required=required,
        metavar="FLAGS",
        help="settings that change slates, with the flags of `bandits update`, such as '--half-life 86400': what the "
        "bandit would have shown under them, had it learned from the same slates; can be given up to four times",
    )


def _run_command(given: argparse.Namespace) -> int:
    from topk_bandit.commands.log import command  # noqa: PLC0415 - other commands need not wait for it

    run = {
        "dump": command.dump,
        "replay": command.replay,
        "diff": command.diff,
        "evaluate": command.evaluate,
        "find": command.find,
    }
    return run[given.word](given)
