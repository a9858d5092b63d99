"""Items and their features by columns, so that rules are asked of all items at once.

A table is made once for each version of the items, and serves all requests until the next. An item is named by its
place in it.
"""

from __future__ import annotations

from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.filters import All, Any, Compared, Has, Not, Within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import Features, FeatureValue
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


class Memberships(NamedTuple):
    """Which of some items are in which groups: an item's number, ascending, and a group that it is in, both (M,)."""

    items: NDArray[np.intp]
    groups: NDArray[np.intp]


class _Column(NamedTuple):
    """What items have of one feature: places of items, ascending, and a number or the code of a value, both (M,).

    An item with several labels is there once for each.
    """

    places: NDArray[np.intp]
    values: NDArray[np.float64] | NDArray[np.intp]
    codes: Mapping[FeatureValue, int] | None

    def compare(self, comparison: str, value: FeatureValue) -> NDArray[np.bool_]:
        """Return which entries compare so with a value, shape (M,)."""
        number = value if self.codes is None else self.codes.get(value, -1)
        return np.asarray(_COMPARE[comparison](self.values, number), dtype=np.bool_)

    def find(self, wanted: Iterable[FeatureValue]) -> NDArray[np.bool_]:
        """Return which entries have one of some values, shape (M,)."""
        numbers = list(wanted) if self.codes is None else [self.codes.get(one, -1) for one in wanted]
        return np.asarray(self.values == numbers[0] if len(numbers) == 1 else np.isin(self.values, np.array(numbers)))

    def among(self, places: NDArray[np.intp]) -> Memberships:
        """Return the entries of some items, as numbers of these, and their codes."""
        begin = np.searchsorted(self.places, places)
        counts = np.searchsorted(self.places, places, side="right") - begin
        items = np.repeat(np.arange(len(places)), counts)
        entries = np.arange(len(items)) + np.repeat(begin - np.cumsum(counts) + counts, counts)
        return Memberships(items, self.values[entries].astype(np.intp))


class ItemTable:
    """Items by place.

    Parameters
    ----------
    item_ids
        None at a place where no item is.
    features
        Of each of them, by one schema.
    """

    def __init__(self, item_ids: Sequence[str | None], features: Sequence[Features]) -> None:
        self._item_ids, self._features = item_ids, features

    def __len__(self) -> int:
        return len(self._item_ids)

    def places_of(self, item_ids: Iterable[str]) -> NDArray[np.intp]:
        """Return the places of those items that there are, ascending."""
        places = (self._places.get(item_id, -1) for item_id in item_ids)
        return np.array(sorted(place for place in places if place >= 0), dtype=np.intp)

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

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {item_id: place for place, item_id in enumerate(self._item_ids) if item_id is not None}

    @cached_property
    def _columns(self) -> Mapping[str, _Column]:
        entries: dict[str, tuple[list[int], list[FeatureValue]]] = {}
        for place, features in enumerate(self._features):
            for name, value in features.values:
                if isinstance(value, tuple) and value and isinstance(value[0], float):
                    # No rule asks for a vector.
                    continue
                places, values = entries.setdefault(name, ([], []))
                several: Sequence[FeatureValue] = value if isinstance(value, tuple) else (value,)
                places.extend([place] * len(several))
                values.extend(several)
        return {name: _column_of(*both) for name, both in entries.items()}

    def _find(self, name: str, test: Callable[[_Column], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return which items have an entry of a feature that passes a test, shape (n,)."""
        found, column = np.zeros(len(self), dtype=np.bool_), self._columns.get(name)
        if column is not None:
            found[column.places[test(column)]] = True
        return found


def _column_of(places: list[int], values: list[FeatureValue]) -> _Column:
    at = np.array(places, dtype=np.intp)
    if values and not isinstance(values[0], str | bool):
        return _Column(at, np.array(values, dtype=np.float64), None)
    codes: dict[FeatureValue, int] = {}
    coded = [codes.setdefault(value, len(codes)) for value in values]
    return _Column(at, np.array(coded, dtype=np.intp), codes)
