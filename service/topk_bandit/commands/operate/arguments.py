"""The words and flags of the commands that ask a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.commands.operate.connection import add_connection

if TYPE_CHECKING:
    import argparse

__all__ = ["add_commands"]

_BANDIT = "which one; tenants/TENANT/bandits/BANDIT is as good"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands, each with a `run` that returns an exit status."""
    explain = commands.add_parser(
        "explain",
        help="tell why a slate was shown",
        description="Tell why a slate was what it was: what each item and each pair added, and which slates came next.",
    )
    explain.add_argument("bandit", metavar="TENANT/BANDIT", help=_BANDIT)
    explain.add_argument("recommendation", metavar="ID", help="what Recommend returned")
    _finish(explain, "explain")


def _finish(parser: argparse.ArgumentParser, word: str) -> None:
    add_connection(parser)
    parser.set_defaults(run=_called, word=word)


def _called(given: argparse.Namespace) -> int:
    from topk_bandit.commands.operate import command  # noqa: PLC0415 - serve and --help need not wait for it

    return command.run(given)
