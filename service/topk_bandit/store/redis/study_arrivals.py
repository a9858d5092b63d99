"""Studies on their way into Redis, as `topk_bandit.store.redis.arrivals` has bandits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.domain.studies import QuestionAnswered
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.arrivals import import_writes, part_field
from topk_bandit.store.redis.replies import checksum_of, verified
from topk_bandit.store.redis.study_replies import read_entries
from topk_bandit.store.study_arriving import StudyArrival
from topk_bandit.store.study_codec import encode_answer, encode_progress, encode_shape, encode_study_event
from topk_bandit.store.study_log import ARRIVAL_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.domain.studies import LoggedStudyEvent, StudyName
    from topk_bandit.store.arriving import ArchivedImport
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.study_arriving import StudyArriving
    from topk_bandit.store.study_log import StudyRecord

__all__ = ["StudyArrivals", "meta_of"]

_Write = tuple[str, str, tuple[bytes | str | int, ...]]


class StudyArrivals:
    """The studies that arrive in a store.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    """

    def __init__(self, link: Link, keys: KeySpace) -> None:
        self._link = link
        self._keys = keys

    async def find(self, name: StudyName) -> StudyArrival | None:
        """See `StudyStore.find_arrival`."""
        found = await self._link.call("GET", self._keys.study_arrival(name).progress)
        return None if found is None else _read_arrival(found)

    async def read(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """See `StudyStore.read_arrived`."""
        key = self._keys.study_arrival(name).log
        return read_entries(await self._link.run(scripts.STUDY_READ_ARRIVED, (key,), (start, limit)), start=start)

    async def record(self, name: StudyName, arriving: StudyArriving, *, before: StudyArrival) -> bool:
        """See `StudyStore.record_arrival`."""
        keys, begins = self._keys.study_arrival(name), before.next_line == 0
        fresh = await self._unknown(keys.imports, arriving.imports)
        ids = sorted({part.import_id for part in fresh})
        known = dict(zip(ids, await self._read(keys.imports, ids), strict=True))
        progress = {one: told or b"" for one, told in known.items()}
        operands = [b"" if begins else before.encode(), arriving.arrival.encode(), b"%d" % ARRIVAL_MS]
        parts = {(part.import_id, part.first_row): part for part in fresh}
        for command, key, told in (*_writes(arriving, self._link.data_version), *import_writes(parts, progress)):
            operands += [command.encode(), str(keys.all.index(getattr(keys, key)) + 1).encode(), b"%d" % len(told)]
            operands += [one if isinstance(one, bytes) else str(one).encode() for one in told]
        recorded, _ = await self._link.run_durably(
            scripts.RECORD_ARRIVAL, keys.all, operands, meta=self._keys.study(name).meta
        )
        return bool(recorded)

    async def _unknown(self, key: str, parts: Sequence[ArchivedImport]) -> list[ArchivedImport]:
        """Return the parts that have not arrived yet: one may come twice."""
        there = await self._read(key, [part_field(part.import_id, part.first_row) for part in parts])
        return [part for part, told in zip(parts, there, strict=True) if told is None]

    async def _read(self, key: str, names: Sequence[str]) -> Sequence[bytes | None]:
        found: Sequence[bytes | None] = await self._link.call("HMGET", key, *names) if names else ()
        return found


@verified
def _read_arrival(data: bytes) -> StudyArrival:
    return StudyArrival.decode(data)


def _writes(arriving: StudyArriving, version: int) -> Iterator[_Write]:
    for logged in arriving.events:
        place, encoded = f"{logged.position}-0", encode_study_event(logged.event, version)
        checksum = checksum_of(f"{place} {logged.at_ms} - ".encode() + encoded)
        yield "XADD", "log", (place, "at_ms", logged.at_ms, "event", encoded, "checksum", checksum)
        if isinstance(logged.event, QuestionAnswered):
            yield "HSET", "answers", (logged.event.question, encode_answer(logged.event.answer))
    for one in arriving.requests:
        yield "HSET", "requests", (one.request_id, f"{one.wanted} {one.first} {one.count}")


def meta_of(record: StudyRecord, version: int) -> tuple[bytes | str | int, ...]:
    """Return the fields of a study's meta hash, each its name and its value, in the layout of a data version."""
    told: dict[str, Any] = {
        "incarnation": record.incarnation,
        "settings_digest": record.settings_digest,
        "shape": encode_shape(record.shape, version),
        "created_ms": record.created_ms,
        "log_position": record.log_position,
        "budget": record.shape.budget,
        "asked": record.asked,
        "answered": record.answered,
        "imported": record.imported,
        "attempt": record.attempt,
        "state": record.state.value,
        "progress": b"" if record.progress is None else encode_progress(record.progress, version),
        "failure": b"" if record.failure is None else encode_study_event(record.failure, version),
    }
    return tuple(part for field in told.items() for part in field)
