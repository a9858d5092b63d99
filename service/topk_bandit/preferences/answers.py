"""What people answered, as flat arrays.

A full ranking, the choice of one from several, and the better of a pair are one kind of answer: some *places* at the
top are given out in order, and the items left over are below them in no order. A ranking of m items is its m - 1
successive choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike

__all__ = ["Orderings", "Ratings"]

IntArray = NDArray[np.int64]
_Places: TypeAlias = "Callable[[int], int]"


@dataclass(frozen=True, slots=True, eq=False)
class Orderings:
    """Answers that order items: rankings, choices and pairs, mixed as they come.

    Attributes
    ----------
    items
        Indices of the items of all answers, one answer after the other, best first within each; shape (E,).
    starts
        Answer l is ``items[starts[l] : starts[l + 1]]``; shape (A + 1,).
    places
        How many of an answer's items are in order at its top, the rest being below them in no order: 1 for a choice,
        one less than its items for a full ranking; shape (A,).
    """

    items: IntArray
    starts: IntArray
    places: IntArray

    @classmethod
    def from_rankings(cls, rankings: Iterable[Sequence[int]], *, n_items: int) -> Orderings:
        """Return full rankings, best first, of at least two items each; they may differ in length.

        Raises
        ------
        InvalidArgumentError
            Naming ``rankings[l]``: fewer than two items, an item twice, or an index outside [0, n_items).
        """
        return cls._of("rankings", list(rankings), lambda length: length - 1, n_items=n_items)

    @classmethod
    def from_choices(cls, chosen: Sequence[int], shown: Sequence[Sequence[int]], *, n_items: int) -> Orderings:
        """Return choices of one item from the items shown, the chosen one being among them.

        Raises
        ------
        InvalidArgumentError
            Naming ``shown[l]``, as for rankings, or ``chosen[l]``: it was not shown.
        """
        if len(chosen) != len(shown):
            raise InvalidArgumentError("chosen", f"expected {len(shown)} items, got {len(chosen)}")
        orders = []
        for number, (best, others) in enumerate(zip(chosen, shown, strict=True)):
            if best not in others:
                raise InvalidArgumentError(f"chosen[{number}]", f"item {best} was not shown")
            rest = list(others)
            rest.remove(best)
            orders.append([best, *rest])
        return cls._of("shown", orders, lambda _: 1, n_items=n_items)

    @classmethod
    def from_pairs(cls, pairs: ArrayLike, *, n_items: int) -> Orderings:
        """Return comparisons of two items, shape (A, 2), the better one first.

        Raises
        ------
        InvalidArgumentError
            Naming ``pairs`` or ``pairs[l]``: wrong shape, an item against itself, or an index outside [0, n_items).
        """
        array = np.asarray(pairs)
        if array.size == 0:
            array = np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidArgumentError("pairs", f"expected integers of shape (A, 2), got {array.dtype} {array.shape}")
        out = ((array < 0) | (array >= n_items)).any(axis=1)
        for wrong, problem in ((out, f"expected items in [0, {n_items})"), (array[:, 0] == array[:, 1], "one item")):
            if wrong.any():
                raise InvalidArgumentError(f"pairs[{int(np.argmax(wrong))}]", problem)
        count = len(array)
        items = np.ascontiguousarray(array.reshape(-1), dtype=np.int64)
        return cls(items, 2 * np.arange(count + 1, dtype=np.int64), np.ones(count, dtype=np.int64))

    @classmethod
    def _of(cls, field: str, orders: Sequence[Sequence[int]], places: _Places, *, n_items: int) -> Orderings:
        for number, order in enumerate(orders):
            _check(order, f"{field}[{number}]", n_items=n_items)
        lengths = np.array([len(order) for order in orders], dtype=np.int64)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        items = np.array([item for order in orders for item in order], dtype=np.int64)
        return cls(items, starts, np.array([places(len(order)) for order in orders], dtype=np.int64))

    @property
    def n_answers(self) -> int:
        """A."""
        return len(self.places)

    def joined(self, later: Orderings) -> Orderings:
        """Return these answers and then others."""
        return Orderings(
            np.concatenate([self.items, later.items]),
            np.concatenate([self.starts, self.starts[-1] + later.starts[1:]]),
            np.concatenate([self.places, later.places]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """Numbers that people gave to items.

    Attributes
    ----------
    items
        Index of the item of each rating, shape (A,).
    values
        The ratings, finite, shape (A,).
    """

    items: IntArray
    values: NDArray[np.float64]

    @classmethod
    def of(cls, items: Sequence[int], values: Sequence[float], *, n_items: int) -> Ratings:
        """Return ratings; an item may be rated any number of times.

        Raises
        ------
        InvalidArgumentError
            Naming ``items[l]`` or ``values[l]``: an index outside [0, n_items), or a number that is not finite.
        """
        if len(items) != len(values):
            raise InvalidArgumentError("values", f"expected {len(items)} numbers, got {len(values)}")
        for number, (item, value) in enumerate(zip(items, values, strict=True)):
            if not 0 <= item < n_items:
                raise InvalidArgumentError(f"items[{number}]", f"expected an item in [0, {n_items}), got {item}")
            if not np.isfinite(value):
                raise InvalidArgumentError(f"values[{number}]", f"expected a finite number, got {value}")
        return cls(np.asarray(items, dtype=np.int64), np.asarray(values, dtype=np.float64))


def _check(order: Sequence[int], field: str, *, n_items: int) -> None:
    if len(order) < 2:
        raise InvalidArgumentError(field, f"expected at least 2 items, got {len(order)}")
    for item in order:
        if not 0 <= item < n_items:
            raise InvalidArgumentError(field, f"expected items in [0, {n_items}), got {item}")
    if len(set(order)) < len(order):
        raise InvalidArgumentError(field, "an item occurs twice")
