"""A bandit or a study as a file, and back: lines as `ImportEvents` and `ImportStudy` take them.

Lines are text; those of a bandit may be in a Parquet file too.

A file is read twice: once to see that it is whole, then to send it, from where an import of it stands.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.restores import Restores
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable
from topk_bandit.commands.names import bandit_named, study_named
from topk_bandit.commands.operate.events import export_log, line
from topk_bandit.commands.operate.parquet import read_parquet, write_parquet
from topk_bandit.commands.whole_files import write_whole
from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, InvalidArgumentError, UnavailableError
from topk_bandit.domain.quotas import Quotas
from topk_bandit.store.archive_lines import End, chain
from topk_bandit.store.archives import ArchivedBandit, read_line, write_line
from topk_bandit.store.line_imports import Lines
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.study_archives import ArchivedStudy, read_study_line
from topk_bandit.studies.restores import StudyRestores
from topk_bandit.tables.files import PARQUET, check_reads_twice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Protocol

    from topk_bandit.client import Client, ImportedLines

    class Bring(Protocol):
        """Sends lines; none ask how far an import is."""

        def __call__(self, name: str, /, lines: Iterable[str], *, import_id: str, first_line: int) -> ImportedLines:
            """Return how far the import is then."""


__all__ = [
    "BANDIT",
    "LINES_AT_ONCE",
    "STUDY",
    "ArchiveFile",
    "ArchiveKind",
    "archive_lines",
    "dry_run",
    "dry_run_study",
    "examine",
    "examine_lines",
    "save",
    "send",
    "send_lines",
    "study_lines",
    "write",
]

LINES_AT_ONCE = 100
BYTES_AT_ONCE = 1 << 18
_LINE = re.compile(r"lines\[([0-9]+)\](?:\.(.+))?")
"""A line of a part that was sent, and a field of it, as errors name them."""

ATTEMPTS = 5
"""How often a bandit is read anew because its log was trimmed meanwhile."""


@dataclass(frozen=True, slots=True)
class ArchiveKind:
    """What tells the file of a bandit from that of a study: its noun, its first line, and how lines are read."""

    noun: str
    head: type[ArchivedBandit | ArchivedStudy]
    read: Callable[[str], object]


BANDIT = ArchiveKind("bandit", ArchivedBandit, read_line)
STUDY = ArchiveKind("study", ArchivedStudy, read_study_line)


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file that is whole.

    Attributes
    ----------
    name
        Of the bandit or the study, as it was exported.
    lines, position
        How many lines it has, and the position of the last event.
    digest
        What the lines before the last one chain to, which tells the file from others.
    """

    path: Path
    name: str
    lines: int
    position: int
    digest: str


def archive_lines(client: Client, bandit: str) -> Iterator[str]:
    """Yield a bandit's lines up to the event that is the newest once what is beside the log is read."""
    digest, count, position, first = "", 0, 0, 1
    for text in client.export_state(bandit):
        held = read_line(text) if not count else None
        first = held.first_position if isinstance(held, ArchivedBandit) else first
        digest, count = chain(digest, text), count + 1
        yield text
    for event in export_log(client, bandit, first=first):
        text = line(event)
        digest, count, position = chain(digest, text), count + 1, event.position
        yield text
    yield write_line(End(position, count, digest))


def study_lines(client: Client, study: str) -> Iterator[str]:
    """Yield a study's lines up to the event that is the newest when the first one is read."""
    digest, count, position = "", 0, 0
    for text in client.export_study(study):
        held = read_study_line(text) if not count else None
        position = held.log_position if isinstance(held, ArchivedStudy) else position
        digest, count = chain(digest, text), count + 1
        yield text
    yield write_line(End(position, count, digest))


def save(lines: Callable[[], Iterable[str]], path: Path, *, as_parquet: bool = False) -> None:
    """Write the lines of a bandit or of a study to a file, anew if its log is trimmed or another one meanwhile.

    Raises
    ------
    ConfigurationError
        The file can't be written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write(path, lines(), as_parquet=as_parquet)
        except FailedPrecondition as error:
            if error.reason not in {"LOG_TRIMMED", "LOG_REPLACED", "STUDY_REPLACED"} or attempt == ATTEMPTS:
                raise
        else:
            return


def write(path: Path, lines: Iterable[str], *, as_parquet: bool) -> Iterator[str]:
    """Write lines to a file, and return none; what the file held stays where the lines can't be read or written.

    Raises
    ------
    ConfigurationError
        It can't be written.
    """
    with write_whole(path) as draft:
        if as_parquet:
            write_parquet(draft, lines)
        else:
            with draft.open("w", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in lines)
    return iter(())


def examine(path: Path, kind: ArchiveKind = BANDIT) -> ArchiveFile:
    """Return what a file is, once it is seen to be whole.

    Raises
    ------
    ConfigurationError
        It can't be read.
    CorruptDataError
        A line was changed or is missing, or the file is none of ours; the message names it.
    """
    return examine_lines(_read(path, _not_whole(kind)), path, kind)


def examine_lines(lines: Iterable[str], path: Path, kind: ArchiveKind = BANDIT) -> ArchiveFile:
    """Return what the lines of a file are, as `examine` does."""
    not_whole = _not_whole(kind)
    digest, count, first, last = "", 0, "", ""
    for text in lines:
        if count:
            digest = chain(digest, last)
        count, first, last = count + 1, first or text, text
    if change := _find_change(first, last):
        raise CorruptDataError(f"{path}: {change}: {not_whole}")
    try:
        head, end = kind.read(first), kind.read(last)
    except CorruptDataError as error:
        raise CorruptDataError(f"{path}: its first or last line {error}: {not_whole}") from None
    if not isinstance(head, kind.head) or not isinstance(end, End):
        raise CorruptDataError(f"{path}: has no first or no last line of a {kind.noun}: {not_whole}")
    if (end.lines, end.digest) != (count - 1, digest):
        raise CorruptDataError(f"{path}: a line was changed or is missing: {not_whole}")
    return ArchiveFile(path, head.name, count, end.position, digest)


def _not_whole(kind: ArchiveKind) -> str:
    return f"it is not a whole export of a {kind.noun}"


def dry_run(archive: ArchiveFile) -> None:
    """Import all lines of a file into memory, as a service does, and keep nothing of them.

    Raises
    ------
    CorruptDataError
        No service would take a line; the message names it.
    """

    async def take_all() -> None:
        name = bandit_named(archive.name)
        store = MemoryStore(clock_ms=lambda: 0)
        limits = MemoryBudget().limits()
        with ThreadPoolExecutor(1) as executor:
            restores = Restores(store, executor, limits=limits, quotas=TenantQuotas(store, Quotas({})))
            await _dry_run_import(archive, partial(restores.take, name))

    asyncio.run(take_all())


def dry_run_study(archive: ArchiveFile) -> None:
    """Import all lines of a study's file into memory, as `dry_run` does."""

    async def take_all() -> None:
        name = study_named(archive.name)
        with ThreadPoolExecutor(1) as executor:
            restores = StudyRestores(MemoryStudies(clock_ms=lambda: 0), executor, quotas=Quotas({}))
            await _dry_run_import(archive, partial(restores.take, name))

    asyncio.run(take_all())


