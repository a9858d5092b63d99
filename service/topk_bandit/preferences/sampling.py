"""Answers of people whose utilities are known: rankings, choices and pairs from Plackett-Luce, and noisy ratings.

Sorting items by their utility plus independent standard Gumbel noise gives a ranking from Plackett-Luce, and its first
item a choice (dope.md, Eq. 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.utilities import validate_weights

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["draw_choices", "draw_pairs", "draw_rankings", "draw_ratings"]

IntArray = NDArray[np.int64]


def draw_rankings(utilities: ArrayLike, shown: ArrayLike, *, rng: np.random.Generator) -> Orderings:
    """Return a full ranking of each list of items shown.

    Parameters
    ----------
    utilities
        For all items, shape (n,).
    shown
        Items of each list, none twice, shape (A, K), K at least 2; one answer a row, so repeat a list to ask again.

    Raises
    ------
    InvalidArgumentError
        Naming ``utilities`` or ``shown``: not finite, of another shape, an unknown item, or an item twice in a list.
    """
    values = validate_weights(utilities, field="utilities")
    lists = _validate_lists(shown, len(values))
    keys = values[lists] + rng.gumbel(size=lists.shape)
    ordered = np.take_along_axis(lists, np.argsort(-keys, axis=1), axis=1)
    count, length = lists.shape
    starts = length * np.arange(count + 1, dtype=np.int64)
    return Orderings(ordered.reshape(-1), starts, np.full(count, length - 1, dtype=np.int64))


def draw_choices(utilities: ArrayLike, shown: ArrayLike, *, rng: np.random.Generator) -> Orderings:
    """Return a choice of one item from each list of items shown; parameters and errors as for `draw_rankings`."""
    ordered = draw_rankings(utilities, shown, rng=rng)
    return Orderings(ordered.items, ordered.starts, np.ones_like(ordered.places))


def draw_pairs(utilities: ArrayLike, shown: ArrayLike, *, rng: np.random.Generator) -> Orderings:
    """Return the better of each pair of items shown, shape (A, 2); otherwise as `draw_rankings`."""
    lists = np.asarray(shown)
    if lists.ndim != 2 or lists.shape[1] != 2:
        raise InvalidArgumentError("shown", f"expected shape (A, 2), got {lists.shape}")
    return draw_rankings(utilities, lists, rng=rng)


def draw_ratings(utilities: ArrayLike, items: ArrayLike, *, noise_variance: float, rng: np.random.Generator) -> Ratings:
    """Return a rating of each of `items`: its utility with normal noise (dope.md, Eq. 1).

    Parameters
    ----------
    items
        Of any shape; a list shown to be rated is a row. The ratings are in the order of its elements.

    Raises
    ------
    InvalidArgumentError
        Naming ``utilities``, ``items`` or ``noise_variance``: not finite, an unknown item, or a negative variance.
    """
    values = validate_weights(utilities, field="utilities")
    if not (np.isfinite(noise_variance) and noise_variance >= 0.0):
        raise InvalidArgumentError("noise_variance", f"expected a number of at least 0, got {noise_variance}")
    rated = _validate_items(items, "items", len(values)).reshape(-1)
    noise = np.sqrt(noise_variance) * rng.standard_normal(len(rated))
    return Ratings(rated, values[rated] + noise)


def _validate_lists(shown: ArrayLike, n_items: int) -> IntArray:
    lists = _validate_items(shown, "shown", n_items)
    if lists.ndim != 2 or lists.shape[1] < 2:
        raise InvalidArgumentError("shown", f"expected shape (A, K) with K at least 2, got {lists.shape}")
    ordered = np.sort(lists, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        raise InvalidArgumentError(f"shown[{int(np.argmax(twice))}]", "an item occurs twice")
    return lists


def _validate_items(items: ArrayLike, field: str, n_items: int) -> IntArray:
    array = np.asarray(items)
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(field, f"expected integers, got {array.dtype}")
    if array.size and not 0 <= array.min() <= array.max() < n_items:
        raise InvalidArgumentError(field, f"expected items in [0, {n_items})")
    return array.astype(np.int64)
