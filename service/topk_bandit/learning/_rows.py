"""The posterior's arrays: rewarded rows that only grow, and pending rows that come and go."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning._layout import lay_out

if TYPE_CHECKING:
    from topk_bandit.learning.rankings import Rankings

__all__ = ["PendingRows", "PendingSlates", "Rows", "Tail"]

FloatArray = NDArray[np.float64]


class PendingSlates(NamedTuple):
    """Slates that are shown and not yet rewarded: contexts (P, C), rankings (P, k)."""

    contexts: FloatArray
    rankings: Rankings

    def with_shared(self, ratio: float) -> PendingSlates:
        """Return the same slates with `ratio` times as much shared by all contexts, of which it is the last number."""
        return self if ratio == 1.0 else self._replace(contexts=scale_shared(self.contexts, ratio))


def scale_shared(contexts: FloatArray, ratio: float) -> FloatArray:
    """Return contexts (N, C) whose last number's square is `ratio` times as large."""
    scaled = contexts.copy()
    scaled[:, -1] *= math.sqrt(ratio)
    return scaled


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rewarded rows, as arrays with a capacity R for more: `targets` is as of `ObservedRows`, `whitener` is M' (R, R).

    `content` is phi of the rows' rankings, shape (R, q): q = 0 where content does not count.
    """

    contexts: FloatArray
    rankings: Rankings
    content: FloatArray
    targets: FloatArray
    whitener: FloatArray

    @classmethod
    def empty(cls, capacity: int, *, context_dim: int, slate_size: int, n_features: int, n_targets: int) -> Rows:
        return cls(
            contexts=np.zeros((capacity, context_dim)),
            rankings=np.zeros((capacity, slate_size), dtype=np.int32),
            content=np.zeros((capacity, n_features)),
            targets=np.zeros((n_targets, capacity)),
            whitener=np.zeros((capacity, capacity)),
        )

    @property
    def capacity(self) -> int:
        return len(self.whitener)

    @property
    def nbytes(self) -> int:
        arrays = self.contexts, self.rankings, self.content, self.targets, self.whitener
        return sum(array.nbytes for array in arrays)

    def with_capacity(self, capacity: int, *, used: int) -> Rows:
        """Return a copy of the used part, of this capacity."""
        new = Rows.empty(
            capacity,
            context_dim=self.contexts.shape[1],
            slate_size=self.rankings.shape[1],
            n_features=self.content.shape[1],
            n_targets=len(self.targets),
        )
        new.contexts[:used] = self.contexts[:used]
        new.rankings[:used] = self.rankings[:used]
        new.content[:used] = self.content[:used]
        new.targets[:, :used] = self.targets[:, :used]
        new.whitener[:used, :used] = self.whitener[:used, :used]
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
    """Rows without a reward: `factor` (P, P) is their block of L, `whitened` (N + P, P) their rows of M, transposed."""

    factor: FloatArray
    whitened: FloatArray
    contexts: FloatArray
    rankings: Rankings
    content: FloatArray

    @classmethod
    def none(cls, n_rows: int, *, context_dim: int, slate_size: int, n_features: int) -> PendingRows:
        return cls(
            factor=np.zeros((0, 0)),
            whitened=np.zeros((n_rows, 0)),
            contexts=np.zeros((0, context_dim)),
            rankings=np.zeros((0, slate_size), dtype=np.int32),
            content=np.zeros((0, n_features)),
        )

    @property
    def size(self) -> int:
        return len(self.factor)

    @property
    def nbytes(self) -> int:
        arrays = self.factor, self.whitened, self.contexts, self.rankings, self.content
        return sum(array.nbytes for array in arrays)

    def with_row(
        self,
        row: FloatArray,
        ell: FloatArray,
        diagonal: float,
        context: FloatArray,
        ranking: NDArray[np.int32],
        *,
        content: FloatArray,
    ) -> PendingRows:
        """Return these and a last one: `row` (N + P + 1,) of M, `ell` (P,) and `diagonal` of L."""
        size, columns = self.size, len(self.whitened)
        factor = np.zeros((size + 1, size + 1))
        factor[:-1, :-1] = self.factor
        factor[-1, :-1], factor[-1, -1] = ell, diagonal
        whitened = np.empty((columns + 1, size + 1))
        whitened[:-1, :-1] = self.whitened
        whitened[-1, :-1] = 0.0
        whitened[:, -1] = row
        return PendingRows(
            factor,
            whitened,
            np.concatenate((self.contexts, context[None])),
            np.concatenate((self.rankings, ranking[None])),
            np.concatenate((self.content, content)),
        )

    def without(self, chosen: int, factor: FloatArray, whitened: FloatArray) -> PendingRows:
        """Return the others; `factor` and `whitened`, which is new, were rotated and cut so that they are theirs."""
        return PendingRows(
            factor=lay_out(factor),
            whitened=whitened,
            contexts=_without(self.contexts, chosen),
            rankings=_without(self.rankings, chosen),
            content=_without(self.content, chosen),
        )


def _without(rows: NDArray[Any], chosen: int) -> NDArray[Any]:
    return np.concatenate((rows[:chosen], rows[chosen + 1 :]))
