"""A bandit's items as a value: the index of each id, and which items can be shown.

An item keeps its index for good, and a retired one is never shown again. A change of items makes another value. Nothing
here reads a store.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import ItemsChanged

__all__ = ["Items"]

ITEM_BYTES = 120
"""About what an item takes in memory, beside its id."""


@dataclass(frozen=True, slots=True)
class Items:
    """Items by index, in the order in which they were first added; none is ever removed.

    Attributes
    ----------
    ids
        Item id by index.
    available, retired
        Ids that can be shown now, and ids that never will be again.
    """

    ids: tuple[str, ...] = ()
    available: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()
    _indices: Mapping[str, int] = field(default_factory=dict)
    _available_indices: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    _id_bytes: int = 0

    @classmethod
    def of(cls, ids: Sequence[str], *, available: Sequence[str], retired: Sequence[str]) -> Items:
        """Return these items."""
        indices = {item_id: index for index, item_id in enumerate(ids)}
        shown = np.sort(np.array([indices[item_id] for item_id in available], dtype=np.int32))
        shown.setflags(write=False)
        id_bytes = sum(map(sys.getsizeof, ids))
        return cls(tuple(ids), frozenset(available), frozenset(retired), indices, shown, id_bytes)

    @property
    def size(self) -> int:
        """How many items there are, retired ones not counted."""
        return len(self.ids) - len(self.retired)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return ITEM_BYTES * len(self.ids) + 2 * self._id_bytes

    def apply(self, change: ItemsChanged) -> Items:
        """Return the items after a change."""
        new = [item.item_id for item in change.upserted if item.item_id not in self._indices]
        shown = {item.item_id for item in change.upserted if item.available}
        hidden = {item.item_id for item in change.upserted if not item.available}
        gone = frozenset(change.retired)
        return Items.of(
            (*self.ids, *new),
            available=tuple((self.available | shown) - hidden - gone),
            retired=tuple(self.retired | gone),
        )

    def find_indices(self, item_ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the indices of items that a log names, in their order."""
        try:
            return np.array([self._indices[item_id] for item_id in item_ids], dtype=np.int32)
        except KeyError as error:
            raise CorruptDataError(f"the log names the item {error.args[0]!r} before it was added") from None

    def find_ids(self, ranking: NDArray[np.integer]) -> tuple[str, ...]:
        """Return the ids of the items at these indices, in their order."""
        return tuple(self.ids[index] for index in ranking.tolist())

    def find_eligible(self, candidates: Sequence[str] | None, *, at_least: int) -> NDArray[np.int32]:
        """Return the indices of the items that may be shown, in ascending order.

        Parameters
        ----------
        candidates
            Ids to choose from; None means all. Those that are not available now are left out.
        at_least
            The slate size.

        Raises
        ------
        NotFoundError
            A candidate that was never added, or is retired.
        InvalidArgumentError
            Fewer items than `at_least` are left.
        """
        if candidates is None:
            indices = self._available_indices
        else:
            indices = np.sort(self.find_indices(tuple(self._check_candidates(candidates) & self.available)))
        if len(indices) < at_least:
            field_name = "bandit" if candidates is None else "candidate_item_ids"
            raise InvalidArgumentError(field_name, f"{len(indices)} items can be shown, the slate needs {at_least}")
        return indices

    def _check_candidates(self, candidates: Sequence[str]) -> frozenset[str]:
        for item_id in candidates:
            if item_id not in self._indices or item_id in self.retired:
                raise NotFoundError(f"item {item_id[:128]!r}")
        return frozenset(candidates)
