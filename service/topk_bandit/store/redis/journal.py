"""What rules decide from, read from Redis, and what they decide, committed there: see `topk_bandit.store.journaled`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from topk_bandit.domain.errors import CorruptDataError, NewerDataError
from topk_bandit.store.codec import decode_event, decode_settings, encode_event, encode_recommended
from topk_bandit.store.documents import message_of
from topk_bandit.store.events import LoggedEvent, Recommended
from topk_bandit.store.journaled import Commits, Committed, Due
from topk_bandit.store.log import Appended
from topk_bandit.store.recorded import is_pending
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.closed import must_turn
from topk_bandit.store.redis.fields import (
    Sendable,
    fields_of_commit,
    fields_of_visits,
    read_fields,
    sought_fields,
    stamps_in,
)
from topk_bandit.store.redis.records import closed_parts, pack_new, read_filed, read_record, repack, settle
from topk_bandit.store.redis.replies import verify_reading
from topk_bandit.store.rules.decisions import Known, dated_event, settled_slates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings
    from topk_bandit.store.journaled import Sought
    from topk_bandit.store.log import BanditRecord
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.fields import Fields
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.rules.decisions import Commit
    from topk_bandit.store.visits import Visits

__all__ = ["RedisJournal"]

MOST_REMEMBERED_BYTES = 16 << 20
"""So much of the records that this process committed is remembered, for the bandits of a store together."""

_MOST_SEEN = 4096
_FIRST_TEXT = 4  # among the arguments of `lua/bandit/commit.lua`, of which the first is 1
_INCARNATION, _REVISION, _ITEMS_POSITION, _IMPORTED_POSITION, _LOG_POSITION = 1, 2, 4, 5, 6
_PLACES = {"items_position": _ITEMS_POSITION, "imported_position": _IMPORTED_POSITION, "log_position": _LOG_POSITION}
"""Where `known_bandit` of `lua/closed.lua` has what it returns; the first place is 1."""

_read_settings = lru_cache(maxsize=1024)(decode_settings)


@dataclass(frozen=True, slots=True)
class _Read(Known):
    """What is known, and by what it is known again.

    Attributes
    ----------
    stamps
        For the slates; empty for one that is not recorded.
    packed
        The texts of those that are open.
    fields
        What else was read, as it is kept.
    """

    stamps: Mapping[str, str] = field(default_factory=dict)
    packed: Mapping[str, bytes] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)


class _Bandit(NamedTuple):
    incarnation: str
    revision: int
    settings: BanditSettings


class RedisJournal:
    """Where slates are read and committed.

    Parameters
    ----------
    bandits
        Where to send scripts.
    writer
        Who writes, for announcements.
    retention_ms
        How long a closed recommendation is remembered.
    """

    def __init__(
        self,
        link: Link,
        bandits: Aggregates[BanditName, BanditRecord],
        keys: KeySpace,
        *,
        writer: str,
        retention_ms: int,
    ) -> None:
        self._link = link
        self._bandits = bandits
        self._keys = keys
        self._writer = writer
        self._retention_ms = retention_ms
        self._seen: OrderedDict[BanditName, _Bandit] = OrderedDict()
        self._records = _Records()

    async def read(self, name: BanditName, sought: Sought) -> Known:
        """Return what is known of a bandit, or raise `NotFoundError`."""
        keys, wanted = self._keys.bandit(name), sought_fields(sought)
        arguments: list[str | int] = [int(sought.recalls), len(sought.slates), *sought.slates]
        arguments += (part for one in wanted for part in one)
        asked = keys.of_visitor(sought.visitor) if sought.visitor else keys.of_decisions
        reply = await self._bandits.ask(scripts.READ, name, asked, arguments)
        _, now_ms, bandit, item_count, records, held, n_visitors = reply
        known = self._known(name, now_ms, bandit)
        slates, stamps, packed = dict[str, "Recorded | None"](), dict[str, str](), dict[str, bytes]()
        for key, (kind, *parts) in zip(sought.slates, records, strict=True):
            slates[key], stamps[key] = None, ""
            if kind == b"open":
                slates[key], stamps[key], packed[key] = read_record(key, parts[0]), _stamp_of(parts[0]), parts[0]
            elif kind == b"filed":
                slates[key], stamps[key] = read_filed(key, parts[1], parts[2]), parts[0].decode()
        fields = dict(zip(wanted, held, strict=True))
        beside = read_fields(sought, fields)
        if sought.visitor:
            beside["visits"] = replace(beside["visits"], now_ms=int(now_ms), n_visitors=n_visitors)
        return replace(
            known, item_count=item_count, slates=slates, stamps=stamps, packed=packed, fields=fields, **beside
        )

    async def read_due(self, name: BanditName, *, limit: int) -> Due | None:
        """Return slates whose deadlines have passed, None for no such bandit; a record that can't be read is None."""
        reply = await self._link.run(scripts.READ_DUE, self._keys.bandit(name).of_slates, (limit,))
        if reply[0] == b"no_bandit":
            return None
        _, now_ms, bandit, records, *next_deadlines_ms = reply
        slates, stamps, packed = dict[str, "Recorded | None"](), dict[str, str](), dict[str, bytes]()
        for key, text in zip((one.decode() for one in records[::2]), records[1::2], strict=True):
            slates[key], stamps[key], packed[key] = _readable(key, text), _stamp_of(text) if text else "", text
        known = replace(self._known(name, now_ms, bandit), slates=slates, stamps=stamps, packed=packed)
        return Due(
            known,
            int(next_deadlines_ms[0]) if next_deadlines_ms else None,
            forgets=must_turn(bandit[-1], now_ms=int(now_ms), retention_ms=self._retention_ms),
        )

    def presume(
        self, name: BanditName, key: str, *, items_position: int | None, visits: Visits | None = None
    ) -> Known | None:
        """Return what was known when this process saw a bandit, this slate, and its visitor, last; None if it did not.

        Its `now_ms` is 0, before all deadlines: the commit compares them. With an `items_position` the slate is new.
        """
        seen, is_new = self._seen.get(name), items_position is not None
        kept = None if is_new else self._records.get(name, key)
        if seen is None or (kept is None and not is_new):
            return None
        slates = {key: None if kept is None else kept.recorded}
        stamps = {key: "" if kept is None else _stamp_of(kept.text)}
        packed = {} if kept is None else {key: kept.text}
        return _Read(
            name,
            *seen,
            now_ms=0,
            items_position=items_position or 0,
            slates=slates,
            visits=visits,
            stamps=stamps,
            packed=packed,
            fields={} if visits is None else fields_of_visits(visits),
        )

    async def commit(
        self, name: BanditName, decided: Sequence[tuple[Known, Commit]], *, is_durable: bool, hands_on: bool
    ) -> Commits:
        """Commit decisions; `hands_on` says whether the caller takes in what is appended, so nobody else has to."""
        keys, writer = self._keys.bandit(name), self._writer if hands_on else ""
        announcing = self._keys.changes, self._keys.announcement(name, writer=writer)
        version = self._link.data_version
        commits = [_Sent(cast("_Read", known), commit, version) for known, commit in decided]
        of_commits = keys.of_decisions if any(one.has_fields for one in commits) else keys.of_slates
        if len(decided) == 1 and (visits := decided[0][0].visits) is not None:  # several have no visitor
            of_commits = keys.of_visitor(visits.visitor)
        arguments: list[tuple[bytes | str | int, ...]] = [(*announcing, *one.arguments) for one in commits]
        durability: Any = Committed().durability
        if len(arguments) == 1 and not is_durable:
            replies = [await self._bandits.ask(scripts.COMMIT, name, of_commits, arguments[0])]
        elif is_durable:
            replies, durability = await self._bandits.write_all(scripts.COMMIT, name, of_commits, arguments)
        else:
            replies = await self._bandits.write_all_unconfirmed(scripts.COMMIT, name, of_commits, arguments)
        outcomes = [self._note(name, one, reply) for one, reply in zip(commits, replies, strict=True)]
        return Commits(outcomes, durability)

    async def forget_closed(self, name: BanditName) -> None:
        """Forget slates that were closed long ago."""
        await self._link.run(scripts.FORGET_CLOSED, self._keys.bandit(name).of_slates, (self._retention_ms,))

    def _known(self, name: BanditName, now_ms: bytes, bandit: Sequence[bytes]) -> _Read:
        known = _read_bandit(name, now_ms, *bandit)
        self._see(known)
        return known

    def _see(self, known: Known) -> None:
        self._seen[known.name] = _Bandit(known.incarnation, known.revision, known.settings)
        self._seen.move_to_end(known.name)
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def _note(self, name: BanditName, sent: _Sent, reply: Any) -> Committed | Exception | None:  # noqa: ANN401 - as replies are
        """Return what was committed, and remember the slates as they are now."""
        if isinstance(reply, Exception):
            return reply
        for key in sent.commit.slates:
            self._records.drop(name, key)
        if reply[0] == b"stale":
            return None
        _, at_ms, first, before, checksum = reply
        position, now_ms = int(first), int(at_ms)
        settled = settled_slates(sent.commit, first=position, at_ms=now_ms) if sent.kept else {}
        for key, text in sent.kept.items():
            settled_text = settle(text, first=position, at_ms=now_ms, wait_ms=sent.commit.wait_ms)
            self._records.put(name, key, _Kept(settled_text, settled[key]))
        appended = sent.appended(position, now_ms, before.decode(), checksum.decode()) if sent.events else None
        return Committed(position, now_ms, appended)


