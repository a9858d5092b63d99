"""Challengers learn from the log of a bandit that runs, and the one that earns most may give it its settings."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.commands.connection import connect
from topk_bandit.commands.log.challengers import play_challengers, settings_under, title_of
from topk_bandit.commands.log.command import limits_of
from topk_bandit.commands.log.comparisons import compare_challengers
from topk_bandit.commands.log.dumps import Dump
from topk_bandit.commands.log.slates import read_slates
from topk_bandit.commands.log.values import describe_requests
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.live_logs import find_log, read_log
from topk_bandit.commands.printing import print_lines
from topk_bandit.domain.errors import InvalidArgumentError, NotReadyError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeAlias

    from topk_bandit.client import Client
    from topk_bandit.commands.log.comparisons import Comparison
    from topk_bandit.commands.operate.live_logs import LiveLog
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.learning.limits import Limits

    _Under: TypeAlias = Mapping[str, Mapping[str, Any]]  # settings of challengers, by their flags

__all__ = ["play"]

_GROWTH = 1.25
_PAUSE_SECONDS = 10.0

_ERROR = 0.05
"""The chance that an interval of any look misses."""


class _Look(NamedTuple):
    """How challengers compare by the log as it is, or why they can't be compared; what is said of the log before."""

    log: LiveLog
    said: tuple[str, ...]
    is_flawed: bool
    compared: Comparison | str


def play(given: argparse.Namespace) -> int:
    """Print how challengers compare, at each look, and promote the best one also when nobody reads on; return 0."""
    name, under = bandit_named(given.bandit), settings_under(given.challengers)
    with connect(given, name.tenant) as client:
        if given.promote:
            _check_may_change(client, name)
        looks = _follow(client, name, under, limits=limits_of(given), again=given.follow)
        lines = _tell(looks, client, name, under if given.promote else {})
        if not print_lines(lines, sys.stdout, at_once=True) and given.promote:
            for _ in lines:
                pass
    return 0


def _check_may_change(client: Client, name: BanditName) -> None:
    """Raise the error now that a promotion would raise at the end: a change to what is set already changes nothing."""
    client.update_bandit(name.bandit, near_share=client.get_bandit(name.bandit).near_share)


def _tell(looks: Iterator[_Look], client: Client, name: BanditName, promoted: _Under) -> Iterator[str]:
    """Yield the lines of each look, and give the bandit the settings of the best challenger, if it may have them."""
    by_title = {title_of(flags): flags for flags in promoted}
    for number, look in enumerate(looks):
        yield from ([""] if number else [])
        yield from look.said
        if isinstance(look.compared, str):
            yield f"nothing can be compared yet: {look.compared}"
            continue
        yield from look.compared.lines()
        flags = by_title.get(look.compared.best or "")
        if flags is not None and look.is_flawed:
            raise NotReadyError("LOG_FLAWED", "nothing is promoted: see the warnings")
        if promoted and look.is_flawed:
            yield "  nothing can be promoted as long as there are warnings"
        if flags is not None:
            client.update_bandit(name.bandit, **promoted[flags])
            yield f"promoted: {name.tenant}/{name.bandit} has {flags}"


def _follow(client: Client, name: BanditName, under: _Under, *, limits: Limits, again: bool) -> Iterator[_Look]:
    """Yield how challengers compare by now, and as the log grows, until that is decided.

    The i-th look misses with a chance of 1 / (i (i + 1)) of all; these add up to one.
    """
    number = 1
    while True:
        look = _look(client, name, under, limits=limits)
        if isinstance(look.compared, str):
            if not again:
                raise NotReadyError("NOTHING_COMPARED", f"nothing can be compared: {look.compared}")
            yield look
        else:
            compared = look.compared.with_error(_ERROR / (number * (number + 1)) if again else _ERROR)
            yield look._replace(compared=compared)
            number += 1
            if not again or compared.is_decided:
                return
        _await_growth(client, look.log)


def _await_growth(client: Client, log: LiveLog) -> None:
    while (now := find_log(client, log.name)).end < _GROWTH * log.end and now.incarnation == log.incarnation:
        time.sleep(_PAUSE_SECONDS)
    if now.incarnation != log.incarnation:
        raise NotReadyError("BANDIT_REPLACED", f"{log.name} was deleted and made again")


def _look(client: Client, name: BanditName, under: _Under, *, limits: Limits) -> _Look:
    log = find_log(client, name)
    dump = Dump(str(name), log.incarnation, None, tuple(event for _, event in read_log(client, log)))
    played = play_challengers(dump, under, limits=limits)
    try:
        logged = read_slates(dump, of_newest_policy=True)
    except InvalidArgumentError as error:
        return _Look(log, (), is_flawed=False, compared=error.problem)
    compared = compare_challengers(logged, played)
    return _Look(log, tuple(describe_requests(logged)), is_flawed=bool(logged.flaws), compared=compared)
