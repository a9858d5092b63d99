"""The index of a file of events: which lines have a name, found by a few short reads.

It is a table of the names' digests in their order, each with the number of the event that has it. So a name is found by
a binary search, without reading the whole. The table is cut into blocks, each with a checksum that also says of which
events it is: an index that is damaged, cut, or of another file is none.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.event_keys import DIGEST_BYTES, find_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from topk_bandit.store.event_keys import EventKey

__all__ = ["find_in_index", "make_index"]

_ENTRY = struct.Struct(f">{DIGEST_BYTES}sI")
_HEAD = struct.Struct(">QI")  # how many entries there are, and the checksum of that
_CHECKSUM_BYTES = 4

ENTRIES_PER_BLOCK = 340
"""With its checksum a block is read at once, and takes a page of memory."""


def make_index(texts: Sequence[bytes], *, of: str) -> bytes:
    """Return the index of events, which are numbered from 0; `of` tells them from all others."""
    entries = sorted({(key.digest, number) for number, text in enumerate(texts) for key in find_keys(text)})
    packed = [_ENTRY.pack(digest, number) for digest, number in entries]
    found = [_HEAD.pack(len(entries), _checksum(of, -1, b"%d" % len(entries)))]
    for place, at in enumerate(range(0, len(packed), ENTRIES_PER_BLOCK)):
        block = b"".join(packed[at : at + ENTRIES_PER_BLOCK])
        found += [block, _checksum(of, place, block).to_bytes(_CHECKSUM_BYTES)]
    return b"".join(found)


def find_in_index(path: Path, key: EventKey, *, of: str) -> list[int]:
    """Return the numbers of the events that have a name, or another one with its digest; in their order.

    Raises
    ------
    CorruptDataError
        It is no index of these events.
    OSError
        It can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        index = _Index.open(descriptor, of)
        at = bisect_left(range(index.n_blocks), key.digest, key=lambda place: index.read(place)[-1][0])
        following = (entry for place in range(at, index.n_blocks) for entry in index.read(place))
        alike = takewhile(lambda entry: entry[0] <= key.digest, following)
        return [number for digest, number in alike if digest == key.digest]
    finally:
        os.close(descriptor)


class _Index(NamedTuple):
    """An index that is open."""

    descriptor: int
    of: str
    n_entries: int

    @classmethod
    def open(cls, descriptor: int, of: str) -> _Index:
        head = os.pread(descriptor, _HEAD.size, 0)
        count, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, -1)
        if checksum != _checksum(of, -1, b"%d" % count):
            raise CorruptDataError("its head is not what was written")
        return cls(descriptor, of, count)

    @property
    def n_blocks(self) -> int:
        return -(-self.n_entries // ENTRIES_PER_BLOCK)

    def read(self, place: int) -> list[tuple[bytes, int]]:
        """Return the entries of a block."""
        size = _ENTRY.size * min(ENTRIES_PER_BLOCK, self.n_entries - place * ENTRIES_PER_BLOCK)
        at = _HEAD.size + place * (_ENTRY.size * ENTRIES_PER_BLOCK + _CHECKSUM_BYTES)
        found = os.pread(self.descriptor, size + _CHECKSUM_BYTES, at)
        block, checksum = found[:size], found[size:]
        if checksum != _checksum(self.of, place, block).to_bytes(_CHECKSUM_BYTES):
            raise CorruptDataError(f"its block {place} is not what was written")
        return list(_ENTRY.iter_unpack(block))


def _checksum(of: str, place: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{of} {place}".encode()))
