"""All subsets of a size as candidates for a design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences._ascent import Prices
from topk_bandit.preferences._bounds import scatter_bound
from topk_bandit.preferences._combinations import best_pairs, best_triples, exchange, pair_gradients
from topk_bandit.preferences._whitening import whitened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.preferences._information import Information

__all__ = ["RankedSubsets", "RatedSubsets"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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
        """d."""
        return self.items.shape[1]

    @property
    def key_length(self) -> int:
        """K."""
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

    def priced(self, information: Information) -> Prices:
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
        d, size = self.dimension, min(self.size, 3)
        return float(sum(len(group) * len(group) * d + len(group) ** size for group in self.groups))

    def rows(self, keys: IntArray) -> FloatArray:
        """Return K - 1 contrasts of the items' features, shape (S, K - 1, d)."""
        return np.ascontiguousarray(np.matmul(self.contrasts, self.items[keys]))

    def priced(self, information: Information) -> Prices:
        """Return good subsets, of sizes 2 and 3 the best with each item, and a bound of the best."""
        white = information.whitened(self.items)
        parts = [self._priced_within(group, white[group]) for group in self.groups]
        keys, values = np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts])
        keys, first = np.unique(np.sort(keys, axis=1), axis=0, return_index=True)
        return Prices(max(part.bound for part in parts), keys, values[first])

    def _priced_within(self, group: IntArray, items: FloatArray) -> Prices:
        items = items - items.mean(axis=0)
        pairs = pair_gradients(items @ items.T)
        keys, values = self._found(pairs)
        kept = values > self.dimension
        if self.size <= 3:
            bound = float(values.max())
        else:
            bound = scatter_bound(items, self.size)
        return Prices(bound, group[keys[kept]], values[kept])

    def _found(self, pairs: FloatArray) -> tuple[IntArray, FloatArray]:
        n = len(pairs)
        keys, values = np.zeros((n, self.size), dtype=np.int64), np.full(n, -np.inf)
        if self.size == 2:
            best_pairs(pairs, keys, values)
        elif self.size == 3:
            best_triples(pairs, (1.0 - 1e-9) * self.dimension, keys, values)
        else:
            keys[:] = self.rng.permuted(np.broadcast_to(np.arange(n), (n, n)), axis=1)[:, : self.size]
            exchange(pairs, keys, values)
        return keys, values


def _contrasts(size: int) -> FloatArray:
    """Return Q, (K - 1, K), with Q'Q = K I - 11'."""
    rows = np.tril(np.ones((size - 1, size)), k=0)
    rows[np.arange(size - 1), np.arange(1, size)] = -np.arange(1.0, size)
    return np.sqrt(size) * rows / np.linalg.norm(rows, axis=1, keepdims=True)
