"""What a bandit's items are like, as rules ask, and what its rules leave of them: worked out once for all requests.

Rules ask for features as the shop sent them: what learning keeps of them is encoded, and clamps what is odd.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from topk_bandit.learning.id_index import NO_IDS
from topk_bandit.learning.item_table import ItemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["NO_CATALOGUE", "Catalogue"]

_NOTHING = object()

MOST_KEPT = 4
"""So many results are kept: of the rules that a bandit has, with those of slates that pay for promises, and of those
that it had while others were decided."""


class Catalogue:
    """The items of a bandit with their features, and what was worked out of them; no rule asks for vectors.

    A change of items makes another one. What is kept is a function of the items and its key, so that it makes no
    difference which thread worked it out, nor when.

    Attributes
    ----------
    table
        The items by place, as rules ask for them.
    """

    def __init__(self, table: ItemTable) -> None:
        self.table = table
        self._kept: dict[Hashable, object] = {}
        self._locks: dict[Hashable, Lock] = {}

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


NO_CATALOGUE = Catalogue(ItemTable(NO_IDS))
"""That of no items."""
