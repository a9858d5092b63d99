"""A bandit that is restored from the lines of its archive: how each batch of lines changes what came of those before.

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
    Aggregation,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.archive_lines import LATEST_MS, ArchivedImport, End
from topk_bandit.store.archives import ArchivedBandit, RetiredItems, SnapshotPart
from topk_bandit.store.codec import decode_settings, encode_settings, fingerprint
from topk_bandit.store.data_versions import (
    check_data_version,
    check_item_values,
    check_recommendation,
    check_request,
)
from topk_bandit.store.events import (
    Activated,
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
    RewardRevised,
    SettingsChanged,
    SlateEvent,
)
from topk_bandit.store.line_imports import take_lines
from topk_bandit.store.recorded import (
    NO_ITEMS,
    UNKNOWN_ITEMS,
    NamedItems,
    PostedReward,
    Provisional,
    Recorded,
    RecordState,
    digest_items,
    find_item_values,
    is_pending,
)
from topk_bandit.store.restore_state import RestoreStep
from topk_bandit.store.rules.provisional import close

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ItemValues
    from topk_bandit.store.archives import Line
    from topk_bandit.store.events import Event
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.restore_state import Restore, Restored

__all__ = ["ids_of", "item_digest", "settings_of", "take"]

Check: TypeAlias = "Callable[[BanditSettings, Event | Recorded | ArchivedBandit], None]"

_CHECKED = ItemsChanged | Recommended | SlateEvent | Imported

_UNKNOWN_ROWS = "0"
"""The fingerprint of a part of an import of which nothing but its rows is known: no other is like it."""


def settings_of(restore: Restore) -> BanditSettings:
    """Return the settings of a bandit as of the newest restored event."""
    return _decode_settings(restore.settings)


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
        elif isinstance(event, SlateEvent):
            slates[event.recommendation_id] = None
        elif isinstance(event, Imported | ArchivedImport):
            parts[event.import_id, event.first_row] = None
    return list(slates), list(parts)


def take(
    restore: Restore, restored: Restored, sent: Lines, parsed: Sequence[Line], *, version: int, check: Check
) -> RestoreStep:
    """Return the changes that the next lines make to the restored state, in the layout of a data version.

    Parameters
    ----------
    check
        Raises `InvalidArgumentError` for what no bandit with such settings, or earlier ones, could have or remember.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one can't follow.
    """
    step = RestoreStep(replace(restore, part=sent.part), version)

    def take_line(line: Line) -> None:
        _check_line(step.restore, line, version, check)
        _take_line(step, restored, line)

    take_lines(step, sent.lines, parsed, take_line)
    return step


def _check_line(restore: Restore, line: Line, version: int, check: Check) -> None:
    """Check settings, and what has a context, a slate or a reward; the bandit's settings come before it."""
    checked = line.event if isinstance(line, LoggedEvent) else line
    if isinstance(checked, ArchivedBandit | BanditCreated | SettingsChanged):
        check(checked.settings, checked)
    elif restore.settings and isinstance(checked, Recorded | _CHECKED):
        check(settings_of(restore), checked)
        check_item_values(version, *find_item_values(checked))
        if isinstance(checked, Recommended):
            check_request(checked.request, version)
        if isinstance(checked, Recommended | Recorded):
            check_recommendation(checked.recommendation, version)


def _take_line(step: RestoreStep, restored: Restored, line: Line) -> None:
    restore = step.restore
    if isinstance(line, ArchivedBandit) != (restore.next_line == 0):
        raise CorruptDataError("the bandit is in the first line, and in no other")
    if restore.complete:
        raise CorruptDataError("comes after the line that ends the bandit")
    match line:
        case ArchivedBandit():
            step.restore = _begin(restore, line, step.version)
        case End():
            step.restore = _end(restore, line)
        case LoggedEvent():
            _take_event(step, restored, line)
        case _:
            _take_contents(step, restored, line)


def _take_contents(step: RestoreStep, restored: Restored, line: Line) -> None:
    """Take what was read before the events."""
    if step.restore.position >= step.restore.first_position:
        raise CorruptDataError("comes after the first event")
    match line:
        case SnapshotPart(data):
            step.snapshot += data
        case RetiredItems(digests):
            step.retired += digests
        case ItemsChanged(upserted, _):
            step.items |= {item.item_id: item for item in upserted}
        case ArchivedImport():
            _put_import(step, restored, line)
        case Recorded():
            _put_slate(step, restored, line.recommendation.recommendation_id, line)


