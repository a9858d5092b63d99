"""What a bandit's items are like, as rules ask, and what its rules leave of them: worked out once for all requests.

Rules ask for features as the shop sent them: what learning keeps of them is encoded, and clamps what is odd.
"""

from __future__ import annotations

import sys
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from topk_bandit.bandits.id_index import NO_IDS
from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.learning.item_table import ItemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from typing import TypeVar

    from topk_bandit.bandits.id_index import IdIndex
    from topk_bandit.domain.bandits import Item, ItemsChanged

    T = TypeVar("T")

__all__ = ["NO_CATALOGUE", "Catalogue", "asked_features", "changed_features"]

VALUE_BYTES = 64
"""About what a value takes in memory beside its text."""

_NOTHING = object()

MOST_KEPT = 4
"""So many results are kept: of the rules that a bandit has, with those of slates that pay for promises, and of those
that it had while others were decided."""


class Catalogue:
    """The items of a bandit with their features, and what was worked out of them; no rule asks for vectors.

    A change of items makes another one. What is kept is a function of the items and its key, so that it makes no
    difference which thread worked it out, nor when.

    Parameters
    ----------
    index
        Which item is at which place.
    features
        Those of each item that has any, by its id.
    """

    def __init__(self, index: IdIndex, features: Mapping[str, Features]) -> None:
        self.features = features
        self._index = index
        self._kept: dict[Hashable, object] = {}
        self._locks: dict[Hashable, Lock] = {}

    @cached_property
    def table(self) -> ItemTable:
        """The items by place, as rules ask for them."""
        ids, of_none = self._index.ids, NO_FEATURES
        return ItemTable(ids, [self.features.get(one, of_none) if one else of_none for one in ids])

    @cached_property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        values = (value for features in self.features.values() for _, value in features.values)
        return sum(VALUE_BYTES + sys.getsizeof(value) for value in values)

    def has(self, key: Hashable) -> bool:
        """Return whether something is kept by this key."""
        return key in self._kept

    def keep(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what is kept by this key, or else work it out: once, whoever asks meanwhile."""
        known = self._kept.get(key, _NOTHING)
        if known is _NOTHING:
            # Of each key its own: whoever asks for what is quickly found does not wait for what takes long.
            with self._locks.setdefault(key, Lock()):
                known = self._kept.get(key, _NOTHING)
                if known is _NOTHING:
                    known = work()
                    for other in list(self._kept)[: 1 - MOST_KEPT]:
                        self._kept.pop(other, None)
                    self._kept[key] = known
            self._locks.pop(key, None)
        return known  # type: ignore[return-value]  # the key says of which kind it is


def asked_features(items: Iterable[Item]) -> dict[str, Features]:
    """Return the features that rules may ask for of each item that has any, by its id."""
    return {item.item_id: asked for item in items if (asked := _asked_for(item.features)).values}


def changed_features(features: Mapping[str, Features], change: ItemsChanged) -> Mapping[str, Features]:
    """Return the features of items after a change, whose features are of the bandit's schema."""
    if not (features or any(item.features.values for item in change.upserted)):
        return features
    gone = {*change.retired, *(item.item_id for item in change.upserted)}
    kept = {item_id: one for item_id, one in features.items() if item_id not in gone}
    return kept | asked_features(change.upserted)


def _asked_for(features: Features) -> Features:
    asked = tuple((name, value) for name, value in features.values if not _is_vector(value))
    return features if len(asked) == len(features.values) else Features(asked)


def _is_vector(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], float)


NO_CATALOGUE = Catalogue(NO_IDS, {})
"""That of no items."""
