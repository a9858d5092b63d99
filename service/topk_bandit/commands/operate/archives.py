"""A bandit as a file, and back: lines as `ImportEvents` takes them, as text or in a Parquet file.

A file is read twice: once to see that it is whole, then to send it, from where an import of it stands.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from topk_bandit.bandits.arrivals import Arrivals, LinesOfBandit
from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import FailedPrecondition, InvalidArgument
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.events import exported, line
from topk_bandit.commands.operate.parquet import read_parquet, write_parquet
from topk_bandit.domain.bandits import MAX_CONTEXT_DIMENSION, MAX_SLATE_SIZE
from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, InvalidArgumentError
from topk_bandit.domain.quotas import Quotas
from topk_bandit.store.archives import ArchivedBandit, End, chain, read_line, write_line
from topk_bandit.store.memory.bandits import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from topk_bandit.client import Client

__all__ = ["Archive", "archive_lines", "examine", "rehearse", "save", "send", "write"]

LINES_AT_ONCE = 100
BYTES_AT_ONCE = 1 << 18
ATTEMPTS = 5
"""How often a bandit is read anew because its log was trimmed meanwhile."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that is whole.

    Attributes
    ----------
    name
        Of the bandit, as it was exported.
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
    for event in exported(client, bandit, first=first):
        text = line(event)
        digest, count, position = chain(digest, text), count + 1, event.position
        yield text
    yield write_line(End(position, count, digest))


def save(client: Client, bandit: str, path: Path, *, as_parquet: bool = False) -> None:
    """Write a bandit's lines to a file, anew if its log is trimmed meanwhile.

    Raises
    ------
    ConfigurationError
        The file can't be written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write(path, archive_lines(client, bandit), as_parquet=as_parquet)
        except FailedPrecondition as error:
            if error.reason not in {"LOG_TRIMMED", "LOG_REPLACED"} or attempt == ATTEMPTS:
                raise
        else:
            return


def write(path: Path, lines: Iterable[str], *, as_parquet: bool) -> Iterator[str]:
    """Write lines to a file, and return none.

    Raises
    ------
    ConfigurationError
        It can't be written.
    """
    if as_parquet:
        write_parquet(path, lines)
        return iter(())
    try:
        with path.open("w", encoding="utf-8") as file:
            for text in lines:
                file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigurationError(f"{path} can't be written: {error.strerror}") from error
    return iter(())


def examine(path: Path) -> Archive:
    """Return what a file is, once it is seen to be whole.

    Raises
    ------
    ConfigurationError
        It can't be read.
    CorruptDataError
        A line was changed or is missing, or the file is none of ours; the message names it.
    """
    digest, count, first, last = "", 0, "", ""
    for text in _read(path):
        if count:
            digest = chain(digest, last)
        count, first, last = count + 1, first or text, text
    try:
        bandit, end = read_line(first), read_line(last)
    except CorruptDataError as error:
        raise CorruptDataError(f"{path}: its first or last line {error}: {_NOT_WHOLE}") from None
    if not isinstance(bandit, ArchivedBandit) or not isinstance(end, End):
        raise CorruptDataError(f"{path}: has no first or no last line of a bandit: {_NOT_WHOLE}")
    if (end.lines, end.digest) != (count - 1, digest):
        raise CorruptDataError(f"{path}: a line was changed or is missing: {_NOT_WHOLE}")
    return Archive(path, bandit.name, count, end.position, digest)


_NOT_WHOLE = "it is not a whole export of a bandit"


def rehearse(archive: Archive) -> None:
    """Take in all lines of a file in memory, as a service does, and keep nothing of them.

    Raises
    ------
    CorruptDataError
        No service would take a line; the message names it.
    """

    async def take_all() -> None:
        name, left, first = bandit_named(archive.name), _read(archive.path), 0
        store = MemoryStore(clock_ms=lambda: 0)
        limits = MemoryBudget().limits(context_dim=MAX_CONTEXT_DIMENSION, slate_size=MAX_SLATE_SIZE)
        with ThreadPoolExecutor(1) as executor:
            arrivals = Arrivals(store, executor, limits=limits, quotas=TenantQuotas(store, Quotas({})))
            while part := _part(left):
                try:
                    await arrivals.take(name, LinesOfBandit(archive.digest, first, tuple(part)))
                except InvalidArgumentError as error:
                    raise CorruptDataError(f"{_place(error.field, archive.path, first)}: {error.problem}") from None
                first += len(part)

    asyncio.run(take_all())


def send(client: Client, bandit: str, archive: Archive, *, told: Callable[[int], object]) -> int:
    """Import a file that is whole, from where its import stands; return the newest position of the bandit.

    Parameters
    ----------
    told
        Called with the number of lines that have arrived, again and again.

    Raises
    ------
    InvalidArgumentError
        The service does not take a line; the message names it.
    """
    begun = client.import_events(bandit, (), import_id=archive.digest, first_line=0)
    if begun.log_position:
        return begun.log_position
    told(begun.next_line)
    left = islice(_read(archive.path), begun.next_line, None)
    first, position = begun.next_line, 0
    while part := _part(left):
        try:
            took = client.import_events(bandit, part, import_id=archive.digest, first_line=first)
        except InvalidArgument as error:
            raise _located(error, archive.path, first) from None
        first, position = first + len(part), took.log_position
        told(first)
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


def _located(error: InvalidArgument, path: Path, first: int) -> Exception:
    """Return the error with the line of the file that it is about."""
    field = error.field
    if not (field.startswith("lines[") and field[6:-1].isdigit()):
        return error
    return InvalidArgumentError(_place(field, path, first), error.details.message.removeprefix(f"{field}: "))


def _place(field: str, path: Path, first: int) -> str:
    """Return where in a file the line is that an error of a part of it is about, as ``lines[n]``."""
    return f"{path}, line {first + int(field[6:-1]) + 1}"


def _read(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from read_parquet(path)
        return
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for text in file:
                yield text.removesuffix("\n")
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path}: is no text in UTF-8: {_NOT_WHOLE}") from error
