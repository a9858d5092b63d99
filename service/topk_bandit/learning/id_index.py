"""Ids by place, and places by id, in arrays: some 16 bytes an id beside its text, where Python's own objects take 200.

An id is found by its hash, and is always compared, so that nothing depends on the hashes, which differ from process to
process.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["NOWHERE", "NO_IDS", "IdIndex"]

NOWHERE = -1
"""Stands for the place of an id that has none."""


_MANY = 24
"""So many ids are found faster all at once than one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class IdIndex:
    """Distinct ids by place; a place may be free.

    Attributes
    ----------
    texts
        All ids in UTF-8, one after the other, shape (bytes,).
    starts
        Where the id of each place begins, and where the last one ends, shape (n + 1,).
    is_free
        Whether a place has no id, shape (n,).
    hashes, places
        The hashes of ids in ascending order, and the place of each.
    """

    texts: NDArray[np.uint8]
    starts: NDArray[np.int64]
    is_free: NDArray[np.bool_]
    hashes: NDArray[np.int64]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Sequence[str | None]) -> IdIndex:
        """Return the index of ids by place, None where a place is free."""
        known = [item_id for item_id in ids if item_id is not None]
        is_free = np.fromiter((item_id is None for item_id in ids), dtype=np.bool_, count=len(ids))
        texts, lengths = _encode(known)
        sizes = np.zeros(len(ids), dtype=np.int64)
        sizes[~is_free] = lengths
        hashes = _hashes_of(known)
        order = np.argsort(hashes, kind="stable")
        places = np.flatnonzero(~is_free).astype(np.int32)[order]
        index = cls(texts, np.concatenate([[0], np.cumsum(sizes)]), is_free, hashes[order], places)
        for array in (index.texts, index.starts, index.is_free, index.hashes, index.places):
            array.setflags(write=False)
        return index

    def __reduce__(self) -> tuple[Callable[[Sequence[str | None]], IdIndex], tuple[Sequence[str | None]]]:
        return IdIndex.of, (self.ids,)

    def __len__(self) -> int:
        """Return how many ids there are."""
        return len(self.places)

    @property
    def n_places(self) -> int:
        """How many places there are, free ones too."""
        return len(self.is_free)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(one.nbytes for one in (self.texts, self.starts, self.is_free, self.hashes, self.places))

    @property
    def ids(self) -> tuple[str | None, ...]:
        """The id of each place, None where it is free."""
        texts, starts = self.texts.tobytes(), self.starts.tolist()
        ends = zip(starts, starts[1:], self.is_free.tolist(), strict=False)
        return tuple(None if is_free else texts[start:end].decode() for start, end, is_free in ends)

    def ids_at(self, places: NDArray[np.integer]) -> tuple[str, ...]:
        """Return the ids of places that are not free."""
        spans = zip(self.starts[places].tolist(), self.starts[places + 1].tolist(), strict=True)
        return tuple(self.texts[start:end].tobytes().decode() for start, end in spans)

    def find(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the place of each id, `NOWHERE` for one that is not here."""
        if len(ids) < _MANY:
            return np.array([self._find_one(item_id) for item_id in ids], dtype=np.int32)
        return self._find_many(ids)

    def _find_one(self, item_id: str) -> int:
        text, hashed = item_id.encode(), hash(item_id)
        hashes, starts, texts = self.hashes.data, self.starts.data, self.texts.data
        at = bisect_left(hashes, hashed)
        while at < len(hashes) and hashes[at] == hashed:
            place = int(self.places[at])
            if texts[starts[place] : starts[place + 1]] == text:
                return place
            at += 1  # another id has the same hash
        return NOWHERE

    def _find_many(self, ids: Sequence[str]) -> NDArray[np.int32]:
        found = np.full(len(ids), NOWHERE, dtype=np.int32)
        texts, lengths = _encode(ids)
        starts, hashes = np.cumsum(lengths) - lengths, _hashes_of(ids)
        at, left = np.searchsorted(self.hashes, hashes), np.arange(len(ids))
        while True:
            left = left[at[left] < len(self)]
            left = left[self.hashes[at[left]] == hashes[left]]
            if not len(left):
                return found
            places = self.places[at[left]]
            is_it = self._are_equal(places, texts, starts[left], lengths[left])
            found[left[is_it]] = places[is_it]
            left = left[~is_it]  # another id has the same hash
            at[left] += 1

    def _are_equal(
        self, places: NDArray[np.int32], texts: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether the ids at places are those that begin in `texts` there and have these lengths."""
        own = self.starts[places]
        are_equal: NDArray[np.bool_] = self.starts[places + 1] - own == lengths
        own, starts, lengths = own[are_equal], starts[are_equal], lengths[are_equal]
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        differ = self.texts[np.repeat(own, lengths) + within] != texts[np.repeat(starts, lengths) + within]
        wrong = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=differ, minlength=len(lengths))
        are_equal[are_equal] = wrong == 0
        return are_equal


def _encode(ids: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ids in UTF-8, one after the other, and how many bytes each has."""
    text = "".join(ids)
    sizes = map(len, ids) if text.isascii() else (len(one.encode()) for one in ids)
    return np.frombuffer(text.encode(), dtype=np.uint8), np.fromiter(sizes, dtype=np.int64, count=len(ids))


def _hashes_of(ids: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))


NO_IDS = IdIndex.of(())
"""No ids, and no places."""
