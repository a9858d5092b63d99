"""Solving with a graph Laplacian plus a ridge, M = L + lambda I: by a factor if it is small, else step by step.

M has nonpositive elements off its diagonal and is diagonally dominant, and what it does to a vector that is constant on
each connected component is known: M^-1 1 = 1 / lambda.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

__all__ = ["RidgedLaplacian"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DENSE = 2048
"""Up to so many nodes M is factorised: 30 MB, and less than a second."""

_PROBES = 128
_ACCURACY = 1e-13
_ROUGHLY = 1e-3
_PATIENCE = 20_000


class RidgedLaplacian:
    """M for a graph with weighted edges.

    Parameters
    ----------
    first, second, weights
        Ends and weights c > 0 of the edges, shape (m,) each; edges may be repeated.
    ridge
        lambda > 0.
    n_nodes
        Size of M.
    """

    def __init__(self, first: IntArray, second: IntArray, weights: FloatArray, *, ridge: float, n_nodes: int) -> None:
        ends = np.concatenate([first, second]), np.concatenate([second, first])
        adjacency = csr_array(coo_array((np.concatenate([weights, weights]), ends), shape=(n_nodes, n_nodes)))
        self._adjacency, self._degrees, self._ridge = adjacency, adjacency.sum(axis=0), ridge
        self._lower: FloatArray | None = None
        if n_nodes <= DENSE:
            dense = -adjacency.toarray()
            dense[np.diag_indices(n_nodes)] += self._degrees + ridge
            self._lower = np.linalg.cholesky(dense)

    def times(self, vectors: FloatArray) -> FloatArray:
        """Return L V for V of shape (n, .)."""
        return np.asarray(self._degrees[:, None] * vectors - self._adjacency @ vectors)

    def solve(self, vectors: FloatArray) -> FloatArray:
        """Return M^-1 V for V of shape (n, .)."""
        if self._lower is None:
            return self._conjugate_gradients(vectors, _ACCURACY)
        return np.asarray(cho_solve((self._lower, True), vectors))

    def inverse_diagonal(self) -> FloatArray:
        """Return the diagonal of M^-1, (n,), exactly where M was factorised.

        Elsewhere it is estimated: with P the projection on vectors that are constant on components, M^-1 - P / lambda
        has elements that fall off quickly from its diagonal, and the mean of v * (M^-1 - P / lambda) v over vectors v
        of random signs is its diagonal but for a few percent. The signs are fixed.
        """
        if self._lower is not None:
            inverse = solve_triangular(self._lower, np.eye(len(self._lower)), lower=True)
            return np.asarray((inverse**2).sum(axis=0))
        labels = connected_components(self._adjacency, directed=False)[1]
        sizes = np.bincount(labels)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(labels), _PROBES))
        means = np.stack([np.bincount(labels, weights=column) for column in signs.T], axis=1) / sizes[:, None]
        found = (signs * self._conjugate_gradients(signs - means[labels], _ROUGHLY)).mean(axis=1)
        least = 1.0 / (self._degrees + self._ridge)
        return np.asarray(np.maximum(found + 1.0 / (self._ridge * sizes[labels]), least))

    def _conjugate_gradients(self, vectors: FloatArray, accuracy: float) -> FloatArray:
        """Solve for all columns at once, preconditioned with the diagonal."""
        diagonal = (self._degrees + self._ridge)[:, None]
        found, left = np.zeros_like(vectors), vectors.copy()
        towards = scaled = left / diagonal
        size = (left * scaled).sum(axis=0)
        enough = accuracy**2 * size
        for _ in range(_PATIENCE):
            if (size <= enough).all():
                break
            image = self.times(towards) + self._ridge * towards
            across = (towards * image).sum(axis=0)
            step = np.divide(size, across, out=np.zeros_like(size), where=across > 0.0)
            found += step * towards
            left -= step * image
            scaled = left / diagonal
            before, size = size, (left * scaled).sum(axis=0)
            towards = scaled + np.divide(size, before, out=np.zeros_like(size), where=before > 0.0) * towards
        return found
