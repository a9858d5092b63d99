"""The protocol of a store of bandits and its promises; one contract test class holds every store to them.

A bandit's log is the truth, and everything else is a fold over it. Calls are atomic and may be sent again, positions
have no gaps, and deadlines are compared with the store's clock; `Store` says each in full. A store that is out of reach
raises `UnavailableError` at once, never only after the caller's deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from topk_bandit.domain.bandits import WHOLE_ITEMS
from topk_bandit.domain.durability import IN_MEMORY, Durability
from topk_bandit.domain.slates import NOTHING_NAMED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Item, ItemMask, Prior
    from topk_bandit.domain.operators import EventText
    from topk_bandit.domain.quotas import TenantUse
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import (
        ActivationReceipt,
        Recommendation,
        RecommendationRequest,
        Reward,
        RewardReceipt,
    )
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.events import EventSkipped, Imported, ItemsChanged, LoggedEvent, SettingsChanged
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.restore_state import Restore, Restored, RestoreStep
    from topk_bandit.store.visits import Visits

__all__ = [
    "DEFAULT_RECORD_RETENTION_MS",
    "MOST_IMPORT_PARTS",
    "MOST_REWARDS",
    "MOST_SKIPPED",
    "Appended",
    "BanditRecord",
    "Contents",
    "Correctable",
    "Expiry",
    "ImportOutcome",
    "ImportPart",
    "ImportProgress",
    "LogSlice",
    "LostEvents",
    "NewSlate",
    "RecordOutcome",
    "RecordStatus",
    "Skip",
    "Snapshot",
    "Store",
    "StoreReport",
    "TextSlice",
    "Written",
]

_Answer = TypeVar("_Answer")

DEFAULT_RECORD_RETENTION_MS = 7 * 24 * 3600 * 1000
"""How long a closed recommendation is remembered: seven days."""

MOST_REWARDS = 32
"""So many rewards of one recommendation are taken, late ones counted."""

MOST_SKIPPED = 256
"""So many events of what is left of a log may be skipped."""

MOST_IMPORT_PARTS = 100_000
"""So many parts of imports a bandit remembers: some ten megabytes, and 10^8 rows if they are sent by the thousand."""


@dataclass(frozen=True, slots=True)
class BanditRecord:
    """A bandit as the store knows it now.

    Attributes
    ----------
    incarnation
        Different for each creation, so that a bandit deleted and created again is not taken for the old one.
    revision
        Grows with each change of the settings, each reset and each event that is passed over; 1 at first.
    items_position
        Log position of the newest `ItemsChanged`; 0 before the first.
    log_position
        Position of the newest event.
    snapshot_position
        Position of the newest snapshot; 0 before the first.
    pending
        Recommendations that are active, and neither rewarded nor expired.
    late_rewards
        Rewards that came after their deadline.
    clamped_rewards
        Rewards outside the bandit's range that were accepted as its nearest end.
    lost_events, lost_rewards
        Events that the store had and lost, as far as somebody knew them, and how many of them were rewards.
    """

    name: BanditName
    incarnation: str
    settings: BanditSettings
    revision: int
    created_ms: int
    items_position: int
    log_position: int
    snapshot_position: int
    pending: int
    late_rewards: int
    clamped_rewards: int
    lost_events: int = 0
    lost_rewards: int = 0


class RecordStatus(StrEnum):
    """What became of an attempt to record a recommendation."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    STALE = "stale"


