"""The best slate of any function of slates: exact for sums over items, else the best end of climbs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.learning.rankings import Rankings

__all__ = ["BestSlate", "best_order", "climb"]

FloatArray = NDArray[np.float64]


class BestSlate(NamedTuple):
    """A slate (k,) and its value."""

    ranking: NDArray[np.int32]
    value: float


def best_order(gains: FloatArray, slate_size: int) -> NDArray[np.intp]:
    """Return the places of the largest gains, the largest first: the best slate if upper positions weigh more."""
    most = min(slate_size, len(gains) - 1)
    places = np.argpartition(-gains, most)[:slate_size]
    return places[np.argsort(-gains[places], kind="stable")]


def climb(values: Callable[[Rankings], FloatArray], starts: Rankings, *, n_items: int) -> BestSlate:
    """Return the best end of climbs: no replacement of one item and no exchange of two positions is better.

    Parameters
    ----------
    values
        Of rankings (A, k), shape (A,).
    starts
        Shape (S, k).
    """
    best = BestSlate(starts[0], -np.inf)
    for start in starts:
        end = _climb_from(values, start, n_items)
        if end.value > best.value:
            best = end
    return best


def _climb_from(values: Callable[[Rankings], FloatArray], start: NDArray[np.int32], n_items: int) -> BestSlate:
    at = BestSlate(start, float(values(start[None])[0]))
    while True:
        rankings = _neighbours(at.ranking, n_items)
        found = values(rankings)
        best = int(np.argmax(found))
        if found[best] <= at.value + 1e-12 * abs(at.value):
            return at
        at = BestSlate(rankings[best], float(found[best]))


def _neighbours(ranking: NDArray[np.int32], n_items: int) -> Rankings:
    k = len(ranking)
    outside = np.setdiff1d(np.arange(n_items, dtype=np.int32), ranking)
    replaced = np.repeat(ranking[None], k * len(outside), axis=0)
    replaced[np.arange(len(replaced)), np.repeat(np.arange(k), len(outside))] = np.tile(outside, k)
    return np.concatenate([replaced, ranking[_exchanges(k)]])


@lru_cache(maxsize=16)
def _exchanges(k: int) -> NDArray[np.intp]:
    first, second = np.triu_indices(k, 1)
    orders = np.tile(np.arange(k), (len(first), 1))
    rows = np.arange(len(first))
    orders[rows, first], orders[rows, second] = second, first
    return orders