class _Sent:
    """A decision as it is sent.

    Attributes
    ----------
    arguments
        Those of `lua/bandit/commit.lua`.
    events
        The texts of its events.
    kept
        The texts of slates that are open after it.
    has_fields
        Whether it is about more than slates.
    """

    def __init__(self, known: _Read, commit: Commit, version: int) -> None:
        self.known, self.commit = known, commit
        self.events: list[bytes] = []
        recommendation = b""
        for event in commit.events:
            if isinstance(event, Recommended):
                recommendation, data = encode_recommended(event, version)
            else:
                data = encode_event(event, version)
            self.events.append(data)
        self.kept: dict[str, bytes] = {}
        for key, recorded in commit.slates.items():
            if recorded.is_open:
                packed = known.packed.get(key)
                self.kept[key] = pack_new(recorded, recommendation) if packed is None else repack(recorded, packed)
        read, puts = stamps_in(known.fields), fields_of_commit(known, known.fields, commit, version)
        self.has_fields = bool(read or puts)
        self._fields = Sendable.of(read, puts, first=_FIRST_TEXT + len(self.events) + len(self.kept))
        self.arguments = (message_of(self._document()), *self.events, *self.kept.values(), *self._fields.texts)

    def _document(self) -> dict[str, Any]:
        known, commit = self.known, self.commit
        same = {_INCARNATION: known.incarnation, _REVISION: str(known.revision)}
        if commit.items_position is not None:
            same[_ITEMS_POSITION] = str(commit.items_position)
        pending = sum(map(is_pending, commit.slates.values()))
        pending -= sum(is_pending(known.slates[key]) for key in commit.slates)
        counts = {"pending": pending, "late_rewards": commit.late, "clamped_rewards": commit.clamped}
        document = {
            "same": same,
            "most": [[_PLACES[name], limit] for name, limit in commit.most.items()],
            "events": len(self.events),
            "slates": [self._slate(key, recorded) for key, recorded in commit.slates.items()],
            "lost": [{"id": key, "stamp": known.stamps[key]} for key in commit.lost],
            "counts": {name: count for name, count in counts.items() if count},
        }
        if self.has_fields:
            document |= self._fields.document
        if commit.visits is not None:
            document |= {"visitor": commit.visits.visitor, "seen_until_ms": commit.visits.until_ms}
        if commit.skip is not None:
            document["mends"] = True
        if commit.before_ms is not None:
            document["before_ms"] = commit.before_ms
        if any(isinstance(event, Recommended) for event in commit.events):
            document["wait_ms"] = commit.wait_ms
            document["due_after_ms"] = commit.wait_ms if commit.due_after_ms is None else commit.due_after_ms
        return document

    def _slate(self, key: str, recorded: Recorded) -> dict[str, Any]:
        slate: dict[str, Any] = {"id": key, "stamp": self.known.stamps[key]}
        if key in self.commit.due_ms:
            slate["due_ms"] = self.commit.due_ms[key]
        return slate if recorded.is_open else slate | {"closed": closed_parts(recorded)}

    def appended(self, first: int, at_ms: int, before: str, checksum: str) -> Appended | None:
        """Return what was appended, just as who reads the log is given it; None for what only a newer program reads."""
        deadline_ms = at_ms + self.commit.wait_ms
        try:
            events = [dated_event(decode_event(data), deadline_ms) for data in self.events]
        except NewerDataError:
            return None
        return Appended(
            self.known.incarnation,
            self.known.revision,
            before,
            tuple(LoggedEvent(position, at_ms, one) for position, one in enumerate(events, first)),
            checksum,
            sum(map(len, self.events)),
        )


