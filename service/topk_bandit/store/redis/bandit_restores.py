"""Bandits that are being restored in Redis: what a part of their lines writes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.codec import encode_event, encode_item_state
from topk_bandit.store.events import Recommended
from topk_bandit.store.log import BanditRecord
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.records import pack_record, read_record
from topk_bandit.store.redis.replies import read_entries
from topk_bandit.store.redis.restores import Restores, entry, import_writes
from topk_bandit.store.redis.texts import bucket_of, part_field, read_part, rests_in
from topk_bandit.store.restore_state import Restore, Restored
from topk_bandit.store.restores import settings_of
from topk_bandit.store.rules.provisional import due_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.restores import Write
    from topk_bandit.store.restore_state import RestoreStep

__all__ = ["BanditRestores"]


class BanditRestores(Restores[BanditName, Restore, BanditRecord]):
    """The bandits that are being restored; parameters as those of `Restores`."""

    def __init__(
        self, link: Link, bandits: Aggregates[BanditName, BanditRecord], keys: KeySpace, *, retention_ms: int
    ) -> None:
        super().__init__(link, bandits, keys=keys.restore, begin=Restore, retention_ms=retention_ms)
        self._spaces = keys

    async def read(self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]) -> Restored:
        """See `Store.read_restored`."""
        keys = self._spaces.restore(name)
        records = await self.fields(keys.recommendations, slates)
        parts = await self.fields(keys.imports, [part_field(*part) for part in imports])
        return Restored(
            {key: read_record(key, packed) for key, packed in zip(slates, records, strict=True) if packed},
            {part: read_part(part, text) for part, text in zip(imports, parts, strict=True) if text},
        )

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """See `Store.read_restored_log`."""
        key = self._spaces.restore(name).log
        return read_entries(await self._link.run(scripts.READ_RESTORED, (key,), (start, limit)), start=start)

    async def record(self, name: BanditName, step: RestoreStep, *, before: Restore) -> bool:
        """See `Store.record_restore`."""
        keys, begins = self._spaces.restore(name), before.next_line == 0
        buckets = sorted({bucket_of(digest)[0] for digest in step.retired})
        imports = sorted({import_id for import_id, _ in step.imports})
        retired = dict.fromkeys(buckets, b"") if begins else await self._read_known(keys.retired, buckets)
        progress = dict.fromkeys(imports, b"") if begins else await self._read_known(keys.imports, imports)
        writes = _writes(step, retired, progress)
        return await self.write(name, writes, before=before, after=step.restore)

    async def load_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_restored_snapshot`."""
        return await self._link.call("GET", self._spaces.restore(name).snapshot) or b""

    async def _read_known(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        found = await self.fields(key, names)
        return {name: text or b"" for name, text in zip(names, found, strict=True)}


def _writes(step: RestoreStep, retired: Mapping[str, bytes], progress: Mapping[str, bytes]) -> Iterator[Write]:
    """Yield what is to be written: a command, a key and its operands."""
    for logged in step.events:
        yield _entry(logged, step.version)
    for key, recorded in step.slates.items():
        yield from _slate_writes(key, recorded, step)
    for item_id, item in step.items.items():
        yield ("HDEL", "items", (item_id,)) if item is None else ("HSET", "items", (item_id, encode_item_state(item)))
    for bucket, digests in _buckets(step.retired, retired).items():
        yield "HSET", "retired", (bucket, digests)
    yield from import_writes(step.imports, progress)
    if step.snapshot:
        yield "APPEND", "snapshot", (step.snapshot,)


def _entry(logged: LoggedEvent, version: int) -> Write:
    event = logged.event
    deadline_ms = event.recommendation.deadline_ms if isinstance(event, Recommended) else None
    return entry(logged.position, logged.at_ms, encode_event(event, version), deadline_ms)


def _slate_writes(key: str, recorded: Recorded | None, step: RestoreStep) -> Iterator[Write]:
    if recorded is None:
        yield "HDEL", "recommendations", (key,)
        yield "ZREM", "deadlines", (key,)
        return
    yield "HSET", "recommendations", (key, pack_record(recorded, step.version))
    # A closed one is due at once, and is kept as others are from then on.
    due_ms = due_of(settings_of(step.restore), recorded) if recorded.is_open else recorded.closed_ms
    yield "ZADD", "deadlines", (due_ms, key)


def _buckets(retired: Sequence[str], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the buckets with what is retired now."""
    filled = dict(known)
    for digest in dict.fromkeys(retired):
        bucket, rest = bucket_of(digest)
        filled[bucket] += b"" if rest in rests_in(filled[bucket]) else rest
    return filled
