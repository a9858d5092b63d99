"""What the commands do that ask a service."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from topk_bandit.client import ClientError
from topk_bandit.commands.operate.connection import connect, part_name
from topk_bandit.commands.operate.explanation import tell
from topk_bandit.commands.printing import print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["run"]


def run(given: argparse.Namespace) -> int:
    """Ask, and print what is answered; return 0, or 1 with one line that says why not."""
    try:
        print_lines(_WORDS[given.word](given), sys.stdout)
    except ClientError as error:
        print(f"topk-bandit: {error}", file=sys.stderr)  # noqa: T201 - what a person at a terminal reads
        return 1
    return 0


def _explain(given: argparse.Namespace) -> Iterable[str]:
    tenant, bandit = part_name(given.bandit)
    with connect(given, tenant) as client:
        return list(tell(client.explain(bandit, given.recommendation)))


_WORDS: Mapping[str, Callable[[argparse.Namespace], Iterable[str]]] = {"explain": _explain}
