"""What rules know and change of a bandit beside its slates, as fields of its hashes.

An item's field is its id. Imports and retired items have those of `topk_bandit.store.redis.texts`. All else is a field
of the bandit's meta hash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.store.codec import canonical, decode_item, encode_event, encode_item_state, encode_settings
from topk_bandit.store.log import ImportOutcome, LostEvents, RecordStatus
from topk_bandit.store.redis.replies import checksum_of, verify_reading
from topk_bandit.store.redis.texts import (
    bucket_of,
    part_field,
    part_text,
    progress_text,
    read_part,
    read_progress,
    rests_in,
)
from topk_bandit.store.restores import item_digest
from topk_bandit.store.rules.decisions import Life, Loss, moved_positions
from topk_bandit.store.rules.imports import KnownImport, progress_after
from topk_bandit.store.visits import SeenSlate, Visits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditSettings, Item
    from topk_bandit.store.journaled import Sought
    from topk_bandit.store.log import ImportPart, Skip
    from topk_bandit.store.rules.decisions import Commit, Known

__all__ = [
    "Field",
    "Fields",
    "Put",
    "Sendable",
    "fields_of_commit",
    "fields_of_visits",
    "import_fields",
    "import_puts",
    "read_fields",
    "read_import",
    "settings_fields",
    "sought_fields",
    "stamps_in",
]

_META, _ITEMS, _RETIRED, _IMPORTS, _VISITOR = 1, 9, 10, 11, 13
"""Where `BanditKeys.of_visitor` has these; the first place is 1."""

_LIFE = ("reset_by", "skipped", "loss_after", "loss_end", "lost_events", "lost_rewards")


class Field(NamedTuple):
    """Which key has a field, by its place, and which field it is."""

    place: int
    name: str


_VISITS = Field(_VISITOR, "shown")

Fields = dict[Field, bytes]
"""What fields hold; empty for one that is not there."""


class Put(NamedTuple):
    """What a field is to hold, None for one that goes; the position of an event may end it."""

    place: int
    name: str
    value: str | bytes | None
    event: int | None = None


class Sendable(NamedTuple):
    """Fields as a script takes them: a part of its document, and the last texts among its arguments."""

    document: dict[str, Any]
    texts: tuple[str | bytes, ...]

    @classmethod
    def of(cls, read: Fields, puts: Sequence[Put], *, first: int) -> Sendable:
        """Return what is compared and what is changed; the first text is argument `first`, counted from 1."""
        document = {
            "first_read": first - 1,
            "read": list(read),
            "fields": [(*put[:2], put.value is not None, *put[3:]) for put in puts],
        }
        return cls(document, (*read.values(), *(put.value or b"" for put in puts)))


def sought_fields(sought: Sought) -> list[Field]:
    """Return the fields that a rule needs."""
    fields = [Field(_META, name) for name in _LIFE] if sought.life else []
    for item_id in sought.items:
        fields += [Field(_ITEMS, item_id), _retired(item_id)[0]]
    if sought.part is not None:
        fields += [Field(_META, "import_parts"), *import_fields(_IMPORTS, sought.part)]
    if sought.visitor:
        fields.append(_VISITS)
    return list(dict.fromkeys(fields))


@verify_reading
def read_fields(sought: Sought, fields: Fields) -> dict[str, Any]:
    """Return what the fields say, by the names of `Known`."""
    states = {item_id: fields[Field(_ITEMS, item_id)] for item_id in sought.items}
    items = {item_id: decode_item(item_id, state) for item_id, state in states.items() if state}
    digests = {item_id: _retired(item_id) for item_id in sought.items}
    retired = (item_id for item_id, (bucket, rest) in digests.items() if rest in rests_in(fields[bucket]))
    known: dict[str, Any] = {"items": items, "retired": frozenset(retired)}
    if sought.part is not None:
        n_parts = int(fields[Field(_META, "import_parts")])
        known["imported"] = read_import(_IMPORTS, sought.part, fields, n_parts=n_parts)
    if sought.life:
        known["life"] = _read_life(fields)
    if sought.visitor:
        known["visits"] = _read_visits(sought.visitor, fields)
    return known


def fields_of_visits(visits: Visits) -> Fields:
    """Return what holds visits, as it was when they were read."""
    return {_VISITS: _visits_text(visits) if visits.slates else b""}


def _read_visits(visitor: str, fields: Fields) -> Visits:
    slates = json.loads(fields[_VISITS] or b"[]")
    return Visits(visitor, tuple(SeenSlate(int(at), int(until), tuple(map(str, ids))) for at, until, ids in slates))


def _visits_text(visits: Visits) -> bytes:
    return json.dumps(visits.slates, ensure_ascii=False, separators=(",", ":")).encode()


def stamps_in(fields: Fields) -> Fields:
    """Return what a commit compares of what was read; items change with the bandit's `items_position` alone."""
    return {field: held for field, held in fields.items() if field.place in {_META, _IMPORTS, _VISITOR}}


