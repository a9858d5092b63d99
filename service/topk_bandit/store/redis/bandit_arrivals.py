"""Bandits on their way into Redis: what a part of their lines writes there, and how records of slates are packed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import Activated, BanditName, RecommendationRequest, Recommended
from topk_bandit.store.arriving import Arrival, Arrived
from topk_bandit.store.codec import (
    canonical,
    decode_event,
    encode_context,
    encode_event,
    encode_item_state,
    encode_recommended,
)
from topk_bandit.store.log import BanditRecord
from topk_bandit.store.recorded import PostedReward, Recorded, RecordState
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.arrivals import Arrivals, entry, import_writes, part_field, read_part
from topk_bandit.store.redis.replies import read_entries, read_recommendation, verify_reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.bandits import LoggedEvent
    from topk_bandit.store.arriving import Arriving
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.arrivals import Write
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link

__all__ = ["BanditArrivals", "read_record"]

_BUCKET = 3
"""So many digits of a digest name the bucket that the others are in."""

_NOTHING, _ASIDE = b"-", b"+"


class BanditArrivals(Arrivals[BanditName, Arrival, BanditRecord]):
    """The bandits that arrive in a store; parameters as those of `Arrivals`."""

    def __init__(
        self, link: Link, bandits: Aggregates[BanditName, BanditRecord], keys: KeySpace, *, retention_ms: int
    ) -> None:
        super().__init__(link, bandits, keys=keys.arrival, begin=Arrival, retention_ms=retention_ms)
        self._spaces = keys

    async def read(self, name: BanditName, *, slates: Sequence[str], imports: Sequence[tuple[str, int]]) -> Arrived:
        """See `Store.read_arrived`."""
        keys = self._spaces.arrival(name)
        records = await self.fields(keys.recommendations, slates)
        parts = await self.fields(keys.imports, [part_field(*part) for part in imports])
        return Arrived(
            {key: read_record(key, packed) for key, packed in zip(slates, records, strict=True) if packed},
            {part: read_part(part, told) for part, told in zip(imports, parts, strict=True) if told},
        )

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> Sequence[LoggedEvent]:
        """See `Store.read_arrived_log`."""
        key = self._spaces.arrival(name).log
        return read_entries(await self._link.run(scripts.READ_ARRIVED, (key,), (start, limit)), start=start)

    async def record(self, name: BanditName, arriving: Arriving, *, before: Arrival) -> bool:
        """See `Store.record_arrival`."""
        keys, begins = self._spaces.arrival(name), before.next_line == 0
        buckets = sorted({digest[:_BUCKET] for digest in arriving.retired})
        imports = sorted({import_id for import_id, _ in arriving.imports})
        retired = dict.fromkeys(buckets, b"") if begins else await self._read_known(keys.retired, buckets)
        progress = dict.fromkeys(imports, b"") if begins else await self._read_known(keys.imports, imports)
        writes = _writes(arriving, retired, progress)
        return await self.write(name, writes, before=before, after=arriving.arrival)

    async def load_snapshot(self, name: BanditName) -> bytes:
        """See `Store.load_arrived_snapshot`."""
        return await self._link.call("GET", self._spaces.arrival(name).snapshot) or b""

    async def _read_known(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        found = await self.fields(key, names)
        return {name: told or b"" for name, told in zip(names, found, strict=True)}


def _writes(arriving: Arriving, retired: Mapping[str, bytes], progress: Mapping[str, bytes]) -> Iterator[Write]:
    """Yield what is to be written: a command, a key and its operands."""
    for logged in arriving.events:
        yield _entry(logged, arriving.version)
    for key, recorded in arriving.slates.items():
        yield from _slate_writes(key, recorded, arriving.version)
    for item_id, item in arriving.items.items():
        yield ("HDEL", "items", (item_id,)) if item is None else ("HSET", "items", (item_id, encode_item_state(item)))
    for bucket, digests in _buckets(arriving.retired, retired).items():
        yield "HSET", "retired", (bucket, digests)
    yield from import_writes(arriving.imports, progress)
    if arriving.snapshot:
        yield "APPEND", "snapshot", (arriving.snapshot,)


def _entry(logged: LoggedEvent, version: int) -> Write:
    event = logged.event
    deadline_ms = event.recommendation.deadline_ms if isinstance(event, Recommended) else None
    return entry(logged.position, logged.at_ms, encode_event(event, version), deadline_ms)


def _slate_writes(key: str, recorded: Recorded | None, version: int) -> Iterator[Write]:
    if recorded is None:
        yield "HDEL", "recommendations", (key,)
        yield "ZREM", "deadlines", (key,)
        return
    yield "HSET", "recommendations", (key, _pack_record(recorded, version))
    # A closed one is due at once, and is kept as others are from then on.
    due_ms = recorded.recommendation.deadline_ms if recorded.is_open else recorded.closed_ms
    yield "ZADD", "deadlines", (due_ms, key)


def _buckets(retired: Sequence[str], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the buckets with what is retired now."""
    filled = dict(known)
    for digest in dict.fromkeys(retired):
        bucket, rest = digest[:_BUCKET], bytes.fromhex(digest[_BUCKET:])
        there = {filled[bucket][place : place + 8] for place in range(0, len(filled[bucket]), 8)}
        filled[bucket] += b"" if rest in there else rest
    return filled


@verify_reading
def read_record(key: str, packed: bytes) -> Recorded:
    """Return a record as `lua/records.lua` packs it; one that arrived closed has no context."""
    state, deadline_ms, fingerprint, logged, position, rewards, at_ms, context, instead, given = packed.split(b" ", 9)
    shown = _read_shown(key, context) if context != _NOTHING else ()
    return Recorded(
        fingerprint=fingerprint.decode(),
        context=shown,
        recommendation=read_recommendation(deadline_ms, given),
        at_ms=0 if at_ms == _NOTHING else int(at_ms),
        state=RecordState(state.removesuffix(_ASIDE).decode()),
        rewards=[_read_reward(*one) for one in json.loads(rewards)],
        logged=int(logged),
        position=int(position),
        instead=() if instead == _NOTHING else tuple(json.loads(instead)),
        aside=state.endswith(_ASIDE),
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
        recorded.state + (_ASIDE.decode() if recorded.aside else ""),
        given.deadline_ms,
        recorded.fingerprint,
        recorded.logged,
        recorded.position,
        _pack_list(rewards),
        recorded.at_ms if is_open else "-",
        encode_context(recorded.context).decode() if is_open else "-",
        _pack_list(recorded.instead) if recorded.instead else "-",
        encode_recommended(Recommended(request, replace(given, deadline_ms=0)), version)[0].decode(),
    )
    return " ".join(map(str, told)).encode()


def _pack_list(values: Sequence[object]) -> str:
    """Return a list as `pack_list` of `lua/records.lua` does, with which scripts compare it."""
    told = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return told.replace("/", "\\/").replace(" ", "\\u0020").replace("\x7f", "\\u007f")