def _check_settings(settings: BanditSettings, version: int) -> None:
    """Refuse what no bandit could have been created with, and what no worker could hold in memory."""
    check_data_version(settings, version)
    most = {"item_capacity": MAX_ITEM_CAPACITY, "slate_size": min(MAX_SLATE_SIZE, settings.item_capacity)}
    most["context_dim"] = MAX_CONTEXT_DIMENSION if settings.context_schema is None else MAX_CONTEXT_WIDTH
    for name, high in most.items():
        if not 1 <= (value := getattr(settings, name)) <= high:
            raise CorruptDataError(f"has settings with {name} {value}; 1 to {high} are allowed")


def _begin(restore: Restore, bandit: ArchivedBandit, version: int) -> Restore:
    _check_settings(bandit.settings, version)
    return replace(
        restore,
        **{name: getattr(bandit, name) for name in ("incarnation", "created_ms", "revision", "first_position")},
        **{name: getattr(bandit, name) for name in ("items_position", "imported_position", "late_rewards")},
        **{name: getattr(bandit, name) for name in ("clamped_rewards", "lost_events", "lost_rewards")},
        position=bandit.first_position - 1,
        as_of=bandit.log_position,
        settings=encode_settings(bandit.settings, version).decode(),
    )


def _end(restore: Restore, end: End) -> Restore:
    if (end.lines, end.digest) != (restore.next_line, restore.digest):
        raise CorruptDataError("does not end these lines: one was changed, or is missing")
    if end.position != restore.position or restore.position < max(restore.as_of, 1):
        raise CorruptDataError(f"ends a log of {end.position} events, and there are {restore.position}")
    return replace(restore, complete=True)


def _take_event(step: RestoreStep, restored: Restored, logged: LoggedEvent) -> None:
    restore, position, event = step.restore, logged.position, logged.event
    if position != restore.position + 1:
        raise CorruptDataError(f"event {position} can't follow event {restore.position}")
    if isinstance(event, BanditCreated) != (position == 1):
        raise CorruptDataError("the bandit is created by event 1, and by no other")
    step.events.append(logged)
    step.restore = replace(restore, position=position)
    match event:
        case BanditCreated(settings, _) | SettingsChanged(settings, _):
            _check_settings(settings, step.version)
            revision = restore.revision + (position > restore.as_of)
            encoded = encode_settings(settings, step.version).decode()
            step.restore = replace(step.restore, settings=encoded, revision=revision)
        case EventSkipped():
            pass
        case BanditReset():
            revision = restore.revision + (position > restore.as_of)
            step.restore = replace(step.restore, revision=revision)
        case ItemsChanged(upserted, retired):
            step.items |= {item.item_id: item for item in upserted} | dict.fromkeys(retired)
            step.retired += map(item_digest, retired)
            step.restore = replace(step.restore, items_position=position)
        case Imported(import_id, first_row, slates):
            next_row = first_row + len(slates)
            part = ArchivedImport(import_id, first_row, _UNKNOWN_ROWS, next_row, len(slates), position)
            _put_import(step, restored, part)
            step.restore = replace(step.restore, imported_position=position)
        case Recommended():
            _open_slate(step, restored, logged, event)
        case _:
            _follow_slate(step, restored, logged)


def _put_import(step: RestoreStep, restored: Restored, part: ArchivedImport) -> None:
    """Take a part of an import of past slates, unless it is known."""
    key = part.import_id, part.first_row
    if key in step.imports or key in restored.imports:
        return
    step.imports[key] = part
    step.restore = replace(step.restore, import_parts=step.restore.import_parts + 1)


def _put_slate(step: RestoreStep, restored: Restored, key: str, recorded: Recorded | None) -> None:
    """Remember a slate as it is now, None for one that is not remembered any more."""
    known = _find_slate(step, restored, key)
    more = is_pending(recorded) - is_pending(known)
    step.slates[key] = recorded
    step.restore = replace(step.restore, pending=step.restore.pending + more)


def _find_slate(step: RestoreStep, restored: Restored, key: str) -> Recorded | None:
    return step.slates[key] if key in step.slates else restored.slates.get(key)


