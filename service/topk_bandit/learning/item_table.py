"""Items and their features by columns, so that rules are asked of all items at once.

The columns are the only place where a model keeps features as the shop sent them: some 10 bytes a value, where Python's
own objects take 200. A table serves all requests until the items change. An item is named by its place in it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.domain.filters import All, Any, Compared, Has, Not, Within
from topk_bandit.learning.id_index import NOWHERE, IdIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import FeatureValue
    from topk_bandit.domain.filters import Condition

__all__ = ["ItemTable", "Memberships"]

_COMPARE: Mapping[str, np.ufunc] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}

_CODE_BYTES = 32
"""What Python takes for the number of a value, from 257 on."""


class Memberships(NamedTuple):
    """Which of some items are in which groups: an item's number, ascending, and a group that it is in, both (M,)."""

    items: NDArray[np.intp]
    groups: NDArray[np.intp]


@dataclass(slots=True)
class _Entries:
    """What some items have of one feature, in the order of their places: values, and which have a set of no labels."""

    places: list[int] = field(default_factory=list)
    values: list[FeatureValue] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    are_sets: bool = False

    def add(self, place: int, value: FeatureValue) -> None:
        if not isinstance(value, tuple):
            self.places.append(place)
            self.values.append(value)
            return
        self.are_sets = True
        self.places += [place] * len(value)
        self.values += value
        self.empty += [place] * (not value)


