"""The cold log: events of bandits in compressed files of a folder, written before the store trims them.

Each bandit has a folder of its own for each of its incarnations, ``TENANT/BANDIT/INCARNATION``, and a file in it holds
the events of a range of positions: ``FIRST-LAST-AT_MS.jsonl.gz``, with the time of the last one. The names of the files
are all that is known of what is written, so nothing has to be recovered after a crash. A file gets its name once it is
on the disk, after the index beside it, ``FIRST-LAST-AT_MS.index`` (`event_index`). Whoever writes holds a lock of the
incarnation's folder, which the system lets go of when a process ends; so each event is in one file, however many
processes write.
"""

from __future__ import annotations

import fcntl
import gzip
import logging
import os
import re
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.event_index import find_in_index, make_index
from topk_bandit.store.event_keys import find_keys
from topk_bandit.store.event_lines import event_line, head_line, read_event_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.store.event_keys import EventKey

__all__ = ["ColdFile", "ColdLog"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{16})-(\d{16})-(\d{16})\.jsonl\.gz", re.ASCII)
_ANY_NAME = re.compile(_NAME.pattern + r"(?:\.undone)?", re.ASCII)
_LEVEL = 6


@dataclass(frozen=True, slots=True, order=True)
class ColdFile:
    """A file of the events from position `first` to `last`, the last of which is of the time `at_ms`.

    Its first line is `head`, which names the bandit.
    """

    first: int
    last: int
    at_ms: int
    path: Path
    head: str

    @property
    def index(self) -> Path:
        """Where its index is."""
        return _index_of(self.path)

    def read(self) -> list[EventText]:
        """Return its events.

        Raises
        ------
        CorruptDataError
            It is not what was written.
        """
        try:
            head, *lines = gzip.decompress(self.path.read_bytes()).removesuffix(b"\n").split(b"\n")
            self._check_head(head)
            events = [read_event_line(line) for line in lines]
        except (EOFError, zlib.error, gzip.BadGzipFile, CorruptDataError) as error:
            raise CorruptDataError(f"{self.path} is damaged: {error}") from error
        if [event.position for event in events] != list(range(self.first, self.last + 1)):
            raise CorruptDataError(f"{self.path} is damaged: it has other events than its name says")
        return events

    def read_begin_ms(self) -> int:
        """Return the time of its first event; the errors are those of `read`."""
        try:
            with gzip.open(self.path) as lines:
                self._check_head(next(lines).removesuffix(b"\n"))
                return read_event_line(next(lines).removesuffix(b"\n")).at_ms
        except (EOFError, StopIteration, zlib.error, gzip.BadGzipFile, CorruptDataError) as error:
            raise CorruptDataError(f"{self.path} is damaged: {error}") from error

    def find(self, key: EventKey) -> list[EventText]:
        """Return its events that have a name, in their order; the errors are those of `read`.

        It is read only where its index has the name, is gone or damaged.
        """
        try:
            numbers: Sequence[int] = find_in_index(self.index, key, of=self.path.name)
        except FileNotFoundError:
            numbers = range(self.last - self.first + 1)
        except CorruptDataError as error:
            _log.warning("%s is damaged, and the events themselves are searched: %s", self.index, error)
            numbers = range(self.last - self.first + 1)
        if not numbers:
            return []
        events = self.read()
        return [events[one] for one in numbers if one < len(events) and key in find_keys(events[one].text)]

    def _check_head(self, head: bytes) -> None:
        if head != self.head.encode():
            raise CorruptDataError(f"it is of another bandit, or of another time of this one: {head!r:.200}")


class ColdLog:
    """Writes and lists the files in a folder, which has to be there: one that is missing is not made.

    What can't be written or read raises ``OSError``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_problem(self) -> str:
        """Return why nothing can be written there now; empty if it can."""
        try:
            with TemporaryFile(dir=self.folder):
                return ""
        except OSError as error:
            return f"{self.folder} can't be written: {error.strerror}"

    def list_files(self, name: BanditName, incarnation: str) -> list[ColdFile]:
        """Return the files of a bandit's incarnation in the order of their events."""
        return _list_files(self._folder_of(name, incarnation), head_line(str(name), incarnation, None))

    def find_newest(self, name: BanditName, incarnation: str) -> ColdFile | None:
        """Return the newest file, None if nothing is written."""
        self.folder.stat()
        return next(iter(self.list_files(name, incarnation)[::-1]), None)

    def set_aside(self, name: BanditName, incarnation: str, *, after: int) -> int:
        """Set aside the events after a position; return how many they were.

        Those before it in the same file are written again. What is set aside stays in the folder, under names that end
        with ``.undone``.
        """
        undone = 0
        with _locked(self._folder_of(name, incarnation)):
            for file in self.list_files(name, incarnation)[::-1]:
                if file.last <= after:
                    break
                if file.first <= after:
                    _write_file(file.path.parent, file.head, file.read()[: after - file.first + 1])
                undone += file.last - max(file.first - 1, after)
                file.path.rename(file.path.with_name(f"{file.path.name}.undone"))
                file.index.unlink(missing_ok=True)
        return undone

    def append(self, name: BanditName, incarnation: str, events: Sequence[EventText]) -> int:
        """Write those events that are not written yet as one file; return the newest position that is on the disk.

        Parameters
        ----------
        events
            In their order, without gaps.
        """
        folder = self._folder_of(name, incarnation)
        self._make(folder)
        with _locked(folder):
            files = self.list_files(name, incarnation)
            end = files[-1].last if files else 0
            new = [event for event in events if event.position > end]
            if not new:
                return end
            _write_file(folder, head_line(str(name), incarnation, None), new)
            return new[-1].position

    def remove_older(self, before_ms: int) -> int:
        """Remove the files whose events are all of before a time, those set aside too; return how many."""
        files = [file for path in self.folder.glob("*/*/*") for file in _list_files(path, "", names=_ANY_NAME)]
        old = [file for file in files if file.at_ms < before_ms]
        for file in old:
            file.path.unlink(missing_ok=True)
            file.index.unlink(missing_ok=True)
        return len(old)

    def _folder_of(self, name: BanditName, incarnation: str) -> Path:
        # An id may be "." or "..", which a folder's name can't be.
        return self.folder / f"t-{name.tenant}" / f"b-{name.bandit}" / incarnation

    def _make(self, folder: Path) -> None:
        """Make the folders of an incarnation, each on the disk before what is in it."""
        for one in (folder.parent.parent, folder.parent, folder):
            with suppress(FileExistsError):
                one.mkdir()
                _sync_folder(one.parent)


def _list_files(folder: Path, head: str, *, names: re.Pattern[str] = _NAME) -> list[ColdFile]:
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    found = [(match, path) for path in paths if (match := names.fullmatch(path.name))]
    return sorted(ColdFile(int(match[1]), int(match[2]), int(match[3]), path, head) for match, path in found)


def _write_file(folder: Path, head: str, events: Sequence[EventText]) -> None:
    path = folder / _file_name(events)
    lines = [head, *(event_line(event.position, event.at_ms, event.text.decode()) for event in events)]
    _write(_index_of(path), make_index([event.text for event in events], of=path.name))
    _write(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), _LEVEL, mtime=0))


def _file_name(events: Sequence[EventText]) -> str:
    return f"{events[0].position:016}-{events[-1].position:016}-{events[-1].at_ms:016}.jsonl.gz"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _index_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".jsonl.gz", ".index"))


def _write(path: Path, content: bytes) -> None:
    """Write a file that is whole or not there."""
    unfinished = path.parent / "unfinished"
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
