"""The command `topk-bandit challenge`: its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.commands.connection import add_connection
from topk_bandit.commands.log.arguments import add_challengers
from topk_bandit.commands.names import add_bandit
from topk_bandit.process import settings

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Ask which settings would earn most. Up to four challengers, the bandit under other settings, learn from its log and
choose for each of its requests. What they would have earned is estimated beside what was earned (docs/off-policy.md).

  topk-bandit challenge shop/home --under '--half-life 604800' --under '--near-share 0'
  topk-bandit challenge shop/home --under '--near-share 0' --follow --promote

With --follow they go on learning: the log is looked at again whenever it has grown by a quarter, until one of them
earns most, or what was shown does. Intervals widen from look to look, so that all of them hold together in 95 %. With
--promote the bandit gets the settings of the one that earns most; what it learned stays. Where the log has flaws none
is promoted, and one that earns most is an error. Slates of before the last change of the policy are left out.

The log is read from event 1 on: where the service trims it, it needs a cold log (serve --cold-log-dir). A key needs the
scope operate, and manage for --promote.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its work."""
    add_bandit(parser)
    add_challengers(parser, required=True)
    parser.add_argument("--follow", action="store_true", help="look again as the log grows, until one earns most")
    parser.add_argument("--promote", action="store_true", help="give the bandit the settings of the one that does")
    settings.add_arguments(parser, names=("bandit_memory_mib",))
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    from topk_bandit.commands.tournaments import play  # noqa: PLC0415 - other commands need not wait for it

    return play(given)
