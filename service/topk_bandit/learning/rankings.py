"""Top-k rankings as arrays of item indices, best first."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from topk_bandit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "Rankings",
    "all_rankings",
    "full_neighbourhood",
    "log_count",
    "random_rankings",
    "validated_rankings",
]

Rankings: TypeAlias = NDArray[np.int32]
"""Shape (A, k): one ranking a row."""


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
    array = np.asarray(rankings)
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2 or array.shape[1] != slate_size:
        raise InvalidArgumentError(field, f"expected shape (A, {slate_size}), got {np.shape(rankings)}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(field, f"expected integers, got {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= n_items):
        raise InvalidArgumentError(field, f"expected item indices in [0, {n_items})")
    ordered = np.sort(array, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InvalidArgumentError(field, "an item occurs twice in a ranking")
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
    drawn = [rng.choice(len(items), size=slate_size, replace=False) for _ in range(count)]
    order = np.array(drawn, dtype=np.intp).reshape(count, slate_size)
    return np.ascontiguousarray(np.asarray(items)[order], dtype=np.int32)


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
