"""The slates that await their reward, as a value, oldest first.

Adding or removing one of n slates returns another value and costs O(sqrt(n)). Each slate is packed into bytes, because
a busy bandit has many. Nothing here knows deadlines.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["OpenSlate", "OpenSlates"]

SLATE_BYTES = 195
"""What an open slate takes with its id of 32 characters, beside its context and ranking."""

FEWEST_CHANGES, CHANGES_SQUARED = 16, 8
"""The differences from n slates are merged once they are more than 16 and more than the square root of 8 n."""

_HEAD = struct.Struct("<qi")


class OpenSlate:
    """A recommendation that is neither rewarded nor expired, packed into bytes.

    Parameters
    ----------
    context
        Shape (C,).
    ranking
        Item indices, best first, shape (k,).
    at_ms
        The store's clock when it was recommended.
    """

    __slots__ = ("_packed",)

    def __init__(self, context: NDArray[np.float64], ranking: NDArray[np.int32], at_ms: int) -> None:
        parts = np.asarray(context, dtype=np.float64).tobytes(), np.asarray(ranking, dtype=np.int32).tobytes()
        self._packed = _HEAD.pack(at_ms, len(parts[0])) + b"".join(parts)

    @property
    def context(self) -> NDArray[np.float64]:
        """Shape (C,), a copy."""
        return np.frombuffer(self._packed[_HEAD.size : self._split], dtype=np.float64).copy()

    @property
    def ranking(self) -> NDArray[np.int32]:
        """Shape (k,), a copy."""
        return np.frombuffer(self._packed[self._split :], dtype=np.int32).copy()

    @property
    def at_ms(self) -> int:
        """The store's clock when it was recommended."""
        at_ms: int = _HEAD.unpack_from(self._packed)[0]
        return at_ms

    @property
    def content_bytes(self) -> int:
        """Bytes of what it holds, about."""
        return len(self._packed)

    @property
    def _split(self) -> int:
        return _HEAD.size + int(_HEAD.unpack_from(self._packed)[1])


@dataclass(frozen=True, slots=True, eq=False)
class OpenSlates(Mapping[str, OpenSlate]):
    """Open slates by recommendation id, oldest first.

    `add` and `remove` return other values. They share one dict, `base`, which is never changed, and hold what differs
    from it; once the differences are many they are merged into a new dict. So a change costs O(sqrt(n)) of n slates.
    """

    base: dict[str, OpenSlate] = field(default_factory=dict)
    newer: dict[str, OpenSlate] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()

    def add(self, recommendation_id: str, slate: OpenSlate) -> OpenSlates:
        """Return these slates and one more, the newest; ValueError for one that is open already."""
        if recommendation_id in self:
            raise ValueError(f"{recommendation_id!r} is open already")
        return _merge_if_many(self.base, {**self.newer, recommendation_id: slate}, self.gone)

    def remove(self, recommendation_id: str) -> OpenSlates:
        """Return these slates without one of them; KeyError for one that is not open."""
        if recommendation_id not in self:
            raise KeyError(recommendation_id)
        if recommendation_id not in self.newer:
            return _merge_if_many(self.base, self.newer, self.gone | {recommendation_id})
        left = dict(self.newer)
        del left[recommendation_id]
        return _merge_if_many(self.base, left, self.gone)

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take; slates of one bandit are all of one size."""
        any_slate = next(chain(self.base.values(), self.newer.values()), None)
        return 0 if any_slate is None else len(self) * (SLATE_BYTES + any_slate.content_bytes)

    def __getitem__(self, recommendation_id: str) -> OpenSlate:
        if recommendation_id in self.newer:
            return self.newer[recommendation_id]
        if recommendation_id in self.gone:
            raise KeyError(recommendation_id)
        return self.base[recommendation_id]

    def __iter__(self) -> Iterator[str]:
        return chain((key for key in self.base if key not in self.gone), self.newer)

    def __len__(self) -> int:
        return len(self.base) - len(self.gone) + len(self.newer)


def _merge_if_many(base: dict[str, OpenSlate], newer: dict[str, OpenSlate], gone: frozenset[str]) -> OpenSlates:
    changes = len(newer) + len(gone)
    if changes < FEWEST_CHANGES or changes**2 < CHANGES_SQUARED * len(base):
        return OpenSlates(base, newer, gone)
    merged = dict(base)
    for recommendation_id in gone:
        del merged[recommendation_id]
    merged.update(newer)
    return OpenSlates(merged)
