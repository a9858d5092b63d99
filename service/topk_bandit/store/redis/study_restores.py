"""Studies that are being restored in Redis: what a part of their lines writes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.domain.studies import QuestionAnswered, StudyName
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.restores import Restores, entry, import_writes
from topk_bandit.store.redis.study_replies import read_entries
from topk_bandit.store.redis.texts import part_field
from topk_bandit.store.study_codec import encode_answer, encode_progress, encode_shape, encode_study_event
from topk_bandit.store.study_log import RESTORE_MS, StudyRecord
from topk_bandit.store.study_restores import StudyRestore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.domain.studies import LoggedStudyEvent
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.restores import Write
    from topk_bandit.store.study_restores import StudyRestoreStep

__all__ = ["StudyRestores", "meta_of"]


class StudyRestores(Restores[StudyName, StudyRestore, StudyRecord]):
    """The studies that are being restored; parameters as those of `Restores`."""

    def __init__(self, link: Link, studies: Aggregates[StudyName, StudyRecord], keys: KeySpace) -> None:
        super().__init__(link, studies, keys=keys.study_restore, begin=StudyRestore, retention_ms=RESTORE_MS)
        self._spaces = keys

    async def read(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """See `StudyStore.read_restored_log`."""
        key = self._spaces.study_restore(name).log
        return read_entries(await self._link.run(scripts.READ_RESTORED, (key,), (start, limit)), start=start)

    async def record(self, name: StudyName, step: StudyRestoreStep, *, before: StudyRestore) -> bool:
        """See `StudyStore.record_restore`."""
        key = self._spaces.study_restore(name).imports
        fresh = await self._unknown(key, step.imports)
        ids = sorted({part.import_id for part in fresh})
        known = dict(zip(ids, await self.fields(key, ids), strict=True))
        parts = {(part.import_id, part.first_row): part for part in fresh}
        imported = import_writes(parts, {one: text or b"" for one, text in known.items()})
        writes = (*_writes(step, self._link.data_version), *imported)
        return await self.write(name, writes, before=before, after=step.restore)

    async def _unknown(self, key: str, parts: Sequence[ArchivedImport]) -> list[ArchivedImport]:
        """Return the parts that are not restored yet: one may come twice."""
        there = await self.fields(key, [part_field(part.import_id, part.first_row) for part in parts])
        return [part for part, text in zip(parts, there, strict=True) if text is None]


def _writes(step: StudyRestoreStep, version: int) -> Iterator[Write]:
    for logged in step.events:
        yield entry(logged.position, logged.at_ms, encode_study_event(logged.event, version))
        if isinstance(logged.event, QuestionAnswered):
            yield "HSET", "answers", (logged.event.question, encode_answer(logged.event.answer))
    for one in step.requests:
        yield "HSET", "requests", (one.request_id, f"{one.wanted} {one.first} {one.count}")


def meta_of(record: StudyRecord, version: int) -> tuple[bytes | str | int, ...]:
    """Return the fields of a study's meta hash, each its name and its value, in the layout of a data version."""
    fields: dict[str, Any] = {
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
    if record.link_events:
        fields["link_events"] = record.link_events
    return tuple(part for field in fields.items() for part in field)
