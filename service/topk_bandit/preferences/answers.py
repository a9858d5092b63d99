"""What people answered, as flat arrays.

A full ranking, the choice of one from several, and the better of a pair are one kind of answer: some *places* at the
top are given out in order, and the items left over are below them in no order. A ranking of m items is its m - 1
successive choices. Two items can't share a place: `tiers` has answers with ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

__all__ = ["IntArray", "Orderings", "Ratings"]

IntArray = NDArray[np.int64]


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

    Raises
    ------
    InvalidArgumentError
        Naming ``starts`` or ``places``: they do not cut the items into answers of at least two, or give out no place
        or the last one.
    """

    items: IntArray
    starts: IntArray
    places: IntArray

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together: compiled loops rely on it."""
        whole = len(self.starts) == len(self.places) + 1 and self.starts[0] == 0 and self.starts[-1] == len(self.items)
        lengths = np.diff(self.starts)
        if not whole or (lengths < 2).any():
            raise InvalidArgumentError("starts", "expected to cut the items into answers of at least two")
        if (self.places < 1).any() or (self.places >= lengths).any():
            raise InvalidArgumentError("places", "expected at least 1, and fewer than the answer has items")

    @classmethod
    def from_rankings(cls, rankings: Iterable[Sequence[int]], *, n_items: int) -> Orderings:
        """Return full rankings, best first, of at least two items each; they may differ in length.

        Raises
        ------
        InvalidArgumentError
            Naming ``rankings[l]``: fewer than two items, an item twice, no integer, or not in [0, n_items).
        """
        items, starts = _flatten(list(rankings), "rankings", n_items=n_items)
        return cls(items, starts, np.diff(starts) - 1)

    @classmethod
    def from_choices(cls, chosen: Sequence[int], shown: Sequence[Sequence[int]], *, n_items: int) -> Orderings:
        """Return choices of one item from the items shown, the chosen one being among them.

        Raises
        ------
        InvalidArgumentError
            Naming ``shown[l]``, as for rankings, or ``chosen``, ``chosen[l]``: another number of them, or not shown.
        """
        if len(chosen) != len(shown):
            raise InvalidArgumentError("chosen", f"expected {len(shown)} items, got {len(chosen)}")
        items, starts = _flatten(list(shown), "shown", n_items=n_items)
        answers = np.repeat(np.arange(len(shown)), np.diff(starts))
        found = np.flatnonzero(items == np.asarray(chosen)[answers]) if len(shown) else np.zeros(0, dtype=np.int64)
        missed = np.ones(len(shown), dtype=np.bool_)
        missed[answers[found]] = False
        if missed.any():
            first = int(np.argmax(missed))
            raise InvalidArgumentError(f"chosen[{first}]", f"item {chosen[first]} was not shown")
        order = np.arange(len(items))
        # Within each answer the chosen item comes first, and those before it follow.
        order[found] = starts[:-1] - 1
        ordered = items[np.lexsort((order, answers))]
        return cls(ordered, starts, np.ones(len(shown), dtype=np.int64))

    @classmethod
    def from_pairs(cls, pairs: ArrayLike, *, n_items: int) -> Orderings:
        """Return comparisons of two items, shape (A, 2), the better one first.

        Raises
        ------
        InvalidArgumentError
            Naming ``pairs`` or ``pairs[l]``: wrong shape, an item against itself, no integer, or not in [0, n_items).
        """
        try:
            array = np.asarray(pairs)
        except ValueError:
            raise InvalidArgumentError("pairs", "expected integers of shape (A, 2)") from None
        if array.size == 0:
            array = np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2:
            raise InvalidArgumentError("pairs", f"expected integers of shape (A, 2), got {array.dtype} {array.shape}")
        starts = 2 * np.arange(len(array) + 1, dtype=np.int64)
        items = _check_items(array.reshape(-1), starts, "pairs", n_items=n_items)
        return cls(items, starts, np.ones(len(array), dtype=np.int64))

    @property
    def n_answers(self) -> int:
        """A."""
        return len(self.places)

    def join(self, later: Orderings) -> Orderings:
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
    raters
        The number of the one that gave each rating, from 0 on, shape (A,); -1 for one that is not named. None: nobody
        is.
    """

    items: IntArray
    values: NDArray[np.float64]
    raters: IntArray | None = None

    @classmethod
    def of(cls, items: Sequence[int], values: Sequence[float], *, n_items: int) -> Ratings:
        """Return ratings; an item may be rated any number of times.

        Raises
        ------
        InvalidArgumentError
            Naming ``items[l]``: no integer, or not in [0, n_items). Naming ``values`` or ``values[l]``: another number
            of them, or not finite.
        """
        if len(items) != len(values):
            raise InvalidArgumentError("values", f"expected {len(items)} numbers, got {len(values)}")
        numbers, wrong_item = _read_indices(items, n_items=n_items)
        if wrong_item is not None:
            raise InvalidArgumentError(f"items[{wrong_item}]", _describe_expected(items[wrong_item], n_items))
        try:
            rated = np.asarray(values, dtype=np.float64).reshape(len(items))
        except (TypeError, ValueError):
            raise InvalidArgumentError("values", "expected numbers") from None
        wrong = np.flatnonzero(~np.isfinite(rated))
        if len(wrong):
            raise InvalidArgumentError(f"values[{wrong[0]}]", f"expected a finite number, got {rated[wrong[0]]}")
        return cls(numbers, rated)


def _flatten(orders: Sequence[Sequence[int]], field: str, *, n_items: int) -> tuple[IntArray, IntArray]:
    """Return the items of all answers, and where each begins."""
    lengths = np.array([len(order) for order in orders], dtype=np.int64)
    short = np.flatnonzero(lengths < 2)
    if len(short):
        raise InvalidArgumentError(f"{field}[{short[0]}]", f"expected at least 2 items, got {lengths[short[0]]}")
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    return _check_items(list(chain.from_iterable(orders)), starts, field, n_items=n_items), starts


def _check_items(values: Sequence[int] | NDArray[Any], starts: IntArray, field: str, *, n_items: int) -> IntArray:
    """Return the items of all answers as indices, no index twice in an answer."""
    items, wrong = _read_indices(values, n_items=n_items)
    answers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if wrong is not None:
        raise InvalidArgumentError(f"{field}[{answers[wrong]}]", _describe_expected(values[wrong], n_items))
    order = np.lexsort((items, answers))
    twice = (items[order][1:] == items[order][:-1]) & (answers[1:] == answers[:-1])
    if twice.any():
        first = int(np.argmax(twice))
        problem = f"item {items[order][first]} occurs twice (items can't share a place)"
        raise InvalidArgumentError(f"{field}[{answers[first]}]", problem)
    return items


def _read_indices(values: Sequence[int] | NDArray[Any], *, n_items: int) -> tuple[IntArray, int | None]:
    """Return `values` as indices, and the position of the first that is no item, if there is one."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.int64), None
    array = _to_array(values)
    if np.issubdtype(array.dtype, np.integer):
        wrong = (array < 0) | (array >= n_items)
    else:
        known = [isinstance(value, int | np.integer) and 0 <= value < n_items for value in values]
        wrong = ~np.array(known, dtype=np.bool_)
    if wrong.any():
        return np.zeros(0, dtype=np.int64), int(np.argmax(wrong))
    return np.ascontiguousarray(array, dtype=np.int64), None


def _to_array(values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # lists within: ties, perhaps
        return np.zeros(0, dtype=np.object_)


def _describe_expected(item: object, n_items: int) -> str:
    return f"expected an item in [0, {n_items}), got {item}"
