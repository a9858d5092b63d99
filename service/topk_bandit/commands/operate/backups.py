"""All bandits and studies of a service in a folder, a file each, and a manifest that tells each file's size and digest.

The manifest is written last: a folder without one is no backup. Before anything is made of a file, it is held against
the manifest.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from topk_bandit.client import NotFound
from topk_bandit.commands.connection import NOBODY, connect
from topk_bandit.commands.names import bandit_named, study_named
from topk_bandit.commands.operate.archives import (
    BANDIT,
    STUDY,
    ArchiveFile,
    ArchiveKind,
    archive_lines,
    dry_run,
    dry_run_study,
    examine,
    save,
    send,
    study_lines,
)
from topk_bandit.commands.printing import progress
from topk_bandit.commands.whole_files import write_whole
from topk_bandit.domain.errors import (
    ConfigurationError,
    ConflictError,
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
)
from topk_bandit.domain.json_text import parse_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.progress import Progress

    from topk_bandit.client import Client

__all__ = ["backup", "restore"]

MANIFEST = "manifest.json"
SCHEMA = 1
_LONGEST_NAME = 255  # bytes; file systems take no longer ones
_READ_AT_ONCE = 1 << 20
_KIB = 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    """A bandit or a study of a backup, and its file."""

    kind: ArchiveKind
    name: str
    file: str
    bytes: int
    sha256: str
    log_position: int

    @property
    def tenant_and_id(self) -> tuple[str, str]:
        """Its tenant, and its id."""
        _, tenant, _, entry = self.name.split("/")
        return tenant, entry

    def __str__(self) -> str:
        return _short(self.kind, *self.tenant_and_id)


def _short(kind: ArchiveKind, tenant: str, entry: str) -> str:
    return f"{tenant}/{entry}" if kind is BANDIT else f"{kind.noun} {tenant}/{entry}"


_LISTS = {"bandits": BANDIT, "studies": STUDY}
"""The lists of a manifest."""


def backup(given: argparse.Namespace) -> Iterator[str]:
    """Write the bandits and studies of a service, or of a tenant, to a folder; yield a line for each.

    Raises
    ------
    ConfigurationError
        The folder is not empty, or can't be written.
    NotFoundError
        The tenant that is named has nothing.
    """
    folder, began, entries = given.folder, datetime.now(UTC), list[_Entry]()
    _make_empty(folder)
    found = _find_wanted(given)
    with progress() as bar:
        task = bar.add_task("bandits and studies", total=len(found))
        for kind, tenant, entry_id in found:
            with connect(given, tenant) as client:
                entry = _save(client, kind, tenant, entry_id, folder)
            bar.advance(task)
            if entry is None:
                yield f"{_short(kind, tenant, entry_id)}: was deleted meanwhile"
                continue
            entries.append(entry)
            yield f"{entry}: {entry.log_position} events, {entry.bytes / _KIB:.1f} KiB"
    _write_manifest(folder, entries, began=began)
    yield f"{_count_kinds(entries)} in {folder}"


def _find_wanted(given: argparse.Namespace) -> list[tuple[ArchiveKind, str, str]]:
    """Return the kind, the tenant and the id of each bandit and study that is to be written."""
    with connect(given, given.tenant or NOBODY) as client:
        bandits = client.list_bandit_overviews(every_tenant=given.tenant is None)
        found = [(BANDIT, one.tenant, one.bandit) for one in bandits]
        tenants = list(client.list_tenants()) if given.tenant is None else [given.tenant]
    for tenant in tenants:
        with connect(given, tenant) as client:
            found += [(STUDY, tenant, one.name) for one in client.list_studies()]
    if given.tenant is not None and not found:
        raise NotFoundError(f"a bandit or study of tenant {given.tenant}")  # its name may be misspelt, night for night
    return found


def _count_kinds(entries: Sequence[_Entry]) -> str:
    studies = sum(entry.kind is STUDY for entry in entries)
    count = len(entries) - studies
    bandits = f"{count} {'bandit' if count == 1 else 'bandits'}"
    return f"{bandits} and {studies} {'study' if studies == 1 else 'studies'}" if studies else bandits


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be used: {error.strerror}") from error
    if not is_empty:
        raise ConfigurationError(f"{folder} is not empty; a backup is written to a folder of its own")


def _save(client: Client, kind: ArchiveKind, tenant: str, entry_id: str, folder: Path) -> _Entry | None:
    """Write a file, None for what is gone; no id has a plus sign."""
    mark, lines = ("+", archive_lines) if kind is BANDIT else ("++", study_lines)
    path = folder / f"{tenant}{mark}{entry_id}.jsonl"
    try:
        save(lambda: lines(client, entry_id), path)
    except NotFound:
        path.unlink(missing_ok=True)
        return None
    archive = examine(path, kind)
    return _Entry(kind, archive.name, path.name, path.stat().st_size, _digest(path), archive.position)


def _digest(path: Path) -> str:
    digest = sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                digest.update(part)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    return digest.hexdigest()


def _write_manifest(folder: Path, entries: Sequence[_Entry], *, began: datetime) -> None:
    times = {"began": began.isoformat(timespec="seconds"), "ended": datetime.now(UTC).isoformat(timespec="seconds")}
    lists = {name: [_describe_entry(entry) for entry in entries if entry.kind is kind] for name, kind in _LISTS.items()}
    manifest = {"v": SCHEMA, **times, **lists}
    with write_whole(folder / MANIFEST) as draft, draft.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)


def _describe_entry(entry: _Entry) -> dict[str, object]:
    figures = ("file", "bytes", "sha256", "log_position")
    return {entry.kind.noun: entry.name, **{name: getattr(entry, name) for name in figures}}


def restore(given: argparse.Namespace) -> Iterator[str]:
    """Make the bandits and the studies of a backup, but for those whose file is bad; yield a line for each.

    A file is bad if it is missing or unreadable, is not the one that was written, or has a line that no service takes.
    What there is in the place of such a bandit or study stays as it is.

    Raises
    ------
    ConfigurationError
        The folder has no manifest.
    CorruptDataError
        The manifest is none, or some files are bad; the message names each. The others are restored.
    ConflictError
        BANDIT_ARRIVED, STUDY_ARRIVED: some exist, and none is made.
    """
    entries, problems = _read_manifest(given.folder), list[str]()
    existing = [entry for entry in entries if _exists(given, entry)]
    if existing and given.existing == "refuse":
        names = ", ".join(sorted(entry.name for entry in existing))
        reason = f"{existing[0].kind.noun.upper()}_ARRIVED"
        raise ConflictError(reason, f"exist already: {names}; see --existing. Nothing was restored")
    with progress() as bar:
        for entry in entries:
            if entry in existing and given.existing == "skip":
                yield f"{entry}: exists, left as it is"
                continue
            try:
                archive = _check(given.folder, entry, takes_all=entry in existing)
                yield _restore_entry(given, entry, archive, bar, replaces=entry in existing)
            except (ConfigurationError, CorruptDataError, InvalidArgumentError) as error:
                problems.append(str(error))
                yield f"{entry}: not restored, since its file is bad"
    if problems:
        count = f"{len(problems)} of {_count_kinds(entries)} of {given.folder} not restored"
        raise CorruptDataError("\n".join([*problems, count]))
    yield f"{_count_kinds(entries)} of {given.folder}"


def _restore_entry(
    given: argparse.Namespace, entry: _Entry, archive: ArchiveFile, bar: Progress, *, replaces: bool
) -> str:
    tenant, entry_id = entry.tenant_and_id
    task = bar.add_task(str(entry), total=archive.lines)
    with connect(given, tenant) as client:
        delete, bring = (
            (client.delete_bandit, client.import_events)
            if entry.kind is BANDIT
            else (client.delete_study, client.import_study)
        )
        if replaces:
            delete(entry_id)
        try:
            position = send(bring, entry_id, archive, on_progress=lambda lines: bar.update(task, completed=lines))
        finally:
            bar.remove_task(task)
    return f"{entry}: {position} events{', in place of what there was' if replaces else ''}"


def _exists(given: argparse.Namespace, entry: _Entry) -> bool:
    tenant, entry_id = entry.tenant_and_id
    with connect(given, tenant) as client:
        try:
            if entry.kind is BANDIT:
                client.get_bandit(entry_id)
            else:
                client.get_study(entry_id)
        except NotFound:
            return False
    return True


def _read_manifest(folder: Path) -> Sequence[_Entry]:
    path = folder / MANIFEST
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"))
        entries = list(_read_entries(manifest))
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read, so this is no backup: {error.strerror}") from error
    except ValueError as error:
        raise CorruptDataError(f"{path}: is no manifest of a backup: {error}") from error
    return entries


def _read_entries(manifest: object) -> Iterator[_Entry]:
    """Yield the entries of a manifest; `ValueError` says what is wrong with it."""
    if not isinstance(manifest, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - it is the file's fault
    if manifest.get("v") != SCHEMA or isinstance(manifest["v"], bool):
        raise ValueError(f"v can't be {manifest.get('v')!r:.60}, but {SCHEMA}")
    seen = set[tuple[ArchiveKind, str]]()
    for name, kind in _LISTS.items():
        if not isinstance(entries := manifest.get(name), list):
            raise ValueError(f"{name} is no list")  # noqa: TRY004
        for index, fields in enumerate(entries):
            entry = _read_entry(kind, fields, where=f"{name}[{index}]")
            if (kind, entry.name) in seen:
                raise ValueError(f"{name}[{index}]: {entry.name} is there twice")
            seen.add((kind, entry.name))
            yield entry


def _read_entry(kind: ArchiveKind, fields: object, *, where: str) -> _Entry:
    kinds = {kind.noun: str, "file": str, "bytes": int, "sha256": str, "log_position": int}
    if not isinstance(fields, dict):
        raise ValueError(f"{where} is no JSON object")  # noqa: TRY004
    for name, wanted in kinds.items():
        value = fields.get(name)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ValueError(f"{where}.{name} can't be {value!r:.60}")  # noqa: TRY004
    parse = bandit_named if kind is BANDIT else study_named
    try:
        name = str(parse(fields[kind.noun]))
    except InvalidArgumentError as error:
        raise ValueError(f"{where}.{error}") from None
    file = fields["file"]
    if "/" in file or len(os.fsencode(file)) > _LONGEST_NAME or "\0" in file:
        raise ValueError(f"{where}.file can't be {file!r:.60}: it is the name of a file in the folder")
    return _Entry(kind, name, file, fields["bytes"], fields["sha256"].lower(), fields["log_position"])


def _check(folder: Path, entry: _Entry, *, takes_all: bool) -> ArchiveFile:
    """Return the file of an entry, once it is seen to be whole; `takes_all` has each line taken in memory, too."""
    path = folder / entry.file
    if not path.is_file():
        raise CorruptDataError(f"{path}: is missing")
    if (size := path.stat().st_size) != entry.bytes:
        raise CorruptDataError(f"{path}: has {size} bytes, and had {entry.bytes} when it was written")
    if _digest(path) != entry.sha256:
        raise CorruptDataError(f"{path}: is not what was written: its SHA-256 differs from the manifest's")
    archive = examine(path, entry.kind)
    if archive.name != entry.name:
        raise CorruptDataError(f"{path}: its first line names {archive.name}, and the manifest {entry.name}")
    if takes_all:
        take_all = dry_run if entry.kind is BANDIT else dry_run_study
        take_all(archive)
    return archive
