"""Lists that are given as candidates for a design, such as the results of queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topk_bandit.preferences.compiled.columns import norms
from topk_bandit.preferences.designs.ascent import Prices
from topk_bandit.preferences.designs.whitening import split_rows

if TYPE_CHECKING:
    from topk_bandit.preferences.designs.information import Information
    from topk_bandit.preferences.designs.subsets import RankedSubsets, RatedSubsets

__all__ = ["GivenSubsets", "connect"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class GivenSubsets:
    """The subsets that are given, among all: a subset's key are its items, as for all.

    Attributes
    ----------
    among
        All subsets of the items.
    keys
        Those given, shape (L, K).
    """

    among: RankedSubsets | RatedSubsets
    keys: IntArray

    @property
    def dimension(self) -> int:
        """How many features there are, d."""
        return self.among.dimension

    @property
    def prior(self) -> FloatArray | None:
        """What is known beforehand."""
        return self.among.prior

    @property
    def key_length(self) -> int:
        """How many items a subset has, K."""
        return self.among.key_length

    @property
    def log_det(self) -> float:
        """For the average item's information in the coordinates that were given."""
        return self.among.log_det

    @property
    def work(self) -> float:
        """That of one product with C^-1, and of the lists' rows."""
        return float(self.among.items.size + self.keys.size) * self.dimension

    def rows(self, keys: IntArray) -> FloatArray:
        """Return the transposes of the matrices of subsets, shape (S, M, d)."""
        return self.among.rows(keys)

    def price(self, information: Information, *, level: float, target: float) -> Prices:  # noqa: ARG002 - always exact
        """Return all given subsets with g above the level."""
        white = replace(self.among, items=information.whiten(self.among.items))
        gradients = np.concatenate([norms(white.rows(piece)) for piece in split_rows(self.keys)])
        kept = np.flatnonzero(gradients > level)
        return Prices(float(gradients.max()), self.keys[kept], gradients[kept])


def connect(subsets: IntArray, n_items: int) -> IntArray:
    """Return a label for each item, shape (N,): two have the same if a chain of subsets, (L, K), leads to the other."""
    first = np.repeat(subsets[:, :1], subsets.shape[1] - 1, axis=1).ravel()
    others = subsets[:, 1:].ravel()
    links = coo_array((np.ones(len(first), dtype=np.int8), (first, others)), shape=(n_items, n_items))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)
