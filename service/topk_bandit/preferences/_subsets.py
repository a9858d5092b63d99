"""All subsets of a size as candidates for a design."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences._ascent import Prices
from topk_bandit.preferences._bounds import gradient_bound, largest_sums
from topk_bandit.preferences._combinations import best_pairs, best_subset, best_triples, exchange, pair_gradients
from topk_bandit.preferences._whitening import whitened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.preferences._information import Information

__all__ = ["RankedSubsets", "RatedSubsets"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_JUST_BELOW = 1.0 - 1e-9
_MOST_FOR_ALL_TRIPLES = 150
_MOST_STARTS = 256
_SEARCH_BUDGET = 3e8


@dataclass(frozen=True, slots=True, eq=False)
class _Subsets:
    """Subsets of the items of one group; a subset's key are its items, in order.

    Attributes
    ----------
    items
        In coordinates in which the average item's information is the identity, shape (N, d).
    log_det
        Of the average item's information in the coordinates that were given.
    groups
        The items of each group that has enough of them.
    size
        Items of a subset, K.
    """

    items: FloatArray
    log_det: float
    groups: Sequence[IntArray]
    size: int

    @property
    def dimension(self) -> int:
        """How many features there are, d."""
        return int(self.items.shape[1])

    @property
    def key_length(self) -> int:
        """How many items a subset has, K."""
        return self.size


@dataclass(frozen=True, slots=True, eq=False)
class RatedSubsets(_Subsets):
    """Subsets whose items are rated: A_S holds the features of its items."""

    @classmethod
    def of(cls, features: FloatArray, *, groups: Sequence[IntArray], size: int) -> RatedSubsets:
        """Return the subsets of items with features of shape (N, d).

        Raises
        ------
        RankError
            The items do not span d dimensions.
        """
        members = np.concatenate(groups)
        items = np.zeros_like(features)
        items[members], log_det = whitened(features[members], len(members))
        return cls(items, log_det, groups, size)

    @property
    def work(self) -> float:
        """That of one product with C^-1, and of writing down the subsets."""
        return float(self.items.size) * self.dimension

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the items' features, shape (S, K, d)."""
        return self.items[keys]

    def priced(self, information: Information, *, target: float) -> Prices:  # noqa: ARG002 - it is always exact
        """Return the best subset with each item, if its g is above d."""
        norms = np.square(information.whitened(self.items)).sum(axis=1)
        found = [self._best_with_each(members[np.argsort(-norms[members], kind="stable")]) for members in self.groups]
        keys = np.concatenate(found)
        values = norms[keys].sum(axis=1)
        kept = values > self.dimension
        return Prices(float(values.max()), keys[kept], values[kept])

    def _best_with_each(self, order: IntArray) -> IntArray:
        """Return the first K - 1 of a group's items, the best first, with each of the others, (n - K + 1, K)."""
        others = order[self.size - 1 :]
        first = np.broadcast_to(order[: self.size - 1], (len(others), self.size - 1))
        return np.sort(np.column_stack([first, others]), axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class RankedSubsets(_Subsets):
    """Subsets whose items are ranked: A_S holds the differences of the features of its items.

    A_S A_S' = sum over pairs of (x_j - x_k)(x_j - x_k)' = K sum over items of (x_j - mean)(x_j - mean)', so that K - 1
    contrasts of the items do for the K (K - 1) / 2 differences.

    Attributes
    ----------
    contrasts
        Q with Q'Q = K I - 11', shape (K - 1, K).
    rng
        Draws the subsets that the search for good ones begins with, where it is not exhaustive.
    """

    contrasts: FloatArray
    rng: np.random.Generator

    @classmethod
    def of(
        cls, features: FloatArray, *, groups: Sequence[IntArray], size: int, rng: np.random.Generator
    ) -> RankedSubsets:
        """Return the subsets of items with features of shape (N, d).

        Raises
        ------
        RankError
            The differences of items of one group do not span d dimensions.
        """
        items, members = np.zeros_like(features), np.concatenate(groups)
        for group in groups:
            items[group] = features[group] - features[group].mean(axis=0)
        items[members], log_det = whitened(items[members], len(members))
        return cls(items, log_det, groups, size, _contrasts(size), rng)

    @property
    def work(self) -> float:
        """That of the pair gradients and of the search among them."""
        d = self.dimension
        return float(sum(len(group) ** 2 * (d + min(len(group), _MOST_FOR_ALL_TRIPLES)) for group in self.groups))

    def rows(self, keys: IntArray) -> FloatArray:
        """Return K - 1 contrasts of the items' features, shape (S, K - 1, d)."""
        return np.ascontiguousarray(np.matmul(self.contrasts, self.items[keys]))

    def priced(self, information: Information, *, target: float) -> Prices:
        """Return good subsets, and the largest gradient: exactly for K = 2 and 3, above often a bound."""
        white = information.whitened(self.items)
        parts = [self._priced_within(group, white[group], target) for group in self.groups]
        keys, values = np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts])
        keys, first = np.unique(np.sort(keys, axis=1), axis=0, return_index=True)
        kept = values[first] > self.dimension
        return Prices(max(part.bound for part in parts), keys[kept], values[first][kept])

    def _priced_within(self, group: IntArray, items: FloatArray, target: float) -> Prices:
        items = items - items.mean(axis=0)
        pairs = pair_gradients(items @ items.T)
        match self.size:
            case 2:
                found = _all_pairs(pairs)
            case 3 if len(pairs) <= _MOST_FOR_ALL_TRIPLES:
                found = _triples(pairs, _JUST_BELOW * self.dimension)
            case 3:
                tried = _exchanged(pairs, 3, self.rng)
                found = tried.joined(_triples(pairs, float(tried.values.max())))
            case size:
                found = _bounded(_exchanged(pairs, size, self.rng), items, pairs, target)
        return Prices(found.bound, group[found.keys], found.values)


