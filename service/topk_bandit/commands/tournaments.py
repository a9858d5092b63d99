"""Challengers learn from the log of a bandit that runs, and the one that earns most may give it its settings."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import connect
from topk_bandit.commands.log.challengers import play_challengers, settings_under, title_of
from topk_bandit.commands.log.command import limits_of
from topk_bandit.commands.log.comparisons import compare_challengers
from topk_bandit.commands.log.dumps import Dump
from topk_bandit.commands.log.slates import read_slates
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.live_logs import find_log, newest_of, read_log
from topk_bandit.commands.printing import print_lines
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeAlias

    from topk_bandit.client import Client
    from topk_bandit.commands.log.comparisons import Comparison
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.learning.limits import Limits

    _Under: TypeAlias = Mapping[str, Mapping[str, Any]]  # settings of challengers, by their flags

__all__ = ["play"]

_GROWTH = 1.25
_PAUSE_SECONDS = 10.0

_ERROR = 0.05
"""The chance that an interval of any look misses."""


def play(given: argparse.Namespace) -> int:
    """Print how challengers compare, at each look; return 0."""
    name, under = bandit_named(given.bandit), settings_under(given.challengers)
    with connect(given, name.tenant) as client:
        looks = _follow(client, name, under, limits=limits_of(given), again=given.follow)
        print_lines(_tell(looks, client, name, under if given.promote else {}), sys.stdout, at_once=True)
    return 0


def _tell(looks: Iterator[Comparison | None], client: Client, name: BanditName, promoted: _Under) -> Iterator[str]:
    """Yield the lines of each look, and give the bandit the settings of the best challenger, if it may have them."""
    by_title = {title_of(flags): flags for flags in promoted}
    for number, look in enumerate(looks):
        yield from ([""] if number else [])
        if look is None:
            yield "no request can be compared yet"
            continue
        yield from look.lines()
        if look.best in by_title:
            flags = by_title[look.best]
            client.update_bandit(name.bandit, **promoted[flags])
            yield f"promoted: {name.tenant}/{name.bandit} has {flags}"


def _follow(
    client: Client, name: BanditName, under: _Under, *, limits: Limits, again: bool
) -> Iterator[Comparison | None]:
    """Yield how challengers compare by now, and as the log grows, until one of them earns most.

    The i-th look misses with a chance of 1 / (i (i + 1)) of all; these add up to one.
    """
    number = 1
    while True:
        end = newest_of(client, name)
        try:
            compared = _compare(client, name, under, limits=limits)
        except InvalidArgumentError:
            if not again:
                raise
            yield None
        else:
            yield (compared := compared.with_error(_ERROR / (number * (number + 1)) if again else _ERROR))
            number += 1
            if not again or compared.best is not None:
                return
        while newest_of(client, name) < _GROWTH * end:
            time.sleep(_PAUSE_SECONDS)


def _compare(client: Client, name: BanditName, under: _Under, *, limits: Limits) -> Comparison:
    log = find_log(client, name)
    dump = Dump(str(name), log.incarnation, None, tuple(event for _, event in read_log(client, log)))
    asked = read_slates(dump)
    played = play_challengers(dump, under, limits=limits)
    compared = compare_challengers(asked, [one.policy(asked.asked) for one in played])
    if compared is None:
        problem = "no request has a reward, a uniform share above 0, no rules, and an answer of each challenger"
        raise InvalidArgumentError("--under", f"of the {log.end} events of {name} {problem}")
    return compared
