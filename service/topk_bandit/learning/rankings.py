"""Top-k rankings as arrays of item indices, best first."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning._layout import lay_out

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "NO_ITEMS",
    "Rankings",
    "all_rankings",
    "as_array",
    "full_neighbourhood",
    "log_count",
    "random_rankings",
    "validated_items",
    "validated_rankings",
]

Rankings: TypeAlias = NDArray[np.int32]
"""Shape (A, k): one ranking a row."""

NO_ITEMS: NDArray[np.int32] = np.empty(0, dtype=np.int32)
NO_ITEMS.setflags(write=False)


def as_array(values: ArrayLike, *, field: str) -> NDArray[Any]:
    """Return `values` as an array, or raise `InvalidArgumentError` for rows of different lengths and the like."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(field, f"is no array: {error}") from None


def validated_rankings(rankings: ArrayLike, *, n_items: int, slate_size: int, field: str = "rankings") -> Rankings:
    """Return `rankings` as a (A, k) int32 array of distinct item indices in [0, n_items).

    Parameters
    ----------
    rankings
        Shape (A, k), or (k,) for one ranking, of integers.
    field
        The name that an error gives to what is wrong.

    Raises
    ------
    InvalidArgumentError
        Wrong shape, not integers, an index out of range, or an item twice in a ranking.
    """
    array = as_array(rankings, field=field)
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2 or array.shape[1] != slate_size:
        raise InvalidArgumentError(field, f"expected shape (A, {slate_size}), got {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(field, f"expected integers, got {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= n_items):
        raise InvalidArgumentError(field, f"expected item indices in [0, {n_items})")
    ordered = np.sort(array, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InvalidArgumentError(field, "an item occurs twice in a ranking")
    return lay_out(array, np.int32)


def validated_items(items: ArrayLike, *, n_items: int, field: str = "items") -> NDArray[np.int32]:
    """Return `items` as an int32 array of distinct indices in [0, n_items), in ascending order as given.

    Raises
    ------
    InvalidArgumentError
        They are none of that.
    """
    array = as_array(items, field=field)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(field, f"expected a list of item indices, got shape {array.shape} of {array.dtype}")
    if array.size and (array[0] < 0 or array[-1] >= n_items or (array[1:] <= array[:-1]).any()):
        raise InvalidArgumentError(field, f"expected distinct indices in [0, {n_items}), in ascending order")
    return np.ascontiguousarray(array, dtype=np.int32)


def log_count(n_items: int, slate_size: int) -> float:
    """Return log(n! / (n-k)!), the logarithm of the number of rankings of k out of n items."""
    return float(gammaln(n_items + 1) - gammaln(n_items - slate_size + 1))


def random_rankings(items: NDArray[np.integer], *, slate_size: int, count: int, rng: np.random.Generator) -> Rankings:
    """Draw `count` rankings independently and uniformly from all rankings of `slate_size` of `items`.

    Returns
    -------
    Shape (count, slate_size).
    """
    among_remaining = rng.integers(0, len(items) - np.arange(slate_size), size=(count, slate_size))
    drawn = np.empty((count, slate_size), dtype=np.intp)
    for position in range(slate_size):
        # The r-th of the items not drawn yet: step over each item drawn before, in ascending order.
        rank = among_remaining[:, position]
        for taken in np.sort(drawn[:, :position], axis=1).T:
            rank = rank + (rank >= taken)
        drawn[:, position] = rank
    return np.ascontiguousarray(np.asarray(items)[drawn], dtype=np.int32)


def all_rankings(items: NDArray[np.integer], *, slate_size: int) -> Rankings:
    """Return every ranking of `slate_size` of `items`, n!/(n-k)! rows: for small n and k."""
    return np.array(list(permutations(np.asarray(items).tolist(), slate_size)), dtype=np.int32).reshape(-1, slate_size)


def full_neighbourhood(ranking: NDArray[np.integer], items: NDArray[np.integer]) -> Rankings:
    """Return the paper's neighbours of one ranking (Appendix B.2), the ranking itself included.

    They are the permutations of the slate and of each slate with one item replaced: (n - k) k k! + k! rows.
    """
    shown = ranking.tolist()
    outside = [item for item in np.asarray(items).tolist() if item not in set(shown)]
    kept = combinations(shown, len(shown) - 1)
    slates = [tuple(shown), *((*rest, item) for rest in kept for item in outside)]
    return np.array([order for slate in slates for order in permutations(slate)], dtype=np.int32)