class NewSlate(NamedTuple):
    """A slate that was chosen, with its request, and whether it is set aside."""

    request: RecommendationRequest
    recommendation: Recommendation
    aside: bool = False


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """The answer to `Store.record_recommendation`.

    Attributes
    ----------
    status
        RECORDED: appended now. REPEATED: the same request was recorded before; nothing changed. STALE: items were
        changed after `items_position`, the bandit's stage or rules are others, or it was created anew; nothing changed,
        and the caller must decide again.
    recommendation
        What is recorded, now or before, with its deadline; None when STALE.
    position
        Where it stands in the log when RECORDED now, else 0.
    """

    status: RecordStatus
    recommendation: Recommendation | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Correctable:
    """What a caller of `Store.correct_reward` knows of the model.

    Attributes
    ----------
    incarnation, revision
        The bandit's, as they were when the model was looked at.
    version
        Up to which position the model knows the log.
    last_position
        Up to which position a correction of this recommendation's reward is exact, whatever comes before it; 0 if it
        is not any more.
    slate
        What was shown, where a correction is exact; else empty.
    """

    incarnation: str
    revision: int
    version: int
    last_position: int
    slate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportPart:
    """Rows of an import that were sent together: those from `first_row` on, before `next_row`.

    Attributes
    ----------
    import_id
        What all parts of an import have in common.
    first_row, next_row
        Where the part begins, and the next one; rows are counted from 0 where they come from.
    fingerprint
        Of what was sent, whatever became of it.
    accepted
        How many of the rows are learned from.
    clamped
        How many rewards of these were taken as an end of the bandit's range.
    """

    import_id: str
    first_row: int
    next_row: int
    fingerprint: str
    accepted: int
    clamped: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """The import, and where the part begins."""
        return self.import_id, self.first_row


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far an import is: with which row it goes on, and how many of those before are learned from."""

    next_row: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The answer to `Store.record_import`.

    Attributes
    ----------
    status
        RECORDED: appended now. REPEATED: the same part was recorded before; nothing changed. STALE: as of
        `RecordOutcome`.
    next_row, accepted
        Of the part that is recorded, now or before.
    position
        Where it stands in the log; 0 for one of which no row is learned from, and when STALE.
    """

    status: RecordStatus
    next_row: int = 0
    accepted: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Expiry:
    """The answer to `Store.expire_due`.

    Attributes
    ----------
    count
        How many deadlines were ended now.
    next_deadline_ms
        The earliest deadline that is still open, None without any.
    filed
        How many that were restored closed are kept from now on as others are that ended.
    without_reward
        How many of those that ended have no reward.
    """

    count: int
    next_deadline_ms: int | None
    filed: int = 0
    without_reward: int = 0


@dataclass(frozen=True, slots=True)
class LostEvents:
    """What is gone of a log: so many events, some of which were rewards."""

    events: int
    rewards: int


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Part of a log.

    Attributes
    ----------
    events
        In order, without gaps; the first is at the position asked for. There may be fewer than were asked for, but not
        none, where they are large, or where the one after them can't be read.
    first_position, log_position
        Oldest position still kept (events before it are only in snapshots) and newest position. Both as of the same
        moment as `events`. `log_position` is 0 only in a store that holds no such bandit any more.
    skipped
        The positions whose events were passed over by `Store.skip_event`, wherever in the log they are.
    revision
        The bandit's: while it is the same, no other events are passed over.
    checksum
        Of the last of the events, empty without any: in one store equal for equal events at the same place.
    """

    incarnation: str
    first_position: int
    log_position: int
    events: tuple[LoggedEvent, ...]
    skipped: frozenset[int] = frozenset()
    revision: int = 0
    checksum: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Appended:
    """What a call has appended to a log, just as who reads the log is given it.

    Attributes
    ----------
    incarnation, revision
        The bandit's, at that moment.
    before
        The checksum of the event before, "-" where it is not known.
    events
        One at least, in order and without gaps.
    checksum
        For the last of them.
    n_bytes
        About how much memory they take.
    """

    incarnation: str
    revision: int
    before: str
    events: tuple[LoggedEvent, ...]
    checksum: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Written(Generic[_Answer]):
    """The answer to a call that may append events, and what it appended.

    Attributes
    ----------
    answer
        What the call returns to its caller.
    appended
        One for each commit, in order; None where a commit's events can't be given without reading the log. Empty when
        nothing was committed.
    """

    answer: _Answer
    appended: tuple[Appended | None, ...] = ()


@dataclass(frozen=True, slots=True)
class TextSlice:
    """Part of a log as JSON; see `LogSlice`."""

    incarnation: str
    first_position: int
    log_position: int
    events: tuple[EventText, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """An event to pass over, and what is stated anew because the event could have stated it.

    Attributes
    ----------
    position
        Where the event stands.
    event
        What stands there from now on.
    at_ms
        The time that it has there: that of the event before it.
    incarnation, revision, items_position
        The bandit's, when this was put together.
    settings, items
        Stated anew, at the end of the log; None for what the event can't have changed.
    """

    position: int
    event: EventSkipped
    at_ms: int
    incarnation: str
    revision: int
    items_position: int
    settings: SettingsChanged | None = None
    items: ItemsChanged | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store has of a bandit beside its log, its items and its slates, as of one moment.

    Attributes
    ----------
    first_position
        Oldest position still kept.
    imported_position
        Log position of the newest `Imported`; 0 before the first.
    retired
        The `topk_bandit.store.restores.item_digest` of each retired item's id.
    """

    record: BanditRecord
    first_position: int
    imported_position: int
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Opaque bytes that stand for all events up to and including `position`."""

    position: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What the service stands on: the answer to `Store.check`.

    Attributes
    ----------
    problems
        What keeps the store from keeping its promises; empty when nothing does.
    shortages
        What keeps it from that for the moment, such as replicas that are away.
    losses
        What the store reports to have thrown away: nothing is refused for it.
    clock_ms
        The store's clock.
    memory_bytes, memory_limit_bytes
        What the data of the fullest server take, and what that server may take: 0 where it does not say.
    durability
        The class that it is examined for.
    """

    server: str
    version: str
    role: str
    mode: str
    problems: tuple[str, ...]
    clock_ms: int
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    shortages: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    durability: Durability = IN_MEMORY

    def problems_between(self, begun: float, ended: float) -> tuple[str, ...]:
        """Return all that is wrong with a store that was looked at between two times by this machine's clock.

        They are seconds. When the store's clock was read meanwhile nobody knows, and the machine may have stood still.
        """
        known, clock = (*self.problems, *self.shortages, *self.losses), self.clock_ms / 1e3
        if max(begun - clock, clock - ended) <= LARGEST_CLOCK_DIFFERENCE_SECONDS:
            return known
        problem = "The store's clock is not this machine's: deadlines follow the one, logs the other; synchronise both."
        return (*known, problem)