def _all_pairs(pairs: FloatArray) -> Prices:
    keys, values = np.zeros((len(pairs), 2), dtype=np.int64), np.empty(len(pairs))
    best_pairs(pairs, keys, values)
    return Prices(float(values.max()), keys, values)


def _triples(pairs: FloatArray, floor: float) -> Prices:
    """Return the best triple with each item if its gradient is above the floor; none is above the bound."""
    keys, values = np.zeros((len(pairs), 3), dtype=np.int64), np.full(len(pairs), -np.inf)
    best_triples(pairs, floor, keys, values)
    kept = np.isfinite(values)
    return Prices(float(values.max(initial=floor)), keys[kept], values[kept])


def _exchanged(pairs: FloatArray, size: int, rng: np.random.Generator) -> Prices:
    """Return subsets that no exchange of an item improves, reached from random ones; the bound is only theirs."""
    starts = min(len(pairs), _MOST_STARTS)
    keys = np.stack([rng.choice(len(pairs), size, replace=False) for _ in range(starts)])
    values = np.empty(starts)
    exchange(pairs, keys, values)
    return Prices(float(values.max()), keys, values)


def _bounded(tried: Prices, items: FloatArray, pairs: FloatArray, target: float) -> Prices:
    """Return what was tried with a bound of all gradients, and with the best subset if a search settles it."""
    largest = largest_sums(pairs, tried.keys.shape[1])
    bound = gradient_bound(items, largest)
    if tried.bound > target or bound <= target:
        return replace(tried, bound=bound)
    order = np.argsort(-largest[:, -1], kind="stable")
    subset = np.zeros((1, tried.keys.shape[1]), dtype=np.int64)
    ordered = np.ascontiguousarray(pairs[order][:, order])
    best, is_settled = best_subset(ordered, largest[order], target, _SEARCH_BUDGET, subset[0])
    if best > target:
        tried = tried.joined(Prices(best, order[subset], np.array([best])))
    return replace(tried, bound=best if is_settled else bound)


def _contrasts(size: int) -> FloatArray:
    """Return Q, (K - 1, K), with Q'Q = K I - 11'."""
    rows = np.tril(np.ones((size - 1, size)), k=0)
    rows[np.arange(size - 1), np.arange(1, size)] = -np.arange(1.0, size)
    return np.asarray(np.sqrt(size) * rows / np.linalg.norm(rows, axis=1, keepdims=True))
