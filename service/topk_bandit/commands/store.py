"""The command that examines and repairs the embedded store's log, while no service has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.printing import print_lines
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse

    from topk_bandit.store.log_repair import LogReport

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Examine the log of an embedded store whose service does not start since the log is damaged, and repair it.

  topk-bandit store repair --data-dir DIR         show where it is damaged, and change nothing
  topk-bandit store repair --data-dir DIR --yes   keep a copy of it, and cut off what comes after that

What is cut off is lost, acknowledged or not: a backup has it, if there is one.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's words, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    text = "Show where the log of an embedded store is damaged, and with --yes cut off what comes after that."
    repair = words.add_parser("repair", help="find where the log is damaged, and cut it there", description=text)
    repair.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="the store's folder")
    repair.add_argument("--yes", action="store_true", help="do it; without it nothing is changed")
    repair.set_defaults(run=_repair)


def _repair(given: argparse.Namespace) -> int:
    from topk_bandit.store.log_repair import examine_log, repair_log  # noqa: PLC0415 - other commands need not wait

    report, copied = repair_log(given.data_dir) if given.yes else (examine_log(given.data_dir), None)
    cut = f"cut off {report.n_bytes - report.good_bytes} bytes; the log as it was is in {copied}"
    print_lines([_describe_log(report), *([cut] if copied else [])], sys.stdout)
    if not (given.yes or report.is_good):
        raise InvalidArgumentError("--yes", "nothing was changed; what comes after that is lost then")
    return 0


def _describe_log(report: LogReport) -> str:
    if report.is_good:
        return f"{report.file}: {report.n_bytes} bytes, all of them good"
    return f"{report.file}: the first {report.good_bytes} of {report.n_bytes} bytes are good"
