"""A store of bandits in Redis or Valkey, on one server, behind Sentinel or in a cluster.

Each write is one script, which checks everything before it writes and may be sent twice; creating and deleting take two
(`topk_bandit.store.redis.aggregate`). Each message to a server is answered or given up within the timeout. What this
service did not write is never guessed at: it raises `CorruptDataError`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NamedTuple, final

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.errors import CorruptDataError, NotFoundError, UnavailableError
from topk_bandit.domain.quotas import TenantUse
from topk_bandit.store.codec import (
    decode_snapshot,
    encode_event,
    encode_settings,
    encode_snapshot,
)
from topk_bandit.store.events import BanditCreated
from topk_bandit.store.journaled import JournaledStore
from topk_bandit.store.log import (
    DEFAULT_RECORD_RETENTION_MS,
)
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.aggregate import Aggregates, Kind
from topk_bandit.store.redis.bandit_restores import BanditRestores
from topk_bandit.store.redis.closed import NOTHING_CLOSED
from topk_bandit.store.redis.damage import find_damaged
from topk_bandit.store.redis.fields import settings_fields
from topk_bandit.store.redis.inspection import report
from topk_bandit.store.redis.journal import RedisJournal
from topk_bandit.store.redis.keys import KeySpace
from topk_bandit.store.redis.link import Link
from topk_bandit.store.redis.overdue import find_overdue
from topk_bandit.store.redis.permissions import describe_refused, permission_check
from topk_bandit.store.redis.programs import Programs
from topk_bandit.store.redis.records import read_record
from topk_bandit.store.redis.replies import (
    read_bandit,
    read_items,
    read_slice,
    read_texts,
)
from topk_bandit.store.redis.studies import RedisStudies
from topk_bandit.store.redis.subscription import Subscription
from topk_bandit.store.redis.tenant_index import RESERVATION_MS
from topk_bandit.store.redis.tenants import Tenants
from topk_bandit.store.redis.texts import read_contents, read_parts
from topk_bandit.store.redis.unlisted import find_gone, find_unlisted
from topk_bandit.store.redis.write_times import time_writes
from topk_bandit.store.refusals import REFUSALS, refusal
from topk_bandit.store.restores import settings_of
from topk_bandit.store.visits import BYTES_OF_VISITOR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditSettings, Item, Prior
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.events import Event, LoggedEvent
    from topk_bandit.store.journaled import Commits, Due, Sought
    from topk_bandit.store.log import (
        BanditRecord,
        Contents,
        LogSlice,
        Snapshot,
        StoreReport,
        TextSlice,
    )
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.redis.damage import Damage
    from topk_bandit.store.restore_state import Restore, Restored, RestoreStep
    from topk_bandit.store.rules.decisions import Commit, Known
    from topk_bandit.store.visits import Visits

__all__ = ["RedisStore"]

_LOG = logging.getLogger(__name__)
_MEASURED_AT_ONCE, _VISITORS_AT_ONCE = 64, 1000
FOLLOWER_RETENTION_MS = 60_000
"""How long a silent follower is kept; nothing but tidiness depends on it."""


class _Generations(NamedTuple):
    """The kept snapshots: `newest_position` as the bandit says, and those that verify by slot, newest first."""

    newest_position: int
    verified: Sequence[tuple[int, Snapshot]]


@final
class RedisStore(JournaledStore):
    """A `Store` in Redis or Valkey; see `connect`.

    Parameters
    ----------
    link
        Where to send calls; closed with the store.
    prefix
        What all keys begin with.
    record_retention_ms
        How long a store keeps a closed recommendation, and an import that nobody goes on with.
    writer
        As for `connect`.

    Attributes
    ----------
    writer
        As above.
    """

    def __init__(self, link: Link, *, prefix: str, record_retention_ms: int, writer: str) -> None:
        self._link = link
        self._keys = KeySpace(prefix)
        self._bandits = Aggregates(link, _kind(self._keys))
        self._journal = RedisJournal(link, self._bandits, self._keys, writer=writer, retention_ms=record_retention_ms)
        self._restores = BanditRestores(link, self._bandits, self._keys, retention_ms=record_retention_ms)
        self._tenants = Tenants(link, self._keys)
        self._record_retention_ms = record_retention_ms
        self.writer = writer
        self._subscriptions: set[Subscription] = set()

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        prefix: str = "topk-bandit",
        timeout: float = 1.0,  # noqa: ASYNC109 - it bounds each later call too
        record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS,
        durability: Durability = IN_MEMORY,
        writer: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> RedisStore:
        """Connect to a store.

        Parameters
        ----------
        url
            As `topk_bandit.store.redis.url` has it. Redis Cluster is recognised, and asked for with the address of any
            of its servers.
        timeout
            Seconds that each call may take.
        durability
            What is awaited before a write is acknowledged; recording a recommendation acknowledges nothing.
        writer
            The name of this store's writes, in one word; empty for a store that yields all. `changes` leaves out what
            the answers of its calls return. If a bandit's only follower has this name, its writes are announced to
            nobody.
        monotonic
            A clock that never goes back, in seconds.

        Raises
        ------
        ConfigurationError
            The URL or the prefix can't be used, or the server refuses the user and password.
        UnavailableError
            No server answers in time.
        """
        KeySpace(prefix)
        link = await Link.open(url, timeout=timeout, monotonic=monotonic, durability=durability)
        return cls(link, prefix=prefix, record_retention_ms=record_retention_ms, writer=writer)

    async def create_bandit(
        self,
        name: BanditName,
        settings: BanditSettings,
        *,
        incarnation: str,
        quota: int,
        prior: Prior | None = None,
    ) -> BanditRecord:
        """See `Store.create_bandit`."""
        known = await self._bandits.find(name)
        if known is None:
            known = await self._create(name, BanditCreated(settings, prior), incarnation, quota)
        elif known.settings == settings:
            return await self.update_settings(name, settings, revision=known.revision)
        if known.settings != settings:
            raise refusal("bandit_exists", name)
        return known

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """See `Store.get_bandit`."""
        return await self._bandits.get(name)

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """See `Store.list_bandits`."""
        return await self._bandits.page(tenant, after=after, limit=limit)

    async def is_listed(self, name: BanditName) -> bool:
        """See `Store.is_listed`."""
        return not await self._bandits.index.find_unlisted(name.tenant, [name.bandit]) or await self._tenants.is_bare(
            name.tenant
        )

    async def list_tenants(self, *, after: str, limit: int) -> Sequence[str]:
        """See `Store.list_tenants`."""
        found: list[str] = []
        while len(found) < limit:
            listed = await self._tenants.page(after=after)
            if not listed:
                break
            have = await asyncio.gather(*map(self._has_any, listed))
            found.extend(tenant for tenant, any_of in zip(listed, have, strict=True) if any_of)
            after = listed[-1]
        return tuple(found[:limit])

    async def _has_any(self, tenant: str) -> bool:
        """Return whether a tenant has a bandit or a study."""
        pages = (self._bandits.page, self.studies().list_studies)
        return any([await page(tenant, after="", limit=1) for page in pages])

    async def measure(self, tenant: str) -> TenantUse:
        """See `Store.measure`; a page of bandits at once."""
        use, after = TenantUse(), ""
        while page := await self._bandits.index.page(tenant, after=after, limit=_MEASURED_AT_ONCE):
            found = await asyncio.gather(*(self.measure_bandit(BanditName(tenant, entry)) for entry in page))
            use = TenantUse(*map(sum, zip(use, *found, strict=True)))
            after = page[-1]
        return use

    async def measure_bandit(self, name: BanditName) -> TenantUse:
        """See `Store.measure_bandit`."""
        try:
            return TenantUse(*await self._link.run(scripts.MEASURE, self._keys.bandit(name).all, (BYTES_OF_VISITOR,)))
        except CorruptDataError:
            return TenantUse()

    async def delete_bandit(self, name: BanditName) -> None:
        """See `Store.delete_bandit`."""
        dropped = await self._link.call("UNLINK", *self._keys.restore(name).all)
        with suppress(CorruptDataError):  # what is damaged goes as a whole, and what is in no list expires
            await self._forget_visitors(name)
        try:
            await self._bandits.delete(name)
        except NotFoundError:
            if not dropped:
                raise
        with suppress(UnavailableError):  # a tenant that is listed without bandits is passed over
            await self._tenants.drop(name.tenant)

    async def _forget_visitors(self, name: BanditName) -> None:
        """Remove what visitors saw; of one who comes meanwhile it expires."""
        keys, first = self._keys.bandit(name), 0
        while found := await self._link.call("ZRANGE", keys.visitors, first, first + _VISITORS_AT_ONCE - 1):
            await self._link.call("UNLINK", *(keys.seen(visitor.decode()) for visitor in found))
            first += _VISITORS_AT_ONCE

    async def note_follower(self, name: BanditName, *, follower: str, items_position: int) -> int:
        """See `Store.note_follower`; one that was not heard of for long is forgotten."""
        keys = self._keys.bandit(name)
        arguments = (follower, items_position, FOLLOWER_RETENTION_MS)
        _, newest = await self._bandits.ask(scripts.NOTE_FOLLOWER, name, (keys.meta, keys.followers), arguments)
        return int(newest)

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:
        """See `Store.slowest_follower`."""
        keys = self._keys.bandit(name)
        _, position = await self._bandits.ask(
            scripts.SLOWEST_FOLLOWER, name, (keys.meta, keys.followers), (heard_within_ms,)
        )
        return int(position)

    async def list_items(self, name: BanditName) -> Sequence[Item]:
        """See `Store.list_items`."""
        keys = self._keys.bandit(name)
        _, items = await self._bandits.ask(scripts.LIST_ITEMS, name, (keys.meta, keys.items))
        return read_items(items)

    async def _read(self, name: BanditName, sought: Sought) -> Known:
        return await self._journal.read(name, sought)

    async def _read_due(self, name: BanditName, *, limit: int) -> Due | None:
        return await self._journal.read_due(name, limit=limit)

    async def _commit(
        self, name: BanditName, decided: Sequence[tuple[Known, Commit]], *, is_durable: bool, hands_on: bool
    ) -> Commits:
        return await self._journal.commit(name, decided, is_durable=is_durable, hands_on=hands_on)

    async def _forget_closed(self, name: BanditName) -> None:
        await self._journal.forget_closed(name)

    def _presume(
        self, name: BanditName, key: str, *, items_position: int | None = None, visits: Visits | None = None
    ) -> Known | None:
        return self._journal.presume(name, key, items_position=items_position, visits=visits)

    def find_overdue(self, *, pause_seconds: float = 0.0) -> AsyncIterator[BanditName]:
        """See `Store.find_overdue` and `topk_bandit.store.redis.overdue`."""
        return find_overdue(
            self._link,
            self._keys,
            self._tenants,
            self._bandits.index,
            retention_ms=self._record_retention_ms,
            pause_seconds=pause_seconds,
        )

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> LogSlice:
        """See `Store.read_log`; a `start` before the first position kept gives no events."""
        keys = self._keys.bandit(name)
        _, *parts = await self._bandits.ask(scripts.READ_LOG, name, (keys.meta, keys.log), (start, limit))
        return read_slice(parts, start=start)

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """See `Store.read_texts`."""
        keys = self._keys.bandit(name)
        _, *parts = await self._bandits.ask(scripts.READ_LOG, name, (keys.meta, keys.log), (start, limit))
        return await read_texts(parts, start=start, version=self.data_version)

    async def save_snapshot(
        self, name: BanditName, snapshot: Snapshot, *, incarnation: str, behind: int = 0, through: int | None = None
    ) -> bool:
        """See `Store.save_snapshot`; a bandit that does not exist keeps none, and one that does not verify goes."""
        generations = await self._generations(name)
        if generations is None:
            return False
        fit = [slot for slot, kept in generations.verified if kept.position == behind]
        others = [*fit, *(slot for slot, _ in generations.verified), 1]
        keys = self._keys.bandit(name)
        frame = (snapshot.position, encode_snapshot(snapshot, self.data_version))
        trimmed = min(behind, behind if through is None else through) if fit else 0
        place = (generations.newest_position, 1 - others[0], trimmed)
        kept = await self._link.run(
            scripts.SAVE_SNAPSHOT, (keys.meta, keys.log, *keys.snapshots), (incarnation, *frame, *place)
        )
        return bool(kept)

    async def load_snapshots(self, name: BanditName) -> Sequence[Snapshot]:
        """See `Store.load_snapshots`; one that does not verify is left out and logged, and no bandit has none."""
        generations = await self._generations(name)
        return () if generations is None else tuple(snapshot for _, snapshot in generations.verified)

    async def read_contents(self, name: BanditName) -> Contents:
        """See `Store.read_contents`."""
        keys = self._keys.bandit(name)
        _, meta, retired = await self._bandits.ask(scripts.READ_CONTENTS, name, (keys.meta, keys.retired))
        return read_contents(name, meta, retired)

    async def scan_slates(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[Recorded]]:
        """See `Store.scan_slates`."""
        keys = self._keys.bandit(name)
        _, after, *found = await self._bandits.ask(
            scripts.SCAN_SLATES, name, (keys.meta, keys.recommendations, keys.deadlines), (cursor,)
        )
        records = (read_record(key.decode(), packed) for key, packed in zip(found[::2], found[1::2], strict=True))
        return int(after), [record for record in records if record.is_open]

    async def scan_imports(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:
        """See `Store.scan_imports`."""
        keys = self._keys.bandit(name)
        _, after, found = await self._bandits.ask(scripts.SCAN_IMPORTS, name, (keys.meta, keys.imports), (cursor,))
        return int(after), read_parts(found)

    async def find_restore(self, name: BanditName) -> Restore | None:
        """See `Store.find_restore`."""
        return await self._restores.find(name)

    async def read_restored(
        self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]
    ) -> Restored:
        """See `Store.read_restored`."""
        return await self._restores.read(name, slates=slates, imports=imports)

    async def read_restored_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """See `Store.read_restored_log`."""
        return await self._restores.read_log(name, start=start, limit=limit)

    async def record_restore(self, name: BanditName, step: RestoreStep, *, before: Restore) -> bool:
        """See `Store.record_restore`."""
        return await self._restores.record(name, step, before=before)

    async def load_restored_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_restored_snapshot`."""
        return await self._restores.load_snapshot(name)

    async def finish_restore(self, name: BanditName, restore: Restore, *, quota: int) -> BanditRecord:
        """See `Store.finish_restore`."""
        reserved_ms = 0
        if await self._bandits.find(name) is None:
            reserved_ms = await self._bandits.reserve(name, incarnation=restore.incarnation, quota=quota)
            await self._tenants.add(name.tenant)
        return await self._restores.finish(name, restore, reserved_ms=reserved_ms, meta=_meta_of(restore))

    async def find_restored_record(self, name: BanditName, import_id: str) -> BanditRecord | None:
        """See `Store.find_restored_record`."""
        return await self._restores.find_made(name, import_id)

    async def changes(self) -> AsyncIterator[BanditName | None]:
        """See `Store.changes`; the first is None, once changes are listened for, and a closed store has no more."""
        subscription = Subscription(
            self._link.subscriber, channel=self._keys.changes, silence=self._link.silence_of(self._keys.changes)
        )
        self._subscriptions.add(subscription)
        try:
            async with aclosing(subscription.messages()) as messages:
                async for message in messages:
                    name, writer = (None, "") if message is None else self._keys.read_announcement(message)
                    if not writer or writer != self.writer:
                        yield name
        finally:
            self._subscriptions.discard(subscription)

    @property
    def data_version(self) -> int:
        """See `Store.data_version`."""
        return self._link.data_version

    def find_damaged(self, *, pause_seconds: float = 0.0) -> AsyncIterator[Damage]:
        """Yield each bandit whose keys are damaged; see `topk_bandit.store.redis.damage`."""
        return find_damaged(self._link, self._keys, self._tenants, self._bandits.index, pause_seconds=pause_seconds)

    def find_unlisted(self, *, pause_seconds: float = 0.0) -> AsyncIterator[BanditName]:
        """Yield each bandit that lists lack; see `topk_bandit.store.redis.unlisted`."""
        return find_unlisted(self._link, self._keys, self._tenants, self._bandits.index, pause_seconds=pause_seconds)

    def find_gone(self) -> AsyncIterator[str]:
        """Yield what is listed and gone; see `topk_bandit.store.redis.unlisted`."""
        return find_gone(self._tenants, self._bandits.index)

    async def list_again(self, name: BanditName) -> None:
        """See `Store.list_again`."""
        incarnation = await self._link.call("HGET", self._keys.bandit(name).meta, "incarnation") or b"lost"
        await self._bandits.index.enter_again(name.tenant, name.bandit, incarnation=incarnation.decode())
        await self._tenants.add(name.tenant)

    def programs(self, worker: str, *, about: str) -> Programs:
        """Return a worker's share in the data version of the store; `about` is what an operator knows it by."""
        return Programs(self._link, self._keys.programs, worker=worker, about=about)

    def studies(self) -> RedisStudies:
        """Return the store of studies that shares this one's connections; it is closed with this one."""
        return RedisStudies(self._link, self._keys)

    async def check(self, durability: Durability | None = None) -> StoreReport:
        """See `Store.check`."""
        awaited = durability or self._link.durability
        infos = await self._link.ask_primaries("INFO")
        times = await self._link.ask_primaries("TIME")
        seconds, microseconds = next(iter(times.values()))
        return report(
            infos,
            settings=await self._link.read_settings("appendfsync", "min-replicas-to-write"),
            refusals=await self._find_refusals(awaited),
            durability=awaited,
            mode=self._link.mode,
            clock_ms=seconds * 1000 + microseconds // 1000,
        )

    async def _find_refusals(self, awaited: Durability) -> Mapping[str, Sequence[str]]:
        """Return what servers do not let the store's user do, by their names."""
        key, prefix = self._keys.probe("permissions"), self._keys.prefix
        answers = await self._link.ask_permissions(permission_check(awaited, key=key, channel=self._keys.changes))
        return {name: describe_refused(answer, prefix=prefix) for name, answer in answers.items()}

    async def time_writes(self, *, count: int) -> Sequence[float]:
        """Return how long writes take; see `topk_bandit.store.redis.write_times`."""
        return await time_writes(self._link, self._keys, count=count)

    async def close(self) -> None:
        """See `Store.close`."""
        for subscription in tuple(self._subscriptions):
            await subscription.close()
        await self._link.close()

    async def _create(self, name: BanditName, event: BanditCreated, incarnation: str, quota: int) -> BanditRecord:
        reserved_ms = await self._bandits.reserve(name, incarnation=incarnation, quota=quota)
        # After the reservation: who takes the tenant out looks for one before and after.
        await self._tenants.add(name.tenant)
        keys = self._keys.bandit(name)
        created = (incarnation, encode_settings(event.settings, self.data_version), self._encode_event(event))
        return await self._bandits.create(
            scripts.CREATE_BANDIT,
            name,
            keys.all,
            (*self._announcing(name), *created, reserved_ms, RESERVATION_MS, *_flat(settings_fields(event.settings))),
        )

    async def _generations(self, name: BanditName) -> _Generations | None:
        keys = self._keys.bandit(name)
        reply = await self._link.run(scripts.LOAD_SNAPSHOTS, (keys.meta, *keys.snapshots))
        if not reply:
            return None
        newest_position, *frames = reply
        verified = [(slot, _verify(name, frame)) for slot, frame in enumerate(frames) if frame]
        good = [(slot, snapshot) for slot, snapshot in verified if snapshot is not None]
        return _Generations(int(newest_position), sorted(good, key=lambda kept: -kept[1].position))

    def _encode_event(self, event: Event) -> bytes:
        return encode_event(event, self.data_version)

    def _announcing(self, name: BanditName) -> tuple[str, str]:
        return self._bandits.announcing(name)