def fields_of_commit(known: Known, fields: Fields, commit: Commit, version: int) -> list[Put]:
    """Return what a commit changes; `fields` has those that were read."""
    puts = [Put(_META, name, "", place) for name, place in moved_positions(commit).items()]
    puts += (Put(_META, name, value) for name, value in _meta_fields(known, fields, commit, version).items())
    puts += _item_puts(commit.items, fields)
    if commit.part is not None:
        imported = known.imported or KnownImport()
        puts += [Put(_META, "import_parts", str(imported.n_parts + 1)), *import_puts(_IMPORTS, imported, *commit.part)]
    if commit.visits is not None:
        puts.append(Put(*_VISITS, _visits_text(commit.visits)))
    return puts


def _meta_fields(known: Known, fields: Fields, commit: Commit, version: int) -> dict[str, str | bytes]:
    changed: dict[str, str | bytes] = {}
    if commit.revises:
        changed["revision"] = str(known.revision + 1)
    if commit.settings is not None:
        changed |= {"settings": encode_settings(commit.settings, version), **settings_fields(commit.settings)}
    if commit.reset_by is not None:
        changed["reset_by"] = commit.reset_by
    if commit.loss is not None:
        after, end, total = commit.loss.after, commit.loss.end, commit.loss.total
        changed |= zip(_LIFE[2:], map(str, (after, end, total.events, total.rewards)), strict=True)
    if commit.skip is not None:
        changed["skipped"] = _with_skipped(known, fields, commit.skip, version)
    return changed


def settings_fields(settings: BanditSettings) -> dict[str, str]:
    """Return what scripts of earlier programs need of the settings, which may run beside this one."""
    default, taken = settings.default_reward, settings.reward_range
    return {
        "item_capacity": str(settings.item_capacity),
        "reward_wait_ms": str(settings.reward_wait_ms),
        "default_reward": "null" if default is None else canonical(default),
        "reward_range": "-" if taken is None else f"{canonical(taken.low)} {canonical(taken.high)}",
        "clamps": str(int(taken is not None and taken.clamp)),
        "reward_aggregation": settings.reward_aggregation.value,
        "requires_activation": str(int(settings.requires_activation)),
        "durability": str(settings.durability or ""),
    }


def _retired(item_id: str) -> tuple[Field, bytes]:
    """Return the bucket that an item is in once it is retired, and what is in it then."""
    bucket, rest = bucket_of(item_digest(item_id))
    return Field(_RETIRED, bucket), rest


def _item_puts(items: Mapping[str, Item | None], fields: Fields) -> Iterator[Put]:
    buckets: dict[Field, bytes] = {}
    for item_id, item in items.items():
        yield Put(_ITEMS, item_id, None if item is None else encode_item_state(item))
        if item is None:
            bucket, rest = _retired(item_id)
            buckets[bucket] = buckets.get(bucket, fields[bucket]) + rest
    yield from (Put(*field, bucket) for field, bucket in buckets.items())


def import_fields(place: int, part: tuple[str, int]) -> tuple[Field, Field]:
    """Return where it is kept how far an import is, and what became of a part of it; `place` is that of the hash."""
    return Field(place, part[0]), Field(place, part_field(*part))


@verify_reading
def read_import(place: int, part: tuple[str, int], fields: Fields, *, n_parts: int = 0) -> KnownImport:
    """Return what the fields of an import say."""
    going_on, recorded = (fields[one] for one in import_fields(place, part))
    progress = read_progress(going_on)
    if not recorded:
        return KnownImport(progress, n_parts=n_parts)
    made = read_part(part, recorded)
    outcome = ImportOutcome(RecordStatus.RECORDED, made.next_row, made.accepted, made.position)
    return KnownImport(progress, made.fingerprint, outcome, n_parts)


def import_puts(place: int, known: KnownImport, part: ImportPart, outcome: ImportOutcome) -> Iterator[Put]:
    """Yield what is kept of a part of an import, and of how far this is after it."""
    progress, recorded = import_fields(place, part.place)
    is_learned = outcome.position < 0
    text = part_text(part.fingerprint, part.next_row, part.accepted, None if is_learned else outcome.position)
    yield Put(*progress, progress_text(progress_after(known, part)))
    yield Put(*recorded, text, 0 if is_learned else None)


def _read_life(fields: Fields) -> Life:
    texts = {name: fields[Field(_META, name)] for name in _LIFE}
    after, end, events, rewards = (int(texts[name] or 0) for name in _LIFE[2:])
    skipped = frozenset(map(int, _skipped_in(fields)))
    return Life(texts["reset_by"].decode(), skipped, Loss(after, end, LostEvents(events, rewards)))


def _skipped_in(fields: Fields) -> dict[str, str]:
    """Return what a reader is given where events are passed over, by position."""
    return dict(json.loads(fields[Field(_META, "skipped")] or b"{}"))


def _with_skipped(known: Known, fields: Fields, skip: Skip, version: int) -> str:
    left = {at: entry for at, entry in _skipped_in(fields).items() if int(at) >= known.first_position}
    entry = b"%d-0 %d - %b" % (skip.position, skip.at_ms, encode_event(skip.event, version))
    left[str(skip.position)] = f"{checksum_of(entry)} {entry.decode()}"
    return json.dumps(left, ensure_ascii=False, separators=(",", ":"))