def _open_slate(step: RestoreStep, restored: Restored, logged: LoggedEvent, event: Recommended) -> None:
    key = event.recommendation.recommendation_id
    if not 0 <= event.recommendation.deadline_ms <= LATEST_MS:
        raise CorruptDataError(f"has the deadline {event.recommendation.deadline_ms} ms, after the year 9999")
    known = _find_slate(step, restored, key)
    if known is not None:
        _put_slate(step, restored, key, replace(known, logged=logged.position))
        return
    inactive = settings_of(step.restore).requires_activation
    state = RecordState.INACTIVE if inactive else RecordState.PENDING
    opened = Recorded(fingerprint(event.request), event.request.context, event.recommendation, logged.at_ms, state)
    _put_slate(step, restored, key, replace(opened, aside=event.aside, logged=logged.position))


def _follow_slate(step: RestoreStep, restored: Restored, logged: LoggedEvent) -> None:
    """Take in what happened to a slate, if it is one that is remembered."""
    event, settings = logged.event, settings_of(step.restore)
    key: str = event.recommendation_id  # type: ignore[union-attr]
    known = _find_slate(step, restored, key)
    if known is None:
        return
    after = known
    gone = isinstance(event, Rewarded) and settings.reward_aggregation is not Aggregation.FIRST
    match event:
        case Activated(_, shown, instead):
            after = replace(known, state=RecordState.PENDING, instead=shown.slate if instead else ())
        case RewardCollected():
            after = _collect(known, event, position=logged.position)
        case RewardAmended():
            after = _amend_record(known, event, position=logged.position)
        case RewardRevised():
            after = _revise_record(known, event, logged)
        case Rewarded():
            after = _reward_record(known, event, logged, settings)
        case Expired():
            after = replace(known, state=RecordState.EXPIRED, closed_ms=logged.at_ms)
        case Lapsed():
            after = replace(known, state=RecordState.LAPSED, closed_ms=logged.at_ms)
    _put_slate(step, restored, key, None if gone else after)


def _collect(recorded: Recorded, event: RewardCollected, *, position: int) -> Recorded:
    reward_id, value = event.reward_id, event.value
    items = _items_of(recorded.slate, event.item_values)
    reward = recorded.find_reward(reward_id)
    if reward is not None:
        return recorded.with_reward(reward.amended(value, replace(items, posted=reward.items.posted)))
    return recorded if value is None else recorded.with_reward(PostedReward(reward_id, value, value, position, items))


def _items_of(slate: Sequence[str], values: ItemValues | None) -> NamedItems:
    """Return what a reward says of items, by what it named of a slate."""
    if values is None:
        return NO_ITEMS
    said = digest_items({key: value for key, value in zip(slate, values, strict=False) if value is not None})
    return NamedItems(said, said, values)


def _reward_record(recorded: Recorded, event: Rewarded, logged: LoggedEvent, settings: BanditSettings) -> Recorded:
    items = _items_of(event.shown.slate, event.item_values)
    if settings.default_item_value is not None:  # which of them the reward named is not known
        items = NamedItems(UNKNOWN_ITEMS, values=event.item_values)
    reward = PostedReward("", event.value, event.value, logged.position, items)
    return replace(
        recorded, state=RecordState.REWARDED, rewards=(reward,), position=logged.position, closed_ms=logged.at_ms
    )


def _revise_record(recorded: Recorded, event: RewardRevised, logged: LoggedEvent) -> Recorded:
    if event.value is None:
        return replace(
            recorded, state=RecordState.VOID, provisional=None, position=logged.position, closed_ms=logged.at_ms
        )
    learned = Provisional(event.value, event.learned_ms or logged.at_ms, event.is_default, event.item_values)
    revised = replace(recorded, state=RecordState.PROVISIONAL, provisional=learned, position=logged.position)
    return replace(close(revised), closed_ms=logged.at_ms) if event.is_final else revised


def _amend_record(recorded: Recorded, event: RewardAmended, *, position: int) -> Recorded:
    value, values = event.value, event.item_values
    rewards = tuple(one.amended(value, NamedItems(one.items.posted, values=values)) for one in recorded.rewards)
    state = RecordState.VOID if value is None else RecordState.REWARDED
    return replace(recorded, state=state, rewards=rewards, position=position)
