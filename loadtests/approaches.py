"""The three approaches that the paper's Table 1 compares, written plainly: naive, kernel and feature approach.

Each keeps rewarded slates and gives mean and variance of others; noise is fixed, and rewards are centred on zero. They
differ in what they keep and in how they solve with K + sigma^2 I:

- naive: the kernel matrix, factorised anew for every prediction, O(t^3);
- kernel approach: the kernel matrix, and conjugate gradients with it, O(t^2) an iteration;
- feature approach: the slates' sparse features, and conjugate gradients through them, O(c k^2 t) an iteration.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from dense import PairWeights, pair_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel

    Floats = NDArray[np.float64]
    Rankings = NDArray[np.int32]

__all__ = ["Approach", "FeatureApproach", "KernelApproach", "NaiveApproach"]


class Approach(Protocol):
    """What is measured of each."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of what it keeps for its rows."""
        ...

    def update(self, context: Floats, ranking: NDArray[np.int32], reward: float) -> None:
        """Take in one row."""
        ...

    def mvm(self, vectors: Floats) -> Floats:
        """Return the kernel matrix times vectors (t, A)."""
        ...

    def moments(self, context: Floats, rankings: Rankings) -> tuple[Floats, Floats]:
        """Return mean and variance of rankings (A, k) in one context."""
        ...


class NaiveApproach:
    """The kernel matrix, in room for `capacity` rows, and its Cholesky factor anew for every prediction."""

    def __init__(self, kernel: KendallKernel, *, context_dim: int, noise_variance: float, capacity: int) -> None:
        self._kernel = kernel
        self._noise_variance = noise_variance
        self._matrix = np.zeros((capacity, capacity))
        self._contexts = np.zeros((capacity, context_dim))
        self._rankings = np.zeros((capacity, kernel.slate_size), dtype=np.int32)
        self._rewards = np.zeros(capacity)
        self._t = 0

    @property
    def memory_bytes(self) -> int:
        """See `Approach.memory_bytes`."""
        return 8 * self._t * self._t

    def update(self, context: Floats, ranking: NDArray[np.int32], reward: float) -> None:
        """See `Approach.update`."""
        t = self._t
        self._contexts[t], self._rankings[t], self._rewards[t] = context, ranking, reward
        self._t += 1
        row = self._against(context, ranking[None])[:, 0]
        self._matrix[t, : t + 1] = self._matrix[: t + 1, t] = row

    def mvm(self, vectors: Floats) -> Floats:
        """See `Approach.mvm`."""
        return np.asarray(self._matrix[: self._t, : self._t] @ vectors)

    def moments(self, context: Floats, rankings: Rankings) -> tuple[Floats, Floats]:
        """See `Approach.moments`."""
        towards = self._against(context, rankings)
        solved = self._solved(np.column_stack([self._rewards[: self._t], towards]))
        return towards.T @ solved[:, 0], float(context @ context) - (towards * solved[:, 1:]).sum(axis=0)

    def _against(self, context: Floats, rankings: Rankings) -> Floats:
        """Return the kernel's values between all rows and rankings in one context, (t, A)."""
        contexts, kept = self._contexts[: self._t], self._rankings[: self._t]
        return np.asarray((contexts @ context)[:, None] * self._kernel.gram(kept, rankings))

    def _solved(self, right: Floats) -> Floats:
        noisy = self._matrix[: self._t, : self._t] + self._noise_variance * np.eye(self._t)
        return np.asarray(cho_solve(cho_factor(noisy, lower=True), right))


class KernelApproach(NaiveApproach):
    """The kernel matrix, and so many iterations of conjugate gradients with it."""

    def __init__(
        self, kernel: KendallKernel, *, context_dim: int, noise_variance: float, capacity: int, iterations: int
    ) -> None:
        super().__init__(kernel, context_dim=context_dim, noise_variance=noise_variance, capacity=capacity)
        self._iterations = iterations

    def _solved(self, right: Floats) -> Floats:
        return _conjugate_gradients(self, right, self._noise_variance, self._iterations)


