"""All bandits of a service in a folder, a file each, and a manifest that tells each file's size and digest.

The manifest is written last: a folder without one is no backup. Before anything is made of a backup, each of its files
is held against the manifest.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topk_bandit.client import NotFound
from topk_bandit.commands.connection import NOBODY, connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.archives import examine, rehearse, save, send
from topk_bandit.domain.errors import ConfigurationError, ConflictError, CorruptDataError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from topk_bandit.client import Client

__all__ = ["backup", "progress", "restore"]

MANIFEST = "manifest.json"
SCHEMA = 1
_READ_AT_ONCE = 1 << 20
_KIB = 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    """A bandit of a backup, and its file."""

    bandit: str
    file: str
    bytes: int
    sha256: str
    log_position: int


def progress() -> Progress:
    """Return bars on the screen, if standard error is one."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(file=sys.stderr)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def backup(given: argparse.Namespace) -> Iterator[str]:
    """Write the bandits of a service, or of a tenant, to a folder; yield a line for each.

    Raises
    ------
    ConfigurationError
        The folder is not empty, or can't be written.
    """
    folder, began, entries = given.folder, datetime.now(UTC), list[_Entry]()
    _make_empty(folder)
    with connect(given, given.tenant or NOBODY) as client:
        found = [(one.tenant, one.bandit) for one in client.list_bandit_overviews(every_tenant=given.tenant is None)]
    with progress() as bar:
        task = bar.add_task("bandits", total=len(found))
        for tenant, bandit in found:
            with connect(given, tenant) as client:
                entry = _save(client, tenant, bandit, folder)
            bar.advance(task)
            if entry is None:
                yield f"{tenant}/{bandit}: was deleted meanwhile"
                continue
            entries.append(entry)
            yield f"{tenant}/{bandit}: {entry.log_position} events, {entry.bytes / _KIB:.1f} KiB"
    _write_manifest(folder, entries, began=began)
    yield f"{len(entries)} bandits in {folder}"


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be used: {error.strerror}") from error
    if not is_empty:
        raise ConfigurationError(f"{folder} is not empty; a backup is written to a folder of its own")


def _save(client: Client, tenant: str, bandit: str, folder: Path) -> _Entry | None:
    """Write a bandit's file, None for one that is gone; no id has a plus sign."""
    path = folder / f"{tenant}+{bandit}.jsonl"
    try:
        save(client, bandit, path)
    except NotFound:
        path.unlink(missing_ok=True)
        return None
    archive = examine(path)
    return _Entry(archive.name, path.name, path.stat().st_size, _digest(path), archive.position)


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_AT_ONCE):
            digest.update(part)
    return digest.hexdigest()


def _write_manifest(folder: Path, entries: Sequence[_Entry], *, began: datetime) -> None:
    times = {"began": began.isoformat(timespec="seconds"), "ended": datetime.now(UTC).isoformat(timespec="seconds")}
    told = {"v": SCHEMA, **times, "bandits": [asdict(entry) for entry in entries]}
    written = folder / f"{MANIFEST}.new"
    try:
        with written.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        written.rename(folder / MANIFEST)
    except OSError as error:
        raise ConfigurationError(f"{written} can't be written: {error.strerror}") from error


def restore(given: argparse.Namespace) -> Iterator[str]:
    """Make the bandits of a backup, once all of its files are seen to be whole; yield a line for each.

    Raises
    ------
    ConfigurationError
        The folder has no manifest.
    CorruptDataError
        A file is missing, or is not the one that was written; the message names it.
    ConflictError
        BANDIT_ARRIVED: bandits exist, and none is made.
    """
    entries = _read_manifest(given.folder)
    for entry in entries:
        _check(given.folder, entry)
    existing = {entry.bandit for entry in entries if _exists(given, entry)}
    if existing and given.existing == "refuse":
        told = ", ".join(sorted(existing))
        raise ConflictError("BANDIT_ARRIVED", f"exist already: {told}; see --existing. Nothing was restored")
    if existing and given.existing == "replace":
        for entry in entries:
            rehearse(examine(given.folder / entry.file))
    with progress() as bar:
        for entry in entries:
            if entry.bandit in existing and given.existing == "skip":
                yield f"{_short(entry)}: exists, left as it is"
                continue
            yield _restored(given, entry, bar, replaces=entry.bandit in existing)
    yield f"{len(entries)} bandits of {given.folder}"


def _restored(given: argparse.Namespace, entry: _Entry, bar: Progress, *, replaces: bool) -> str:
    name, archive = bandit_named(entry.bandit), examine(given.folder / entry.file)
    task = bar.add_task(_short(entry), total=archive.lines)
    with connect(given, name.tenant) as client:
        if replaces:
            client.delete_bandit(name.bandit)
        position = send(client, name.bandit, archive, told=lambda lines: bar.update(task, completed=lines))
    bar.remove_task(task)
    return f"{_short(entry)}: {position} events{', in place of what there was' if replaces else ''}"


def _exists(given: argparse.Namespace, entry: _Entry) -> bool:
    name = bandit_named(entry.bandit)
    with connect(given, name.tenant) as client:
        try:
            client.get_bandit(name.bandit)
        except NotFound:
            return False
    return True


def _short(entry: _Entry) -> str:
    name = bandit_named(entry.bandit)
    return f"{name.tenant}/{name.bandit}"


def _read_manifest(folder: Path) -> Sequence[_Entry]:
    path = folder / MANIFEST
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["v"] != SCHEMA:
            raise CorruptDataError(f"{path}: has the unknown schema {told['v']}")
        return [_Entry(**entry) for entry in told["bandits"]]
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read, so this is no backup: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptDataError(f"{path}: is no manifest of a backup: {error}") from error


def _check(folder: Path, entry: _Entry) -> None:
    path = folder / entry.file
    if "/" in entry.file or not path.is_file():
        raise CorruptDataError(f"{path}: is missing")
    if (size := path.stat().st_size) != entry.bytes:
        raise CorruptDataError(f"{path}: has {size} bytes, and had {entry.bytes} when it was written")
    if _digest(path) != entry.sha256:
        raise CorruptDataError(f"{path}: is not what was written: its SHA-256 differs from the manifest's")
