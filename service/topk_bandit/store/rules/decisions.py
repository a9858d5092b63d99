"""What a rule decides from, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from topk_bandit.store.events import Imported, ItemsChanged, Recommended
from topk_bandit.store.log import LostEvents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Item
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import ImportOutcome, ImportPart, Skip
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.rules.imports import KnownImport
    from topk_bandit.store.visits import Visits

__all__ = [
    "Commit",
    "Decision",
    "Known",
    "Life",
    "Loss",
    "appended",
    "dated_event",
    "moved_positions",
    "position_of",
    "settled_events",
    "settled_slates",
]

Answer_co = TypeVar("Answer_co", covariant=True)

_MOVED: dict[type, str] = {ItemsChanged: "items_position", Imported: "imported_position"}


@dataclass(frozen=True, slots=True)
class Loss:
    """What is gone of a log: all after a position, which went up to `end`; `total` has this and earlier losses."""

    after: int = 0
    end: int = 0
    total: LostEvents = field(default_factory=lambda: LostEvents(0, 0))


@dataclass(frozen=True, slots=True)
class Life:
    """What is noted of a bandit beside its slates, items and imports.

    Attributes
    ----------
    reset_by
        Request id of the newest reset, empty before the first.
    skipped
        Positions of the events that are passed over.
    loss
        The newest one that was noted.
    """

    reset_by: str = ""
    skipped: frozenset[int] = frozenset()
    loss: Loss = field(default_factory=Loss)


@dataclass(frozen=True, slots=True)
class Known:
    """What a store knows of a bandit, as of one moment.

    Attributes
    ----------
    name, incarnation, revision, settings
        The bandit's.
    now_ms
        The store's clock.
    items_position, imported_position, log_position, first_position
        As `BanditRecord` and `Contents` have them.
    slates
        What is recorded of the recommendations that were asked for, by their ids; None for one that is not recorded.
    items, retired
        Those of the item ids that were asked for that the bandit has, and that it had once.
    item_count
        How many items it has.
    imported
        Of the import that was asked for; None if none was.
    life
        None if it was not asked for.
    visits
        Of the visitor that was asked for; None if none was.
    """

    name: BanditName
    incarnation: str
    revision: int
    settings: BanditSettings
    now_ms: int
    items_position: int
    imported_position: int = 0
    log_position: int = 0
    first_position: int = 1
    slates: Mapping[str, Recorded | None] = field(default_factory=dict)
    items: Mapping[str, Item] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    item_count: int = 0
    imported: KnownImport | None = None
    life: Life | None = None
    visits: Visits | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """What a decision changes, all of it or nothing, if what it was made from is as it was.

    A store compares the bandit's incarnation and revision, each of the slates, and the import, the life and the visits
    if they were asked for. Positions that are known only once it is committed are negative numbers: see `appended`.
    After an `ItemsChanged` or an `Imported` its position is the bandit's `items_position` or `imported_position`.

    Attributes
    ----------
    events
        Appended in this order.
    slates
        As they are from now on, by their ids. One that has no time yet is dated: recorded now, due after `wait_ms`.
    due_after_ms
        When slates without a time are looked at first; None for the end of their wait.
    due_ms
        When others are looked at next, by their ids; those that are not here stay as they are.
    lost
        Ids of slates whose records can't be read, which are due no more.
    late, clamped
        How many rewards were late, or taken as an end of the range.
    before_ms
        By when it is committed, by the store's clock; None for any time. A rule that goes by the time says here how
        long its answer holds: else a store would ask it again and again, and be answered the same.
    items_position
        That the bandit still has to have; None for any.
    most
        Positions of the bandit, by their names in `Known`, that may be no larger than this.
    settings
        The bandit's from now on; None for the same.
    revises
        Whether the bandit's revision rises.
    items
        As they are from now on, by their ids; None for one that is retired.
    part
        A part of an import, and what became of it; None without any.
    reset_by, loss
        As `Life` has them from now on; None for the same.
    skip
        What is to be passed over; None without any.
    visits
        Those of a visitor from now on, which are forgotten after them; None for the same.
    """

    events: tuple[Event, ...] = ()
    slates: Mapping[str, Recorded] = field(default_factory=dict)
    wait_ms: int = 0
    due_after_ms: int | None = None
    due_ms: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    late: int = 0
    clamped: int = 0
    before_ms: int | None = None
    items_position: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)
    settings: BanditSettings | None = None
    revises: bool = False
    items: Mapping[str, Item | None] = field(default_factory=dict)
    part: tuple[ImportPart, ImportOutcome] | None = None
    reset_by: str | None = None
    loss: Loss | None = None
    skip: Skip | None = None
    visits: Visits | None = None


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer_co]):
    """An answer, and what has to be committed before it is given; None for what changes nothing."""

    answer: Answer_co
    commit: Commit | None = None


def appended(place: int) -> int:
    """Return what stands for the position of an event that is to be appended; `place` is its place in the commit."""
    return -1 - place


def position_of(position: int, first: int) -> int:
    """Return a position, or that which `appended` stands for, where a commit's first event is at `first`."""
    return position if position >= 0 else first - 1 - position


def moved_positions(commit: Commit) -> dict[str, int]:
    """Return which positions of the bandit, by their names, are those of events of a commit, by their places."""
    return {_MOVED[type(event)]: place for place, event in enumerate(commit.events) if type(event) in _MOVED}


def settled_events(commit: Commit, *, at_ms: int) -> tuple[Event, ...]:
    """Return the events of a commit as they were appended then."""
    return tuple(dated_event(event, at_ms + commit.wait_ms) for event in commit.events)


def settled_slates(commit: Commit, *, first: int, at_ms: int) -> dict[str, Recorded]:
    """Return the slates of a commit as they are after it; the first of its events is at position `first`."""
    return {key: _settled(recorded, commit, first, at_ms) for key, recorded in commit.slates.items()}


def dated_event(event: Event, deadline_ms: int) -> Event:
    """Return an event as it is appended: a `Recommended` has its deadline from then on."""
    if not isinstance(event, Recommended):
        return event
    return replace(event, recommendation=replace(event.recommendation, deadline_ms=deadline_ms))


def _settled(recorded: Recorded, commit: Commit, first: int, at_ms: int) -> Recorded:
    given = recorded.recommendation
    is_new = recorded.at_ms == 0 and recorded.is_open
    rewards = tuple(replace(one, position=position_of(one.position, first)) for one in recorded.rewards)
    learned = recorded.provisional
    if learned is not None and not learned.learned_ms:
        learned = replace(learned, learned_ms=at_ms)
    return replace(
        recorded,
        recommendation=replace(given, deadline_ms=at_ms + commit.wait_ms) if is_new else given,
        at_ms=at_ms if is_new else recorded.at_ms,
        rewards=rewards,
        provisional=learned,
        logged=position_of(recorded.logged, first),
        position=position_of(recorded.position, first),
        closed_ms=recorded.closed_ms if recorded.is_open else at_ms,
    )