class FeatureApproach:
    """Sparse features, in room for `capacity` rows: K = Psi Psi_B' with c k^2 non-zeros in each row of either.

    A ranking is x = (u, v, s, D): its items' weights, their divergences, their sum, and a correction for each shown
    pair; Psi has the rows c (x) x, and Psi_B the rows c (x) B x, where B x = (n u + v, u, -s, D) has the same
    non-zeros.
    """

    def __init__(
        self,
        *,
        n_items: int,
        slate_size: int,
        context_dim: int,
        noise_variance: float,
        capacity: int,
        iterations: int,
    ) -> None:
        self._features = _SparseFeatures(n_items, slate_size)
        self._noise_variance, self._iterations = noise_variance, iterations
        self._width = context_dim * self._features.n_columns
        self._per_row = context_dim * self._features.n_values
        self._indices = np.zeros(capacity * self._per_row, dtype=np.int32)
        self._values = np.zeros((2, capacity * self._per_row))
        self._starts = np.arange(capacity + 1, dtype=np.int32) * self._per_row
        self._rewards = np.zeros(capacity)
        self._t = 0
        self._psi = self._rows_of(0), self._rows_of(1)

    @property
    def memory_bytes(self) -> int:
        """See `Approach.memory_bytes`."""
        return self._t * self._per_row * (4 + 8 + 8)

    def update(self, context: Floats, ranking: NDArray[np.int32], reward: float) -> None:
        """See `Approach.update`."""
        place = slice(self._t * self._per_row, (self._t + 1) * self._per_row)
        self._indices[place], self._values[:, place] = self._row(context, ranking)
        self._rewards[self._t] = reward
        self._t += 1
        self._psi = self._rows_of(0), self._rows_of(1)

    def mvm(self, vectors: Floats) -> Floats:
        """See `Approach.mvm`."""
        features, images = self._psi
        return np.asarray(features @ (images.T @ vectors))

    def moments(self, context: Floats, rankings: Rankings) -> tuple[Floats, Floats]:
        """See `Approach.moments`."""
        towards = np.zeros((self._t, len(rankings)))
        for number, ranking in enumerate(rankings):
            indices, (values, _) = self._row(context, ranking)
            asked = np.zeros(self._width)
            asked[indices] = values
            towards[:, number] = self._psi[1] @ asked
        solved = _conjugate_gradients(
            self, np.column_stack([self._rewards[: self._t], towards]), self._noise_variance, self._iterations
        )
        return towards.T @ solved[:, 0], float(context @ context) - (towards * solved[:, 1:]).sum(axis=0)

    def _rows_of(self, which: int) -> sparse.csr_array:
        """Return Psi (0) or Psi_B (1) as they are now; nothing is copied."""
        end = self._t * self._per_row
        parts = self._values[which, :end], self._indices[:end], self._starts[: self._t + 1]
        return sparse.csr_array(parts, shape=(self._t, self._width), copy=False)

    def _row(self, context: Floats, ranking: NDArray[np.int32]) -> tuple[NDArray[np.int32], Floats]:
        """Return where a row of Psi is not zero, and its values there and those of Psi_B, (2, c k^2)."""
        columns, values = self._features.of(ranking)
        offsets = np.arange(len(context), dtype=np.int32)[:, None] * self._features.n_columns
        return (offsets + columns).ravel(), (context[None, :, None] * values[:, None, :]).reshape(2, -1)


class _SparseFeatures:
    """x and B x of a ranking: columns u, v (n each), s, then D of each pair of items."""

    def __init__(self, n_items: int, slate_size: int) -> None:
        weights, (first, second) = PairWeights.of(n_items, slate_size), np.triu_indices(slate_size, 1)
        u = weights.outside
        d = weights.both[first, second] - (u[first] - u[second])
        v = np.array([d[first == a].sum() - d[second == a].sum() for a in range(slate_size)])
        self._pairs, self._pair_index, self._n_items = (first, second), pair_index(n_items), n_items
        scale = 1.0 / math.sqrt(weights.norm)
        self._x = scale * np.concatenate([u, v, [u.sum()], d])
        self._images = scale * np.concatenate([n_items * u + v, u, [-u.sum()], d])
        self.n_values = len(self._x)
        self.n_columns = 2 * n_items + 1 + n_items * (n_items - 1) // 2

    def of(self, ranking: NDArray[np.int32]) -> tuple[NDArray[np.int32], Floats]:
        """Return the columns of a ranking's non-zeros, and x and B x there, shape (2, V)."""
        before, after = ranking[self._pairs[0]], ranking[self._pairs[1]]
        pairs = 2 * self._n_items + 1 + self._pair_index[before, after]
        columns = np.concatenate([ranking, self._n_items + ranking, [2 * self._n_items], pairs]).astype(np.int32)
        # D is antisymmetric: a column is that of the pair in ascending order.
        signs = np.concatenate([np.ones(2 * len(ranking) + 1), np.where(before < after, 1.0, -1.0)])
        return columns, np.array([signs * self._x, signs * self._images])


def _conjugate_gradients(approach: Approach, right: Floats, noise_variance: float, iterations: int) -> Floats:
    """Return about (K + sigma^2 I)^-1 G for G (t, A), after so many iterations for each column."""
    solved, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), (residual**2).sum(axis=0)
    for _ in range(iterations):
        image = approach.mvm(direction) + noise_variance * direction
        step = square / np.maximum((direction * image).sum(axis=0), 1e-300)
        solved += step * direction
        residual -= step * image
        before, square = square, (residual**2).sum(axis=0)
        direction = residual + square / np.maximum(before, 1e-300) * direction
    return solved
