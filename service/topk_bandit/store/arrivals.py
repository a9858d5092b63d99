"""A bandit that is taken in from the lines of its archive: how each batch of lines changes what came of those before.

Lines are those of `topk_bandit.store.archives`. What a store remembers beside its log, such as items and open slates,
is made of the events again; applied once more to what knows them already, they change nothing. All is pure: stores
keep what comes out, in a place where nobody serves it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.bandits import (
    MAX_CONTEXT_DIMENSION,
    MAX_CONTEXT_WIDTH,
    MAX_ITEM_CAPACITY,
    MAX_SLATE_SIZE,
    Activated,
    Aggregation,
    BanditCreated,
    BanditReset,
    EventSkipped,
    Expired,
    Imported,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    SettingsChanged,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.archive_lines import LATEST_MS, ArchivedImport, End
from topk_bandit.store.archives import ArchivedBandit, RetiredItems, SnapshotPart
from topk_bandit.store.arriving import Arriving
from topk_bandit.store.codec import decode_settings, encode_settings, fingerprint
from topk_bandit.store.line_imports import take_lines
from topk_bandit.store.recorded import PostedReward, Recorded, RecordState, is_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.domain.bandits import BanditSettings, Event
    from topk_bandit.store.archives import Line
    from topk_bandit.store.arriving import Arrival, Arrived
    from topk_bandit.store.line_imports import Lines

__all__ = ["ids_of", "item_digest", "settings_of", "take"]

Check: TypeAlias = "Callable[[BanditSettings, Event | Recorded | ArchivedBandit], None]"

_CHECKED = ItemsChanged | Recommended | Activated | RewardCollected | Rewarded | RewardAmended | Expired | Imported

_UNKNOWN_ROWS = "0"
"""The fingerprint of a part of an import of which nothing but its rows is known: no other is like it."""


def settings_of(arrival: Arrival) -> BanditSettings:
    """Return the settings of a bandit as of the newest event that has arrived."""
    return _decode_settings(arrival.settings)


@lru_cache(maxsize=64)
def _decode_settings(text: str) -> BanditSettings:
    return decode_settings(text.encode())


def item_digest(item_id: str) -> str:
    """Return what is kept of a retired item's id: 19 hexadecimal digits."""
    return sha1(item_id.encode(), usedforsecurity=False).hexdigest()[:19]


def ids_of(parsed: Sequence[Line]) -> tuple[list[str], list[tuple[str, int]]]:
    """Return the ids of the slates, and the parts of imports, that lines are about."""
    slates: dict[str, None] = {}
    parts: dict[tuple[str, int], None] = {}
    for line in parsed:
        event = line.event if isinstance(line, LoggedEvent) else line
        if isinstance(event, Recorded | Recommended):
            slates[event.recommendation.recommendation_id] = None
        elif isinstance(event, Activated | Lapsed | RewardCollected | Rewarded | RewardAmended | Expired):
            slates[event.recommendation_id] = None
        elif isinstance(event, Imported | ArchivedImport):
            parts[event.import_id, event.first_row] = None
    return list(slates), list(parts)


def take(
    arrival: Arrival, arrived: Arrived, sent: Lines, parsed: Sequence[Line], *, version: int, check: Check
) -> Arriving:
    """Return what the lines that come next make of what has arrived, to be kept in the layout of a data version.

    Parameters
    ----------
    check
        Raises `InvalidArgumentError` for what no bandit with such settings, or earlier ones, could have or remember.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one can't follow.
    """
    arriving = Arriving(replace(arrival, part=sent.part), version)

    def take_line(line: Line) -> None:
        _check_line(arriving.arrival, line, check)
        _take_line(arriving, arrived, line)

    take_lines(arriving, sent.lines, parsed, take_line)
    return arriving


def _check_line(arrival: Arrival, line: Line, check: Check) -> None:
    """Check settings, and what has a context, a slate or a reward; the bandit's settings come before it."""
    checked = line.event if isinstance(line, LoggedEvent) else line
    if isinstance(checked, ArchivedBandit | BanditCreated | SettingsChanged):
        check(checked.settings, checked)
    elif arrival.settings and isinstance(checked, Recorded | _CHECKED):
        check(settings_of(arrival), checked)


