"""A mapping that only grows, as a value.

Adding entries returns another mapping and leaves the first as it is. Both share most of what they hold, so that a
study's state can be a value although every event adds to it. Entries are never replaced and never removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GrowingMap"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False)
class GrowingMap(Mapping[K, V]):
    """Entries in the order in which they were added.

    The logarithmic method of Bentley and Saxe: entries lie in blocks that nobody changes, each at least twice as long
    as the next. New entries are merged with the blocks at the end that would break this rule. Adding n entries one by
    one so copies O(n log n) entries in all, and a look-up searches O(log n) blocks, the longest first.
    """

    blocks: tuple[dict[K, V], ...] = ()

    def add(self, entries: Mapping[K, V]) -> GrowingMap[K, V]:
        """Return these entries and then others; ValueError if a key is here already."""
        if any(key in self for key in entries):
            raise ValueError("a key is here already")
        kept, length = len(self.blocks), len(entries)
        while kept and len(self.blocks[kept - 1]) < 2 * length:
            kept -= 1
            length += len(self.blocks[kept])
        merged = _merge((*self.blocks[kept:], entries))
        return GrowingMap((*self.blocks[:kept], merged)) if merged else self

    def merge(self) -> dict[K, V]:
        """Return all entries as one dict of their own."""
        return _merge(self.blocks)

    def __getitem__(self, key: K) -> V:
        for block in self.blocks:
            if key in block:
                return block[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.blocks)

    def __len__(self) -> int:
        return sum(map(len, self.blocks))


def _merge(parts: tuple[Mapping[K, V], ...]) -> dict[K, V]:
    merged: dict[K, V] = {}
    for part in parts:
        merged.update(part)
    return merged
