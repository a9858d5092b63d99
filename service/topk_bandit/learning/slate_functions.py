"""Functions of slates that are sums over positions and pairs of positions, and their maximisers.

::

    f(pi) = offset + sum_a P[a, pi_a] + sum_{a < b} D[a, b] W[pi_a, pi_b]

A draw from a Gaussian process with a Kendall kernel has this form at one context, and so has a draw from a linear model
of position-item and item-item indicators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.compiled import slate_functions
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.rankings import Rankings

__all__ = ["SlateFunction", "maximiser"]

FloatArray = NDArray[np.float64]

_ENUMERATED = 10_000
"""So many cells of the table of all slates are filled: 20^3 are."""

_RANDOM_STARTS = 48
_GIVEN_STARTS = 8
_MOST_SWEEPS = 64

_GAIN = 1e-12
"""Moves must gain more than rounding can, relative to the largest number of the function."""


@dataclass(frozen=True, slots=True, eq=False)
class SlateFunction:
    """A function of slates of k out of E items; rankings hold places among these E items.

    Attributes
    ----------
    position_scores
        P, shape (k, E).
    pair_weight
        D, shape (k, k), zero but above the diagonal.
    pair_scores
        W, shape (E, E); its diagonal does not matter.
    offset
        A constant.
    """

    position_scores: FloatArray
    pair_weight: FloatArray
    pair_scores: FloatArray
    offset: float

    @property
    def slate_size(self) -> int:
        """K."""
        return len(self.position_scores)

    @property
    def n_items(self) -> int:
        """E."""
        return int(self.position_scores.shape[1])

    def among(self, items: NDArray[np.integer]) -> SlateFunction:
        """Return the function of the slates of some of the items, whose rankings hold places among these."""
        pairs = self.pair_scores[np.ix_(items, items)]
        return SlateFunction(self.position_scores[:, items], self.pair_weight, pairs, self.offset)

    def values(self, rankings: Rankings) -> FloatArray:
        """Return the values of `rankings` (A, k), shape (A,)."""
        single = self.position_scores[np.arange(self.slate_size), rankings].sum(axis=1)
        first, second = np.triu_indices(self.slate_size, 1)
        pairs = self.pair_scores[rankings[:, first], rankings[:, second]] @ self.pair_weight[first, second]
        return np.asarray(self.offset + single + pairs, dtype=np.float64)

    def table(self) -> FloatArray:
        """Return the values of all slates, shape (E,) * k, -inf where an item occurs twice."""
        values, twice = np.full((), self.offset), np.where(np.eye(self.n_items, dtype=bool), -np.inf, 0.0)
        for a in range(self.slate_size):
            values = values[..., None] + self.position_scores[a]
            for b in range(a):
                pair = self.pair_weight[b, a] * self.pair_scores + twice
                values += pair.reshape([self.n_items if axis in {a, b} else 1 for axis in range(a + 1)])
        return values


def maximiser(function: SlateFunction, *, starts: Rankings, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the slate with the largest value, shape (k,).

    It is exact where there are few slates. Where there are many it is the best end of climbs from `starts` and from
    random slates: no replacement of one item and no exchange of two positions is better.

    Parameters
    ----------
    function
        At least k items.
    starts
        Slates that may be good, shape (A, k), A >= 0; climbs start from the best few of them.
    rng
        Draws the random starts.
    """
    k, n_items = function.slate_size, function.n_items
    if n_items**k <= _ENUMERATED:
        best = np.unravel_index(int(np.argmax(function.table())), (n_items,) * k)
        return np.array(best, dtype=np.int32)
    drawn = random_rankings(np.arange(n_items), slate_size=k, count=_RANDOM_STARTS, rng=rng)
    promising = starts[np.argsort(-function.values(starts), kind="stable")[:_GIVEN_STARTS]]
    ends = _climb_from(function, np.concatenate([promising.astype(np.int32), drawn]))
    return np.asarray(ends[int(np.argmax(function.values(ends)))])


def _climb_from(function: SlateFunction, starts: Rankings) -> Rankings:
    """Return where climbs from `starts` (A, k) end."""
    slates, pairs = starts.copy(), np.ascontiguousarray(function.pair_scores)
    singles, turned = np.ascontiguousarray(function.position_scores), np.ascontiguousarray(pairs.T)
    slate_functions.climb(singles, function.pair_weight, pairs, turned, slates, _smallest_gain(function), _MOST_SWEEPS)
    return slates


def _smallest_gain(function: SlateFunction) -> float:
    largest = max(abs(function.offset), np.abs(function.position_scores).max(), np.abs(function.pair_scores).max())
    return _GAIN * float(largest)
