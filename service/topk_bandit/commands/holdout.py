"""`topk-bandit holdout`: how many days a control group needs to show what a bandit earns."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from topk_bandit.commands.numbers import real
from topk_bandit.commands.printing import print_lines
from topk_bandit.commands.tables import table
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.holdouts import POWER, count_requests

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Print how many days a control group needs to show what a bandit earns, for shares of the traffic and sizes of the lift.

  topk-bandit holdout --requests-per-day 20000 --mean 0.04
  topk-bandit holdout --requests-per-day 20000 --mean 2.10 --spread 11.5 --share 0.1,0.2 --lift 0.05,0.1

A share is the part of the requests in the control group, and a lift the part by which the bandit's group earns more per
request. The mean counts each request, also those that earn nothing. docs/holdout.md has more.
"""

_SHARES, _LIFTS = (0.05, 0.1, 0.2, 0.5), (0.01, 0.02, 0.05, 0.1, 0.2)
_MOST_DAYS = 3_650


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments and its work."""
    parser.add_argument(
        "--requests-per-day", type=real(1.0, 1e12), required=True, metavar="NUMBER", help="of both groups together"
    )
    parser.add_argument(
        "--mean", type=real(1e-12, 1e12), required=True, metavar="NUMBER", help="what a request earns today, on average"
    )
    parser.add_argument(
        "--spread",
        type=real(1e-12, 1e12),
        metavar="NUMBER",
        help="the standard deviation of what single requests earn (default: that of rewards of 0 and 1)",
    )
    text = "parts of the requests in the control group (default: %(default)s)"
    parser.add_argument("--share", type=_numbers(0.001, 0.999), default=_join(_SHARES), metavar="NUMBERS", help=text)
    text = "by which part the bandit's group earns more (default: %(default)s)"
    parser.add_argument("--lift", type=_numbers(1e-6, 1e6), default=_join(_LIFTS), metavar="NUMBERS", help=text)
    text = "of the interval that decides (default: 0.95)"
    parser.add_argument("--confidence", type=real(0.5, 0.9999), default=0.95, metavar="NUMBER", help=text)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    print_lines(_lines(given, _spread(given)), sys.stdout)
    return 0


def _lines(given: argparse.Namespace, spread: float) -> Iterator[str]:
    yield f"Days until the lift is decided in {POWER * 100:.0f} of 100 shops; in the others it takes longer."
    yield ""
    rows = [[_percent(lift), *(_days(given, spread, lift, share) for share in given.share)] for lift in given.lift]
    yield from table(["lift", *(f"control {_percent(share)}" for share in given.share)], rows)
    if any(None in row for row in rows):
        yield ""
        yield f"-  more than {_MOST_DAYS:,} days: take another share, or wait for a larger lift"


def _days(given: argparse.Namespace, spread: float, lift: float, share: float) -> int | None:
    requests = count_requests(lift, mean=given.mean, spread=spread, control_share=share, confidence=given.confidence)
    days = requests / given.requests_per_day
    return None if days > _MOST_DAYS else math.ceil(days)


def _spread(given: argparse.Namespace) -> float:
    """Return the standard deviation of a reward: as given, or that of rewards of 0 and 1."""
    if given.spread is not None:
        return float(given.spread)
    if given.mean >= 1.0:
        raise InvalidArgumentError("--spread", f"is needed, since rewards of 0 and 1 have no mean of {given.mean:g}")
    return math.sqrt(given.mean * (1.0 - given.mean))


def _percent(part: float) -> str:
    return f"{100.0 * part:g} %"


def _join(parts: tuple[float, ...]) -> str:
    return ",".join(map(str, parts))


def _numbers(least: float, most: float) -> Callable[[str], list[float]]:
    """Return what reads numbers between two others, with commas between them."""
    read = real(least, most)

    def parse(text: str) -> list[float]:
        return [read(one) for one in text.split(",")]

    return parse
