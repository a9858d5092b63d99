"""Imports line by line, as far as those of bandits and of studies are the same.

Lines come in parts, in order. A part that was taken is taken once, whoever sends it again; an import goes on where it
stands, also at another worker. What it makes is there once its last line has come, and until then no other call finds
it. Nothing here knows what a line means.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from topk_bandit.domain.errors import (
    ConflictError,
    CorruptDataError,
    InvalidArgumentError,
    NewerDataError,
    NotReadyError,
    errors_below,
)
from topk_bandit.store.archive_lines import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor
    from typing import Self

__all__ = ["LineImports", "Lines", "Receipt", "RestoreProgress", "parse", "take_lines"]

_Line = TypeVar("_Line")
_Name = TypeVar("_Name")
_Result = TypeVar("_Result")


class _Logged(Protocol):
    @property
    def log_position(self) -> int: ...


_Made = TypeVar("_Made", bound=_Logged)
_Made_co = TypeVar("_Made_co", bound=_Logged, covariant=True)
_Name_contra = TypeVar("_Name_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that are sent together, in order, from line `first_line` on; none ask how far an import is."""

    import_id: str
    first_line: int
    lines: tuple[str, ...]

    @property
    def part(self) -> str:
        """What distinguishes these lines from others of the import."""
        return f"{self.first_line} {blake2b(chr(10).join(self.lines).encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Receipt(Generic[_Made]):
    """With which line an import goes on, and what it made; None before its end."""

    next_line: int
    made: _Made | None = None

    @property
    def log_position(self) -> int:
        """The newest position of what the import made; 0 before its end."""
        return 0 if self.made is None else self.made.log_position


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """The progress of a restore; each kind adds what it needs to know of the lines before.

    Attributes
    ----------
    import_id
        What all parts of the import have in common.
    next_line
        With which line it goes on, counted from 0.
    part
        First line and fingerprint of the newest part, which may be sent again.
    digest
        What the lines chain to.
    """

    import_id: str
    next_line: int = 0
    part: str = ""
    digest: str = ""
    incarnation: str = ""

    @property
    def complete(self) -> bool:
        """Whether the last line is restored: a field of each kind, behind its others, where stores have it."""
        raise NotImplementedError

    def encode(self) -> bytes:
        """Return it as bytes; equal ones have the same, whatever worker encodes them."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what was encoded."""
        values = json.loads(data)
        return cls(**{one.name: values[one.name] for one in fields(cls)})


_Progress = TypeVar("_Progress", bound=RestoreProgress)


class _Step(Protocol[_Progress]):
    """The changes by one part of the lines; `restore` is the progress with them."""

    restore: _Progress


def parse(lines: Sequence[str], read: Callable[[str], _Line]) -> list[_Line]:
    """Return what lines stand for.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one stands for nothing.
    """
    parsed = []
    for place, text in enumerate(lines):
        with _at(place):
            parsed.append(read(text))
    return parsed


def take_lines(
    step: _Step[_Progress], lines: Sequence[str], parsed: Sequence[_Line], take: Callable[[_Line], None]
) -> None:
    """Take in the lines that come next: each by `take`, which puts into `step` what it brings.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one can't follow those before.
    """
    for place, (text, line) in enumerate(zip(lines, parsed, strict=True)):
        with _at(place):
            take(line)
        now = step.restore
        step.restore = replace(now, next_line=now.next_line + 1, digest=chain(now.digest, text))


@contextmanager
def _at(place: int) -> Iterator[None]:
    """Name the line that an error is about."""
    try:
        with errors_below(f"lines[{place}]"):
            yield
    except (CorruptDataError, NewerDataError) as error:
        raise InvalidArgumentError(f"lines[{place}]", str(error)) from None


class _Store(Protocol[_Name_contra, _Progress, _Made_co]):
    """What a store has of imports; see `topk_bandit.store.log.Store`."""

    async def find_restored_record(self, name: _Name_contra, import_id: str) -> _Made_co | None: ...

    async def find_restore(self, name: _Name_contra) -> _Progress | None: ...

    async def record_restore(self, name: _Name_contra, step: Any, *, before: _Progress) -> bool: ...  # noqa: ANN401


class LineImports(ABC, Generic[_Name, _Progress, _Made]):
    """Takes in lines; those who know what they mean say how each part is read, and what it is made of at the end.

    Parameters
    ----------
    executor
        Where lines are read.
    """

    def __init__(self, store: _Store[_Name, _Progress, _Made], executor: Executor, begin: type[_Progress]) -> None:
        self._imports = store
        self._executor = executor
        self._begin = begin

    async def take(self, name: _Name, sent: Lines) -> Receipt[_Made]:
        """Take in the lines that come next; the last one makes what they are. A part that was taken is taken once.

        Raises
        ------
        InvalidArgumentError
            On ``lines[n]``: that one stands for nothing, or can't follow those before; nothing of the part is taken.
        ConflictError
            BANDIT_ARRIVED, STUDY_ARRIVED: there is one of this name, and this import did not make it.
            ARRIVAL_REPLACED: another import has begun, or this one went on meanwhile.
        NotReadyError
            IMPORT_GAP: the import goes on with another line; ``next_row`` says which.
        ExhaustedError
            What the tenant may have is used up.
        """
        if (made := await self._imports.find_restored_record(name, sent.import_id)) is not None:
            return Receipt(sent.first_line + len(sent.lines), made)
        restore = await self._find_progress(name, sent)
        if restore is None or not restore.complete:
            return Receipt(restore.next_line if restore else 0)
        return Receipt(restore.next_line, await self.finish(name, restore, sent))

    @abstractmethod
    async def read(self, name: _Name, before: _Progress, sent: Lines) -> _Step[_Progress]:
        """Return what lines bring that follow those before."""

    @abstractmethod
    async def finish(self, name: _Name, restore: _Progress, sent: Lines) -> _Made:
        """Make a bandit or a study of what is restored, now that the last line has come."""

    async def compute(self, work: Callable[[], _Result]) -> _Result:
        """Return what work comes to that would keep the event loop for long."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _find_progress(self, name: _Name, sent: Lines) -> _Progress | None:
        """Return how far the import is, once the store has these lines; None for one that has not begun."""
        restore = await self._imports.find_restore(name)
        if not sent.lines:
            return restore if restore is not None and restore.import_id == sent.import_id else None
        if restore is None or (restore.import_id, restore.part) != (sent.import_id, sent.part):
            return await self._record(name, self._expect_lines(restore, sent), sent)
        return restore

    async def _record(self, name: _Name, before: _Progress, sent: Lines) -> _Progress:
        step = await self.read(name, before, sent)
        if not await self._imports.record_restore(name, step, before=before):
            raise ConflictError("ARRIVAL_REPLACED", f"another import into {name} has begun, or this one went on")
        return step.restore

    def _expect_lines(self, restore: _Progress | None, sent: Lines) -> _Progress:
        """Return what the lines follow, or refuse them."""
        if restore is None or (restore.import_id != sent.import_id and sent.first_line == 0):
            restore = self._begin(sent.import_id)
        if restore.import_id != sent.import_id:
            raise ConflictError("ARRIVAL_REPLACED", "another import has begun")
        if sent.first_line != restore.next_line:
            problem = f"the import goes on with line {restore.next_line}"
            raise NotReadyError("IMPORT_GAP", problem, next_row=restore.next_line)
        return restore
