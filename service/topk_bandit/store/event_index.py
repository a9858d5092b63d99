"""The index of a file of events: which lines have a name, found by a few short reads.

It is a table of the names' digests in their order, each with the number of the event that has it. So a name is found by
a binary search, without reading the whole.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING

from topk_bandit.store.event_keys import DIGEST_BYTES, find_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from topk_bandit.store.event_keys import EventKey

__all__ = ["find_in_index", "make_index"]

_ENTRY = struct.Struct(f">{DIGEST_BYTES}sI")


def make_index(texts: Sequence[bytes]) -> bytes:
    """Return the index of events, which are numbered from 0."""
    entries = sorted({(key.digest, number) for number, text in enumerate(texts) for key in find_keys(text)})
    return b"".join(_ENTRY.pack(digest, number) for digest, number in entries)


def find_in_index(path: Path, key: EventKey) -> list[int]:
    """Return the numbers of the events that have a name, or another one with its digest; in their order."""
    wanted = key.digest
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        count = os.fstat(descriptor).st_size // _ENTRY.size
        at = bisect_left(range(count), wanted, key=lambda one: os.pread(descriptor, DIGEST_BYTES, one * _ENTRY.size))
        numbers: list[int] = []
        while at + len(numbers) < count:
            entry = os.pread(descriptor, _ENTRY.size, (at + len(numbers)) * _ENTRY.size)
            digest, number = _ENTRY.unpack(entry)
            if digest != wanted:
                break
            numbers.append(number)
        return numbers
    finally:
        os.close(descriptor)
