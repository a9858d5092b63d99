"""What the commands do that ask a service."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.answers import ANSWERS, print_answer
from topk_bandit.commands.operate.archives import archive_lines, examine, save, send, write
from topk_bandit.commands.operate.backups import backup, restore
from topk_bandit.commands.operate.events import export_log, line, tail_log
from topk_bandit.commands.operate.forks import fork
from topk_bandit.commands.operate.item_loads import load_items
from topk_bandit.commands.operate.making import create_bandit, create_items, delete_items, update_bandit
from topk_bandit.commands.operate.report_pages import to_html
from topk_bandit.commands.operate.reports import find, make_report, to_markdown
from topk_bandit.commands.printing import in_utf8, print_lines, progress
from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping


__all__ = ["run"]


def run(given: argparse.Namespace) -> int:
    """Ask, and print what is answered; return 0."""
    if given.word in ANSWERS:
        print_answer(ANSWERS[given.word], given)
    else:
        file = in_utf8(sys.stdout) if given.word in _ARCHIVES else sys.stdout
        print_lines(_WORDS[given.word](given), file, at_once=given.word in _AT_ONCE)
    return 0


def _export_events(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        path = given.parquet or given.out
        if given.first is not None:
            lines = map(line, export_log(client, name.bandit, first=given.first))
            yield from lines if path is None else write(path, lines, as_parquet=path is given.parquet)
        elif path is None:
            yield from archive_lines(client, name.bandit)
        else:
            save(lambda: archive_lines(client, name.bandit), path, as_parquet=path is given.parquet)


def _report(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        report, title = make_report(find(client, name.bandit)), f"{name.tenant}/{name.bandit}"
    if given.html is None:
        return to_markdown(title, report)
    return write(given.html, to_html(title, report), as_parquet=False)


def _import_events(given: argparse.Namespace) -> Iterable[str]:
    archive = examine(given.file)
    name = bandit_named(given.bandit or archive.name)
    with connect(given, name.tenant) as client, progress() as bar:
        task = bar.add_task(f"{name.tenant}/{name.bandit}", total=archive.lines)
        position = send(
            client.import_events, name.bandit, archive, on_progress=lambda lines: bar.update(task, completed=lines)
        )
    return [f"imported {name.tenant}/{name.bandit}: {position} events"]


def _tail_events(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        yield from tail_log(client, name.bandit, first=given.first, count=given.count)


def _skip_event(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"event {given.position} of {given.bandit} is not learned then")
    with connect(given, name.tenant) as client:
        stands = client.skip_event(name.bandit, given.position, reason=given.reason)
    outcome = (
        f"passed over event {given.position}: learned up to {stands.model_version} of {stands.log_position} events"
    )
    return [f"{outcome}; {stands.problem}" if stands.problem else outcome]


def _delete_bandit(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"{given.bandit} and all that it learned is gone for good then")
    with connect(given, name.tenant) as client:
        client.delete_bandit(name.bandit)
    return [f"deleted {given.bandit}"]


def _reset_bandit(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"{given.bandit} forgets all that it learned from rewards then")
    with connect(given, name.tenant) as client:
        client.reset_bandit(name.bandit)
        forgotten = client.stats(name.bandit).forgotten_count
    return [f"reset {given.bandit}: {forgotten} rewards are forgotten"]


_ARCHIVES = frozenset({"events export", "events tail"})
"""Words whose lines are read again by a program."""

_AT_ONCE = frozenset({"backup", "events tail", "fork", "items load", "restore"})
"""Words whose lines are printed one after the other as they come."""


_WORDS: Mapping[str, Callable[[argparse.Namespace], Iterable[str]]] = {
    "bandits create": create_bandit,
    "bandits update": update_bandit,
    "bandits delete": _delete_bandit,
    "bandits report": _report,
    "bandits reset": _reset_bandit,
    "items create": create_items,
    "items delete": delete_items,
    "items load": load_items,
    "backup": backup,
    "events export": _export_events,
    "events import": _import_events,
    "events skip": _skip_event,
    "events tail": _tail_events,
    "fork": fork,
    "restore": restore,
}
