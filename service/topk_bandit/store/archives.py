"""A bandit as lines of JSON: what a store holds of it, then the events of its log, then a line that ends them.

For a whole log, events say nearly all; of one that was trimmed, items, the ids of retired ones, slates that are
open and the snapshot before the oldest event come first. They may be read while the log grows: applied to them once
more, the events that follow make of them what they were at the last one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.slates import ItemValues, RecommendationRequest
from topk_bandit.store.archive_lines import (
    ArchivedImport,
    Count,
    End,
    Millis,
    Position,
    SharedFields,
    line_text,
    shared_fields,
    value_of,
)
from topk_bandit.store.codec import (
    decode_event,
    decode_recommendation,
    decode_settings,
    encode_event,
    encode_recommended,
    encode_settings,
)
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.documents import read_optional
from topk_bandit.store.event_lines import event_line
from topk_bandit.store.events import Activated, ItemsChanged, LoggedEvent, Recommended
from topk_bandit.store.recorded import (
    NO_ITEMS,
    OPEN_STATES,
    NamedItems,
    PostedReward,
    Provisional,
    Recorded,
    RecordState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from topk_bandit.domain.bandits import BanditSettings

__all__ = [
    "ArchivedBandit",
    "EventFigures",
    "Line",
    "RetiredItems",
    "SnapshotPart",
    "event_figures",
    "read_line",
    "write_line",
]

SCHEMA = 1
"""Number of the layout of an archive."""


@dataclass(frozen=True, slots=True)
class ArchivedBandit:
    """The first line: a bandit as it was when its log had `log_position` events, of which `first_position` was kept.

    The other attributes are those of `topk_bandit.store.log.BanditRecord`; `imported_position` is that of the newest
    `Imported`.
    """

    name: str
    incarnation: str
    created_ms: int
    revision: int
    first_position: int
    log_position: int
    items_position: int
    imported_position: int
    late_rewards: int
    clamped_rewards: int
    lost_events: int
    lost_rewards: int
    settings: BanditSettings


@dataclass(frozen=True, slots=True)
class RetiredItems:
    """Items that are retired: of each so many hexadecimal digits of its id's SHA-1."""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """The next bytes of the framed snapshot that the log begins after."""

    data: bytes


Line: TypeAlias = (
    ArchivedBandit | ItemsChanged | RetiredItems | SnapshotPart | Recorded | ArchivedImport | LoggedEvent | End
)
"""What a line can be; `ItemsChanged` has items as they are."""


class _Bandit(Struct, forbid_unknown_fields=True):
    v: Annotated[int, Meta(ge=SCHEMA, le=SCHEMA)]
    name: str
    incarnation: Annotated[str, Meta(pattern="^[0-9A-Za-z._-]{1,128}$")]
    created_ms: Millis
    revision: Position
    first_position: Position
    log_position: Position
    items_position: Count
    imported_position: Count
    late_rewards: Count
    clamped_rewards: Count
    lost_events: Count
    lost_rewards: Count
    settings: Raw


_Digest = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]


class _Slate(Struct, forbid_unknown_fields=True):
    state: RecordState
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]+$")]
    deadline_ms: Millis
    rewards: tuple[tuple[str, float, float | None, int], ...]
    recommendation: Raw
    shown: Raw
    provisional: tuple[float, Millis, bool] | UnsetType = UNSET
    reward_items: tuple[tuple[_Digest, _Digest, ItemValues | None], ...] | UnsetType = UNSET
    learned_items: ItemValues | UnsetType = UNSET


class _Line(SharedFields, forbid_unknown_fields=True, omit_defaults=True):
    bandit: _Bandit | UnsetType = UNSET
    items: Raw | UnsetType = UNSET
    retired: tuple[Annotated[str, Meta(pattern="^[0-9a-f]{19}$")], ...] | UnsetType = UNSET
    snapshot: str | UnsetType = UNSET
    slate: _Slate | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Line).decode


class EventFigures(NamedTuple):
    """What is asked for most of an event, None for what it does not have, and its JSON."""

    position: int
    at_ms: int
    type: str
    recommendation_id: str | None
    slate: list[str] | None
    propensity: float | None
    position_propensities: list[float] | None
    explored: bool | None
    value: float | None
    item_values: list[float | None] | None
    text: str


class _SlateFigures(Struct):
    recommendation_id: str
    slate: list[str]
    propensity: float
    position_propensities: list[float]
    explored: bool


class _EventFigures(Struct):
    type: str
    recommendation_id: str | None = None
    recommendation: _SlateFigures | None = None
    value: float | None = None
    default_reward: float | None = None
    item_values: list[float | None] | None = None


class _LineFigures(Struct):
    position: int
    at_ms: int
    event: _EventFigures


_EVENT, _BEFORE_EVENT = '{"position":', '"event":'
_decode_figures = msgspec.json.Decoder(_LineFigures).decode