class _Column(NamedTuple):
    """What items have of one feature: places of items, ascending, and a number or the code of a value, both (M,).

    An item with several labels is there once for each, in their order. Codes are numbered as values first appear, so
    that they are a function of the items, whichever changes led to these.

    Attributes
    ----------
    codes
        The code of each value; None for numbers.
    empty
        Places of items with a set of no labels, ascending; None where values are no sets.
    """

    places: NDArray[np.int32]
    values: NDArray[np.float64] | NDArray[np.int32]
    codes: Mapping[FeatureValue, int] | None
    empty: NDArray[np.int32] | None

    @classmethod
    def of_none(cls, like: _Entries) -> _Column:
        """Return the column of no items, for values like some."""
        is_coded = like.are_sets or isinstance(like.values[0], str | bool)
        values = np.empty(0, dtype=np.int32) if is_coded else np.empty(0, dtype=np.float64)
        places = np.empty(0, dtype=np.int32)
        return cls(places, values, {} if is_coded else None, places if like.are_sets else None)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        of_codes = 0
        if self.codes is not None:
            numbers = max(0, len(self.codes) - 257) * _CODE_BYTES
            of_codes = sys.getsizeof(self.codes) + sum(map(sys.getsizeof, self.codes)) + numbers
        return self.places.nbytes + self.values.nbytes + (0 if self.empty is None else self.empty.nbytes) + of_codes

    def compare(self, comparison: str, value: FeatureValue) -> NDArray[np.bool_]:
        """Return which entries compare so with a value, shape (M,)."""
        number = value if self.codes is None else self.codes.get(value, -1)
        return np.asarray(_COMPARE[comparison](self.values, number), dtype=np.bool_)

    def find(self, wanted: Iterable[FeatureValue]) -> NDArray[np.bool_]:
        """Return which entries have one of some values, shape (M,)."""
        numbers = list(wanted) if self.codes is None else [self.codes.get(one, -1) for one in wanted]
        return np.asarray(self.values == numbers[0] if len(numbers) == 1 else np.isin(self.values, np.array(numbers)))

    def among(self, places: NDArray[np.integer]) -> Memberships:
        """Return the entries of some items, as numbers of these, and their codes."""
        items, entries = self._entries_of(places)
        return Memberships(items, self.values[entries].astype(np.intp))

    def select(self, places: NDArray[np.integer]) -> _Column:
        """Return the column of some items, by their numbers among these; codes stay as they are."""
        items, entries = self._entries_of(places)
        empty = None if self.empty is None else np.flatnonzero(np.isin(places, self.empty)).astype(np.int32)
        return self._replace(places=items.astype(np.int32), values=self.values[entries], empty=empty)

    def change(self, places: NDArray[np.int32], new: _Entries) -> _Column:
        """Return the column after items at some places changed, ascending: what these have then."""
        empty = None if self.empty is None else _joined(self.empty, ~np.isin(self.empty, places), new.empty)[0]
        codes = None if self.codes is None else dict(self.codes)
        values = new.values if codes is None else [codes.setdefault(one, len(codes)) for one in new.values]
        at, added = np.array(new.places, dtype=np.int32), np.array(values, dtype=self.values.dtype)
        entries = self._entries_of(places)[1]
        are_same = np.array_equal(self.places[entries], at) and self.values[entries].tobytes() == added.tobytes()
        if are_same and (empty is None or self.empty is None or np.array_equal(empty, self.empty)):
            return self
        stay = np.ones(len(self.places), dtype=np.bool_)
        stay[entries] = False
        all_places, order = _joined(self.places, stay, at)
        numbers = np.concatenate([self.values[stay], added])[order]
        if codes is None:
            return _Column(all_places, numbers, None, empty)
        return _Column(all_places, *_in_order(numbers, codes), empty)

    def entries(self) -> Iterator[tuple[int, FeatureValue]]:
        """Yield the place and the value of each item that has one; those that have a set of no labels come last."""
        named = None if self.codes is None else list(self.codes)
        numbers = self.values.tolist()
        values = numbers if named is None else [named[code] for code in numbers]
        if self.empty is None:
            yield from zip(self.places.tolist(), values, strict=True)
            return
        places, begin = np.unique(self.places, return_index=True)
        bounds = [*begin.tolist(), len(values)]
        for number, place in enumerate(places.tolist()):
            yield place, tuple(values[bounds[number] : bounds[number + 1]])
        yield from ((place, ()) for place in self.empty.tolist())

    def _entries_of(self, places: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return which entries some items have: for each a number of these items, and where it stands."""
        wanted = places.astype(np.int32)  # else the column is what is converted
        begin = np.searchsorted(self.places, wanted)
        counts = np.searchsorted(self.places, wanted, side="right") - begin
        items = np.repeat(np.arange(len(places)), counts)
        return items, np.arange(len(items)) + np.repeat(begin - np.cumsum(counts) + counts, counts)


def _joined(
    places: NDArray[np.int32], stay: NDArray[np.bool_], added: Sequence[int] | NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return places that stay and those that are added, ascending, and the order that sorts them."""
    joined = np.concatenate([places[stay], np.array(added, dtype=np.int32)])
    order = np.argsort(joined, kind="stable")
    return joined[order], order


def _in_order(
    numbers: NDArray[np.integer], codes: Mapping[FeatureValue, int]
) -> tuple[NDArray[np.int32], Mapping[FeatureValue, int]]:
    """Return codes numbered as they first appear, without those that do not, and the values by them."""
    first = np.full(len(codes), len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of equal codes the last one that is written counts
    order, n_used = np.argsort(first, kind="stable"), int(np.count_nonzero(first < len(numbers)))
    renumbered = np.empty(len(codes), dtype=np.int32)
    renumbered[order] = np.arange(len(codes))
    values = list(codes)
    return renumbered[numbers], {values[old]: new for new, old in enumerate(order[:n_used].tolist())}


class ItemTable:
    """Items by place, with what rules may ask for of their features: all but vectors.

    Parameters
    ----------
    index
        Which item is at which place.
    columns
        What they have of each feature that any has, in the order of the features' names; for `change` alone.
    """

    def __init__(self, index: IdIndex, columns: Mapping[str, _Column] | None = None) -> None:
        self._index, self._columns = index, columns or {}

    @classmethod
    def of(cls, item_ids: Sequence[str | None], features: Sequence[Features]) -> ItemTable:
        """Return the table of items, None at a place where none is, and the features of each place, by one schema."""
        index = IdIndex.of(item_ids)
        return cls(index).change(index, np.arange(index.n_places), features)

    def __len__(self) -> int:
        return self._index.n_places

    @property
    def nbytes(self) -> int:
        """How much memory it takes beside its index."""
        return sum(column.nbytes for column in self._columns.values())

    def change(self, index: IdIndex, places: NDArray[np.integer], features: Sequence[Features]) -> ItemTable:
        """Return the table after items changed; columns in which none differs are the same arrays.

        Parameters
        ----------
        index
            That of the items then.
        places
            At which items changed, came or went: distinct, shape (c,).
        features
            What each of these is like then, by the schema of the others.
        """
        order = np.argsort(places)
        new = defaultdict[str, _Entries](_Entries)
        for number in order.tolist():
            place = int(places[number])
            for name, value in features[number].values:
                if not _is_vector(value):
                    new[name].add(place, value)
        at, columns = places[order].astype(np.int32), {}
        for name in sorted(self._columns.keys() | new.keys()):
            added = new[name]
            column = (self._columns.get(name) or _Column.of_none(added)).change(at, added)
            if len(column.places) or (column.empty is not None and len(column.empty)):
                columns[name] = column
        return ItemTable(index, columns)

    def select(self, places: NDArray[np.integer]) -> ItemTable:
        """Return the table of items at some places, in their order: what it is asked costs by these alone."""
        index = IdIndex.of(self._index.ids_at(places))
        return ItemTable(index, {name: column.select(places) for name, column in self._columns.items()})

    def features(self) -> Mapping[int, Features]:
        """Return the features of each item that has any, by its place; they are made anew each time."""
        values: dict[int, list[tuple[str, FeatureValue]]] = {}
        for name, column in self._columns.items():
            for place, value in column.entries():
                values.setdefault(place, []).append((name, value))
        return {place: Features(tuple(pairs)) for place, pairs in values.items()}

    def features_at(self, place: int) -> Features:
        """Return the features of an item."""
        return self.select(np.array([place])).features().get(0, NO_FEATURES)

    def places_of(self, item_ids: Sequence[str]) -> NDArray[np.intp]:
        """Return the places of those items that there are, ascending."""
        places = self._index.find(item_ids)
        return np.sort(places[places != NOWHERE]).astype(np.intp)

    def meet(self, condition: Condition) -> NDArray[np.bool_]:
        """Return which items meet a condition that was parsed by their schema, shape (n,)."""
        match condition:
            case Compared(name, comparison, value):
                met = self._find(name, lambda column: column.compare(comparison, value))
            case Within(name, values):
                met = self._find(name, lambda column: column.find(values))
            case Has(name, label):
                met = self._find(name, lambda column: column.find([label]))
            case Not(of):
                met = ~self.meet(of)
            case All(several):
                met = reduce(np.logical_and, map(self.meet, several))
            case Any(several):
                met = reduce(np.logical_or, map(self.meet, several))
        return met

    def groups_of(self, feature: str, value: str | None, places: NDArray[np.intp]) -> Memberships:
        """Return which of some items have a value or a label; without one, which value or labels each of them has."""
        column = self._columns.get(feature)
        if column is None or column.codes is None:
            return Memberships(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp))
        found = column.among(places)
        if value is None:
            return found
        items = found.items[found.groups == column.codes.get(value, -1)]
        return Memberships(items, np.zeros_like(items))

    def have_any(self, feature: str, values: Sequence[str]) -> NDArray[np.bool_]:
        """Return which items have one of some values, or labels, of a categorical feature, shape (n,)."""
        return self._find(feature, lambda column: column.find(values))

    def values_of(self, feature: str, item_ids: Sequence[str]) -> Mapping[str, Sequence[FeatureValue]]:
        """Return the value, or the labels, of those of some items that have any of a feature, by their ids."""
        column, places = self._columns.get(feature), self._index.find(item_ids)
        if column is None or column.codes is None:
            return {}
        known, named = np.flatnonzero(places != NOWHERE), list(column.codes)
        found = column.among(places[known])
        values: dict[str, list[FeatureValue]] = {}
        for number, code in zip(known[found.items].tolist(), found.groups.tolist(), strict=True):
            values.setdefault(item_ids[number], []).append(named[code])
        return values

    def _find(self, name: str, test: Callable[[_Column], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return which items have an entry of a feature that passes a test, shape (n,)."""
        found, column = np.zeros(len(self), dtype=np.bool_), self._columns.get(name)
        if column is not None:
            found[column.places[test(column)]] = True
        return found


def _is_vector(value: FeatureValue) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], float)
