"""Read the answers of the scripts about bandits as values of `topk_bandit.store.log`.

An answer that stands for no value raises `CorruptDataError`, and a slice of a log never has gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from hashlib import sha1
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from topk_bandit.domain.errors import CorruptDataError, NewerDataError
from topk_bandit.domain.operators import EventText
from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.codec import decode_event, decode_item, decode_recommendation, decode_settings, written_event
from topk_bandit.store.events import LoggedEvent, Recommended
from topk_bandit.store.log import BanditRecord, LogSlice, TextSlice
from topk_bandit.store.rules.decisions import dated_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topk_bandit.domain.bandits import BanditName, Item
    from topk_bandit.domain.slates import Recommendation

__all__ = [
    "Hash",
    "check_entry",
    "checksum_of",
    "fields_of",
    "read_bandit",
    "read_entries",
    "read_items",
    "read_logged",
    "read_recommendation",
    "read_slice",
    "read_texts",
    "verify_reading",
    "without_gaps",
]

_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")
_Event = TypeVar("_Event", LoggedEvent, LoggedStudyEvent, EventText)
_CHECKSUM_DIGITS = 16
# Slates wait for the event loop: these take less than a quarter of a millisecond of it.
_TEXTS_AT_ONCE = 32
_NO_DEADLINE = b"-"
Hash = Mapping[bytes, bytes] | Sequence[bytes]


def verify_reading(read: Callable[_Parameters, _Value]) -> Callable[_Parameters, _Value]:
    """Turn what goes wrong while looking into an answer into `CorruptDataError`."""

    @wraps(read)
    def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Value:
        try:
            return read(*args, **kwargs)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise CorruptDataError(
                f"the store holds something that was not written by this service: {error!r}"
            ) from error

    return wrapper


@verify_reading
def read_bandit(name: BanditName, meta: Hash) -> BanditRecord:
    """Return the bandit in a meta hash."""
    fields = fields_of(meta)
    return BanditRecord(
        name=name,
        incarnation=fields[b"incarnation"].decode(),
        settings=decode_settings(fields[b"settings"]),
        revision=int(fields[b"revision"]),
        created_ms=int(fields[b"created_ms"]),
        items_position=int(fields[b"items_position"]),
        log_position=int(fields[b"log_position"]),
        snapshot_position=int(fields[b"snapshot_position"]),
        pending=int(fields[b"pending"]),
        late_rewards=int(fields[b"late_rewards"]),
        clamped_rewards=int(fields[b"clamped_rewards"]),
        lost_events=int(fields[b"lost_events"]),
        lost_rewards=int(fields[b"lost_rewards"]),
    )


@verify_reading
def read_items(items: Hash) -> tuple[Item, ...]:
    """Return the items in an items hash, by id."""
    return tuple(decode_item(item_id.decode(), state) for item_id, state in sorted(fields_of(items).items()))


@verify_reading
def read_recommendation(deadline_ms: bytes, recommendation: bytes) -> Recommendation:
    """Return a recommendation with the deadline that the store gave it."""
    return replace(decode_recommendation(recommendation), deadline_ms=int(deadline_ms))


def read_logged(entry: bytes, recommendation_id: str) -> Recommendation:
    """Return what a recommendation was when it was logged."""
    event = _read_event(entry).event
    if not isinstance(event, Recommended) or event.recommendation.recommendation_id != recommendation_id:
        raise CorruptDataError(f"the log does not tell recommendation {recommendation_id!r} where it was logged")
    return event.recommendation


@verify_reading
def read_slice(parts: Sequence[Any], *, start: int) -> LogSlice:
    """Return part of a log, whose events stand at `start` and after it without gaps.

    It ends before the first event that can't be read. Without any before that it raises `CorruptDataError`, or
    `NewerDataError`.
    """
    incarnation, first_position, log_position, entries, skipped, revision = parts
    events = tuple(_readable(entries, _read_event, start=start))
    return LogSlice(
        incarnation=incarnation.decode(),
        first_position=int(first_position),
        log_position=int(log_position),
        events=events,
        skipped=frozenset(map(int, skipped)),
        revision=int(revision),
        checksum=_checksum_in(entries[len(events) - 1]) if events else "",
    )


def read_entries(entries: Sequence[bytes], *, start: int) -> tuple[LoggedEvent, ...]:
    """Return events that stand at `start` and after it without gaps."""
    return without_gaps(tuple(map(_read_event, entries)), start=start)


async def read_texts(parts: Sequence[Any], *, start: int, version: int) -> TextSlice:
    """Return part of a log as JSON of a data version, a few events in each turn of the event loop; see `read_slice`."""
    incarnation, first_position, log_position, entries, *_ = parts
    events: list[EventText] = []
    for event in _readable(entries, partial(_read_text, version=version), start=start):
        events.append(event)
        if len(events) % _TEXTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return _text_slice(incarnation, first_position, log_position, events)


@verify_reading
def _text_slice(
    incarnation: bytes, first_position: bytes, log_position: bytes, events: Sequence[EventText]
) -> TextSlice:
    return TextSlice(incarnation.decode(), int(first_position), int(log_position), tuple(events))


def _readable(entries: Sequence[bytes], read: Callable[[bytes], _Event], *, start: int) -> Iterator[_Event]:
    """Yield events up to the first one that can't be read, or raise what is wrong if that is the first of all."""
    for position, entry in enumerate(entries, start):
        try:
            event = read(entry)
            if event.position != position:
                raise _gap_after(position)
        except (CorruptDataError, NewerDataError):
            if position == start:
                raise
            return
        yield event