class _Kept(NamedTuple):
    """An open record, and its text."""

    text: bytes
    recorded: Recorded

    @property
    def n_bytes(self) -> int:
        """About how much memory it takes: what the text says is there once more."""
        return 3 * len(self.text)


class _Records:
    """The open records that were committed last, up to so many bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[BanditName, str], _Kept] = OrderedDict()
        self._n_bytes = 0

    def get(self, name: BanditName, key: str) -> _Kept | None:
        return self._kept.get((name, key))

    def put(self, name: BanditName, key: str, kept: _Kept) -> None:
        self.drop(name, key)
        self._kept[name, key] = kept
        self._n_bytes += kept.n_bytes
        while self._n_bytes > MOST_REMEMBERED_BYTES:
            self._n_bytes -= self._kept.popitem(last=False)[1].n_bytes

    def drop(self, name: BanditName, key: str) -> None:
        kept = self._kept.pop((name, key), None)
        self._n_bytes -= 0 if kept is None else kept.n_bytes


@verify_reading
def _read_bandit(
    name: BanditName,
    now_ms: bytes,
    incarnation: bytes,
    revision: bytes,
    settings: bytes,
    *positions: bytes,
) -> _Read:
    items, imported, newest, first = map(int, positions[:4])
    life = incarnation.decode(), int(revision), _read_settings(settings)
    return _Read(name, *life, int(now_ms), items, imported, newest, first)


def _stamp_of(text: bytes) -> str:
    """Return what a record is known again by, as `stamp_of` of `lua/closed.lua` does."""
    return sha1(text, usedforsecurity=False).hexdigest()


def _readable(key: str, text: bytes) -> Recorded | None:
    try:
        return read_record(key, text)
    except CorruptDataError:
        return None