async def _dry_run_import(archive: ArchiveFile, take: Callable[[Lines], Awaitable[object]]) -> None:
    left, first = _read(archive.path), 0
    while part := _part(left):
        try:
            await take(Lines(archive.digest, first, tuple(part)))
        except InvalidArgumentError as error:
            raise CorruptDataError(f"{_place(error.field, str(archive.path), first)}: {error.problem}") from None
        first += len(part)


def send(bring: Bring, name: str, archive: ArchiveFile, *, on_progress: Callable[[int], object]) -> int:
    """Import a file that is whole, from where its import stands; return the newest position of what it made.

    Parameters
    ----------
    bring
        What sends lines: `Client.import_events`, or `Client.import_study`.
    on_progress
        Receives the number of lines that have arrived, again and again.

    Raises
    ------
    InvalidArgumentError
        The service does not take a line; the message names it.
    UnavailableError
        The service was there and is not any more, for as long as a call may take; the message says how many lines it
        has acknowledged, and those of the call that got no answer may have arrived too.
    """
    lines = _read(archive.path)
    return send_lines(
        bring,
        name,
        lines,
        import_id=archive.digest,
        source=str(archive.path),
        arrived=f"of {archive.lines} lines of {archive.path}",
        on_progress=on_progress,
    )


def send_lines(
    bring: Bring,
    name: str,
    lines: Iterator[str],
    *,
    import_id: str,
    source: str,
    arrived: str,
    on_progress: Callable[[int], object],
) -> int:
    """Import lines from where their import stands, as `send` does.

    Errors name them by `source`, and those that have come by `arrived`.
    """
    begun = bring(name, (), import_id=import_id, first_line=0)
    if begun.log_position:
        return begun.log_position
    on_progress(begun.next_line)
    left = islice(lines, begun.next_line, None)
    first, position = begun.next_line, 0
    while part := _part(left):
        try:
            took = bring(name, part, import_id=import_id, first_line=first)
        except InvalidArgument as error:
            raise _locate_error(error, source, first) from None
        except (Unavailable, DeadlineExceeded) as error:
            progress = f"at least {first} {arrived} have arrived"
            raise UnavailableError(f"{error}; {progress}; begun again, the import goes on with the rest") from None
        first, position = first + len(part), took.log_position
        on_progress(first)
    return position


def _part(left: Iterator[str]) -> list[str]:
    """Return the next lines that go in a call."""
    part: list[str] = []
    size = 0
    for text in left:
        part.append(text)
        size += len(text)
        if len(part) == LINES_AT_ONCE or size >= BYTES_AT_ONCE:
            break
    return part


def _locate_error(error: InvalidArgument, source: str, first: int) -> Exception:
    """Return the error with the line that it is about."""
    if _LINE.fullmatch(error.field) is None:
        return error
    return InvalidArgumentError(_place(error.field, source, first), error.problem)


def _place(field: str, source: str, first: int) -> str:
    """Return where the line is that an error of a part is about, as ``lines[n]``, and the field in it, if any."""
    found = _LINE.fullmatch(field)
    if found is None:
        return f"{source}, {field}"
    return f"{source}, line {first + int(found[1]) + 1}" + (f", {found[2]}" if found[2] else "")


def _read(path: Path, not_whole: str = "it is no export") -> Iterator[str]:
    check_reads_twice(path)
    if path.suffix.lower() == PARQUET:
        yield from read_parquet(path)
        return
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for text in file:
                yield text.removesuffix("\n")
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path}: is no text in UTF-8: {not_whole}") from error


def _find_change(first: str, last: str) -> str:
    """Return what a program changed that wrote the file again; empty if nothing of it is seen in these lines."""
    if not first and not last:
        return "is empty"
    if first.startswith("\ufeff"):
        return "begins with a byte order mark, which an export has not"
    if first.endswith("\r"):
        return "its lines end in CR LF, and those of an export in LF"
    return "" if last else "ends with an empty line, which an export has not"
