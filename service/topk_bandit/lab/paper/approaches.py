"""The three approaches that the paper's Table 1 compares, written plainly: naive, kernel and feature approach.

Each keeps rewarded slates and gives mean and variance of others; noise is fixed, and rewards are centred on zero. They
differ in what they keep and in how they solve with K + sigma^2 I:

- naive: the kernel matrix, factorised anew for every prediction, O(t^3);
- kernel approach: the kernel matrix, and conjugate gradients with it, O(t^2) an iteration;
- feature approach: the slates' sparse features, and conjugate gradients through them, O(c k^2 t) an iteration.

All of their arithmetic goes through an `Arithmetic`, which may count it (`Work`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.lab.paper.work import Arithmetic
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Approach", "FeatureApproach", "KernelApproach", "NaiveApproach"]

FloatArray = NDArray[np.float64]


class Approach(Protocol):
    """What is measured of each."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of what it keeps for its rows."""
        ...

    def update(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> None:
        """Take in one row: a context (C,), a ranking (k,) and its reward."""
        ...

    def mvm(self, vectors: FloatArray) -> FloatArray:
        """Return the kernel matrix times vectors (t, A)."""
        ...

    def moments(self, context: FloatArray, rankings: Rankings) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of rankings (A, k) in one context (C,), both (A,)."""
        ...


class NaiveApproach:
    """The kernel matrix, with space for `capacity` rows, and its Cholesky factor anew for every prediction."""

    def __init__(
        self, kernel: KendallKernel, work: Arithmetic, *, context_dim: int, noise_variance: float, capacity: int
    ) -> None:
        self._kernel, self._work = kernel, work
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

    def update(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> None:
        """See `Approach.update`."""
        t = self._t
        self._contexts[t], self._rankings[t], self._rewards[t] = context, ranking, reward
        self._t += 1
        row = self._against(context, ranking[None])[:, 0]
        self._matrix[t, : t + 1] = self._matrix[: t + 1, t] = row

    def mvm(self, vectors: FloatArray) -> FloatArray:
        """See `Approach.mvm`."""
        return self._work.product(self._matrix[: self._t, : self._t], vectors)

    def moments(self, context: FloatArray, rankings: Rankings) -> tuple[FloatArray, FloatArray]:
        """See `Approach.moments`."""
        towards = self._against(context, rankings)
        solved = self._solve_noisy(np.column_stack([self._rewards[: self._t], towards]))
        return _moments(self._work, context, towards, solved)

    def _against(self, context: FloatArray, rankings: Rankings) -> FloatArray:
        """Return the kernel's values between all rows and rankings in one context, (t, A)."""
        similarities = self._work.product(self._contexts[: self._t], context)
        values = self._work.kernel_values(self._kernel, self._rankings[: self._t], rankings)
        return self._work.times(similarities[:, None], values)

    def _solve_noisy(self, right: FloatArray) -> FloatArray:
        noisy = self._matrix[: self._t, : self._t].copy()
        noisy[np.diag_indices(self._t)] += self._noise_variance
        return self._work.solve(noisy, right)


class KernelApproach(NaiveApproach):
    """The kernel matrix, and so many iterations of conjugate gradients with it."""

    def __init__(
        self,
        kernel: KendallKernel,
        work: Arithmetic,
        *,
        context_dim: int,
        noise_variance: float,
        capacity: int,
        iterations: int,
    ) -> None:
        super().__init__(kernel, work, context_dim=context_dim, noise_variance=noise_variance, capacity=capacity)
        self._iterations = iterations

    def _solve_noisy(self, right: FloatArray) -> FloatArray:
        return _conjugate_gradients(self._work, self.mvm, right, self._noise_variance, self._iterations)


class FeatureApproach:
    """Sparse features, with space for `capacity` rows: K = Psi Psi_B' with O(c k^2) non-zeros in each row of either.

    A ranking is x = (u, v, s, D) of its kernel (`learning.kendall`); Psi has the rows c (x) x, and Psi_B the rows
    c (x) B x, where B x = (n u + v, u, -s, D) has the same non-zeros.
    """

    def __init__(
        self,
        kernel: KendallKernel,
        work: Arithmetic,
        *,
        context_dim: int,
        noise_variance: float,
        capacity: int,
        iterations: int,
    ) -> None:
        self._features, self._work = _SparseFeatures(kernel), work
        self._noise_variance, self._iterations = noise_variance, iterations
        self._width = context_dim * self._features.n_columns
        self._per_row = context_dim * self._features.n_values
        self._indices = np.zeros(capacity * self._per_row, dtype=np.int32)
        self._values = np.zeros((2, capacity * self._per_row))
        self._starts = np.arange(capacity + 1, dtype=np.int32) * self._per_row
        self._rewards = np.zeros(capacity)
        self._t = 0
        self._made: tuple[sparse.csr_array, sparse.csr_array] | None = None

    @property
    def memory_bytes(self) -> int:
        """See `Approach.memory_bytes`."""
        return self._t * self._per_row * (4 + 8 + 8)

    def update(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> None:
        """See `Approach.update`."""
        place = slice(self._t * self._per_row, (self._t + 1) * self._per_row)
        self._indices[place], self._values[:, place] = self._row(context, ranking)
        self._rewards[self._t] = reward
        self._t += 1
        self._made = None

    def mvm(self, vectors: FloatArray) -> FloatArray:
        """See `Approach.mvm`."""
        features, images = self._psi
        return self._work.product(features, self._work.product(images.T, vectors))

    def moments(self, context: FloatArray, rankings: Rankings) -> tuple[FloatArray, FloatArray]:
        """See `Approach.moments`."""
        towards = np.zeros((self._t, len(rankings)))
        for number, ranking in enumerate(rankings):
            indices, (values, _) = self._row(context, ranking)
            asked = np.zeros(self._width)
            asked[indices] = values
            towards[:, number] = self._work.product(self._psi[1], asked)
        right = np.column_stack([self._rewards[: self._t], towards])
        solved = _conjugate_gradients(self._work, self.mvm, right, self._noise_variance, self._iterations)
        return _moments(self._work, context, towards, solved)

    @property
    def _psi(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Psi and Psi_B; made when they are first needed, since scipy looks at all indices of a new matrix."""
        if self._made is None:
            self._made = self._rows_of(0), self._rows_of(1)
        return self._made

    def _rows_of(self, which: int) -> sparse.csr_array:
        """Return Psi (0) or Psi_B (1) as they are now; nothing is copied."""
        end = self._t * self._per_row
        parts = self._values[which, :end], self._indices[:end], self._starts[: self._t + 1]
        return sparse.csr_array(parts, shape=(self._t, self._width), copy=False)

    def _row(self, context: FloatArray, ranking: NDArray[np.int32]) -> tuple[NDArray[np.int32], FloatArray]:
        """Return where a row of Psi is not zero, and its values there and those of Psi_B, (2, c V)."""
        columns, values = self._features.of(ranking, self._work)
        offsets = np.arange(len(context), dtype=np.int32)[:, None] * self._features.n_columns
        return (offsets + columns).ravel(), self._work.times(context[None, :, None], values[:, None, :]).reshape(2, -1)


class _SparseFeatures:
    """x and B x of a ranking, V = O(k^2) numbers each: columns u, v (n each), s, then D of each pair of items."""

    def __init__(self, kernel: KendallKernel) -> None:
        u, v, s = kernel.item_weight, kernel.divergence, [kernel.total]
        first, second = np.triu_indices(kernel.slate_size, 1)
        d = kernel.pair_weight[first, second]
        root = math.sqrt(kernel.scale)
        self._pairs, self._n_items = (first, second), kernel.n_items
        self._both = root * np.array(
            [np.concatenate([u, v, s, d]), np.concatenate([kernel.n_items * u + v, u, np.negative(s), d])]
        )
        self.n_values: int = self._both.shape[1]
        self.n_columns = 2 * kernel.n_items + 1 + math.comb(kernel.n_items, 2)

    def of(self, ranking: NDArray[np.int32], work: Arithmetic) -> tuple[NDArray[np.int32], FloatArray]:
        """Return the columns of a ranking's non-zeros, and x and B x there, shape (2, V)."""
        n, before, after = self._n_items, ranking[self._pairs[0]], ranking[self._pairs[1]]
        low, high = np.minimum(before, after), np.maximum(before, after)
        pairs = 2 * n + 1 + low * (2 * n - low - 1) // 2 + high - low - 1
        columns = np.concatenate([ranking, n + ranking, [2 * n], pairs]).astype(np.int32)
        # D is antisymmetric: a column is that of the pair in ascending order.
        signs = np.concatenate([np.ones(2 * len(ranking) + 1), np.where(before < after, 1.0, -1.0)])
        return columns, work.times(signs, self._both)


def _moments(
    work: Arithmetic, context: FloatArray, towards: FloatArray, solved: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return k_x'(K + sigma^2 I)^-1 y and k(x, x) - k_x'(K + sigma^2 I)^-1 k_x; `solve` starts with that of y."""
    prior = float(work.product(context, context))
    return work.product(towards.T, solved[:, 0]), prior - work.dots(towards, solved[:, 1:])


def _conjugate_gradients(
    work: Arithmetic,
    mvm: Callable[[FloatArray], FloatArray],
    right: FloatArray,
    noise_variance: float,
    iterations: int,
) -> FloatArray:
    """Return about (K + sigma^2 I)^-1 G for G (t, A), after so many iterations for each column."""
    solved, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), work.dots(residual, residual)
    for _ in range(iterations):
        image = mvm(direction) + work.times(noise_variance, direction)
        step = work.over(square, np.maximum(work.dots(direction, image), _TINY))
        solved += work.times(step, direction)
        residual -= work.times(step, image)
        before, square = square, work.dots(residual, residual)
        direction = residual + work.times(work.over(square, np.maximum(before, _TINY)), direction)
    return solved


_TINY = 1e-300
