"""What restores of bandits and of studies share in Redis: keys of their own, and one step from these into their places.

A part is written by one script, if the import is where the caller saw it; what the script writes was worked out from
what was restored then. The last script renames all keys at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from topk_bandit.store.line_imports import RestoreProgress
from topk_bandit.store.log import ImportProgress
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.aggregate import Incarnate, OfTenant
from topk_bandit.store.redis.replies import checksum_of, verify_reading
from topk_bandit.store.redis.tenant_index import RESERVATION_MS
from topk_bandit.store.redis.texts import part_field, part_text, progress_text, read_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.keys import RestoreKeys, StudyRestoreKeys
    from topk_bandit.store.redis.link import Link

__all__ = ["Restores", "Write", "entry", "import_writes"]

Write = tuple[str, str, tuple[bytes | str | int, ...]]
"""What is to be written: a command, the field of a key among those of what is being restored, and operands."""

_Name = TypeVar("_Name", bound=OfTenant)
_Record = TypeVar("_Record", bound=Incarnate)
_Progress = TypeVar("_Progress", bound=RestoreProgress)


class Restores(Generic[_Name, _Progress, _Record]):
    """All bandits, or all studies, that are being restored in a store.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    made
        What they become.
    keys
        The keys of one that is being restored.
    begin
        How far an import is that begins, by its id.
    retention_ms
        For how long an import is kept that nobody goes on with.
    """

    def __init__(
        self,
        link: Link,
        made: Aggregates[_Name, _Record],
        *,
        keys: Callable[[_Name], RestoreKeys | StudyRestoreKeys],
        begin: type[_Progress],
        retention_ms: int,
    ) -> None:
        self._link = link
        self._made = made
        self._keys = keys
        self._begin = begin
        self._retention_ms = retention_ms

    async def find(self, name: _Name) -> _Progress | None:
        """See `Store.find_restore`."""
        found = await self._link.call("GET", self._keys(name).progress)
        return None if found is None else _read_progress(self._begin, found)

    async def find_made(self, name: _Name, import_id: str) -> _Record | None:
        """See `Store.find_restored_record`."""
        if await self._made.find(name) is None:
            return None
        return await self.finish(name, self._begin(import_id))

    async def write(self, name: _Name, writes: Iterable[Write], *, before: _Progress, after: _Progress) -> bool:
        """Write what a part brings, and how far the import is with it; return whether it was as far as `before`."""
        keys = self._keys(name)
        operands = [b"" if before.next_line == 0 else before.encode(), after.encode(), b"%d" % self._retention_ms]
        for command, key, parts in writes:
            operands += [command.encode(), str(keys.all.index(getattr(keys, key)) + 1).encode(), b"%d" % len(parts)]
            operands += [one if isinstance(one, bytes) else str(one).encode() for one in parts]
        meta = self._made.keys(name).meta
        recorded, _ = await self._link.run_durably(scripts.RECORD_RESTORE, keys.all, operands, meta=meta)
        return bool(recorded)

    async def fields(self, key: str, names: Sequence[str]) -> Sequence[bytes | None]:
        """Return fields of a hash."""
        found: Sequence[bytes | None] = await self._link.call("HMGET", key, *names) if names else ()
        return found

    async def finish(
        self, name: _Name, restore: _Progress, *, reserved_ms: int = 0, meta: Sequence[bytes | str | int] = ()
    ) -> _Record:
        """Rename what is restored, under the index's entry that was reserved; what came of the import is found again.

        Parameters
        ----------
        meta
            The fields of the record, each its name and its value.
        """
        keys, partial = self._made.keys(name), self._keys(name)
        pairs = [key for field in partial._fields[1:] for key in (getattr(keys, field), getattr(partial, field))]
        arguments = (restore.encode(), restore.import_id, reserved_ms, RESERVATION_MS, *meta)
        return await self._made.create(
            scripts.FINISH_RESTORE,
            name,
            (keys.meta, partial.progress, *pairs),
            (*self._made.announcing(name), *arguments),
        )


@verify_reading
def _read_progress(begin: type[_Progress], data: bytes) -> _Progress:
    return begin.decode(data)


def entry(position: int, at_ms: int, event: bytes, deadline_ms: int | None = None) -> Write:
    """Return the entry of an event in the log of what is being restored."""
    place, deadline = f"{position}-0", "-" if deadline_ms is None else str(deadline_ms)
    checksum = checksum_of(f"{place} {at_ms} {deadline} ".encode() + event)
    dated = () if deadline_ms is None else ("deadline_ms", deadline_ms)
    return "XADD", "log", (place, "at_ms", at_ms, "event", event, "checksum", checksum, *dated)


def import_writes(imports: Mapping[tuple[str, int], ArchivedImport], progress: Mapping[str, bytes]) -> Iterator[Write]:
    """Yield what is to be written of parts of imports; `progress` is how far each import was."""
    reached = {name: read_progress(text) for name, text in progress.items()}
    for (import_id, first_row), part in imports.items():
        before = reached[import_id]
        reached[import_id] = ImportProgress(max(before.next_row, part.next_row), before.accepted + part.accepted)
        text = part_text(part.fingerprint, part.next_row, part.accepted, part.position)
        yield "HSET", "imports", (part_field(import_id, first_row), text)
    for import_id, after in reached.items():
        yield "HSET", "imports", (import_id, progress_text(after))
