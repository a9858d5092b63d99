"""The flags of `topk-bandit import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import add_connection
from topk_bandit.commands.names import add_bandit
from topk_bandit.tables.files import DECISION_LOG, OBP

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments", "add_check", "add_columns"]

DESCRIPTION = """\
Teach a bandit of a running service from slates that were shown elsewhere: one row each, in JSON Lines, CSV or Parquet.

  topk-bandit import shop/home last-year.jsonl
  topk-bandit import shop/home last-year.csv --column reward=margin --column country=ship_to --skip-bad-rows

item_1, item_2, ...     the items that were shown, best first; or items, a list
reward                  what the slate earned
item_value_1, ...       what each of the items did, in the same order; or item_values, an object by their ids; optional
time                    when it was shown; optional
propensity              the probability with which it was shown; optional
context_1, ...          the context; or context, a list: for a bandit without a context schema
NAME, or features.NAME  the feature NAME of the bandit's context schema; or features, an object

A time is one of ISO 8601 (of UTC if it has no zone), or seconds or milliseconds since 1970, between 2000 and 2100. With
--spreadsheet-dates numbers are days, as a spreadsheet has them.

With --format vw-dsjson the file is a decision log of VW: a contextual bandit's, CCB's or slates'. Its rewards are the
costs with the other sign, and in CCB so are the values of the items; --column item=TAction.topic says where actions
have their id (without it: _tag).

With --format obp each row is a position that was shown, as in the Open Bandit Dataset (item_id, click,
propensity_score) or in tables of its pipeline (action, reward, pscore, and slate_id and position for slates).

In CSV the parts of a list are separated by |, or it is a list of JSON. Other columns are passed over and named; one
whose name is nearly that of a missing one is an error. All rows are imported or none. --check shows what is understood
and sends nothing; its status is that of the import. The same file again changes nothing, and an import that was
interrupted goes on where it stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser, with a `run` that returns an exit status."""
    add_bandit(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="ends in .jsonl, .csv, .tsv or .parquet")
    formats = "a decision log of VW, or logged feedback of the Open Bandit Pipeline (default: what the ending says)"
    parser.add_argument("--format", choices=[DECISION_LOG, OBP], help=formats)
    add_columns(parser)
    add_check(parser)
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="leave out rows that can't be taken, and count them"
    )
    parser.add_argument(
        "--import-id",
        metavar="ID",
        help="go on with this import, whose rows so far are passed over (default: one that the file's content gives)",
    )
    parser.add_argument(
        "--spreadsheet-dates", action="store_true", help="times that are numbers are days, as spreadsheets have them"
    )
    add_connection(parser)
    parser.set_defaults(run=_run_import)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what columns mean."""
    parser.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="the column of the file that has NAME; can be given again",
    )
    parser.add_argument(
        "--ignore",
        dest="ignored",
        action="append",
        default=[],
        metavar="COLUMN",
        help="pass over this column, whatever its name is like; can be given again",
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the flag of a dry run."""
    parser.add_argument("--check", action="store_true", help="show what is understood of the file, and send nothing")


def _run_import(given: argparse.Namespace) -> int:
    from topk_bandit.commands.imports import command  # noqa: PLC0415 - other commands need not wait for it

    return command.run(given)
