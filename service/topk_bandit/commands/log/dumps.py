"""A bandit's log as a file: a header, then one JSON event a line.

The first line is an object with the bandit's name, its incarnation and a snapshot, which is null where the log can be
read from event 1 on, in the store and in files of the cold log: else a replay begins with the snapshot. Every further
line has the position of an event, the store's clock when it was appended, and the event with the bytes of the store.

What `events export` and `backup` write of a bandit is read too (`topk_bandit.store.archives`).
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.commands.operate.archives import examine_lines
from topk_bandit.commands.operate.parquet import read_parquet
from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, InvalidArgumentError
from topk_bandit.domain.json_text import parse_json
from topk_bandit.store.archives import ArchivedBandit, SnapshotPart, read_line
from topk_bandit.store.codec import decode_event, decode_snapshot, encode_event
from topk_bandit.store.event_lines import event_line, head_line
from topk_bandit.store.events import LoggedEvent
from topk_bandit.store.log import Snapshot
from topk_bandit.tables.files import PARQUET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import UnionType

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store
    from topk_bandit.store.whole_logs import WholeLogs

__all__ = ["Dump", "lines", "parse_lines", "read_file", "read_parts"]

EVENTS_PER_READ = 1000

_EXPORT, _EVENT = (re.compile(rf'{{\s*"{start}') for start in (r'bandit"\s*:\s*{', 'position"'))
"""How the first line of an export begins, and a line of an event."""


@dataclass(frozen=True, slots=True)
class Dump:
    """A log, or part of it; `snapshot` stands for all that comes before the first event."""

    bandit: str
    incarnation: str
    snapshot: Snapshot | None
    events: tuple[LoggedEvent, ...]


async def read_parts(logs: WholeLogs, store: Store, name: BanditName, *, last: int | None) -> AsyncIterator[list[str]]:
    """Yield the lines of a file, some at a time, from where a replay can begin to `last`.

    That is event 1, or the oldest snapshot.

    Parameters
    ----------
    logs
        Reads the log of the store, and what files have of it.
    store
        Has the snapshots.

    Raises
    ------
    NotFoundError
        There is no such bandit.
    InvalidArgumentError
        No snapshot fits before `last`.
    CorruptDataError
        The log was trimmed or begun anew while it was read.
    """
    begin = await logs.read_texts(name, start=1, limit=0)
    end = begin.log_position if last is None else min(last, begin.log_position)
    snapshot = None
    if begin.first_position > 1:
        snapshot = await _oldest_snapshot(store, name, after=begin.first_position - 1, last=end)
    yield [head_line(str(name), begin.incarnation, snapshot)]
    start = 1 if snapshot is None else snapshot.position + 1
    while start <= end:
        part = await logs.read_texts(name, start=start, limit=min(EVENTS_PER_READ, end - start + 1))
        if not part.events or part.events[0].position != start or part.incarnation != begin.incarnation:
            raise CorruptDataError(f"{name}: the log was trimmed or begun anew while it was read; try again")
        yield [event_line(event.position, event.at_ms, event.text.decode()) for event in part.events]
        start += len(part.events)


async def _oldest_snapshot(store: Store, name: BanditName, *, after: int, last: int) -> Snapshot:
    """Return the oldest snapshot with which the events that are left can go on."""
    snapshots = [one for one in await store.load_snapshots(name) if after <= one.position <= last]
    if not snapshots:
        raise InvalidArgumentError(
            "--to", f"the log begins at {after + 1}, and no snapshot between there and {last} fits"
        )
    return snapshots[-1]


def lines(dump: Dump) -> Iterator[str]:
    """Yield the lines of a file, without their ends."""
    yield head_line(dump.bandit, dump.incarnation, dump.snapshot)
    for logged in dump.events:
        yield event_line(logged.position, logged.at_ms, encode_event(logged.event).decode())


def read_file(path: Path) -> Dump:
    """Return the log that a file holds: what `lines` yields, or a whole export.

    Raises
    ------
    ConfigurationError
        The file can't be read.
    CorruptDataError
        A line is none of these; the message names it.
    """
    if path.suffix.lower() == PARQUET:
        return _parse_export(list(read_parquet(path)), path)
    try:
        # Nothing else ends a line: texts of features may have what Python's `splitlines` takes for an end.
        return parse_lines(path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n"), path)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} can't be read: it is no text in UTF-8") from error


def parse_lines(texts: Iterable[str], path: Path) -> Dump:
    """Return the log that the lines of a file hold; the errors are those of `read_file`."""
    head, *rest = texts
    if _EXPORT.match(head):
        return _parse_export([head, *rest], path)
    if _EVENT.match(head):
        raise CorruptDataError(f"{path}, line 1: is an event: what comes before it is needed to fold a log")
    header = _parse_line(path, 1, head, {"bandit": str, "incarnation": str, "snapshot": dict | None})
    events = tuple(_event(path, number, line) for number, line in enumerate(rest, 2))
    return Dump(header["bandit"], header["incarnation"], _snapshot(path, header["snapshot"]), events)


def _parse_export(texts: Sequence[str], path: Path) -> Dump:
    """Return the log that the lines of an export hold: its events, and the snapshot that stands for those before."""
    parts, events, incarnation = list[bytes](), list[LoggedEvent](), ""
    exported = examine_lines(texts, path)
    for number, text in enumerate(texts, 1):
        try:
            line = read_line(text)
        except CorruptDataError as error:
            raise CorruptDataError(f"{path}, line {number}: {error}") from error
        match line:
            case ArchivedBandit():
                incarnation = line.incarnation
            case SnapshotPart(data):
                parts.append(data)
            case LoggedEvent():
                events.append(line)
    try:
        snapshot = decode_snapshot(b"".join(parts)) if parts else None
    except CorruptDataError as error:
        raise CorruptDataError(f"{path}: {error}") from error
    return Dump(exported.name, incarnation, snapshot, tuple(events))


def _snapshot(path: Path, packed: dict[str, Any] | None) -> Snapshot | None:
    if packed is None:
        return None
    try:
        fields = _check_fields(packed, {"position": int, "payload": str})
        return Snapshot(fields["position"], base64.b64decode(fields["payload"], validate=True))
    except ValueError as error:
        raise CorruptDataError(f"{path}, line 1: no snapshot: {error}") from error


def _event(path: Path, number: int, line: str) -> LoggedEvent:
    fields = _parse_line(path, number, line, {"position": int, "at_ms": int, "event": dict})
    try:
        event = decode_event(json.dumps(fields["event"], allow_nan=False).encode(), wholly=True)
    except ValueError:
        raise CorruptDataError(f"{path}, line {number}: no event: it has a number that no float can be") from None
    except CorruptDataError as error:
        raise CorruptDataError(f"{path}, line {number}: no event: {error}") from error
    return LoggedEvent(fields["position"], fields["at_ms"], event)


def _parse_line(path: Path, number: int, line: str, kinds: Mapping[str, type | UnionType]) -> dict[str, Any]:
    try:
        return _check_fields(parse_json(line), kinds)
    except ValueError as error:
        raise CorruptDataError(f"{path}, line {number}: {error}") from error


def _check_fields(document: object, kinds: Mapping[str, type | UnionType]) -> dict[str, Any]:
    """Return an object of JSON that has these fields, of these kinds, and no others; else raise ``ValueError``."""
    if not isinstance(document, dict) or document.keys() != kinds.keys():
        raise ValueError(f"is no JSON object with {', '.join(kinds)}, and nothing else")
    for name, kind in kinds.items():
        if not isinstance(document[name], kind) or isinstance(document[name], bool):
            raise ValueError(f"{name} can't be {document[name]!r:.60}")  # noqa: TRY004 - it is the file's fault
    return document
