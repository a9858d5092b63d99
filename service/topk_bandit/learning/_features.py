"""Which column of the posterior's arrays belongs to which coordinate of a ranking's sparse vector."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from topk_bandit.learning.kendall import KendallKernel

__all__ = ["FeatureIndex", "SparseVector", "count_columns", "sparse_values"]

IntArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """A ranking x and its image B x on the same columns: shapes (2k + k(k-1)/2 + 1,)."""

    columns: IntArray
    values: NDArray[np.float64]
    images: NDArray[np.float64]


def sparse_values(kernel: KendallKernel) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of x and of B x, for items in the order of their ranks: constant for a kernel.

    The order of the coordinates is s, the k items' u, the k items' v, then D of the positions (0, 1), (0, 2), ...,
    (k-2, k-1). k(x, x') = x' B x' with B u = n u + v, B v = u, B D = D, B s = -s, all times the kernel's scale.
    """
    upper = np.triu_indices(kernel.slate_size, 1)
    u, v, d, s = kernel.item_weight, kernel.divergence, kernel.pair_weight[upper], np.array([kernel.total])
    values = np.concatenate([s, u, v, d])
    images = kernel.scale * np.concatenate([-s, kernel.n_items * u + v, u, d])
    return values, images


def count_columns(rankings: NDArray[np.integer], *, n_items: int) -> int:
    """Return how many columns a `FeatureIndex` gives to rankings (N, k)."""
    return 1 + 2 * len(np.unique(rankings)) + len(np.unique(_pair_codes(rankings, n_items=n_items)))


def _pair_codes(rankings: NDArray[np.integer], *, n_items: int) -> NDArray[np.int64]:
    """Return a number for each pair of items of each ranking (N, k), whatever their order: shape (N, k(k-1)/2)."""
    first, second = np.triu_indices(rankings.shape[1], 1)
    low = np.minimum(rankings[:, first], rankings[:, second]).astype(np.int64)
    return np.asarray(low * n_items + np.maximum(rankings[:, first], rankings[:, second]), dtype=np.int64)


class FeatureIndex:
    """Columns: 0 is s, an item has two (u and v), a pair of items shown together one.

    Columns are only ever added, so a reader with an older column count sees a consistent older index.
    """

    def __init__(self, kernel: KendallKernel) -> None:
        self._lock = threading.Lock()
        self._values, self._images = sparse_values(kernel)
        self._first, self._second = np.triu_indices(kernel.slate_size, 1)
        self._pair_columns: dict[tuple[int, int], int] = {}
        self._pairs = np.empty((0, 3), dtype=np.int32)
        self.item_columns: IntArray = np.full(kernel.n_items, -1, dtype=np.int32)
        self.n_columns = 1

    def image_matrix(self, rankings: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return B x of many rankings (N, k), one a row, over the columns that they get; the index must be new."""
        n_items = len(self.item_columns)
        items = np.unique(rankings)
        self.item_columns[items] = 1 + 2 * np.arange(len(items), dtype=np.int32)
        codes, places = np.unique(_pair_codes(rankings, n_items=n_items), return_inverse=True)
        pair_columns = 1 + 2 * len(items) + np.arange(len(codes), dtype=np.int32)
        self._pairs = np.column_stack([codes // n_items, codes % n_items, pair_columns]).astype(np.int32)
        self._pair_columns = {(low, high): column for low, high, column in self._pairs.tolist()}
        self.n_columns = 1 + 2 * len(items) + len(codes)
        own = self.item_columns[rankings]
        shared = pair_columns[places.reshape(len(rankings), -1)]
        columns = np.concatenate([np.zeros((len(rankings), 1), dtype=np.int32), own, own + 1, shared], axis=1)
        signs = np.sign(rankings[:, self._second].astype(np.float64) - rankings[:, self._first])
        matrix = np.zeros((len(rankings), self.n_columns))
        tail = np.concatenate([np.ones((len(rankings), columns.shape[1] - signs.shape[1])), signs], axis=1)
        np.put_along_axis(matrix, columns.astype(np.intp), self._images * tail, axis=1)
        return matrix

    def sparse(self, ranking: NDArray[np.integer]) -> SparseVector:
        """Return a ranking's sparse vector, giving columns to what is new in it."""
        items = ranking.tolist()
        pairs = zip(self._first.tolist(), self._second.tolist(), strict=True)
        with self._lock:
            item_columns = np.array([self._item_column(item) for item in items], dtype=np.int32)
            pair_columns = np.array([self._pair_column(items[a], items[b]) for a, b in pairs], dtype=np.int32)
        signs = np.sign(ranking[self._second].astype(np.float64) - ranking[self._first])
        tail = np.concatenate([np.ones(1 + 2 * len(items)), signs])
        columns = np.concatenate([np.zeros(1, dtype=np.int32), item_columns, item_columns + 1, pair_columns])
        return SparseVector(columns.astype(np.int32), self._values * tail, self._images * tail)

    def pairs_below(self, n_columns: int) -> IntArray:
        """Return (smaller item, larger item, column) of each pair with a column below `n_columns`, shape (P, 3)."""
        used = self._pairs[: len(self._pair_columns)]
        return used[used[:, 2] < n_columns]

    def _item_column(self, item: int) -> int:
        if self.item_columns[item] < 0:
            self.item_columns[item] = self.n_columns
            self.n_columns += 2
        return int(self.item_columns[item])

    def _pair_column(self, one: int, other: int) -> int:
        key = (one, other) if one < other else (other, one)
        column = self._pair_columns.get(key)
        if column is None:
            column = self._add_pair(key)
        return column

    def _add_pair(self, key: tuple[int, int]) -> int:
        size = len(self._pair_columns)
        if size == len(self._pairs):
            self._pairs = np.concatenate([self._pairs, np.empty((max(size, 16), 3), dtype=np.int32)])
        column = self.n_columns
        self._pairs[size] = (*key, column)
        self._pair_columns[key] = column
        self.n_columns += 1
        return column