LARGEST_CLOCK_DIFFERENCE_SECONDS = 5.0


class Store(Protocol):
    """Bandits, their logs and their snapshots.

    - *Atomic*: each call does all of what it says or nothing. A call that raises has changed nothing; only an
      `UnavailableError` may also mean that the reply was lost, or that what was written is not durable yet
      (`NotDurableError`), and then the same call again finds out.
    - *Durable*: what a writing call returns withstands what the store's class of durability says, but for
      recommendations: those are in the memory of one server until their reward is acknowledged.
    - *Idempotent*: each writing call may be sent again, after a lost reply too, without a second effect.
    - *Ordered*: positions are 1, 2, 3, ... without gaps for the life of a bandit.
    - *One clock*: deadlines are compared with the store's own clock, never with a caller's.
    - *Exactly one end*: the first call that reaches the store decides whether a recommendation ends with its reward,
      with a late reward or by expiry.
    """

    @property
    def data_version(self) -> int:
        """The data version in force, which is what this store writes."""
        ...

    async def create_bandit(
        self,
        name: BanditName,
        settings: BanditSettings,
        *,
        incarnation: str,
        quota: int,
        prior: Prior | None = None,
    ) -> BanditRecord:
        """Create a bandit, with `BanditCreated` as its first event; `prior` is the one that the settings name.

        Creating it again with equal settings returns it as it is.

        Raises
        ------
        ConflictError
            BANDIT_EXISTS: it exists with other settings.
        ExhaustedError
            BANDIT_QUOTA: the tenant has `quota` bandits already.
        NotReadyError
            BANDIT_DAMAGED: something is left of a bandit that has lost its record, and has to be deleted first.
        """
        ...

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """Return a bandit, or raise `NotFoundError`."""
        ...

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """Return up to `limit` bandits of `tenant` whose id sorts after `after` (by bytes), in order.

        One whose record is damaged is left out, and hides no other.
        """
        ...

    async def list_tenants(self, *, after: str, limit: int) -> Sequence[str]:
        """Return up to `limit` tenants that have bandits, or studies, and whose id sorts after `after` (by bytes).

        They come in order. A store that keeps bandits alone knows nothing of studies.
        """
        ...

    async def is_listed(self, name: BanditName) -> bool:
        """Return whether a bandit is in its tenant's list, or that list is gone though the tenant has something."""
        ...

    async def list_again(self, name: BanditName) -> None:
        """Put a bandit that lists lack back into them, whatever is left of it."""
        ...

    async def measure(self, tenant: str) -> TenantUse:
        """Return what a tenant's bandits have, each measured at another moment; bytes are the store's estimate.

        A bandit whose items or slates are damaged counts for nothing.
        """
        ...

    async def measure_bandit(self, name: BanditName) -> TenantUse:
        """Return what one bandit has, as `measure` does; nothing for one that is not there."""
        ...

    async def update_settings(
        self, name: BanditName, settings: BanditSettings, *, revision: int, prior: Prior | None = None, reason: str = ""
    ) -> BanditRecord:
        """Append `SettingsChanged` if the bandit is still at `revision`; `prior` is the new one, if it changed.

        `reason` is why a guardrail changes them. Settings equal to the ones in place change nothing and are no
        conflict, whatever the revision.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        ConflictError
            REVISION_CHANGED: somebody else was faster; read and try again.
        """
        ...

    async def reset_bandit(self, name: BanditName, *, request_id: str) -> BanditRecord:
        """Append `BanditReset`, unless the newest one has the same request id; or raise `NotFoundError`."""
        ...

    async def delete_bandit(self, name: BanditName) -> None:
        """Remove a bandit with everything that belongs to it, or raise `NotFoundError`.

        Whatever is left of one that is damaged, or has lost its record, is removed. What is restored of a bandit of
        this name goes too. Either is enough for there to be something to remove.
        """
        ...

    async def change_items(
        self, name: BanditName, *, upserted: Sequence[Item], retired: Sequence[str], mask: ItemMask = WHOLE_ITEMS
    ) -> BanditRecord:
        """Append one `ItemsChanged` with what differs from the items in place; nothing when nothing does.

        An upserted item replaces the parts of the one of its id that `mask` names, and no others: as that one is when
        the event is appended.

        Only a digest of eight bytes is kept of a retired item's id, to recognise it.

        Raises
        ------
        NotFoundError
            No such bandit, an item to retire that never was, or one to change that a mask does not make.
        ConflictError
            ITEM_RETIRED: an upserted item was retired before.
        ExhaustedError
            ITEM_CAPACITY: more items than the bandit has space for, retired ones not counted.
        """
        ...

    async def note_follower(self, name: BanditName, *, follower: str, items_position: int) -> int:
        """Note that a follower's model knows the items up to `items_position`, and that it was heard of now.

        Returns the position of the newest item change, which a model must know before it shows a slate that is not
        recorded. `NotFoundError` if there is no such bandit.
        """
        ...

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:
        """Return the smallest position noted by the followers heard of so recently, or `NotFoundError`.

        Without any it is the position of the newest item change.
        """
        ...

    async def list_items(self, name: BanditName) -> Sequence[Item]:
        """Return all items that are not retired, by id (by bytes); or raise `NotFoundError`."""
        ...

    async def record_recommendation(
        self,
        name: BanditName,
        request: RecommendationRequest,
        recommendation: Recommendation,
        *,
        incarnation: str,
        items_position: int,
        rules: tuple[SlateRule, ...] = (),
        aside: bool = False,
        visits: Visits | None = None,
    ) -> Written[RecordOutcome]:
        """Append `Recommended` and open its deadline: the store's clock plus the bandit's reward wait.

        It is active at once, unless the bandit's settings require activation. What is recorded as set `aside` stays so.
        `rules` are those of the bandit's that it was chosen under.

        What was shown is kept until the recommendation ends: nobody else knows all that are open. A recommendation id
        that is recorded already is REPEATED when its request has the same context, candidates and rules, whatever
        `incarnation` and `items_position` say; with other `rules` than the bandit has now it is STALE. Of one that has
        ended what it was is in the log alone.

        `visits` are what the slate was chosen by, where rules of frequency count for the request: the slate is one of
        them from then on. If they have changed, or are missing, it is STALE.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        ConflictError
            REQUEST_ID_REUSED: the id is recorded with another context or other candidates.
        NotReadyError
            SLATE_GONE: it is recorded, has ended, and the log does not go back to it any more.
        """
        ...

    async def record_recommendations(
        self,
        name: BanditName,
        chosen: Sequence[NewSlate],
        *,
        incarnation: str,
        items_position: int,
        rules: tuple[SlateRule, ...] = (),
    ) -> Written[Sequence[RecordOutcome | Exception]]:
        """Do what `record_recommendation` does for each of several, in order; return what became of each, or its error.

        What one is refused with stops no other. A slate of which something has changed meanwhile is STALE: whether it
        is recorded is found out by itself.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        UnavailableError
            The store is away.
        """
        ...

    async def find_visits(self, name: BanditName, visitor: str) -> Visits:
        """Return what a visitor was shown lately, as rules of frequency count it; `NotFoundError` for no such bandit.

        It is kept as long as the longest rule that it was counted for, and nowhere else.
        """
        ...

    async def find_recommendation(
        self, name: BanditName, request: RecommendationRequest, recommendation_id: str
    ) -> Recommendation | None:
        """Return what `record_recommendation` would call REPEATED, None when nothing is recorded; same errors."""
        ...

    async def activate(
        self,
        name: BanditName,
        recommendation_id: str,
        shown_slate: Sequence[str] = (),
    ) -> Written[ActivationReceipt]:
        """Append `Activated`: a recommendation was shown, or `shown_slate` instead of it.

        After the deadline it is LATE, and `Lapsed` is appended if it was not yet. It is DUPLICATE for a recommendation
        that is active with this slate, or was when it ended.

        Raises
        ------
        NotFoundError
            No such bandit or recommendation, or an item of the slate was never added or is retired.
        InvalidArgumentError
            On ``shown_item_ids``: they are not as many as the slate has.
        ConflictError
            ACTIVATION_EXISTS: the recommendation is active with another slate.
        """
        ...

    async def record_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> Written[RewardReceipt]:
        """Decide a recommendation's reward, or take in one of several.

        ACCEPTED appends `Rewarded`, with what was shown, and before that `Activated` if there was none. After the
        deadline it is LATE: counted, and the recommendation is ended first, as by `expire_due`, if it was not yet. The
        same value again (by ``==``), with the same `item_values`, is DUPLICATE, with the position of the reward that
        was accepted; where the first one was late it is LATE too, and is not counted again. A value outside the
        bandit's range is taken as its nearest end if the range clamps, and counted.

        With an aggregation other than FIRST a recommendation has a reward for each `reward_id`. ACCEPTED appends
        `RewardCollected`, and a `final` one `Rewarded` with what all of them come to, which ends the recommendation.
        Sent again as the final one, a reward that is there already ends it too. Without an aggregation `reward_id` and
        `final` are not looked at.

        `item_values` are what items of the slate did, by their ids. Events have them by position, as the aggregation
        has them for each item, and the bandit's default value for those that no reward names.

        Raises
        ------
        InvalidArgumentError
            On ``value``: it is not finite, or outside a range that does not clamp. On ``reward_id``: it is empty, with
            an aggregation other than FIRST. On ``item_values["id"]``: it is not finite, or no item of a slate that has
            not ended.
        NotFoundError
            No such bandit, or no such recommendation (never given out, or closed longer ago than records are kept).
        ConflictError
            REWARD_EXISTS: another value was accepted, or other item values, or counted as late, before. REWARD_FINAL:
            the recommendation ended with its final reward.
        NotReadyError
            DATA_VERSION: there are `item_values`, which the data version in force does not have.
        ExhaustedError
            REWARD_COUNT: the recommendation has `MOST_REWARDS` rewards.
        """
        ...

    async def record_rewards(
        self, name: BanditName, rewards: Sequence[Reward]
    ) -> Written[Sequence[RewardReceipt | Exception]]:
        """Do what `record_reward` does for each of several, in order; return what became of each, or its error.

        What one is refused with stops no other. Their durability is awaited together: where it is not reached in time,
        all are written, and each of those that were has a `NotDurableError`. Once the store is found to be away, those
        that are left are not tried: an `UnavailableError` that says `nothing_sent`.

        Raises
        ------
        InvalidArgumentError
            On ``value`` or ``item_values["id"]``: one is not finite; then nothing is written.
        """
        ...

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        *,
        reward_id: str = "",
        item_values: Mapping[str, float] = NOTHING_NAMED,
        known: Correctable,
    ) -> RewardReceipt | None:
        """Replace a reward that was accepted, or with None take it back.

        Its item values stay if none are given, and go with a reward that is taken back.

        While the recommendation is open this is exact, whatever `known` says: `RewardCollected` is appended, with the
        new value. Without a `reward_id` None takes back all that was and will be posted, and ends the recommendation:
        `Expired` without a default reward, or `Lapsed`. After that `RewardAmended` is appended, with what the rewards
        come to now, where `known` says that it is exact; None is returned, and nothing has changed, when the log or the
        bandit has changed so that the caller has to look at the model again. It is DUPLICATE, without a position, when
        the reward is what it shall be, and its items are. A reward that is sent again is compared with what was posted
        at first.

        Raises
        ------
        NotFoundError
            No such bandit or recommendation.
        InvalidArgumentError
            On ``value`` and ``item_values["id"]``: as for `record_reward`. On ``reward_id``: it is empty, and several
            rewards could be meant.
        NotReadyError
            NO_REWARD: there is no such reward, or it was late. REWARD_VOIDED: it was taken back. REWARD_FOLDED: it is
            part of sums by now. DATA_VERSION: as for `record_reward`.
        """
        ...

    async def find_import(self, name: BanditName, import_id: str) -> ImportProgress:
        """Return how far an import is; nothing of it is there before its first part. `NotFoundError` for no bandit."""
        ...

    async def find_import_part(self, name: BanditName, part: ImportPart) -> ImportOutcome | None:
        """Return what `record_import` would call REPEATED, None when it is not recorded; same errors."""
        ...

    async def record_import(
        self, name: BanditName, part: ImportPart, event: Imported | None, *, incarnation: str, items_position: int
    ) -> ImportOutcome:
        """Append an event with the rows of a part that are learned from; None for a part without any.

        A part is recorded once: one that was recorded before is REPEATED, whatever `incarnation` and `items_position`
        say. Parts of an import come in their order.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        ConflictError
            IMPORT_REUSED: rows of the part were recorded with another content, or in other parts.
        NotReadyError
            IMPORT_GAP: the rows before it are not recorded; ``next_row`` says how far the import is. DATA_VERSION: rows
            have item values, which the data version in force does not have.
        ExhaustedError
            IMPORT_COUNT: the bandit remembers `MOST_IMPORT_PARTS` parts already.
        """
        ...

    async def expire_due(self, name: BanditName, *, limit: int) -> Expiry:
        """End up to `limit` recommendations whose deadlines have passed, earliest first.

        One that has rewards ends with `Rewarded`: what they come to by the aggregation at this moment. Others end with
        `Expired`, or with `Lapsed` if they were never activated.

        The bandit's default reward at this moment goes into that event, and with one also what was shown. What was
        closed longer ago than it is kept is forgotten on the way: much at once, so that some is kept by a third of that
        time longer, and from one call to the next. A bandit that does not exist has nothing due.
        """
        ...

    def find_overdue(self, *, pause_seconds: float = 0.0) -> AsyncIterator[BanditName]:
        """Yield each bandit for which `expire_due` has something to do, whosever it is, but for damaged ones.

        Parameters
        ----------
        pause_seconds
            How long the store is left alone after a hundred bandits or so.
        """
        ...

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> LogSlice:
        """Return up to `limit` events from position `start` on; or raise `NotFoundError`."""
        ...

    async def read_texts(self, name: BanditName, *, start: int, limit: int) -> TextSlice:
        """Return what `read_log` does, each event as `topk_bandit.store.codec.encode_event` writes it."""
        ...

    async def skip_event(self, name: BanditName, skip: Skip) -> bool:
        """Put `EventSkipped` in the place of an event that can't be read or folded; append what `skip` states anew.

        What the event was stays in the store, and is not read again. A place that was skipped before stays as it is.
        Returns False, and changes nothing, when items or settings have changed since `skip` was put together.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        NotReadyError
            EVENT_NOT_SKIPPABLE: the position is the first one, which makes the bandit, or none of what is left of the
            log.
        ExhaustedError
            SKIP_COUNT: `MOST_SKIPPED` events of what is left of the log were skipped already.
        """
        ...

    async def note_loss(
        self, name: BanditName, *, incarnation: str, after: int, end: int, rewards: Sequence[int]
    ) -> LostEvents:
        """Note that the events after position `after`, which went up to `end`, are gone; return what is newly known.

        What was noted before of the same end, by another worker for example, does not count again.

        Parameters
        ----------
        rewards
            Positions among those that are gone, of rewards.

        Raises
        ------
        NotFoundError
            There is no such bandit, or it was created anew.
        """
        ...

    async def save_snapshot(
        self, name: BanditName, snapshot: Snapshot, *, incarnation: str, behind: int = 0, through: int | None = None
    ) -> bool:
        """Keep a snapshot as the newest of two generations, and trim the log up to `behind`.

        That is the position of the kept snapshot from which the caller was able to read the model; it stays. Where it
        is not kept any more, or with 0, nothing is trimmed, and the newest snapshot stays. With `through` no event
        after that position is trimmed.

        Returns False, and changes nothing, when the bandit was created anew, when a snapshot as new is kept already, or
        when `snapshot.position` is beyond the log.
        """
        ...

    async def load_snapshots(self, name: BanditName) -> Sequence[Snapshot]:
        """Return the kept snapshots that verify, newest first: none, one or two."""
        ...

    async def read_contents(self, name: BanditName) -> Contents:
        """Return what there is of a bandit beside its log, its items and its slates; or raise `NotFoundError`."""
        ...

    async def scan_slates(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[Recorded]]:
        """Return some of the slates that are open, and the cursor that the others come after; 0 begins and ends.

        A slate that is open from the first call to the last is returned at least once. `NotFoundError` if there is no
        such bandit.
        """
        ...

    async def scan_imports(self, name: BanditName, *, cursor: int) -> tuple[int, Sequence[ArchivedImport]]:
        """Return some of the parts of imports that are recorded; as `scan_slates` does."""
        ...

    async def find_restore(self, name: BanditName) -> Restore | None:
        """Return how far the import of a bandit of this name is, None if none has begun, or it has ended."""
        ...

    async def read_restored(
        self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]
    ) -> Restored:
        """Return what is restored of some slates and parts of imports of a bandit of this name."""
        ...

    async def read_restored_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """Return up to `limit` restored events of a bandit of this name, from position `start` on."""
        ...

    async def record_restore(self, name: BanditName, step: RestoreStep, *, before: Restore) -> bool:
        """Keep a restored part of a bandit, where no call but these finds it, if the import is as far as `before`.

        An import at its first line takes the place of any that has not ended; one that nobody goes on with is kept as
        long as a closed recommendation. What is sent again, and was kept, is kept once. Returns False, and changes
        nothing, when the import is elsewhere, or another one.
        """
        ...

    async def load_restored_snapshot(self, name: BanditName) -> bytes:
        """Return the bytes of the restored snapshot."""
        ...

    async def finish_restore(self, name: BanditName, restore: Restore, *, quota: int) -> BanditRecord:
        """Make what is restored the bandit of this name, all at once; once it is, return the bandit that it is.

        Raises
        ------
        ConflictError
            BANDIT_ARRIVED: there is a bandit of this name. ARRIVAL_REPLACED: the import is another one, or elsewhere.
        ExhaustedError
            BANDIT_QUOTA: the tenant has `quota` bandits already.
        """
        ...

    async def find_restored_record(self, name: BanditName, import_id: str) -> BanditRecord | None:
        """Return the bandit of this name that an import made, None without any; or raise `ConflictError` as above."""
        ...

    def changes(self) -> AsyncIterator[BanditName | None]:
        """Yield the name of each bandit whose log grew, through whichever process; None when some may have been missed.

        It need not yield what a call through this store returns as `Written`: its caller reads the log when the answer
        lacks the events, or does not come.

        A hint to look earlier, not a promise: whoever must not miss a change also looks from time to time.
        """
        ...

    async def check(self, durability: Durability | None = None) -> StoreReport:
        """Report what the store is and what keeps it from keeping its promises, in a class or in the service's."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...