def without_gaps(events: Sequence[_Event], *, start: int) -> tuple[_Event, ...]:
    """Return the events if they stand at `start` and after it without gaps, or raise `CorruptDataError`."""
    if [event.position for event in events] != list(range(start, start + len(events))):
        raise _gap_after(start)
    return tuple(events)


def _gap_after(start: int) -> CorruptDataError:
    return CorruptDataError(f"the log has a gap after position {start}")


def checksum_of(text: bytes) -> str:
    """Return the checksum of an entry's position, time, deadline and event, as `append` of `lua/common.lua` does."""
    return sha1(text, usedforsecurity=False).hexdigest()[:_CHECKSUM_DIGITS]


def _checksum_in(entry: bytes) -> str:
    return entry.partition(b" ")[0].decode()


def check_entry(entry: bytes) -> list[bytes]:
    """Return the position, time, deadline and event in an entry of a log, or raise `CorruptDataError`.

    In front of them is a checksum of them all, which the script that appended the event computed.
    """
    checksum, _, text = entry.partition(b" ")
    if checksum_of(text).encode() != checksum:
        position = text.partition(b" ")[0].removesuffix(b"-0").decode("ascii", "backslashreplace")
        raise CorruptDataError(f"event {position} does not match its checksum")
    return text.split(b" ", 3)


@verify_reading
def _read_event(entry: bytes) -> LoggedEvent:
    entry_id, at_ms, deadline_ms, data = check_entry(entry)
    event = decode_event(data)
    if isinstance(event, Recommended):
        event = dated_event(event, int(deadline_ms))
    return LoggedEvent(position=int(entry_id.partition(b"-")[0]), at_ms=int(at_ms), event=event)


@verify_reading
def _read_text(entry: bytes, version: int) -> EventText:
    entry_id, at_ms, deadline_ms, data = check_entry(entry)
    text = written_event(data, version, deadline_ms=None if deadline_ms == _NO_DEADLINE else int(deadline_ms))
    return EventText(int(entry_id.partition(b"-")[0]), int(at_ms), text)


def fields_of(answer: Hash) -> Mapping[bytes, bytes]:
    """Return a hash, whether it was answered as one or, by a script, as a list of names and values."""
    if isinstance(answer, Mapping):
        return answer
    return dict(zip(answer[::2], answer[1::2], strict=True))
