"""The texts in which a bandit or a study keeps the parts of its imports, and a bandit its retired items.

An import's field is its id, and says how far it is; that of one of its parts ends with the first row. A retired item is
remembered by eight bytes of a digest, in one of 4,096 buckets: one in 10^14 new ids is taken for one of 10^5 that were
retired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.store.archive_lines import ArchivedImport
from topk_bandit.store.log import Contents, ImportProgress
from topk_bandit.store.redis.replies import fields_of, read_bandit, verify_reading

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.redis.replies import Hash

__all__ = [
    "bucket_of",
    "part_field",
    "part_text",
    "progress_text",
    "read_contents",
    "read_part",
    "read_parts",
    "read_progress",
    "rests_in",
]

_BUCKET_DIGITS = 3
_REST_BYTES = 8


def bucket_of(digest: str) -> tuple[str, bytes]:
    """Return which bucket a retired item is in, and what is in it, from what `item_digest` returns of its id."""
    return digest[:_BUCKET_DIGITS], bytes.fromhex(digest[_BUCKET_DIGITS:])


def rests_in(bucket: bytes) -> list[bytes]:
    """Return what is in a bucket, one entry for each retired item."""
    return [bucket[place : place + _REST_BYTES] for place in range(0, len(bucket), _REST_BYTES)]


def part_field(import_id: str, first_row: int) -> str:
    """Return the field of an imports hash that a part is in."""
    return f"{import_id}\n{first_row}"


def part_text(fingerprint: str, next_row: int, accepted: int, position: int | None) -> str:
    """Return a part of an import as a text; without a position it ends where that follows."""
    return f"{fingerprint} {next_row} {accepted} {'' if position is None else position}"


@verify_reading
def read_part(part: tuple[str, int], text: bytes) -> ArchivedImport:
    """Return a part of an import."""
    fingerprint, *numbers = text.decode().split()
    return ArchivedImport(*part, fingerprint, *map(int, numbers))


@verify_reading
def read_parts(entries: Hash) -> tuple[ArchivedImport, ...]:
    """Return the parts of imports among entries of an imports hash."""
    split = ((field.decode().partition("\n"), text) for field, text in fields_of(entries).items())
    return tuple(read_part((import_id, int(row)), text) for (import_id, mark, row), text in split if mark)


def progress_text(progress: ImportProgress) -> str:
    """Return how far an import is as a text."""
    return f"{progress.next_row} {progress.accepted}"


@verify_reading
def read_progress(text: bytes) -> ImportProgress:
    """Return how far an import is; nothing is kept of one that has not begun."""
    return ImportProgress(*map(int, text.split())) if text else ImportProgress()


@verify_reading
def read_contents(name: BanditName, meta: Hash, retired: Hash) -> Contents:
    """Return what there is of a bandit beside its log, its items and its slates."""
    digests = (
        f"{bucket.decode()}{rest.hex()}" for bucket, joined in fields_of(retired).items() for rest in rests_in(joined)
    )
    fields = fields_of(meta)
    positions = int(fields[b"first_position"]), int(fields[b"imported_position"])
    return Contents(read_bandit(name, meta), *positions, tuple(sorted(digests)))
