"""A store of bandits in this process, for tests and as the reference for other stores.

It keeps the promises of `topk_bandit.store.log`: no method awaits between its first read and its last write, or else
what it writes is committed as in other stores, if what was read is unchanged. It never writes to a disk, and its data
end with the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import TYPE_CHECKING, final

from topk_bandit.domain.operators import EventText
from topk_bandit.domain.quotas import TenantUse
from topk_bandit.store.codec import decode_event, decode_snapshot, encode_event
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import BanditCreated, LoggedEvent
from topk_bandit.store.journaled import Commits, Committed, Due, JournaledStore, Sought
from topk_bandit.store.log import (
    DEFAULT_RECORD_RETENTION_MS,
    Appended,
    BanditRecord,
    Contents,
    LogSlice,
    LostEvents,
    Snapshot,
    StoreReport,
    TextSlice,
)
from topk_bandit.store.memory.imports import Imports
from topk_bandit.store.memory.restores import PartialBandit, Restores
from topk_bandit.store.recorded import RecordState
from topk_bandit.store.refusals import refusal
from topk_bandit.store.restore_state import Restore, Restored
from topk_bandit.store.restores import item_digest, settings_of
from topk_bandit.store.rules.decisions import (
    Known,
    Life,
    Loss,
    moved_positions,
    settled_events,
    settled_slates,
)
from topk_bandit.store.rules.provisional import due_of
from topk_bandit.store.visits import BYTES_OF_VISITOR, Visits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Item, Prior
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.events import Event
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.restore_state import RestoreStep
    from topk_bandit.store.rules.decisions import Commit
    from topk_bandit.store.visits import SeenSlate

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Bandit:
    """A bandit, mutable; what leaves the store is a `BanditRecord`."""

    name: BanditName
    incarnation: str
    settings: BanditSettings
    created_ms: int
    revision: int = 1
    items_position: int = 0
    imported_position: int = 0
    late_rewards: int = 0
    clamped_rewards: int = 0
    first_position: int = 1
    log_position: int = 0
    events: list[LoggedEvent] = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    recorded: dict[str, Recorded] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    imports: Imports = field(default_factory=Imports)
    snapshots: tuple[Snapshot, ...] = ()
    followers: dict[str, tuple[int, int]] = field(default_factory=dict)
    restored_by: str = ""
    life: Life = field(default_factory=Life)
    visits: dict[str, Visits] = field(default_factory=dict)

    def record(self) -> BanditRecord:
        return BanditRecord(
            name=self.name,
            incarnation=self.incarnation,
            settings=self.settings,
            revision=self.revision,
            created_ms=self.created_ms,
            items_position=self.items_position,
            log_position=self.log_position,
            snapshot_position=self.snapshots[0].position if self.snapshots else 0,
            pending=sum(self.recorded[key].state is RecordState.PENDING for key in self.deadlines),
            late_rewards=self.late_rewards,
            clamped_rewards=self.clamped_rewards,
            lost_events=self.life.loss.total.events,
            lost_rewards=self.life.loss.total.rewards,
        )

    def appended(self, *, after: int) -> Appended | None:
        """Return what was appended after a position; None if nothing was."""
        events = tuple(self.events[after + 1 - self.first_position :])
        before, checksum = self.checksum_at(after) or "-", self.checksum_at(self.log_position)
        return (
            Appended(self.incarnation, self.revision, before, events, checksum, len(repr(events))) if events else None
        )

    def known(self, sought: Sought, *, now_ms: int) -> Known:
        """Return what a rule decides from."""
        return Known(
            name=self.name,
            incarnation=self.incarnation,
            revision=self.revision,
            settings=self.settings,
            now_ms=now_ms,
            items_position=self.items_position,
            imported_position=self.imported_position,
            log_position=self.log_position,
            first_position=self.first_position,
            slates={key: self.recorded.get(key) for key in sought.slates},
            items={key: self.items[key] for key in sought.items if key in self.items},
            retired=frozenset(key for key in sought.items if item_digest(key) in self.retired),
            item_count=len(self.items),
            imported=None if sought.part is None else self.imports.at(*sought.part),
            life=self.life if sought.life else None,
            visits=self._visits_of(sought.visitor, now_ms=now_ms) if sought.visitor else None,
        )

    def _visits_of(self, visitor: str, *, now_ms: int) -> Visits:
        self.visits = {key: one for key, one in self.visits.items() if one.until_ms > now_ms}
        kept = self.visits.get(visitor, Visits(visitor))
        return replace(kept, now_ms=now_ms, n_visitors=len(self.visits))

    def is_as_known(self, known: Known, commit: Commit, *, now_ms: int) -> bool:
        """Return whether all that a decision was made from is as it was."""
        return (
            (self.incarnation, self.revision) == (known.incarnation, known.revision)
            and commit.items_position in {None, self.items_position}
            and all(getattr(self, name) <= limit for name, limit in commit.most.items())
            and (commit.before_ms is None or now_ms < commit.before_ms)
            and all(self.recorded.get(key) is known.slates[key] for key in commit.slates)
            and known.life in {None, self.life}
            and self.imports.is_as_known(known.imported, commit.part)
            and (known.visits is None or known.visits.slates == self._slates_of(known.visits.visitor, now_ms=now_ms))
        )

    def _slates_of(self, visitor: str, *, now_ms: int) -> tuple[SeenSlate, ...]:
        return self._visits_of(visitor, now_ms=now_ms).slates

    def take(self, commit: Commit, *, first: int) -> None:
        """Take over all of a commit but its events; the first of these is at position `first`."""
        for name, place in moved_positions(commit).items():
            setattr(self, name, first + place)
        self.late_rewards += commit.late
        self.clamped_rewards += commit.clamped
        self.revision += commit.revises
        self.settings = commit.settings or self.settings
        for item_id, item in commit.items.items():
            self.items.pop(item_id, None)
            if item is None:
                self.retired.add(item_digest(item_id))
            else:
                self.items[item_id] = item
        self.imports.take(commit.part, first=first)
        if commit.visits is not None:
            self.visits[commit.visits.visitor] = commit.visits
        self._note(commit)

    def _note(self, commit: Commit) -> None:
        """Note what `Life` has of a commit."""
        if commit.reset_by is not None:
            self.life = replace(self.life, reset_by=commit.reset_by)
        if commit.loss is not None:
            self.life = replace(self.life, loss=commit.loss)
        if commit.skip is not None:
            position = commit.skip.position
            left = frozenset(one for one in self.life.skipped if one >= self.first_position)
            self.life = replace(self.life, skipped=left | {position})
            self.events[position - self.first_position] = LoggedEvent(position, commit.skip.at_ms, commit.skip.event)

    def keep(self, key: str, recorded: Recorded, *, due_ms: int | None) -> None:
        """Remember a slate as it is from now on, and when it is looked at next if that changes."""
        self.recorded[key] = recorded
        if not recorded.is_open:
            self.deadlines.pop(key, None)
        elif due_ms is not None:
            self.deadlines[key] = due_ms

    def checksum_at(self, position: int) -> str:
        """Return the checksum of the event at a position, empty if none is there."""
        offset = position - self.first_position
        if not 0 <= offset < len(self.events):
            return ""
        return sha1(repr(self.events[offset]).encode(), usedforsecurity=False).hexdigest()

    def has_overdue(self, *, now_ms: int, before_ms: int) -> bool:
        """Return whether a slate is to be closed by now, or one that was closed before to be forgotten."""
        closed = (self.recorded[key].closed_ms for key in self.recorded if key not in self.deadlines)
        return any(one <= now_ms for one in self.deadlines.values()) or any(one < before_ms for one in closed)

    def forget(self, *, before_ms: int) -> None:
        """Forget what was closed before."""
        closed = [key for key in self.recorded if key not in self.deadlines]
        for key in closed:
            if self.recorded[key].closed_ms < before_ms:
                del self.recorded[key]


def _bandit_of(name: BanditName, partial: PartialBandit) -> _Bandit:
    """Return the bandit that a restore has made."""
    restore, slates = partial.restore, partial.slates
    return _Bandit(
        name=name,
        incarnation=restore.incarnation,
        settings=settings_of(restore),
        created_ms=restore.created_ms,
        revision=restore.revision,
        items_position=restore.items_position,
        imported_position=restore.imported_position,
        late_rewards=restore.late_rewards,
        clamped_rewards=restore.clamped_rewards,
        life=Life(loss=Loss(total=LostEvents(restore.lost_events, restore.lost_rewards))),
        first_position=restore.first_position,
        log_position=restore.position,
        events=partial.events,
        items=partial.items,
        retired=partial.retired,
        recorded=slates,
        deadlines={key: due_of(settings_of(restore), one) for key, one in slates.items() if one.is_open},
        imports=Imports.of(partial.imports.values()),
        snapshots=(decode_snapshot(partial.snapshot),) if partial.snapshot else (),
        restored_by=restore.import_id,
    )


@final
class MemoryStore(JournaledStore):
    """A `Store` in this process.

    Parameters
    ----------
    clock_ms
        The store's clock.
    record_retention_ms
        How long a closed recommendation is remembered.
    before_commit
        What is waited for between reading and committing, where other calls may come in other stores.
    """

    def __init__(
        self,
        *,
        clock_ms: Callable[[], int],
        record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS,
        before_commit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._clock_ms = clock_ms
        self._before_commit = before_commit
        self._record_retention_ms = record_retention_ms
        self._bandits: dict[BanditName, _Bandit] = {}
        self._restores: Restores[BanditName, Restore, PartialBandit] = Restores(
            PartialBandit, clock_ms=clock_ms, retention_ms=record_retention_ms
        )
        self._listeners: set[asyncio.Queue[BanditName | None]] = set()
        self._closed = asyncio.Event()

    @property
    def data_version(self) -> int:
        """See `Store.data_version`; what ends with this process is for no other program."""
        return NEWEST

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
        known = self._bandits.get(name)
        if known is not None and known.settings == settings:
            return known.record()
        if known is not None:
            raise refusal("bandit_exists", name)
        used = sum(other.tenant == name.tenant for other in self._bandits)
        if used >= quota:
            raise refusal("full", name, f"{used} {quota}")
        now_ms = self._clock_ms()
        bandit = _Bandit(name=name, incarnation=incarnation, settings=settings, created_ms=now_ms)
        self._bandits[name] = bandit
        self._append(bandit, BanditCreated(settings, prior), at_ms=now_ms)
        return bandit.record()

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """See `Store.get_bandit`."""
        return self._bandit(name).record()

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """See `Store.list_bandits`."""
        names = [name for name in self._bandits if name.tenant == tenant and name.bandit.encode() > after.encode()]
        names.sort(key=lambda name: name.bandit.encode())
        return tuple(self._bandits[name].record() for name in names[:limit])

    async def list_tenants(self, *, after: str, limit: int) -> Sequence[str]:
        """See `Store.list_tenants`."""
        tenants = {name.tenant for name in self._bandits if name.tenant.encode() > after.encode()}
        return tuple(sorted(tenants, key=str.encode)[:limit])

    async def is_listed(self, name: BanditName) -> bool:
        """See `Store.is_listed`."""
        return name in self._bandits

    async def list_again(self, name: BanditName) -> None:
        """See `Store.list_again`; there are no lists that could lack one."""

    async def measure(self, tenant: str) -> TenantUse:
        """See `Store.measure`; the bytes are those of a text of the events."""
        found = [await self.measure_bandit(name) for name in self._bandits if name.tenant == tenant]
        return TenantUse(*map(sum, zip(TenantUse(), *found, strict=True)))

    async def measure_bandit(self, name: BanditName) -> TenantUse:
        """See `Store.measure_bandit`."""
        bandit, now_ms = self._bandits.get(name), self._clock_ms()
        if bandit is None:
            return TenantUse()
        n_open = sum(deadline > now_ms for deadline in bandit.deadlines.values())
        return TenantUse(len(bandit.items), n_open, len(repr(bandit.events)) + BYTES_OF_VISITOR * len(bandit.visits))

    async def delete_bandit(self, name: BanditName) -> None:
        """See `Store.delete_bandit`."""
        if self._restores.find(name) is None:
            self._bandit(name)
        self._restores.drop(name)
        if self._bandits.pop(name, None) is not None:
            self._announce(name)

    async def note_follower(self, name: BanditName, *, follower: str, items_position: int) -> int:
        """See `Store.note_follower`."""
        bandit = self._bandit(name)
        bandit.followers[follower] = (items_position, self._clock_ms())
        return bandit.items_position

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:
        """See `Store.slowest_follower`."""
        bandit = self._bandit(name)
        since_ms = self._clock_ms() - heard_within_ms
        heard = (position for position, at_ms in bandit.followers.values() if at_ms >= since_ms)
        return min(heard, default=bandit.items_position)

    async def list_items(self, name: BanditName) -> Sequence[Item]:
        """See `Store.list_items`."""
        return tuple(sorted(self._bandit(name).items.values(), key=lambda item: item.item_id.encode()))

    async def _read(self, name: BanditName, sought: Sought) -> Known:
        return self._bandit(name).known(sought, now_ms=self._clock_ms())

    async def _read_due(self, name: BanditName, *, limit: int) -> Due | None:
        bandit, now_ms = self._bandits.get(name), self._clock_ms()
        if bandit is None:
            return None
        inorder = sorted((deadline, key.encode(), key) for key, deadline in bandit.deadlines.items())
        due = [key for deadline, _, key in inorder[:limit] if deadline <= now_ms]
        left = inorder[len(due) :]
        return Due(bandit.known(Sought(tuple(due)), now_ms=now_ms), left[0][0] if left else None, forgets=True)

    async def _commit(
        self,
        name: BanditName,
        decided: Sequence[tuple[Known, Commit]],
        *,
        is_durable: bool,  # noqa: ARG002 - it keeps nothing
        hands_on: bool,  # noqa: ARG002 - whoever listens gets all
    ) -> Commits:
        if self._before_commit is not None:
            await self._before_commit()
        return Commits([self._commit_now(name, *one) for one in decided])

    def _commit_now(self, name: BanditName, known: Known, commit: Commit) -> Committed | None:
        bandit, now_ms = self._bandit(name), self._clock_ms()
        if not bandit.is_as_known(known, commit, now_ms=now_ms):
            return None
        before = bandit.log_position
        for event in settled_events(commit, at_ms=now_ms):
            self._append(bandit, event, at_ms=now_ms)
        for key, recorded in settled_slates(commit, first=before + 1, at_ms=now_ms).items():
            due_ms = commit.due_ms.get(key)
            if key not in bandit.recorded:
                due_ms = now_ms + (commit.wait_ms if commit.due_after_ms is None else commit.due_after_ms)
            bandit.keep(key, recorded, due_ms=due_ms)
        bandit.take(commit, first=before + 1)
        return Committed(before + 1 if commit.events else 0, now_ms, bandit.appended(after=before))

    async def _forget_closed(self, name: BanditName) -> None:
        if name in self._bandits:
            self._bandits[name].forget(before_ms=self._clock_ms() - self._record_retention_ms)

    async def find_overdue(self, *, pause_seconds: float = 0.0) -> AsyncIterator[BanditName]:  # noqa: ARG002
        """See `Store.find_overdue`; nobody has to be left alone."""
        now_ms = self._clock_ms()
        for name, bandit in sorted(self._bandits.items()):
            if bandit.has_overdue(now_ms=now_ms, before_ms=now_ms - self._record_retention_ms):
                yield name

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> LogSlice:
        """See `Store.read_log`; a `start` before the first position kept gives no events."""
        bandit = self._bandit(name)
        offset = start - bandit.first_position
        events = tuple(bandit.events[offset : offset + limit]) if offset >= 0 else ()
        return LogSlice(
            incarnation=bandit.incarnation,
            first_position=bandit.first_position,
            log_position=bandit.log_position,
            events=events,
            skipped=bandit.life.skipped,
            revision=bandit.revision,
            checksum=bandit.checksum_at(events[-1].position) if events else "",
        )

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """See `Store.read_texts`."""
        part = await self.read_log(name, start=start, limit=limit)
        texts = (EventText(one.position, one.at_ms, encode_event(one.event, self.data_version)) for one in part.events)
        return TextSlice(part.incarnation, part.first_position, part.log_position, tuple(texts))

    async def save_snapshot(
        self, name: BanditName, snapshot: Snapshot, *, incarnation: str, behind: int = 0, through: int | None = None
    ) -> bool:
        """See `Store.save_snapshot`; a bandit that does not exist keeps none."""
        bandit = self._bandits.get(name)
        if bandit is None or bandit.incarnation != incarnation:
            return False
        newest = bandit.snapshots[0].position if bandit.snapshots else 0
        if not newest < snapshot.position <= bandit.log_position:
            return False
        fit = tuple(kept for kept in bandit.snapshots if kept.position == behind)
        older = fit or bandit.snapshots[:1]
        bandit.snapshots = (Snapshot(position=snapshot.position, payload=bytes(snapshot.payload)), *older)
        trimmed = min(behind, behind if through is None else through)
        if fit and trimmed >= bandit.first_position:
            del bandit.events[: trimmed + 1 - bandit.first_position]
            bandit.first_position = trimmed + 1
        return True

    async def load_snapshots(self, name: BanditName) -> Sequence[Snapshot]:
        """See `Store.load_snapshots`; a bandit that does not exist has none."""
        bandit = self._bandits.get(name)
        return () if bandit is None else bandit.snapshots

    async def read_contents(self, name: BanditName) -> Contents:
        """See `Store.read_contents`."""
        bandit = self._bandit(name)
        retired = tuple(sorted(bandit.retired))
        return Contents(bandit.record(), bandit.first_position, bandit.imported_position, retired)

    async def scan_slates(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[Recorded]]:  # noqa: ARG002
        """See `Store.scan_slates`; all come at once, whatever the cursor."""
        bandit = self._bandit(name)
        return 0, [bandit.recorded[key] for key in bandit.deadlines]

    async def scan_imports(
        self,
        name: BanditName,
        *,
        cursor: int,  # noqa: ARG002
    ) -> tuple[int, Sequence[ArchivedImport]]:
        """See `Store.scan_imports`; all come at once, whatever the cursor."""
        return 0, self._bandit(name).imports.archived()

    async def find_restore(self, name: BanditName) -> Restore | None:
        """See `Store.find_restore`."""
        partial = self._restores.find(name)
        return partial.restore if partial else None

    async def read_restored(
        self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]
    ) -> Restored:
        """See `Store.read_restored`."""
        known = self._restores.find(name) or PartialBandit(Restore(""))
        return Restored(
            {key: known.slates[key] for key in slates if key in known.slates},
            {part: known.imports[part] for part in imports if part in known.imports},
        )

    async def read_restored_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """See `Store.read_restored_log`."""
        partial = self._restores.find(name)
        if partial is None:
            return ()
        place = start - partial.restore.first_position
        return partial.events[place : place + limit]

    async def record_restore(self, name: BanditName, step: RestoreStep, *, before: Restore) -> bool:
        """See `Store.record_restore`."""
        return self._restores.take(name, step, before=before)

    async def load_restored_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_restored_snapshot`."""
        partial = self._restores.find(name)
        return partial.snapshot if partial else b""

    async def finish_restore(self, name: BanditName, restore: Restore, *, quota: int) -> BanditRecord:
        """See `Store.finish_restore`."""
        if (made := await self.find_restored_record(name, restore.import_id)) is not None:
            return made
        used = sum(other.tenant == name.tenant for other in self._bandits)
        if used >= quota:
            raise refusal("full", name, f"{used} {quota}")
        partial = self._restores.find(name)
        if partial is None or partial.restore != restore:
            raise refusal("arrival_replaced", name)
        self._bandits[name] = _bandit_of(name, partial)
        self._restores.drop(name)
        self._announce(name)
        return self._bandits[name].record()

    async def find_restored_record(self, name: BanditName, import_id: str) -> BanditRecord | None:
        """See `Store.find_restored_record`."""
        known = self._bandits.get(name)
        if known is not None and known.restored_by != import_id:
            raise refusal("arrived", name)
        return None if known is None else known.record()

    async def changes(self) -> AsyncIterator[BanditName | None]:
        """See `Store.changes`; the first is None, once changes are listened for, and a closed store has no more."""
        listener: asyncio.Queue[BanditName | None] = asyncio.Queue()
        self._listeners.add(listener)
        try:
            yield None
            while not self._closed.is_set():
                name = await listener.get()
                if name is not None:
                    yield name
        finally:
            self._listeners.discard(listener)

    async def check(self, durability: Durability | None = None) -> StoreReport:  # noqa: ARG002 - it keeps none
        """See `Store.check`."""
        return StoreReport(
            server="memory", version="1", role="master", mode="standalone", problems=(), clock_ms=self._clock_ms()
        )

    async def close(self) -> None:
        """See `Store.close`."""
        self._closed.set()
        for listener in self._listeners:
            listener.put_nowait(None)

    def _bandit(self, name: BanditName) -> _Bandit:
        bandit = self._bandits.get(name)
        if bandit is None:
            raise refusal("no_bandit", name)
        return bandit

    def _append(self, bandit: _Bandit, event: Event, *, at_ms: int) -> int:
        bandit.log_position += 1
        as_read = decode_event(encode_event(event, self.data_version))  # where -0.0 is 0.0, for example
        bandit.events.append(LoggedEvent(position=bandit.log_position, at_ms=at_ms, event=as_read))
        self._announce(bandit.name)
        return bandit.log_position

    def _announce(self, name: BanditName) -> None:
        for listener in self._listeners:
            listener.put_nowait(name)
