"""The posterior's arrays: rewarded rows that only grow, and pending rows that come and go."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from topk_bandit.learning.rankings import Rankings

__all__ = ["Observations", "PendingRows", "PendingSlates", "Rows", "Tail"]

FloatArray = NDArray[np.float64]
RealArray = NDArray[np.floating]


class Observations(NamedTuple):
    """Rows of a posterior: contexts (N, C), rankings (N, k), rewards (N,)."""

    contexts: FloatArray
    rankings: Rankings
    rewards: FloatArray

    def newest(self, count: int) -> Observations:
        """Return the last `count` >= 0 rows, or all if there are fewer."""
        start = max(len(self.rewards) - count, 0)
        return Observations(self.contexts[start:], self.rankings[start:], self.rewards[start:])


class PendingSlates(NamedTuple):
    """Slates that are shown and not yet rewarded: contexts (P, C), rankings (P, k)."""

    contexts: FloatArray
    rankings: Rankings


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rewarded rows, as arrays with room to grow; `features` is (C, F, N) and zero where nothing was written."""

    features: RealArray
    contexts: FloatArray
    rankings: Rankings
    rewards: FloatArray

    @classmethod
    def empty(cls, n_columns: int, n_rows: int, *, context_dim: int, slate_size: int, dtype: DTypeLike) -> Rows:
        return cls(
            features=np.zeros((context_dim, n_columns, n_rows), dtype=dtype),
            contexts=np.zeros((n_rows, context_dim)),
            rankings=np.zeros((n_rows, slate_size), dtype=np.int32),
            rewards=np.zeros(n_rows),
        )

    def grown(self, n_columns: int, n_rows: int, *, used_columns: int, used_rows: int) -> Rows:
        """Return a copy of the used part with room for more."""
        context_dim, slate_size = self.contexts.shape[1], self.rankings.shape[1]
        new = Rows.empty(n_columns, n_rows, context_dim=context_dim, slate_size=slate_size, dtype=self.features.dtype)
        new.features[:, :used_columns, :used_rows] = self.features[:, :used_columns, :used_rows]
        new.contexts[:used_rows] = self.contexts[:used_rows]
        new.rankings[:used_rows] = self.rankings[:used_rows]
        new.rewards[:used_rows] = self.rewards[:used_rows]
        return new


class Tail:
    """Who may append to shared arrays: the one posterior that ends where they end. All others copy first."""

    def __init__(self, n_rows: int) -> None:
        self._lock = threading.Lock()
        self._end = n_rows

    def claim(self, n_rows: int) -> bool:
        with self._lock:
            free = self._end == n_rows
            if free:
                self._end = n_rows + 1
            return free


@dataclass(frozen=True, slots=True, eq=False)
class PendingRows:
    """Rows without a reward: `factor` (P, P) is their block of L, `features` (C, F, P) their rows of R."""

    factor: FloatArray
    features: RealArray
    contexts: FloatArray
    rankings: Rankings

    @property
    def size(self) -> int:
        return len(self.factor)

    def without(self, chosen: int, kept: slice, factor: FloatArray, features: RealArray) -> PendingRows:
        return PendingRows(
            factor=np.ascontiguousarray(factor[kept, kept]),
            features=np.ascontiguousarray(features[:, :, kept]),
            contexts=np.delete(self.contexts, chosen, axis=0),
            rankings=np.delete(self.rankings, chosen, axis=0),
        )