def event_figures(line: str) -> EventFigures | None:
    """Return the figures of a line of an event, None for another one."""
    if not line.startswith(_EVENT):
        return None
    figures = _decode_figures(line)
    event, slate = figures.event, figures.event.recommendation
    value = event.default_reward if event.value is None else event.value
    shown = (event.recommendation_id, None, None, None, None) if slate is None else astuple(slate)
    text = line.partition(_BEFORE_EVENT)[2][:-1]
    return EventFigures._make((figures.position, figures.at_ms, event.type, *shown, value, event.item_values, text))


def write_line(value: Line, version: int = OLDEST) -> str:
    """Return the line that stands for a value; what is as in the store is of that data version."""
    match value:
        case LoggedEvent(position, at_ms, event):
            return event_line(position, at_ms, encode_event(event, version).decode())
        case ArchivedBandit():
            fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
            line: SharedFields = _Line(
                bandit=_Bandit(v=SCHEMA, **fields | {"settings": Raw(encode_settings(value.settings, version))})
            )
        case ItemsChanged():
            line = _Line(items=Raw(encode_event(value, version)))
        case RetiredItems(digests):
            line = _Line(retired=digests)
        case SnapshotPart(data):
            line = _Line(snapshot=b64encode(data).decode())
        case Recorded():
            line = _Line(slate=_slate(value, version))
        case _:
            line = shared_fields(value)
    return line_text(line)


def _slate(recorded: Recorded, version: int) -> _Slate:
    given, learned = recorded.recommendation, recorded.provisional
    shown = Activated(given.recommendation_id, recorded.shown, bool(recorded.instead), aside=recorded.aside)
    recommendation, _ = encode_recommended(Recommended(RecommendationRequest("", (), None), given), version)
    rewards = tuple((one.reward_id, one.posted, one.value, one.position) for one in recorded.rewards)
    items = tuple((one.items.posted, one.items.named, one.items.values) for one in recorded.rewards)
    has_items = any(one.items != NO_ITEMS for one in recorded.rewards)
    return _Slate(
        recorded.state,
        recorded.fingerprint,
        given.deadline_ms,
        rewards,
        Raw(recommendation),
        Raw(encode_event(shown, version)),
        UNSET if learned is None else (learned.value, learned.learned_ms, learned.is_default),
        items if has_items else UNSET,
        UNSET if learned is None or learned.item_values is None else learned.item_values,
    )


def read_line(text: str) -> Line:
    """Return what a line stands for.

    Raises
    ------
    CorruptDataError
        It stands for nothing that `write_line` writes; the message says why.
    """
    return value_of(text, _decode, event=_read_event, others=_READERS)


def _read_event(position: int, at_ms: int, event: bytes) -> Line:
    return LoggedEvent(position, at_ms, decode_event(event, wholly=True))


def _read_bandit(bandit: _Bandit) -> ArchivedBandit:
    fields = {name: getattr(bandit, name) for name in bandit.__struct_fields__ if name != "v"}
    return ArchivedBandit(**fields | {"settings": decode_settings(bytes(bandit.settings), wholly=True)})


def _read_items(items: Raw) -> ItemsChanged:
    change = decode_event(bytes(items), wholly=True)
    if not isinstance(change, ItemsChanged):
        raise CorruptDataError("items are something else")
    return change


def _read_slate(slate: _Slate) -> Recorded:
    shown = decode_event(bytes(slate.shown), wholly=True)
    recommendation = decode_recommendation(bytes(slate.recommendation), wholly=True)
    if not isinstance(shown, Activated) or slate.state not in OPEN_STATES:
        raise CorruptDataError("is a slate that is not open")
    item_values = read_optional(slate.learned_items)
    learned = None if slate.provisional is UNSET else Provisional(*slate.provisional, item_values)
    if (learned is None) == (slate.state is RecordState.PROVISIONAL):
        raise CorruptDataError("is a provisional slate without a reward, or has one and is none")
    return Recorded(
        fingerprint=slate.fingerprint,
        context=shown.shown.context,
        recommendation=replace(recommendation, deadline_ms=slate.deadline_ms),
        at_ms=shown.shown.at_ms,
        state=slate.state,
        rewards=tuple(_read_rewards(slate)),
        instead=shown.shown.slate if shown.instead else (),
        aside=shown.aside,
        provisional=learned,
    )


def _read_rewards(slate: _Slate) -> Iterator[PostedReward]:
    items = read_optional(slate.reward_items) or (("", "", None),) * len(slate.rewards)
    if len(items) != len(slate.rewards):
        raise CorruptDataError(f"has item values of {len(items)} rewards, and {len(slate.rewards)} rewards")
    for reward, named in zip(slate.rewards, items, strict=True):
        yield PostedReward(*reward, NamedItems(*named))


_READERS: Mapping[str, Callable[[Any], Line]] = {
    "bandit": _read_bandit,
    "items": _read_items,
    "retired": RetiredItems,
    "snapshot": lambda data: SnapshotPart(b64decode(data, validate=True)),
    "slate": _read_slate,
}
