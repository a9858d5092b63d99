"""Bandits on their way into Redis: in keys of their own until the last line has come, then all at once in their places.

A part is written by one script, if the import is where the caller saw it; what the script writes was worked out from
what had arrived then.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import Activated, RecommendationRequest, Recommended
from topk_bandit.store.arriving import ArchivedImport, Arrival, Arrived
from topk_bandit.store.codec import (
    canonical,
    decode_event,
    encode_context,
    encode_event,
    encode_item_state,
    encode_recommended,
)
from topk_bandit.store.recorded import PostedReward, Recorded, RecordState
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.replies import checksum_of, fields_of, read_recommendation, verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditName, LoggedEvent
    from topk_bandit.store.arriving import Arriving
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.replies import Hash

__all__ = ["Arrivals", "import_writes", "part_field", "read_parts", "read_record"]

_BUCKET = 3
"""So many digits of a digest name the bucket that the others are in."""

_NOTHING = b"-"
_Write = tuple[str, str, tuple[bytes | str | int, ...]]


class Arrivals:
    """The bandits that arrive in a store.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    retention_ms
        For how long an import is kept that nobody goes on with.
    """

    def __init__(self, link: Link, keys: KeySpace, *, retention_ms: int) -> None:
        self._link = link
        self._keys = keys
        self._retention_ms = retention_ms

    async def find(self, name: BanditName) -> Arrival | None:
        """See `Store.find_arrival`."""
        found = await self._link.call("GET", self._keys.arrival(name).progress)
        return None if found is None else _read_arrival(found)

    async def read(self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]) -> Arrived:
        """See `Store.read_arrived`."""
        keys = self._keys.arrival(name)
        records = await self._read(keys.recommendations, slates)
        parts = await self._read(keys.imports, [part_field(*part) for part in imports])
        return Arrived(
            {key: read_record(key, packed) for key, packed in zip(slates, records, strict=True) if packed},
            {part: _read_part(part, told) for part, told in zip(imports, parts, strict=True) if told},
        )

    async def record(self, name: BanditName, arriving: Arriving, *, before: Arrival) -> bool:
        """See `Store.record_arrival`."""
        keys, begins = self._keys.arrival(name), before.next_line == 0
        buckets = sorted({digest[:_BUCKET] for digest in arriving.retired})
        imports = sorted({import_id for import_id, _ in arriving.imports})
        retired = dict.fromkeys(buckets, b"") if begins else await self._known(keys.retired, buckets)
        progress = dict.fromkeys(imports, b"") if begins else await self._known(keys.imports, imports)
        operands = [b"" if begins else before.encode(), arriving.arrival.encode(), b"%d" % self._retention_ms]
        for command, key, told in _writes(arriving, retired, progress):
            operands += [command.encode(), str(keys.all.index(getattr(keys, key)) + 1).encode(), b"%d" % len(told)]
            operands += [one if isinstance(one, bytes) else str(one).encode() for one in told]
        recorded, _ = await self._link.run_durably(
            scripts.RECORD_ARRIVAL, keys.all, operands, meta=self._keys.bandit(name).meta
        )
        return bool(recorded)

    async def load_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_arrived_snapshot`."""
        return await self._link.call("GET", self._keys.arrival(name).snapshot) or b""

    async def _read(self, key: str, names: Sequence[str]) -> Sequence[bytes | None]:
        found: Sequence[bytes | None] = await self._link.call("HMGET", key, *names) if names else ()
        return found

    async def _known(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        found = await self._read(key, names)
        return {name: told or b"" for name, told in zip(names, found, strict=True)}


@verified
def _read_arrival(data: bytes) -> Arrival:
    return Arrival.decode(data)


def _writes(arriving: Arriving, retired: Mapping[str, bytes], progress: Mapping[str, bytes]) -> Iterator[_Write]:
    """Yield what is to be written: a command, a key and its operands."""
    for logged in arriving.events:
        yield "XADD", "log", _entry(logged, arriving.version)
    for key, recorded in arriving.slates.items():
        yield from _slate_writes(key, recorded, arriving.version)
    for item_id, item in arriving.items.items():
        yield ("HDEL", "items", (item_id,)) if item is None else ("HSET", "items", (item_id, encode_item_state(item)))
    for bucket, digests in _buckets(arriving.retired, retired).items():
        yield "HSET", "retired", (bucket, digests)
    yield from import_writes(arriving.imports, progress)
    if arriving.snapshot:
        yield "APPEND", "snapshot", (arriving.snapshot,)


def _entry(logged: LoggedEvent, version: int) -> tuple[bytes | str | int, ...]:
    event, place, encoded = logged.event, f"{logged.position}-0", encode_event(logged.event, version)
    dated = ("deadline_ms", event.recommendation.deadline_ms) if isinstance(event, Recommended) else ()
    deadline = str(dated[1]) if dated else "-"
    checksum = checksum_of(f"{place} {logged.at_ms} {deadline} ".encode() + encoded)
    return (place, "at_ms", logged.at_ms, "event", encoded, "checksum", checksum, *dated)


def _slate_writes(key: str, recorded: Recorded | None, version: int) -> Iterator[_Write]:
    if recorded is None:
        yield "HDEL", "recommendations", (key,)
        yield "ZREM", "deadlines", (key,)
        return
    yield "HSET", "recommendations", (key, _pack_record(recorded, version))
    if recorded.is_open:
        yield "ZADD", "deadlines", (recorded.recommendation.deadline_ms, key)
    else:
        yield "ZREM", "deadlines", (key,)
        yield "ZADD", "closed", (recorded.closed_ms, key)


def _buckets(retired: Sequence[str], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the buckets with what is retired now."""
    filled = dict(known)
    for digest in dict.fromkeys(retired):
        bucket, rest = digest[:_BUCKET], bytes.fromhex(digest[_BUCKET:])
        there = {filled[bucket][place : place + 8] for place in range(0, len(filled[bucket]), 8)}
        filled[bucket] += b"" if rest in there else rest
    return filled


def import_writes(imports: Mapping[tuple[str, int], ArchivedImport], progress: Mapping[str, bytes]) -> Iterator[_Write]:
    """Yield what is to be written of parts of imports; `progress` is how far each import was."""
    reached = {name: tuple(map(int, told.split())) if told else (0, 0) for name, told in progress.items()}
    for (import_id, first_row), part in imports.items():
        next_row, accepted = reached[import_id]
        reached[import_id] = max(next_row, part.next_row), accepted + part.accepted
        told = f"{part.fingerprint} {part.next_row} {part.accepted} {part.position}"
        yield "HSET", "imports", (part_field(import_id, first_row), told)
    for import_id, (next_row, accepted) in reached.items():
        yield "HSET", "imports", (import_id, f"{next_row} {accepted}")


def part_field(import_id: str, first_row: int) -> str:
    """Return the field of an imports hash that a part is in."""
    return f"{import_id}\n{first_row}"


@verified
def read_parts(entries: Hash) -> tuple[ArchivedImport, ...]:
    """Return the parts of imports among entries of an imports hash."""
    split = ((field.decode().partition("\n"), told) for field, told in fields_of(entries).items())
    return tuple(_read_part((import_id, int(row)), told) for (import_id, mark, row), told in split if mark)


@verified
def _read_part(part: tuple[str, int], told: bytes) -> ArchivedImport:
    fingerprint, *numbers = told.decode().split()
    return ArchivedImport(*part, fingerprint, *map(int, numbers))


@verified
def read_record(key: str, packed: bytes) -> Recorded:
    """Return a record as `lua/common.lua` packs it; one that is closed has no context."""
    state, deadline_ms, fingerprint, position, rewards, at_ms, context, instead, given = packed.split(b" ", 8)
    shown = _read_shown(key, context) if context != _NOTHING else ()
    return Recorded(
        fingerprint=fingerprint.decode(),
        context=shown,
        recommendation=read_recommendation(deadline_ms, given),
        at_ms=0 if at_ms == _NOTHING else int(at_ms),
        state=RecordState(state.decode()),
        rewards=[_read_reward(*one) for one in json.loads(rewards)],
        position=int(position),
        instead=() if instead == _NOTHING else tuple(json.loads(instead)),
    )


def _read_shown(key: str, context: bytes) -> Any:  # noqa: ANN401 - a context
    told = (
        b'{"v":1,"type":"activated","recommendation_id":%b,"shown":{"context":%b,"slate":[],"at_ms":0},"instead":false}'
    )
    event = decode_event(told % (json.dumps(key).encode(), context))
    return event.shown.context if isinstance(event, Activated) else ()


def _read_reward(reward_id: str, posted: str, value: str, position: str) -> PostedReward:
    return PostedReward(reward_id, float(posted), None if value == "-" else float(value), int(position))


def _pack_record(recorded: Recorded, version: int) -> bytes:
    given, is_open = recorded.recommendation, recorded.is_open
    rewards = [
        [one.reward_id, canonical(one.posted), "-" if one.value is None else canonical(one.value), str(one.position)]
        for one in recorded.rewards
    ]
    request = RecommendationRequest("", (), None)
    told = (
        recorded.state,
        given.deadline_ms,
        recorded.fingerprint,
        recorded.position,
        _pack_list(rewards),
        recorded.at_ms if is_open else "-",
        encode_context(recorded.context).decode() if is_open else "-",
        _pack_list(recorded.instead) if recorded.instead else "-",
        encode_recommended(Recommended(request, replace(given, deadline_ms=0)), version)[0].decode(),
    )
    return " ".join(map(str, told)).encode()


def _pack_list(values: Sequence[object]) -> str:
    """Return a list as `pack_list` of `lua/common.lua` does, with which scripts compare it."""
    told = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return told.replace("/", "\\/").replace(" ", "\\u0020").replace("\x7f", "\\u007f")