def _take_line(arriving: Arriving, arrived: Arrived, line: Line) -> None:
    arrival = arriving.arrival
    if isinstance(line, ArchivedBandit) != (arrival.next_line == 0):
        raise CorruptDataError("the bandit is in the first line, and in no other")
    if arrival.complete:
        raise CorruptDataError("comes after the line that ends the bandit")
    match line:
        case ArchivedBandit():
            arriving.arrival = _begin(arrival, line, arriving.version)
        case End():
            arriving.arrival = _end(arrival, line)
        case LoggedEvent():
            _take_event(arriving, arrived, line)
        case _:
            _take_holding(arriving, arrived, line)


def _take_holding(arriving: Arriving, arrived: Arrived, line: Line) -> None:
    """Take what was read before the events."""
    if arriving.arrival.position >= arriving.arrival.first_position:
        raise CorruptDataError("comes after the first event")
    match line:
        case SnapshotPart(data):
            arriving.snapshot += data
        case RetiredItems(digests):
            arriving.retired += digests
        case ItemsChanged(upserted, _):
            arriving.items |= {item.item_id: item for item in upserted}
        case ArchivedImport():
            _put_import(arriving, arrived, line)
        case Recorded():
            _put_slate(arriving, arrived, line.recommendation.recommendation_id, line)


def _check_settings(settings: BanditSettings) -> None:
    """Refuse what no bandit could have been created with, and what no worker could hold in memory."""
    most = {"item_capacity": MAX_ITEM_CAPACITY, "slate_size": min(MAX_SLATE_SIZE, settings.item_capacity)}
    most["context_dim"] = MAX_CONTEXT_DIMENSION if settings.context_schema is None else MAX_CONTEXT_WIDTH
    for name, high in most.items():
        if not 1 <= (value := getattr(settings, name)) <= high:
            raise CorruptDataError(f"has settings with {name} {value}; 1 to {high} are allowed")


def _begin(arrival: Arrival, bandit: ArchivedBandit, version: int) -> Arrival:
    _check_settings(bandit.settings)
    return replace(
        arrival,
        **{name: getattr(bandit, name) for name in ("incarnation", "created_ms", "revision", "first_position")},
        **{name: getattr(bandit, name) for name in ("items_position", "imported_position", "late_rewards")},
        **{name: getattr(bandit, name) for name in ("clamped_rewards", "lost_events", "lost_rewards")},
        position=bandit.first_position - 1,
        as_of=bandit.log_position,
        settings=encode_settings(bandit.settings, version).decode(),
    )


def _end(arrival: Arrival, end: End) -> Arrival:
    if (end.lines, end.digest) != (arrival.next_line, arrival.digest):
        raise CorruptDataError("does not end these lines: one was changed, or is missing")
    if end.position != arrival.position or arrival.position < max(arrival.as_of, 1):
        raise CorruptDataError(f"ends a log of {end.position} events, and there are {arrival.position}")
    return replace(arrival, complete=True)


def _take_event(arriving: Arriving, arrived: Arrived, logged: LoggedEvent) -> None:
    arrival, position, event = arriving.arrival, logged.position, logged.event
    if position != arrival.position + 1:
        raise CorruptDataError(f"event {position} can't follow event {arrival.position}")
    if isinstance(event, BanditCreated) != (position == 1):
        raise CorruptDataError("the bandit is created by event 1, and by no other")
    arriving.events.append(logged)
    arriving.arrival = replace(arrival, position=position)
    match event:
        case BanditCreated(settings, _) | SettingsChanged(settings, _):
            _check_settings(settings)
            revision = arrival.revision + (position > arrival.as_of)
            told = encode_settings(settings, arriving.version).decode()
            arriving.arrival = replace(arriving.arrival, settings=told, revision=revision)
        case EventSkipped():
            pass
        case BanditReset():
            revision = arrival.revision + (position > arrival.as_of)
            arriving.arrival = replace(arriving.arrival, revision=revision)
        case ItemsChanged(upserted, retired):
            arriving.items |= {item.item_id: item for item in upserted} | dict.fromkeys(retired)
            arriving.retired += map(item_digest, retired)
            arriving.arrival = replace(arriving.arrival, items_position=position)
        case Imported(import_id, first_row, slates):
            next_row = first_row + len(slates)
            part = ArchivedImport(import_id, first_row, _UNKNOWN_ROWS, next_row, len(slates), position)
            _put_import(arriving, arrived, part)
            arriving.arrival = replace(arriving.arrival, imported_position=position)
        case Recommended():
            _open_slate(arriving, arrived, logged, event)
        case _:
            _follow_slate(arriving, arrived, logged)


