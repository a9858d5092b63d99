"""The contents of a bandit beside its log, in pages of lines as `topk_bandit.store.archives` has them.

For a whole log these are the bandit and its imports. For a trimmed log they are also the snapshot that it begins after,
items, and open slates, whose events are gone. Pages are read one after the other while the log grows: the events
from the first position on, read after the last page, show what changed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.store.archives import ArchivedBandit, RetiredItems, SnapshotPart, write_line
from topk_bandit.store.codec import encode_snapshot
from topk_bandit.store.events import ItemsChanged
from topk_bandit.store.restores import item_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.archives import Line
    from topk_bandit.store.log import Contents, Store

__all__ = ["STAGES", "ContentsCursor", "read_contents"]

STAGES = ("snapshot", "items", "slates", "imports")
"""What comes after the bandit, in this order; the first three only of a log that was trimmed."""

SNAPSHOT_BYTES = 2 << 20
"""So many bytes of a snapshot are in a line."""

_DIGITS = "0123456789abcdef"
"""Items come in as many pages, each those whose digest begins with one: they stay apart whatever changes meanwhile."""


class ContentsCursor(NamedTuple):
    """Where to go on.

    Attributes
    ----------
    incarnation, first_position
        The log's, as the first page has it; the position is that of the first event that is archived.
    at
        Where to go on within the stage; 0 at first.
    """

    incarnation: str
    first_position: int
    stage: str
    at: int


async def read_contents(
    store: Store, name: BanditName, place: ContentsCursor | None
) -> tuple[list[str], ContentsCursor | None]:
    """Return the lines of a page, and where the next one is; None for the first page, and after the last.

    Raises
    ------
    NotFoundError
        There is no such bandit.
    NotReadyError
        LOG_REPLACED: the bandit was created anew. LOG_TRIMMED: the snapshot that the log began after is gone.
    """
    held = await store.read_contents(name)
    if place is None:
        begin = await _find_begin(store, name, held.first_position)
        first = "snapshot" if begin > 1 else "imports"
        return [write_line(_bandit(held, begin), store.data_version)], ContentsCursor(
            held.record.incarnation, begin, first, 0
        )
    if held.record.incarnation != place.incarnation:
        raise NotReadyError("LOG_REPLACED", f"{name} was created anew: its log is another one")
    lines, at = await _STAGES[place.stage](store, name, held, place)
    return [write_line(line, store.data_version) for line in lines], _following(place, at)


def _following(place: ContentsCursor, at: int) -> ContentsCursor | None:
    if at:
        return place._replace(at=at)
    later = STAGES[STAGES.index(place.stage) + 1 :]
    return place._replace(stage=later[0], at=0) if later else None


async def _find_begin(store: Store, name: BanditName, first_position: int) -> int:
    """Return where the archived log begins: where the log does, or after the oldest snapshot in it.

    What retention has left before that snapshot could not be folded.
    """
    if first_position == 1:
        return 1
    kept = [snapshot.position + 1 for snapshot in await store.load_snapshots(name)]
    return min((one for one in kept if one >= first_position), default=first_position)


def _bandit(held: Contents, first_position: int) -> ArchivedBandit:
    record = held.record
    same: tuple[str, ...] = ("incarnation", "created_ms", "revision", "log_position", "items_position", "late_rewards")
    same += ("clamped_rewards", "lost_events", "lost_rewards", "settings")
    return ArchivedBandit(
        name=str(record.name),
        first_position=first_position,
        imported_position=held.imported_position,
        **{name: getattr(record, name) for name in same},
    )


async def _snapshot(
    store: Store, name: BanditName, _held: Contents, place: ContentsCursor
) -> tuple[Sequence[Line], int]:
    for snapshot in await store.load_snapshots(name):
        if snapshot.position == place.first_position - 1:
            frame, end = encode_snapshot(snapshot, store.data_version), place.at + SNAPSHOT_BYTES
            return [SnapshotPart(frame[place.at : end])], end if end < len(frame) else 0
    raise NotReadyError("LOG_TRIMMED", f"the log of {name} was trimmed meanwhile", first_position=_held.first_position)


async def _items(store: Store, name: BanditName, held: Contents, place: ContentsCursor) -> tuple[Sequence[Line], int]:
    digit = _DIGITS[place.at % len(_DIGITS)]
    items = tuple(item for item in await store.list_items(name) if item_digest(item.item_id)[0] == digit)
    retired = tuple(digest for digest in held.retired if digest[0] == digit)
    lines: list[Line] = [ItemsChanged(upserted=items)] if items else []
    return [*lines, RetiredItems(retired)] if retired else lines, (place.at + 1) % len(_DIGITS)


async def _slates(store: Store, name: BanditName, _held: Contents, place: ContentsCursor) -> tuple[Sequence[Line], int]:
    at, slates = await store.scan_slates(name, cursor=place.at)
    return slates, at


async def _imports(
    store: Store, name: BanditName, _held: Contents, place: ContentsCursor
) -> tuple[Sequence[Line], int]:
    at, parts = await store.scan_imports(name, cursor=place.at)
    return parts, at


_STAGES = {"snapshot": _snapshot, "items": _items, "slates": _slates, "imports": _imports}
