"""A store of bandits in this process, for tests and as the reference for other stores.

It keeps the promises of `topk_bandit.store.log`: no method awaits between its first read and its last write, so that
each is atomic on one event loop. It never writes to a disk, and its data end with the process.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple, final

from topk_bandit.domain.bandits import (
    Activated,
    ActivationOutcome,
    ActivationReceipt,
    Aggregation,
    BanditCreated,
    BanditReset,
    Expired,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardOutcome,
    RewardReceipt,
    SettingsChanged,
)
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.domain.operators import EventText
from topk_bandit.domain.quotas import TenantUse
from topk_bandit.store.archive_lines import ArchivedImport
from topk_bandit.store.arrivals import item_digest, settings_of
from topk_bandit.store.arriving import Arrival, Arrived
from topk_bandit.store.codec import canonical, decode_snapshot, encode_event, fingerprint
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.log import (
    DEFAULT_RECORD_RETENTION_MS,
    MOST_IMPORT_PARTS,
    MOST_REWARDS,
    MOST_SKIPPED,
    Appended,
    BanditRecord,
    Expiry,
    Holdings,
    ImportOutcome,
    ImportProgress,
    LogSlice,
    LostEvents,
    RecordOutcome,
    RecordStatus,
    Snapshot,
    Store,
    StoreReport,
    TextSlice,
)
from topk_bandit.store.memory.arriving import Arrivals, ArrivingBandit, progress_of, repeated_parts
from topk_bandit.store.recorded import PostedReward, Recorded, RecordState, aggregate
from topk_bandit.store.refusals import finite_text, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from topk_bandit.domain.bandits import (
        BanditName,
        BanditSettings,
        Event,
        Imported,
        Item,
        Prior,
        Recommendation,
        RecommendationRequest,
        Reward,
    )
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.arriving import Arriving
    from topk_bandit.store.log import AppendedEvents, Correctable, ImportPart, Skip

__all__ = ["MemoryStore"]


class _ItemsAfter(NamedTuple):
    """Items, digests of the ids of retired ones, and what a change made of them."""

    items: dict[str, Item]
    retired: set[str]
    change: ItemsChanged = ItemsChanged()


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
    lost: LostEvents = field(default_factory=lambda: LostEvents(0, 0))
    loss: tuple[int, int] = (0, 0)
    first_position: int = 1
    log_position: int = 0
    events: list[LoggedEvent] = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    recorded: dict[str, Recorded] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    imports: dict[str, ImportProgress] = field(default_factory=dict)
    import_parts: dict[tuple[str, int], tuple[str, ImportOutcome]] = field(default_factory=dict)
    snapshots: tuple[Snapshot, ...] = ()
    followers: dict[str, tuple[int, int]] = field(default_factory=dict)
    arrived: str = ""
    reset_by: str = ""
    skipped: frozenset[int] = frozenset()

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
            lost_events=self.lost.events,
            lost_rewards=self.lost.rewards,
        )

    def tell(self, told: AppendedEvents | None, *, after: int) -> None:
        """Put what was appended after a position where it is wanted; None if nothing was."""
        events = tuple(self.events[after + 1 - self.first_position :])
        before, checksum = self.checksum_at(after) or "-", self.checksum_at(self.log_position)
        appended = Appended(self.incarnation, self.revision, before, events, checksum, len(repr(events)))
        if told is not None:
            told.append(appended if events else None)

    def checksum_at(self, position: int) -> str:
        """Return the checksum of the event at a position, empty if none is there."""
        offset = position - self.first_position
        if not 0 <= offset < len(self.events):
            return ""
        return sha1(repr(self.events[offset]).encode(), usedforsecurity=False).hexdigest()

    def recall(self, request: RecommendationRequest, recommendation_id: str) -> Recommendation | None:
        recorded = self.recorded.get(recommendation_id)
        if recorded is None:
            return None
        if recorded.fingerprint != fingerprint(request):
            raise refusal("request_id_reused", self.name)
        if not recorded.is_open and recorded.logged < self.first_position:
            raise refusal("slate_gone", self.name, recommendation_id)
        return recorded.recommendation

    def within_range(self, value: float) -> float:
        """Return a reward as it is to be learned, or refuse it."""
        taken = self.settings.reward_range
        if taken is None or taken.low <= value <= taken.high:
            return value
        if not taken.clamp:
            raise refusal("out_of_range", self.name, f"{canonical(taken.low)} {canonical(taken.high)}")
        return min(max(value, taken.low), taken.high) + 0.0

    def check_correction(
        self, recommendation_id: str, chosen: Sequence[PostedReward], value: float | None, *, ends: bool
    ) -> float | None:
        """Return what the chosen rewards are to be, or refuse it."""
        if not (chosen or ends):
            raise refusal("no_reward", self.name, recommendation_id)
        if value is None:
            return None
        if len(chosen) > 1:
            raise refusal("no_reward_id", self.name)
        if chosen[0].value is None:
            raise refusal("reward_void", self.name, recommendation_id)
        return self.within_range(value)

    def is_correctable(self, recommendation_id: str, known: Correctable) -> bool:
        """Tell whether what was learned can be corrected now; refuse it if it never can be again."""
        if self.recorded[recommendation_id].aside:
            return True
        if self.recorded[recommendation_id].position > known.version:
            return False
        if not known.last_position:
            raise refusal("folded", self.name, recommendation_id)
        is_same = (self.incarnation, self.revision) == (known.incarnation, known.revision)
        # New items may take the places of old ones, which folds rewards, and an import does.
        is_same = is_same and max(self.items_position, self.imported_position) <= known.version
        return is_same and self.log_position < known.last_position

    def recall_import(self, part: ImportPart) -> ImportOutcome | None:
        """Return what became of a part that was recorded before; refuse one that can't be."""
        known = self.import_parts.get((part.import_id, part.first_row))
        next_row = self.imports.get(part.import_id, ImportProgress()).next_row
        if known is not None and known[0] == part.fingerprint:
            return known[1]
        if part.first_row < next_row:
            raise refusal("import_reused", self.name, part.first_row)
        if part.first_row > next_row:
            raise refusal("import_gap", self.name, next_row)
        return None

    def check_shown(self, slate: Sequence[str], *, size: int) -> None:
        """Refuse what can't have been shown."""
        if len(slate) != size:
            raise refusal("wrong_slate", self.name, size)
        for item_id in slate:
            if item_id not in self.items:
                raise refusal("no_item", self.name, item_id)

    def expiry(self, recommendation_id: str) -> Expired:
        default = self.settings.default_reward
        recorded = self.recorded[recommendation_id]
        if default is None:
            return Expired(recommendation_id, None, None, aside=recorded.aside)
        return Expired(recommendation_id, default + 0.0, recorded.shown, aside=recorded.aside)

    def close(self, recommendation_id: str, state: RecordState, *, at_ms: int) -> None:
        recorded = self.recorded[recommendation_id]
        recorded.state, recorded.closed_ms = state, at_ms
        self.deadlines.pop(recommendation_id, None)

    def has_overdue(self, *, now_ms: int, before_ms: int) -> bool:
        """Tell whether a slate is to be closed by now, or one that was closed before to be forgotten."""
        closed = (self.recorded[key].closed_ms for key in self.recorded if key not in self.deadlines)
        return any(one <= now_ms for one in self.deadlines.values()) or any(one < before_ms for one in closed)

    def forget(self, *, before_ms: int) -> None:
        """Forget what was closed before."""
        closed = [key for key in self.recorded if key not in self.deadlines]
        for key in closed:
            if self.recorded[key].closed_ms < before_ms:
                del self.recorded[key]

    def with_items(self, upserted: Sequence[Item], retired: Sequence[str]) -> _ItemsAfter:
        """Return the items as they would be, and what differs."""
        after = _ItemsAfter(dict(self.items), set(self.retired))
        changed = [item for item in upserted if self._upsert(after, item)]
        gone = [item_id for item_id in retired if self._retire(after, item_id)]
        return after._replace(change=ItemsChanged(upserted=tuple(changed), retired=tuple(gone)))

    def _upsert(self, after: _ItemsAfter, item: Item) -> bool:
        known = after.items.get(item.item_id)
        if known is None and item_digest(item.item_id) in after.retired:
            raise refusal("item_retired", self.name, item.item_id)
        if known is None and len(after.items) >= self.settings.item_capacity:
            raise refusal("item_capacity", self.name, self.settings.item_capacity)
        after.items[item.item_id] = item
        return item != known

    def _retire(self, after: _ItemsAfter, item_id: str) -> bool:
        known = after.items.pop(item_id, None)
        if known is None and item_digest(item_id) not in after.retired:
            raise refusal("no_item", self.name, item_id)
        after.retired.add(item_digest(item_id))
        return known is not None


