"""A bandit's items as a value: the place of each id in the kernel's universe, which can be shown, what they are like.

An item keeps its place until it is retired and the place is wanted, and a retired one is never shown again. A change
makes another value. Nothing here reads a store, or knows which places rows refer to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topk_bandit.bandits.catalogue import NO_CATALOGUE, Catalogue
from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.domain.features import NO_FEATURES
from topk_bandit.domain.replacing import replace
from topk_bandit.learning.id_index import NO_IDS, NOWHERE, IdIndex
from topk_bandit.learning.item_table import ItemTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import Features, FeatureValue
    from topk_bandit.store.events import ItemsChanged

__all__ = ["Eligible", "Items"]


def _no_places(kind: type[np.generic]) -> NDArray[Any]:
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
    index
        The item id of each place, and the place of each item id.
    is_available, is_retired
        Of each place, whether its item can be shown now, and whether it never will be again and still has its place.
    open_until_ms
        The latest deadline of the slates that showed the item at each place, 0 without any; by the store's clock.
    available_places
        The places of the items that can be shown now, in ascending order.
    learned_counts
        How many of the slates that were learned have shown the item at each place. From a snapshot of the first data
        version only those are known that it still has rows of.
    catalogue
        What they are like, as rules ask; None where the snapshot does not have it, which is of the first data version.
    """

    index: IdIndex = NO_IDS
    is_available: NDArray[np.bool_] = field(default_factory=lambda: _no_places(np.bool_))
    is_retired: NDArray[np.bool_] = field(default_factory=lambda: _no_places(np.bool_))
    open_until_ms: NDArray[np.int64] = field(default_factory=lambda: _no_places(np.int64))
    available_places: NDArray[np.int32] = field(default_factory=lambda: _no_places(np.int32))
    learned_counts: NDArray[np.int64] = field(default_factory=lambda: _no_places(np.int64))
    catalogue: Catalogue | None = NO_CATALOGUE

    @classmethod
    def of(
        cls,
        ids: Sequence[str | None],
        *,
        available: Collection[str],
        retired: Collection[str],
        open_until_ms: NDArray[np.int64],
        learned_counts: NDArray[np.int64],
        features: Mapping[str, Features] | None,
    ) -> Items:
        """Return these items; the arrays have an entry for each of `ids`, and `features` may not be known."""
        index = IdIndex.of(ids)
        marks = []
        for named in (available, retired):
            mark = np.zeros(len(ids), dtype=np.bool_)
            mark[_require(index, tuple(named))] = True
            marks.append(mark)
        table = None if features is None else _table_of(index, features)
        return cls._of(index, marks[0], marks[1], open_until_ms, learned_counts, table)

    @classmethod
    def _of(  # noqa: PLR0917 - its own fields, in their order
        cls,
        index: IdIndex,
        is_available: NDArray[np.bool_],
        is_retired: NDArray[np.bool_],
        open_until_ms: NDArray[np.int64],
        learned_counts: NDArray[np.int64],
        table: ItemTable | None,
    ) -> Items:
        places = np.flatnonzero(is_available).astype(np.int32)
        for array in (is_available, is_retired, open_until_ms, places, learned_counts):
            array.setflags(write=False)
        catalogue = None if table is None else Catalogue(table)
        return cls(index, is_available, is_retired, open_until_ms, places, learned_counts, catalogue)

    def with_features(self, features: Mapping[str, Features]) -> Items:
        """Return the items with features; those of ids that are retired, or not here, are left out."""
        unknown = {*self.find_unknown([*features])}
        known = {item_id: one for item_id, one in features.items() if item_id not in unknown}
        return replace(self, catalogue=Catalogue(_table_of(self.index, known)))

    @property
    def features(self) -> Mapping[str, Features] | None:
        """The features of each item that has any, but for vectors, by its id; None where they are not known.

        They are made anew each time.
        """
        if self.catalogue is None:
            return None
        by_place = self.catalogue.table.features()
        return dict(zip(self.index.ids_at(np.array([*by_place], dtype=np.intp)), by_place.values(), strict=True))

    def features_of(self, item_id: str) -> Features:
        """Return the features of an item, but for vectors; none where they are not known."""
        place = int(self.index.find((item_id,))[0])
        return NO_FEATURES if self.catalogue is None or place == NOWHERE else self.catalogue.table.features_at(place)

    def values_of(self, feature: str, item_ids: Sequence[str]) -> Mapping[str, Sequence[FeatureValue]]:
        """Return what some items have of a categorical feature, by their ids; nothing where that is not known."""
        return {} if self.catalogue is None else self.catalogue.table.values_of(feature, item_ids)

    @property
    def ids(self) -> tuple[str | None, ...]:
        """Item id by place, None where the place is free; they are made anew each time."""
        return self.index.ids

    @property
    def available(self) -> tuple[str, ...]:
        """Ids that can be shown now, sorted; they are made anew each time."""
        return tuple(sorted(self.index.ids_at(self.available_places)))

    @property
    def retired(self) -> tuple[str, ...]:
        """Ids that never will be shown again and still have their place, sorted; they are made anew each time."""
        return tuple(sorted(self.index.ids_at(self.retired_places)))

    @property
    def size(self) -> int:
        """How many items there are, retired ones not counted."""
        return self.places_in_use - int(np.count_nonzero(self.is_retired))

    @property
    def places_in_use(self) -> int:
        """How many places items have, retired ones too."""
        return len(self.index)

    @property
    def retired_places(self) -> NDArray[np.int32]:
        """The places of retired items, in ascending order."""
        return np.flatnonzero(self.is_retired).astype(np.int32)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        arrays = self.is_available, self.is_retired, self.open_until_ms, self.available_places, self.learned_counts
        of_features = 0 if self.catalogue is None else self.catalogue.table.nbytes
        return self.index.nbytes + sum(one.nbytes for one in arrays) + of_features

    def find_new(self, change: ItemsChanged) -> list[str]:
        """Return the ids that a change adds, in their order."""
        named = list(dict.fromkeys(item.item_id for item in change.upserted))
        places = self.index.find(named).tolist()
        return [item_id for item_id, place in zip(named, places, strict=True) if place == NOWHERE]

    def apply(self, change: ItemsChanged) -> Items:
        """Return the items after a change."""
        index = self._index_with(self.find_new(change))
        more = index.n_places - self.index.n_places
        is_available, is_retired = np.pad(self.is_available, (0, more)), np.pad(self.is_retired, (0, more))
        open_until_ms, counts = np.pad(self.open_until_ms, (0, more)), np.pad(self.learned_counts, (0, more))
        is_available[_require(index, [item.item_id for item in change.upserted])] = True
        # An item that is named twice, and once as unavailable, is unavailable.
        is_available[_require(index, [item.item_id for item in change.upserted if not item.available])] = False
        gone = _require(index, change.retired)
        is_available[gone], is_retired[gone] = False, True
        return Items._of(index, is_available, is_retired, open_until_ms, counts, self._change_table(index, change))

    def _change_table(self, index: IdIndex, change: ItemsChanged) -> ItemTable | None:
        """Return the table after a change, whose features are of the bandit's schema: a retired item has none."""
        if self.catalogue is None:
            return None
        features = dict.fromkeys(change.retired, NO_FEATURES) | {one.item_id: one.features for one in change.upserted}
        return self.catalogue.table.change(index, _require(index, [*features]), [*features.values()])

    def _index_with(self, new: Sequence[str]) -> IdIndex:
        if not new:
            return self.index
        ids = list(self.ids)
        free = [place for place, item_id in enumerate(ids) if item_id is None][: len(new)]
        places = [*free, *range(len(ids), len(ids) + len(new) - len(free))]
        ids += [None] * (len(new) - len(free))
        for place, item_id in zip(places, new, strict=True):
            ids[place] = item_id
        return IdIndex.of(ids)

    def show(self, places: NDArray[np.int32], *, deadline_ms: int) -> Items:
        """Return the items after a slate was given out."""
        open_until_ms = self.open_until_ms.copy()
        open_until_ms[places] = np.maximum(open_until_ms[places], deadline_ms)
        open_until_ms.setflags(write=False)
        return replace(self, open_until_ms=open_until_ms)

    def learn(self, slates: NDArray[np.int32]) -> Items:
        """Return the items after slates were learned, whose places are given in any shape."""
        learned_counts = self.learned_counts.copy()
        np.add.at(learned_counts, slates.reshape(-1), 1)
        learned_counts.setflags(write=False)
        return replace(self, learned_counts=learned_counts)

    def forget(self) -> Items:
        """Return the items of which nothing was learned."""
        return replace(self, learned_counts=np.zeros_like(self.learned_counts))

    def vacate(self, places: NDArray[np.int32]) -> Items:
        """Return the items without the retired ones at these places, which are free then."""
        gone = set(places.tolist())
        ids = [None if place in gone else item_id for place, item_id in enumerate(self.ids)]
        is_retired, open_until_ms = self.is_retired.copy(), self.open_until_ms.copy()
        counts = self.learned_counts.copy()
        is_retired[places], open_until_ms[places], counts[places] = False, 0, 0
        index = IdIndex.of(ids)
        table = None
        if self.catalogue is not None:
            table = self.catalogue.table.change(index, places, [NO_FEATURES] * len(places))
        return Items._of(index, self.is_available.copy(), is_retired, open_until_ms, counts, table)

    def have_places(self, item_ids: Sequence[str]) -> bool:
        """Return whether all these items still have their places."""
        return not (self.index.find(item_ids) == NOWHERE).any()

    def knows(self, item_id: str) -> bool:
        """Return whether there is such an item that is not retired."""
        return not self.find_unknown((item_id,))

    def find_unknown(self, item_ids: Sequence[str]) -> list[str]:
        """Return those of some ids that were never added, or whose items are retired, in their order."""
        places = self.index.find(item_ids)
        is_unknown = places == NOWHERE
        is_unknown[~is_unknown] = self.is_retired[places[~is_unknown]]
        return [item_ids[number] for number in np.flatnonzero(is_unknown).tolist()]

    def find_hidden(self, item_ids: Iterable[str]) -> list[str]:
        """Return those of some ids whose items can't be shown now, in their order."""
        named = tuple(item_ids)
        places = self.index.find(named)
        is_hidden = places == NOWHERE
        is_hidden[~is_hidden] = ~self.is_available[places[~is_hidden]]
        return [named[number] for number in np.flatnonzero(is_hidden).tolist()]

    def find_indices(self, item_ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the places of items that a log names, in their order."""
        return _require(self.index, item_ids)

    def find_ids(self, ranking: NDArray[np.integer]) -> tuple[str, ...]:
        """Return the ids of the items at these places, in their order."""
        return self.index.ids_at(ranking)

    def find_free(self, n_places: int) -> NDArray[np.int32]:
        """Return which of so many places no item has, in ascending order."""
        taken = np.zeros(n_places, dtype=np.bool_)
        taken[self.index.places] = True
        return np.flatnonzero(~taken).astype(np.int32)

    def find_eligible(self, candidates: Sequence[str] | None) -> Eligible:
        """Return the items that may be shown; None means all that can be."""
        if candidates is None:
            return Eligible(self.available_places, 0)
        places = self.index.find(candidates)
        known = places[places != NOWHERE]
        left = np.unique(known[self.is_available[known]])
        return Eligible(left, len(candidates) - len(left))

    def check_candidates(self, candidates: Sequence[str]) -> None:
        """Raise `NotFoundError` for a candidate that was never added, or is retired."""
        for item_id in self.find_unknown(candidates):
            raise NotFoundError(f"item {item_id[:128]!r}")


def _require(index: IdIndex, item_ids: Sequence[str]) -> NDArray[np.int32]:
    places = index.find(item_ids)
    if (places == NOWHERE).any():
        unknown = item_ids[int(np.argmax(places == NOWHERE))]
        raise CorruptDataError(f"the log names the item {unknown!r}, which has no place")
    return places


def _table_of(index: IdIndex, features: Mapping[str, Features]) -> ItemTable:
    """Return the table of items with features by id; those of ids that are not here are left out."""
    places = index.find([*features])
    here = places != NOWHERE
    of_places = [one for one, is_here in zip(features.values(), here.tolist(), strict=True) if is_here]
    return ItemTable(index).change(index, places[here], of_places)
