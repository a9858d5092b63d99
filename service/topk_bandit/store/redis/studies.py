"""A store of studies in Redis or Valkey; its writes are scripts as those of `topk_bandit.store.redis.bandits` are.

One key lists the designs of all tenants that may be unfinished, so that they are found when a designer dies. A design
is listed before its study is created or tried again. It is never taken off the list before it is seen to have ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.domain.studies import (
    DesignState,
    StudyCreated,
    StudyName,
)
from topk_bandit.store.journaled_studies import JournaledStudies
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.aggregate import Aggregates, Kind
from topk_bandit.store.redis.study_journal import StudyJournal
from topk_bandit.store.redis.study_replies import read_entries, read_requests, read_study
from topk_bandit.store.redis.study_restores import StudyRestores, meta_of
from topk_bandit.store.redis.tenant_index import RESERVATION_MS
from topk_bandit.store.redis.tenants import Tenants
from topk_bandit.store.redis.texts import read_parts
from topk_bandit.store.study_codec import (
    encode_shape,
    encode_study_event,
    settings_digest,
    shape_of,
)
from topk_bandit.store.study_log import (
    StudyLogSlice,
)
from topk_bandit.store.study_refusals import STUDY_REFUSALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import (
        LoggedStudyEvent,
        StudyEvent,
        StudySettings,
    )
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.journaled_studies import SoughtStudy
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.rules.studies import KnownStudy, StudyCommit
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_log import StudyRecord
    from topk_bandit.store.study_restores import StudyRestore, StudyRestoreStep

__all__ = ["RedisStudies"]

_PAGE = 256
_SCANNED = 1000


@final
class RedisStudies(JournaledStudies):
    """A `StudyStore` in Redis or Valkey; see `RedisStore.studies`.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    """

    def __init__(self, link: Link, keys: KeySpace) -> None:
        self._link = link
        self._keys = keys
        self._studies = Aggregates(link, _kind(keys))
        self._journal = StudyJournal(link, self._studies, keys)
        self._restores = StudyRestores(link, self._studies, keys)
        self._tenants = Tenants(link, keys)

    @property
    def data_version(self) -> int:
        """See `StudyStore.data_version`."""
        return self._link.data_version

    async def create_study(
        self, name: StudyName, settings: StudySettings, *, incarnation: str, quota: int
    ) -> StudyRecord:
        """See `StudyStore.create_study`."""
        known = await self._studies.find(name)
        if known is None:
            reserved_ms = await self._studies.reserve(name, incarnation=incarnation, quota=quota)
            known = await self._begin_design(name, settings, incarnation, reserved_ms)
        digest = settings_digest(settings)
        if known.settings_digest == digest and known.state in {DesignState.CANCELLED, DesignState.FAILED}:
            await self._list(name)
        return await self._restart(name, digest)

    async def get_study(self, name: StudyName) -> StudyRecord:
        """See `StudyStore.get_study`."""
        return await self._studies.get(name)

    async def list_studies(self, tenant: str, *, after: str, limit: int) -> Sequence[StudyRecord]:
        """See `StudyStore.list_studies`."""
        return await self._studies.page(tenant, after=after, limit=limit)

    async def delete_study(self, name: StudyName) -> None:
        """See `StudyStore.delete_study`."""
        await self._studies.delete(name)
        with suppress(UnavailableError):  # a tenant that is listed and has nothing is passed over
            await self._tenants.drop(name.tenant)

    async def unfinished_designs(self, *, limit: int) -> Sequence[StudyName]:
        """See `StudyStore.unfinished_designs`."""
        unfinished: list[StudyName] = []
        ended: list[tuple[bytes, int]] = []
        while len(unfinished) < limit:
            start = len(unfinished) + len(ended)
            key = self._keys.designs
            entries = _pair_scores(await self._link.call("ZRANGE", key, start, start + _PAGE - 1, "WITHSCORES"))
            if not entries:
                break
            there = await asyncio.gather(*(self._is_unfinished(entry) for entry, _ in entries))
            unfinished += [self._keys.read_study(entry) for (entry, _), one in zip(entries, there, strict=True) if one]
            ended += [entry for entry, one in zip(entries, there, strict=True) if not one]
        await asyncio.gather(*(self._unlist(*entry) for entry in ended))
        return tuple(unfinished[:limit])

    async def _read(self, name: StudyName, sought: SoughtStudy) -> KnownStudy:
        return await self._journal.read(name, sought)

    async def _commit(self, known: KnownStudy, commit: StudyCommit, *, is_durable: bool) -> int | None:
        return await self._journal.commit(known, commit, is_durable=is_durable)

    async def read_study(self, name: StudyName, *, start: int, limit: int) -> StudyLogSlice:
        """See `StudyStore.read_study`."""
        keys = self._keys.study(name)
        _, meta, entries = await self._studies.ask(scripts.STUDY_READ, name, (keys.meta, keys.log), (start, limit))
        return StudyLogSlice(read_study(name, meta), read_entries(entries, start=start))

    async def scan_requests(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[StudyRequest]]:
        """See `StudyStore.scan_requests`."""
        after, found = await self._link.call("HSCAN", self._keys.study(name).requests, cursor, "COUNT", _SCANNED)
        return int(after), read_requests(found)

    async def scan_imports(self, name: StudyName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:
        """See `StudyStore.scan_imports`."""
        after, found = await self._link.call("HSCAN", self._keys.study(name).imports, cursor, "COUNT", _SCANNED)
        return int(after), read_parts(found)

    async def find_restore(self, name: StudyName) -> StudyRestore | None:
        """See `StudyStore.find_restore`."""
        return await self._restores.find(name)

    async def record_restore(self, name: StudyName, step: StudyRestoreStep, *, before: StudyRestore) -> bool:
        """See `StudyStore.record_restore`."""
        return await self._restores.record(name, step, before=before)

    async def read_restored_log(self, name: StudyName, *, start: int, limit: int) -> Sequence[LoggedStudyEvent]:
        """See `StudyStore.read_restored_log`."""
        return await self._restores.read(name, start=start, limit=limit)

    async def finish_restore(self, record: StudyRecord, restore: StudyRestore, *, quota: int) -> StudyRecord:
        """See `StudyStore.finish_restore`."""
        name, reserved_ms = record.name, 0
        if await self._studies.find(name) is None:
            reserved_ms = await self._studies.reserve(name, incarnation=record.incarnation, quota=quota)
            await self._list(name)
        meta = meta_of(record, self._link.data_version)
        return await self._restores.finish(name, restore, reserved_ms=reserved_ms, meta=meta)

    async def find_restored_record(self, name: StudyName, import_id: str) -> StudyRecord | None:
        """See `StudyStore.find_restored_record`."""
        return await self._restores.find_made(name, import_id)

    async def _list(self, name: StudyName) -> None:
        """List a design that may be about to begin, and its tenant."""
        await self._link.run(scripts.STUDY_LIST_DESIGN, (self._keys.designs,), (self._keys.write_study(name),))
        await self._tenants.add(name.tenant)

    def _encode_event(self, event: StudyEvent) -> bytes:
        return encode_study_event(event, self._link.data_version)

    async def _begin_design(
        self, name: StudyName, settings: StudySettings, incarnation: str, reserved_ms: int
    ) -> StudyRecord:
        """List a design, and then create its study."""
        await self._list(name)
        keys = self._keys.study(name)
        created = (
            encode_shape(shape_of(settings), self._link.data_version),
            self._encode_event(StudyCreated(settings)),
            settings.budget,
        )
        return await self._studies.create(
            scripts.STUDY_CREATE,
            name,
            keys.all,
            (incarnation, settings_digest(settings), *created, reserved_ms, RESERVATION_MS),
        )

    async def _is_unfinished(self, listed: bytes) -> bool:
        meta = self._keys.study(self._keys.read_study(listed)).meta
        return bool(await self._link.call("HGET", meta, "state") == DesignState.DESIGNING.value.encode())

    async def _unlist(self, listed: bytes, listed_ms: int) -> None:
        await self._link.run(scripts.STUDY_UNLIST_DESIGN, (self._keys.designs,), (listed, listed_ms, RESERVATION_MS))


def _kind(keys: KeySpace) -> Kind[StudyName, StudyRecord]:
    return Kind(
        noun="study",
        name=StudyName,
        entry=lambda name: name.study,
        index=keys.studies,
        keys=keys.study,
        read=read_study,
        refusals=STUDY_REFUSALS,
        absent="no_study",
        full="study_full",
    )


def _pair_scores(listed: Any) -> list[tuple[bytes, int]]:  # noqa: ANN401 - flat or in pairs, as the protocol's version has it
    """Return members with their scores."""
    if listed and isinstance(listed[0], bytes):
        listed = list(zip(listed[::2], listed[1::2], strict=True))
    return [(member, int(score)) for member, score in listed]