def _bandit_of(name: BanditName, arrived: ArrivingBandit) -> _Bandit:
    """Return the bandit that has arrived."""
    arrival, slates = arrived.arrival, arrived.slates
    return _Bandit(
        name=name,
        incarnation=arrival.incarnation,
        settings=settings_of(arrival),
        created_ms=arrival.created_ms,
        revision=arrival.revision,
        items_position=arrival.items_position,
        imported_position=arrival.imported_position,
        late_rewards=arrival.late_rewards,
        clamped_rewards=arrival.clamped_rewards,
        lost=LostEvents(arrival.lost_events, arrival.lost_rewards),
        first_position=arrival.first_position,
        log_position=arrival.position,
        events=arrived.events,
        items=arrived.items,
        retired=arrived.retired,
        recorded=slates,
        deadlines={key: one.recommendation.deadline_ms for key, one in slates.items() if one.is_open},
        imports=progress_of(arrived.imports.values()),
        import_parts=repeated_parts(arrived.imports.values()),
        snapshots=(decode_snapshot(arrived.snapshot),) if arrived.snapshot else (),
        arrived=arrival.import_id,
    )


@final
class MemoryStore(Store):
    """A `Store` in this process.

    Parameters
    ----------
    clock_ms
        The store's clock.
    record_retention_ms
        How long a closed recommendation is remembered.
    """

    def __init__(self, *, clock_ms: Callable[[], int], record_retention_ms: int = DEFAULT_RECORD_RETENTION_MS) -> None:
        self._clock_ms = clock_ms
        self._record_retention_ms = record_retention_ms
        self._bandits: dict[BanditName, _Bandit] = {}
        self._arrivals: Arrivals[BanditName, Arrival, ArrivingBandit] = Arrivals(
            ArrivingBandit, clock_ms=clock_ms, retention_ms=record_retention_ms
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

    async def measure(self, tenant: str) -> TenantUse:
        """See `Store.measure`; the bytes are those of a text that tells the events."""
        found = [await self.measure_bandit(name) for name in self._bandits if name.tenant == tenant]
        return TenantUse(*map(sum, zip(TenantUse(), *found, strict=True)))

    async def measure_bandit(self, name: BanditName) -> TenantUse:
        """See `Store.measure_bandit`."""
        bandit, now_ms = self._bandits.get(name), self._clock_ms()
        if bandit is None:
            return TenantUse()
        n_open = sum(deadline > now_ms for deadline in bandit.deadlines.values())
        return TenantUse(len(bandit.items), n_open, len(repr(bandit.events)))

    async def update_settings(
        self, name: BanditName, settings: BanditSettings, *, revision: int, prior: Prior | None = None
    ) -> BanditRecord:
        """See `Store.update_settings`."""
        bandit = self._bandit(name)
        if bandit.settings == settings:
            return bandit.record()
        if bandit.revision != revision:
            raise refusal("revision_changed", name)
        bandit.settings = settings
        bandit.revision += 1
        self._append(bandit, SettingsChanged(settings, prior), at_ms=self._clock_ms())
        return bandit.record()

    async def reset_bandit(self, name: BanditName, *, request_id: str) -> BanditRecord:
        """See `Store.reset_bandit`."""
        bandit = self._bandit(name)
        if bandit.reset_by != request_id:
            bandit.reset_by = request_id
            bandit.revision += 1
            self._append(bandit, BanditReset(request_id), at_ms=self._clock_ms())
        return bandit.record()

    async def delete_bandit(self, name: BanditName) -> None:
        """See `Store.delete_bandit`."""
        if self._arrivals.find(name) is None:
            self._bandit(name)
        self._arrivals.drop(name)
        if self._bandits.pop(name, None) is not None:
            self._announce(name)

    async def change_items(self, name: BanditName, *, upserted: Sequence[Item], retired: Sequence[str]) -> BanditRecord:
        """See `Store.change_items`."""
        bandit = self._bandit(name)
        after = bandit.with_items(upserted, retired)
        if after.change != ItemsChanged():
            bandit.items, bandit.retired = after.items, after.retired
            bandit.items_position = self._append(bandit, after.change, at_ms=self._clock_ms())
        return bandit.record()

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

    async def record_recommendation(
        self,
        name: BanditName,
        request: RecommendationRequest,
        recommendation: Recommendation,
        *,
        incarnation: str,
        items_position: int,
        aside: bool = False,
        told: AppendedEvents | None = None,
    ) -> RecordOutcome:
        """See `Store.record_recommendation`."""
        bandit = self._bandit(name)
        known = bandit.recall(request, recommendation.recommendation_id)
        if known is not None:
            return RecordOutcome(status=RecordStatus.REPEATED, recommendation=known)
        if (bandit.incarnation, bandit.items_position) != (incarnation, items_position):
            return RecordOutcome(status=RecordStatus.STALE)
        now_ms = self._clock_ms()
        dated = replace(recommendation, deadline_ms=now_ms + bandit.settings.reward_wait_ms)
        state = RecordState.INACTIVE if bandit.settings.requires_activation else RecordState.PENDING
        event = Recommended(request=request, recommendation=dated, aside=aside)
        position = self._append(bandit, event, at_ms=now_ms)
        recorded = Recorded(fingerprint(request), request.context, dated, now_ms, state, aside=aside, logged=position)
        bandit.recorded[dated.recommendation_id] = recorded
        bandit.deadlines[dated.recommendation_id] = dated.deadline_ms
        bandit.tell(told, after=position - 1)
        return RecordOutcome(status=RecordStatus.RECORDED, recommendation=dated, position=position)

    async def find_recommendation(
        self, name: BanditName, request: RecommendationRequest, recommendation_id: str
    ) -> Recommendation | None:
        """See `Store.find_recommendation`."""
        return self._bandit(name).recall(request, recommendation_id)

    async def activate(
        self,
        name: BanditName,
        recommendation_id: str,
        shown_slate: Sequence[str] = (),
        *,
        told: AppendedEvents | None = None,
    ) -> ActivationReceipt:
        """See `Store.activate`."""
        bandit = self._bandit(name)
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is None:
            raise refusal("no_recommendation", name, recommendation_id)
        if recorded.state is RecordState.LAPSED:
            return ActivationReceipt(ActivationOutcome.LATE)
        slate, now_ms = tuple(shown_slate) or recorded.recommendation.slate, self._clock_ms()
        if recorded.state is not RecordState.INACTIVE:
            if slate != recorded.slate:
                raise refusal("activation_exists", name, recommendation_id)
            return ActivationReceipt(ActivationOutcome.DUPLICATE)
        if slate != recorded.recommendation.slate:
            bandit.check_shown(slate, size=len(recorded.recommendation.slate))
            recorded.instead = slate
        if now_ms >= recorded.recommendation.deadline_ms:
            bandit.tell(told, after=self._end(bandit, recommendation_id, at_ms=now_ms) - 1)
            return ActivationReceipt(ActivationOutcome.LATE)
        position = self._activate(bandit, recommendation_id, recorded, at_ms=now_ms)
        bandit.tell(told, after=position - 1)
        return ActivationReceipt(ActivationOutcome.ACTIVATED, position)

    def _activate(self, bandit: _Bandit, recommendation_id: str, recorded: Recorded, *, at_ms: int) -> int:
        recorded.state = RecordState.PENDING
        activated = Activated(recommendation_id, recorded.shown, bool(recorded.instead), aside=recorded.aside)
        return self._append(bandit, activated, at_ms=at_ms)

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        told: AppendedEvents | None = None,
    ) -> RewardReceipt:
        """See `Store.record_reward`."""
        value = float(finite_text("value", value))
        bandit = self._bandit(name)
        is_first = bandit.settings.reward_aggregation is Aggregation.FIRST
        if not (is_first or reward_id):
            raise refusal("no_reward_id", name)
        reward = PostedReward("" if is_first else reward_id, value, None)
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is None:
            raise refusal("no_recommendation", name, recommendation_id)
        before = bandit.log_position
        receipt = self._take_reward(bandit, recommendation_id, recorded, reward, final=final or is_first)
        bandit.tell(told, after=before)
        return receipt

    async def record_rewards(
        self, name: BanditName, rewards: Sequence[Reward], *, told: AppendedEvents | None = None
    ) -> Sequence[RewardReceipt | Exception]:
        """See `Store.record_rewards`."""
        for reward in rewards:
            finite_text("value", reward.value)
        return [await self._attempt_reward(name, reward, told=told) for reward in rewards]

    async def _attempt_reward(
        self, name: BanditName, reward: Reward, *, told: AppendedEvents | None
    ) -> RewardReceipt | Exception:
        try:
            return await self.record_reward(
                name, reward.recommendation_id, reward.value, reward_id=reward.reward_id, final=reward.final, told=told
            )
        except TopkBanditError as error:
            if told is not None:
                told.append(None)
            return error

    def _take_reward(
        self, bandit: _Bandit, recommendation_id: str, recorded: Recorded, reward: PostedReward, *, final: bool
    ) -> RewardReceipt:
        now_ms, known = self._clock_ms(), recorded.find_reward(reward.reward_id)
        in_time, is_open = now_ms < recorded.recommendation.deadline_ms, recorded.is_open
        if known is not None and known.posted != reward.posted:
            raise refusal("reward_exists", bandit.name, recommendation_id)
        if known is not None and not (final and in_time and is_open and known.value is not None):
            return RewardReceipt(RewardOutcome.DUPLICATE, known.position)
        if known is None and in_time and not is_open:
            raise refusal("reward_final", bandit.name, recommendation_id)
        if known is None and len(recorded.rewards) >= MOST_REWARDS:
            raise refusal("reward_count", bandit.name, recommendation_id)
        if known is None:
            reward.value = bandit.within_range(reward.posted)
            recorded.rewards.append(reward)
        if not in_time:
            return self._note_late(bandit, recommendation_id, reward, at_ms=now_ms)
        if recorded.state is RecordState.INACTIVE:
            self._activate(bandit, recommendation_id, recorded, at_ms=now_ms)
        bandit.clamped_rewards += known is None and reward.value != reward.posted
        taken = known or reward
        if final:
            taken.position = self._end(bandit, recommendation_id, at_ms=now_ms)
        else:
            collected = RewardCollected(recommendation_id, taken.reward_id, taken.value, recorded.aside)
            taken.position = self._append(bandit, collected, at_ms=now_ms)
        return RewardReceipt(RewardOutcome.ACCEPTED, taken.position)

    def _note_late(self, bandit: _Bandit, recommendation_id: str, reward: PostedReward, *, at_ms: int) -> RewardReceipt:
        reward.value = None
        if recommendation_id in bandit.deadlines:
            self._end(bandit, recommendation_id, at_ms=at_ms)
        bandit.recorded[recommendation_id].closed_ms = at_ms
        bandit.late_rewards += 1
        return RewardReceipt(RewardOutcome.LATE)

    def _end(self, bandit: _Bandit, recommendation_id: str, *, at_ms: int) -> int:
        """End a recommendation with what its rewards come to, or without any; return the position of that."""
        recorded = bandit.recorded[recommendation_id]
        if recorded.state is RecordState.INACTIVE:
            bandit.close(recommendation_id, RecordState.LAPSED, at_ms=at_ms)
            return self._append(bandit, Lapsed(recommendation_id, recorded.aside), at_ms=at_ms)
        value = aggregate(bandit.settings.reward_aggregation, recorded.rewards)
        end = (
            bandit.expiry(recommendation_id)
            if value is None
            else Rewarded(recommendation_id, value, recorded.shown, aside=recorded.aside)
        )
        state = RecordState.EXPIRED if value is None else RecordState.REWARDED
        bandit.close(recommendation_id, state, at_ms=at_ms)
        position = self._append(bandit, end, at_ms=at_ms)
        recorded.position = 0 if value is None else position
        return position

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        *,
        reward_id: str = "",
        known: Correctable,
    ) -> RewardReceipt | None:
        """See `Store.correct_reward`."""
        value = None if value is None else float(finite_text("value", value))
        bandit = self._bandit(name)
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is None:
            raise refusal("no_recommendation", name, recommendation_id)
        if recorded.state in {RecordState.EXPIRED, RecordState.LAPSED}:
            raise refusal("no_reward", name, recommendation_id)
        if recorded.state is RecordState.VOID:
            if value is None:
                return RewardReceipt(RewardOutcome.DUPLICATE)
            raise refusal("reward_void", name, recommendation_id)
        reward_id = "" if bandit.settings.reward_aggregation is Aggregation.FIRST else reward_id
        chosen = recorded.find_accepted(reward_id)
        ends = value is None and not reward_id and recorded.is_open
        value = bandit.check_correction(recommendation_id, chosen, value, ends=ends)
        if not ends and all(one.value == value for one in chosen):
            return RewardReceipt(RewardOutcome.DUPLICATE)
        if not recorded.is_open and not bandit.is_correctable(recommendation_id, known):
            return None
        before = aggregate(bandit.settings.reward_aggregation, recorded.rewards) if recorded.aside else None
        for one in chosen:
            one.value = value
        position = self._correct(bandit, recommendation_id, chosen, before=before, ends=ends)
        return RewardReceipt(RewardOutcome.ACCEPTED, position)

    def _correct(
        self,
        bandit: _Bandit,
        recommendation_id: str,
        chosen: Sequence[PostedReward],
        *,
        before: float | None,
        ends: bool,
    ) -> int:
        recorded, now_ms = bandit.recorded[recommendation_id], self._clock_ms()
        if ends:
            inactive = recorded.state is RecordState.INACTIVE
            bandit.close(recommendation_id, RecordState.VOID, at_ms=now_ms)
            expired = Expired(recommendation_id, None, None, aside=recorded.aside)
            end = Lapsed(recommendation_id, recorded.aside) if inactive else expired
            return self._append(bandit, end, at_ms=now_ms)
        if recorded.is_open:
            collected = RewardCollected(recommendation_id, chosen[0].reward_id, chosen[0].value, recorded.aside)
            return self._append(bandit, collected, at_ms=now_ms)
        left = aggregate(bandit.settings.reward_aggregation, recorded.rewards)
        recorded.state = RecordState.VOID if left is None else RecordState.REWARDED
        recorded.position = self._append(bandit, RewardAmended(recommendation_id, left, before), at_ms=now_ms)
        return recorded.position

    async def find_import(self, name: BanditName, import_id: str) -> ImportProgress:
        """See `Store.find_import`."""
        return self._bandit(name).imports.get(import_id, ImportProgress())

    async def find_import_part(self, name: BanditName, part: ImportPart) -> ImportOutcome | None:
        """See `Store.find_import_part`."""
        return self._bandit(name).recall_import(part)

    async def record_import(
        self, name: BanditName, part: ImportPart, event: Imported | None, *, incarnation: str, items_position: int
    ) -> ImportOutcome:
        """See `Store.record_import`."""
        bandit = self._bandit(name)
        known = bandit.recall_import(part)
        if known is not None:
            return known
        if (bandit.incarnation, bandit.items_position) != (incarnation, items_position):
            return ImportOutcome(RecordStatus.STALE)
        if len(bandit.import_parts) >= MOST_IMPORT_PARTS:
            raise refusal("import_count", name)
        position = 0
        if event is not None:
            position = bandit.imported_position = self._append(bandit, event, at_ms=self._clock_ms())
            bandit.clamped_rewards += part.clamped
        before = bandit.imports.get(part.import_id, ImportProgress())
        bandit.imports[part.import_id] = ImportProgress(part.next_row, before.accepted + part.accepted)
        recorded = ImportOutcome(RecordStatus.RECORDED, part.next_row, part.accepted, position)
        repeated = replace(recorded, status=RecordStatus.REPEATED)
        bandit.import_parts[part.import_id, part.first_row] = part.fingerprint, repeated
        return recorded

    async def expire_due(self, name: BanditName, *, limit: int) -> Expiry:
        """See `Store.expire_due`."""
        bandit = self._bandits.get(name)
        if bandit is None:
            return Expiry(0, None)
        now_ms = self._clock_ms()
        due = [(deadline, key.encode(), key) for key, deadline in bandit.deadlines.items() if deadline <= now_ms]
        chosen = [key for _, _, key in sorted(due)[:limit]]
        for key in chosen:
            self._end(bandit, key, at_ms=now_ms)
        bandit.forget(before_ms=now_ms - self._record_retention_ms)
        return Expiry(len(chosen), min(bandit.deadlines.values(), default=None))

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
            skipped=bandit.skipped,
            revision=bandit.revision,
            checksum=bandit.checksum_at(events[-1].position) if events else "",
        )

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """See `Store.read_texts`."""
        part = await self.read_log(name, start=start, limit=limit)
        texts = (EventText(one.position, one.at_ms, encode_event(one.event, self.data_version)) for one in part.events)
        return TextSlice(part.incarnation, part.first_position, part.log_position, tuple(texts))

    async def skip_event(self, name: BanditName, skip: Skip) -> bool:
        """See `Store.skip_event`."""
        bandit, position = self._bandit(name), skip.position
        if position in bandit.skipped:
            return True
        looked_at = skip.incarnation, skip.revision, skip.items_position
        if (bandit.incarnation, bandit.revision, bandit.items_position) != looked_at:
            return False
        if not max(2, bandit.first_position) <= position <= bandit.log_position:
            raise refusal("event_not_skippable", name, position)
        left = frozenset(one for one in bandit.skipped if one >= bandit.first_position)
        if len(left) >= MOST_SKIPPED:
            raise refusal("skip_count", name)
        bandit.skipped = left | {position}
        bandit.events[position - bandit.first_position] = LoggedEvent(position, skip.at_ms, skip.event)
        bandit.revision += 1
        now_ms = self._clock_ms()
        if skip.settings is not None:
            self._append(bandit, skip.settings, at_ms=now_ms)
        if skip.items is not None:
            bandit.items_position = self._append(bandit, skip.items, at_ms=now_ms)
        return True

    async def note_loss(
        self, name: BanditName, *, incarnation: str, after: int, end: int, rewards: Sequence[int]
    ) -> LostEvents:
        """See `Store.note_loss`."""
        bandit = self._bandit(name)
        if bandit.incarnation != incarnation:
            raise refusal("no_bandit", name)
        start = bandit.loss[1] if bandit.loss[0] == after else after
        new = LostEvents(max(0, end - start), sum(position > start for position in rewards))
        if new.events:
            bandit.loss = (after, end)
            bandit.lost = LostEvents(bandit.lost.events + new.events, bandit.lost.rewards + new.rewards)
        return new

    async def save_snapshot(self, name: BanditName, snapshot: Snapshot, *, incarnation: str, behind: int = 0) -> bool:
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
        if fit and behind >= bandit.first_position:
            del bandit.events[: behind + 1 - bandit.first_position]
            bandit.first_position = behind + 1
        return True

    async def load_snapshots(self, name: BanditName) -> Sequence[Snapshot]:
        """See `Store.load_snapshots`; a bandit that does not exist has none."""
        bandit = self._bandits.get(name)
        return () if bandit is None else bandit.snapshots

    async def read_holdings(self, name: BanditName) -> Holdings:
        """See `Store.read_holdings`."""
        bandit = self._bandit(name)
        retired = tuple(sorted(bandit.retired))
        return Holdings(bandit.record(), bandit.first_position, bandit.imported_position, retired)

    async def scan_slates(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[Recorded]]:  # noqa: ARG002
        """See `Store.scan_slates`; all come at once, whatever the cursor."""
        bandit = self._bandit(name)
        return 0, [deepcopy(bandit.recorded[key]) for key in bandit.deadlines]

    async def scan_imports(
        self,
        name: BanditName,
        *,
        cursor: int,  # noqa: ARG002
    ) -> tuple[int, Sequence[ArchivedImport]]:
        """See `Store.scan_imports`; all come at once, whatever the cursor."""
        parts = self._bandit(name).import_parts.items()
        return 0, [
            ArchivedImport(import_id, first_row, fingerprint, one.next_row, one.accepted, one.position)
            for (import_id, first_row), (fingerprint, one) in parts
        ]

    async def find_arrival(self, name: BanditName) -> Arrival | None:
        """See `Store.find_arrival`."""
        arriving = self._arrivals.find(name)
        return arriving.arrival if arriving else None

    async def read_arrived(
        self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]
    ) -> Arrived:
        """See `Store.read_arrived`."""
        known = self._arrivals.find(name) or ArrivingBandit(Arrival(""))
        return Arrived(
            {key: deepcopy(known.slates[key]) for key in slates if key in known.slates},
            {part: known.imports[part] for part in imports if part in known.imports},
        )

    async def read_arrived_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """See `Store.read_arrived_log`."""
        arriving = self._arrivals.find(name)
        if arriving is None:
            return ()
        place = start - arriving.arrival.first_position
        return arriving.events[place : place + limit]

    async def record_arrival(self, name: BanditName, arriving: Arriving, *, before: Arrival) -> bool:
        """See `Store.record_arrival`."""
        return self._arrivals.take(name, arriving, before=before)

    async def load_arrived_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_arrived_snapshot`."""
        arriving = self._arrivals.find(name)
        return arriving.snapshot if arriving else b""

    async def finish_arrival(self, name: BanditName, arrival: Arrival, *, quota: int) -> BanditRecord:
        """See `Store.finish_arrival`."""
        if (made := await self.find_arrived(name, arrival.import_id)) is not None:
            return made
        used = sum(other.tenant == name.tenant for other in self._bandits)
        if used >= quota:
            raise refusal("full", name, f"{used} {quota}")
        arrived = self._arrivals.find(name)
        if arrived is None or arrived.arrival != arrival:
            raise refusal("arrival_replaced", name)
        self._bandits[name] = _bandit_of(name, arrived)
        self._arrivals.drop(name)
        self._announce(name)
        return self._bandits[name].record()

    async def find_arrived(self, name: BanditName, import_id: str) -> BanditRecord | None:
        """See `Store.find_arrived`."""
        known = self._bandits.get(name)
        if known is not None and known.arrived != import_id:
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
        bandit.events.append(LoggedEvent(position=bandit.log_position, at_ms=at_ms, event=event))
        self._announce(bandit.name)
        return bandit.log_position

    def _announce(self, name: BanditName) -> None:
        for listener in self._listeners:
            listener.put_nowait(name)
