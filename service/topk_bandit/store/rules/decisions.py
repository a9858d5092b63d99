"""What a rule decides from, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from topk_bandit.domain.bandits import Recommended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import BanditName, BanditSettings, Event
    from topk_bandit.store.recorded import Recorded

__all__ = ["Commit", "Decision", "Known", "appended", "dated_event", "position_of", "settled_events", "settled_slates"]

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Known:
    """What a store knows of a bandit, as of one moment.

    Attributes
    ----------
    name, incarnation, revision, settings
        Of the bandit.
    now_ms
        The store's clock.
    items_position, imported_position, log_position, first_position
        As `BanditRecord` and `Holdings` have them.
    slates
        What is recorded of the recommendations that were asked for, by their ids; None for one that is not recorded.
    items
        Those of the item ids that were asked for that the bandit has.
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
    items: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Commit:
    """What a decision changes, all of it or nothing, if what it was made from is as it was.

    A store compares the bandit's incarnation and revision, and each of the slates. These and the events may have
    positions in the log that nobody knows before: see `appended`.

    Attributes
    ----------
    events
        Appended in this order.
    slates
        As they are from now on, by their ids. One that has no time yet is dated: recorded now, due after `wait_ms`.
    lost
        Ids of slates whose records can't be read, which are due no more.
    late, clamped
        How many rewards were late, or taken as an end of the range.
    before_ms
        By when it is committed, by the store's clock; None for any time.
    items_position
        That the bandit still has to have; None for any.
    most
        Positions of the bandit, by their names in `Known`, that may be no larger than this.
    """

    events: tuple[Event, ...] = ()
    slates: Mapping[str, Recorded] = field(default_factory=dict)
    wait_ms: int = 0
    lost: tuple[str, ...] = ()
    late: int = 0
    clamped: int = 0
    before_ms: int | None = None
    items_position: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)


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
    return replace(
        recorded,
        recommendation=replace(given, deadline_ms=at_ms + commit.wait_ms) if is_new else given,
        at_ms=at_ms if is_new else recorded.at_ms,
        rewards=rewards,
        logged=position_of(recorded.logged, first),
        position=position_of(recorded.position, first),
        closed_ms=recorded.closed_ms if recorded.is_open else at_ms,
    )
