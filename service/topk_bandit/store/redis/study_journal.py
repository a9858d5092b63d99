"""What rules decide about studies from, read from Redis, and what they decide, committed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from topk_bandit.store.documents import message_of
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.fields import Field, Fields, Put, Sendable, import_fields, import_puts, read_import
from topk_bandit.store.redis.replies import fields_of, verify_reading
from topk_bandit.store.redis.study_replies import read_study
from topk_bandit.store.rules.imports import KnownImport
from topk_bandit.store.rules.studies import COMPARED, COUNTED, KnownStudy, Lease
from topk_bandit.store.study_archives import StudyRequest
from topk_bandit.store.study_codec import encode_progress, encode_study_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.journaled_studies import SoughtStudy
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.rules.studies import StudyCommit
    from topk_bandit.store.study_log import StudyRecord

__all__ = ["StudyJournal"]

_META, _REQUESTS, _ANSWERS, _IMPORTS, _LEASE = 1, 3, 4, 5, 6
"""Where `StudyKeys.all` has these; the first place is 1."""

_FIRST_TEXT = 2  # among the arguments of `lua/study/commit.lua`, of which the first is 1
_OWNER, _UNTIL = Field(_LEASE, "owner"), Field(_LEASE, "until_ms")


@dataclass(frozen=True, slots=True)
class _Read(KnownStudy):
    """What is known, and all of it that a commit compares, as it is kept."""

    fields: Fields = field(default_factory=dict)


class StudyJournal:
    """Where studies are read and committed; parameters as those of `RedisJournal`."""

    def __init__(self, link: Link, studies: Aggregates[StudyName, StudyRecord], keys: KeySpace) -> None:
        self._link = link
        self._studies = studies
        self._keys = keys

    async def read(self, name: StudyName, sought: SoughtStudy) -> KnownStudy:
        """Return what is known of a study, or raise `NotFoundError`."""
        wanted = _sought_fields(sought)
        arguments = [part for one in wanted for part in one]
        _, now_ms, meta, held = await self._studies.ask(
            scripts.STUDY_READ_KNOWN, name, self._keys.study(name).all, arguments
        )
        return _read_known(name, sought, now_ms, meta, dict(zip(wanted, held, strict=True)))

    async def commit(self, known: KnownStudy, commit: StudyCommit, *, is_durable: bool) -> int | None:
        """Commit a decision; see `JournaledStudies._commit`."""
        read = cast("_Read", known)
        name, version = known.record.name, self._link.data_version
        events = [encode_study_event(event, version) for event in commit.events]
        fields = Sendable.of(read.fields, list(_puts(known, commit, version)), first=_FIRST_TEXT + len(events))
        document: dict[str, Any] = {"events": len(events), "counts": _counts(known, commit), **fields.document}
        if commit.lease is not None:
            document |= {"owner": commit.lease.owner, "lease_ms": commit.lease.until_ms}
        arguments = (message_of(document), *events, *fields.texts)
        sent = scripts.STUDY_COMMIT, name, self._keys.study(name).all, arguments
        reply = (await self._studies.write(*sent))[0] if is_durable else await self._studies.ask(*sent)
        return None if reply[0] == b"stale" else int(reply[1])


def _sought_fields(sought: SoughtStudy) -> list[Field]:
    fields = [_OWNER, _UNTIL, *(Field(_ANSWERS, str(question)) for question in sought.questions)]
    if sought.request_id is not None:
        fields.append(Field(_REQUESTS, sought.request_id))
    if sought.part is not None:
        fields += import_fields(_IMPORTS, sought.part)
    return fields


@verify_reading
def _read_known(name: StudyName, sought: SoughtStudy, now_ms: bytes, meta: list[bytes], fields: Fields) -> _Read:
    texts = fields_of(meta)
    answers = {question: fields[Field(_ANSWERS, str(question))] for question in sought.questions}
    same = {Field(_META, one): texts.get(one.encode(), b"") for one in COMPARED}
    if sought.part is not None:
        same[Field(_META, "imported")] = texts[b"imported"]
    return _Read(
        read_study(name, meta),
        int(now_ms),
        Lease(fields[_OWNER].decode(), int(fields[_UNTIL] or 0)),
        _read_request(sought.request_id, fields),
        {question: packed for question, packed in answers.items() if packed},
        None if sought.part is None else read_import(_IMPORTS, sought.part, fields),
        fields=fields | same,
    )


def _read_request(request_id: str | None, fields: Fields) -> StudyRequest | None:
    packed = b"" if request_id is None else fields[Field(_REQUESTS, request_id)]
    return StudyRequest(request_id, *map(int, packed.split())) if request_id is not None and packed else None


def _puts(known: KnownStudy, commit: StudyCommit, version: int) -> Iterator[Put]:
    before, after = known.record, commit.record or known.record
    if after.attempt != before.attempt:
        yield Put(_META, "attempt", str(after.attempt))
    if after.state != before.state:
        yield Put(_META, "state", after.state.value)
    if after.progress != before.progress:
        yield Put(_META, "progress", b"" if after.progress is None else encode_progress(after.progress, version))
    if after.failure != before.failure:
        yield Put(_META, "failure", b"" if after.failure is None else encode_study_event(after.failure, version))
    if commit.request is not None:
        given = commit.request
        yield Put(_REQUESTS, given.request_id, f"{given.wanted} {given.first} {given.count}")
    for question, packed in commit.answers.items():
        yield Put(_ANSWERS, str(question), packed)
    if commit.part is not None:
        yield from import_puts(_IMPORTS, known.imported or KnownImport(), *commit.part)


def _counts(known: KnownStudy, commit: StudyCommit) -> dict[str, int]:
    after = commit.record or known.record
    more = {name: getattr(after, name) - getattr(known.record, name) for name in COUNTED}
    return {name: count for name, count in more.items() if count}