def _kind(keys: KeySpace) -> Kind[BanditName, BanditRecord]:
    return Kind(
        noun="bandit",
        name=BanditName,
        entry=lambda name: name.bandit,
        index=keys.bandits,
        keys=keys.bandit,
        read=read_bandit,
        refusals=REFUSALS,
        absent="no_bandit",
        full="full",
        announcing=lambda name: (keys.changes, keys.announcement(name)),
    )


def _meta_of(restore: Restore) -> tuple[str | int, ...]:
    """Return the fields of a restored bandit, each its name and its value."""
    same: tuple[str, ...] = ("incarnation", "settings", "revision", "created_ms", "items_position", "first_position")
    same += ("pending",)
    same += ("late_rewards", "clamped_rewards", "lost_events", "lost_rewards", "imported_position", "import_parts")
    fields: dict[str, str | int] = {name: getattr(restore, name) for name in same}
    fields |= {"log_position": restore.position, "snapshot_position": restore.first_position - 1}
    fields["closed"] = NOTHING_CLOSED
    return _flat(fields | settings_fields(settings_of(restore)))


def _flat(fields: Mapping[str, str | int]) -> tuple[str | int, ...]:
    """Return the name and the value of each field, in one sequence."""
    return tuple(part for field in fields.items() for part in field)


def _verify(name: BanditName, frame: bytes) -> Snapshot | None:
    try:
        return decode_snapshot(frame)
    except CorruptDataError as error:
        _LOG.error("passed over a snapshot of %s: %s", name, error)
        return None