def _put_import(arriving: Arriving, arrived: Arrived, part: ArchivedImport) -> None:
    """Take a part of an import of past slates, unless it is known."""
    key = part.import_id, part.first_row
    if key in arriving.imports or key in arrived.imports:
        return
    arriving.imports[key] = part
    arriving.arrival = replace(arriving.arrival, import_parts=arriving.arrival.import_parts + 1)


def _put_slate(arriving: Arriving, arrived: Arrived, key: str, recorded: Recorded | None) -> None:
    """Remember a slate as it is now, None for one that is not remembered any more."""
    known = _find_slate(arriving, arrived, key)
    more = is_pending(recorded) - is_pending(known)
    arriving.slates[key] = recorded
    arriving.arrival = replace(arriving.arrival, pending=arriving.arrival.pending + more)


def _find_slate(arriving: Arriving, arrived: Arrived, key: str) -> Recorded | None:
    return arriving.slates[key] if key in arriving.slates else arrived.slates.get(key)


def _open_slate(arriving: Arriving, arrived: Arrived, logged: LoggedEvent, event: Recommended) -> None:
    key = event.recommendation.recommendation_id
    if not 0 <= event.recommendation.deadline_ms <= LATEST_MS:
        raise CorruptDataError(f"has the deadline {event.recommendation.deadline_ms} ms, after the year 9999")
    known = _find_slate(arriving, arrived, key)
    if known is not None:
        _put_slate(arriving, arrived, key, replace(known, logged=logged.position))
        return
    inactive = settings_of(arriving.arrival).requires_activation
    state = RecordState.INACTIVE if inactive else RecordState.PENDING
    opened = Recorded(fingerprint(event.request), event.request.context, event.recommendation, logged.at_ms, state)
    _put_slate(arriving, arrived, key, replace(opened, aside=event.aside, logged=logged.position))


def _follow_slate(arriving: Arriving, arrived: Arrived, logged: LoggedEvent) -> None:
    """Take in what happened to a slate, if it is one that is remembered."""
    event, settings = logged.event, settings_of(arriving.arrival)
    key: str = event.recommendation_id  # type: ignore[union-attr]
    known = _find_slate(arriving, arrived, key)
    if known is None:
        return
    after = known
    gone = isinstance(event, Rewarded) and settings.reward_aggregation is not Aggregation.FIRST
    match event:
        case Activated(_, shown, instead):
            after = replace(known, state=RecordState.PENDING, instead=shown.slate if instead else ())
        case RewardCollected(_, reward_id, value):
            after = _collect(known, reward_id, value, position=logged.position)
        case RewardAmended(_, value):
            after = _amend_record(known, value, position=logged.position)
        case Rewarded(_, value, _):
            after = _reward_record(known, value, logged)
        case Expired():
            after = replace(known, state=RecordState.EXPIRED, closed_ms=logged.at_ms)
        case Lapsed():
            after = replace(known, state=RecordState.LAPSED, closed_ms=logged.at_ms)
    _put_slate(arriving, arrived, key, None if gone else after)


def _collect(recorded: Recorded, reward_id: str, value: float | None, *, position: int) -> Recorded:
    reward = recorded.find_reward(reward_id)
    if reward is not None:
        return recorded.with_reward(replace(reward, value=value))
    return recorded if value is None else recorded.with_reward(PostedReward(reward_id, value, value, position))


def _reward_record(recorded: Recorded, value: float, logged: LoggedEvent) -> Recorded:
    reward = PostedReward("", value, value, logged.position)
    return replace(
        recorded, state=RecordState.REWARDED, rewards=(reward,), position=logged.position, closed_ms=logged.at_ms
    )


def _amend_record(recorded: Recorded, value: float | None, *, position: int) -> Recorded:
    rewards = tuple(replace(one, value=value) for one in recorded.rewards)
    state = RecordState.VOID if value is None else RecordState.REWARDED
    return replace(recorded, state=state, rewards=rewards, position=position)
