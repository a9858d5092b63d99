"""How far an order of items is from the true one.

Orders are given by numbers, one an item, the larger the better: utilities, or ranks with a minus sign. Several lists
can be compared at once: items are the last axis, and all others are lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.compiled.inversions import count_pairs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["kendall_tau_distance", "ndcg", "ranking_loss"]

FloatArray = NDArray[np.float64]


def kendall_tau_distance(first: ArrayLike, second: ArrayLike) -> FloatArray:
    """Return the number of item pairs that two orders put differently, for each list, in O(n log n).

    A pair that is tied in one order and not in the other counts one half, which is what breaking ties at random would
    give on average; a pair that is tied in both does not count. So it is a metric.

    The ranking loss of dope.md, Eq. 3, is its sum over lists, and what its figures show is the mean over lists.

    Parameters
    ----------
    first, second
        Shape (..., n).

    Returns
    -------
    NDArray
        Shape (...).

    Raises
    ------
    InvalidArgumentError
        Naming ``first`` or ``second``: not of one shape, or not finite.
    """
    pairs = _count_pairs(*_validate_both(first, second, ("first", "second")))
    return pairs.reversed + 0.5 * (pairs.tied_first + pairs.tied_second)


def ranking_loss(utilities: ArrayLike, estimated: ArrayLike) -> FloatArray:
    """Return the share of item pairs that an estimate puts in the wrong order, for each list, in [0, 1].

    That is dopewolfe.md, Eq. 2. A pair whose estimates are tied is wrong by one half; a pair whose utilities are tied
    has no wrong order and does not count. With no pair that counts the loss is 0.

    Parameters
    ----------
    utilities
        The true ones, shape (..., n).
    estimated
        Shape (..., n).

    Returns
    -------
    NDArray
        Shape (...).

    Raises
    ------
    InvalidArgumentError
        Naming ``utilities`` or ``estimated``: not of one shape, or not finite.
    """
    pairs = _count_pairs(*_validate_both(utilities, estimated, ("utilities", "estimated")))
    return np.asarray((pairs.reversed + 0.5 * pairs.tied_second) / np.maximum(pairs.untied_first, 1.0))


def ndcg(gains: ArrayLike, estimated: ArrayLike, *, depth: int | None = None) -> FloatArray:
    """Return the normalised discounted cumulative gain of ordering items by an estimate, for each list, in [0, 1].

    DCG = sum of gain / log2(1 + rank) over ranks 1 to `depth`, divided by that of the best order. Items whose estimates
    are tied share their gains, which is what breaking ties at random would give on average. Without a gain above 0
    every order is the best: 1.

    Parameters
    ----------
    gains
        For the items, not negative, shape (..., n): relevance itself for linear gains; 2^relevance - 1, or
        exp(relevance / temperature), for exponential ones.
    estimated
        Shape (..., n).
    depth
        How many ranks count; None: all.

    Returns
    -------
    NDArray
        Shape (...).

    Raises
    ------
    InvalidArgumentError
        Naming ``gains``, ``estimated`` or ``depth``: not of one shape, not finite, negative, or a depth below 1.
    """
    true, guessed = _validate_both(gains, estimated, ("gains", "estimated"))
    if (true < 0.0).any():
        raise InvalidArgumentError("gains", "expected none below 0")
    if depth is not None and depth < 1:
        raise InvalidArgumentError("depth", f"expected at least 1, got {depth}")
    n = true.shape[-1]
    discounts = np.where(np.arange(n) < (n if depth is None else depth), 1.0 / np.log2(np.arange(n) + 2.0), 0.0)
    best = np.sort(true, axis=-1)[..., ::-1] @ discounts
    reached = np.sum(true * _share_discounts(guessed, discounts), axis=-1)
    return np.where(best > 0.0, reached / np.where(best > 0.0, best, 1.0), 1.0)


class _Pairs(NamedTuple):
    """How many pairs of items of each list are what, each of shape (...)."""

    reversed: FloatArray
    tied_first: FloatArray
    tied_second: FloatArray
    untied_first: FloatArray


def _count_pairs(first: FloatArray, second: FloatArray) -> _Pairs:
    """Return counts of pairs; `tied_*` are tied in that order alone."""
    order = np.lexsort((second, first), axis=-1)
    sorted_first, sorted_second = np.take_along_axis(first, order, -1), np.take_along_axis(second, order, -1)
    lists, n = first.shape[:-1], first.shape[-1]
    counts = count_pairs(sorted_first.reshape(-1, n), sorted_second.reshape(-1, n)).astype(np.float64)
    return _Pairs(*(column.reshape(lists) for column in counts.T))


def _share_discounts(estimated: FloatArray, discounts: FloatArray) -> FloatArray:
    """Return the discount of each item's rank, the mean of them for items that are tied, shape (..., n)."""
    n = estimated.shape[-1]
    rows = estimated.reshape(-1, n)
    order = np.argsort(-rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, 1)
    new = np.ones(rows.shape, dtype=np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = np.cumsum(new.reshape(-1)) - 1
    shared = np.bincount(group, weights=np.tile(discounts, len(rows))) / np.bincount(group)
    found = np.empty(rows.shape)
    np.put_along_axis(found, order, shared[group].reshape(rows.shape), 1)
    return found.reshape(estimated.shape)


def _validate_both(first: ArrayLike, second: ArrayLike, fields: tuple[str, str]) -> tuple[FloatArray, FloatArray]:
    one, other = _validate(first, fields[0]), _validate(second, fields[1])
    if one.shape != other.shape:
        raise InvalidArgumentError(fields[1], f"expected shape {one.shape}, got {other.shape}")
    return one, other


def _validate(values: ArrayLike, field: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, "expected numbers") from None
    if array.ndim < 1 or array.shape[-1] < 1:
        raise InvalidArgumentError(field, f"expected at least one item, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidArgumentError(field, "expected finite numbers")
    return array
