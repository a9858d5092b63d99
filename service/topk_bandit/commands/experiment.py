"""The command `topk-bandit experiment`: its words are the laboratory's, and so is its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.optional import import_extra, missing

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments"]

_LAB = "topk_bandit.lab.experiments"

DESCRIPTION = missing(_LAB, "this command", extra="lab") or import_extra(f"{_LAB}.arguments", "").DESCRIPTION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its work; without the laboratory it takes any, and says what is missing."""
    if missing(_LAB, "", extra="lab"):
        parser.add_argument("experiment", nargs="*", metavar="NAME")
        parser.set_defaults(run=_refuse)
        return
    import_extra(f"{_LAB}.arguments", "").add_arguments(parser)
    parser.set_defaults(run=_run)


def _refuse(_given: argparse.Namespace) -> int:
    raise ConfigurationError(DESCRIPTION)


def _run(given: argparse.Namespace) -> int:
    # Each import waits for what it is needed for: --help for none of them, a wrong call for the first one only.
    from topk_bandit.lab.experiments.requirements import check  # noqa: PLC0415

    check(given)
    if given.experiment == "all":
        from topk_bandit.lab.experiments.everything import show  # noqa: PLC0415
    else:
        from topk_bandit.lab.experiments.command import show  # noqa: PLC0415
    return show(given)
