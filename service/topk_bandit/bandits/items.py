"""A bandit's items as a value: the place of each id in the kernel's universe, and which items can be shown.

An item keeps its place until it is retired and the place is wanted, and a retired one is never shown again. A change
makes another value. Nothing here reads a store, or knows which places rows refer to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.domain.replacing import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import ItemsChanged

__all__ = ["Eligible", "Items"]

ITEM_BYTES = 120
"""About what an item takes in memory, beside its id."""


def _no_places(kind: type[np.integer]) -> NDArray[Any]:
    return np.empty(0, dtype=kind)


class Eligible(NamedTuple):
    """Places of the items that may be shown, ascending, and how many candidates were passed over."""

    places: NDArray[np.int32]
    passed_over: int


@dataclass(frozen=True, slots=True)
class Items:
    """Items by place: new ones take the lowest places that are free, in their order.

    Attributes
    ----------
    ids
        Item id by place, None where the place is free.
    available, retired
        Ids that can be shown now, and ids that never will be again and still have their place.
    open_until_ms
        The latest deadline of the slates that showed the item at each place, 0 without any; by the store's clock.
    """

    ids: tuple[str | None, ...] = ()
    available: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    open_until_ms: NDArray[np.int64] = field(default_factory=lambda: _no_places(np.int64))
    _indices: Mapping[str, int] = field(default_factory=dict)
    _available_indices: NDArray[np.int32] = field(default_factory=lambda: _no_places(np.int32))
    _id_bytes: int = 0

    @classmethod
    def of(
        cls,
        ids: Sequence[str | None],
        *,
        available: Collection[str],
        retired: Collection[str],
        open_until_ms: NDArray[np.int64],
    ) -> Items:
        """Return these items; `open_until_ms` has an entry for each of `ids`."""
        indices = {item_id: index for index, item_id in enumerate(ids) if item_id is not None}
        shown = np.sort(np.array([indices[item_id] for item_id in available], dtype=np.int32))
        for array in (shown, open_until_ms):
            array.setflags(write=False)
        id_bytes = sum(map(sys.getsizeof, indices))
        return cls(tuple(ids), frozenset(available), frozenset(retired), open_until_ms, indices, shown, id_bytes)

    @property
    def size(self) -> int:
        """How many items there are, retired ones not counted."""
        return len(self._indices) - len(self.retired)

    @property
    def places_in_use(self) -> int:
        """How many places items have, retired ones too."""
        return len(self._indices)

    @property
    def retired_places(self) -> NDArray[np.int32]:
        """The places of retired items, in ascending order."""
        return np.sort(np.array([self._indices[item_id] for item_id in self.retired], dtype=np.int32))

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return ITEM_BYTES * len(self.ids) + 2 * self._id_bytes

    def find_new(self, change: ItemsChanged) -> list[str]:
        """Return the ids that a change adds, in their order."""
        named = dict.fromkeys(item.item_id for item in change.upserted)
        return [item_id for item_id in named if item_id not in self._indices]

    def apply(self, change: ItemsChanged) -> Items:
        """Return the items after a change."""
        new = self.find_new(change)
        free = [place for place, item_id in enumerate(self.ids) if item_id is None][: len(new)]
        ids = [*self.ids, *(None for _ in new[len(free) :])]
        for place, item_id in zip([*free, *range(len(self.ids), len(ids))], new, strict=True):
            ids[place] = item_id
        shown = {item.item_id for item in change.upserted if item.available}
        hidden = {item.item_id for item in change.upserted if not item.available}
        gone = frozenset(change.retired)
        return Items.of(
            ids,
            available=(self.available | shown) - hidden - gone,
            retired=self.retired | gone,
            open_until_ms=np.pad(self.open_until_ms, (0, len(ids) - len(self.ids))),
        )

    def show(self, places: NDArray[np.int32], *, deadline_ms: int) -> Items:
        """Return the items after a slate was given out."""
        open_until_ms = self.open_until_ms.copy()
        open_until_ms[places] = np.maximum(open_until_ms[places], deadline_ms)
        open_until_ms.setflags(write=False)
        return replace(self, open_until_ms=open_until_ms)

    def vacate(self, places: NDArray[np.int32]) -> Items:
        """Return the items without the retired ones at these places, which are free then."""
        gone = {self.ids[place] for place in places.tolist()}
        open_until_ms = self.open_until_ms.copy()
        open_until_ms[places] = 0
        return Items.of(
            [None if item_id in gone else item_id for item_id in self.ids],
            available=self.available,
            retired=[item_id for item_id in self.retired if item_id not in gone],
            open_until_ms=open_until_ms,
        )

    def have_places(self, item_ids: Sequence[str]) -> bool:
        """Return whether all these items still have their places."""
        return all(item_id in self._indices for item_id in item_ids)

    def knows(self, item_id: str) -> bool:
        """Return whether there is such an item that is not retired."""
        return item_id in self._indices and item_id not in self.retired

    def find_indices(self, item_ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the places of items that a log names, in their order."""
        try:
            return np.array([self._indices[item_id] for item_id in item_ids], dtype=np.int32)
        except KeyError as error:
            raise CorruptDataError(f"the log names the item {error.args[0]!r}, which has no place") from None

    def find_ids(self, ranking: NDArray[np.integer]) -> tuple[str, ...]:
        """Return the ids of the items at these places, in their order."""
        return tuple(str(self.ids[index]) for index in ranking.tolist())

    def find_free(self, n_places: int) -> NDArray[np.int32]:
        """Return which of so many places no item has, in ascending order."""
        taken = np.zeros(n_places, dtype=np.bool_)
        taken[list(self._indices.values())] = True
        return np.flatnonzero(~taken).astype(np.int32)

    def find_eligible(self, candidates: Sequence[str] | None) -> Eligible:
        """Return the items that may be shown; None means all that can be."""
        if candidates is None:
            return Eligible(self._available_indices, 0)
        left = self.available.intersection(candidates)
        return Eligible(np.sort(self.find_indices(tuple(left))), len(candidates) - len(left))

    def check_candidates(self, candidates: Sequence[str]) -> None:
        """Raise `NotFoundError` for a candidate that was never added, or is retired."""
        for item_id in candidates:
            if not self.knows(item_id):
                raise NotFoundError(f"item {item_id[:128]!r}")
