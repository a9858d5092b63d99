"""Designs computed slowly, from their definitions alone."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["all_matrices", "best_log_det", "gradients", "information", "log_det", "scatter_matrix"]


def information(matrices: Floats, weights: Floats) -> Floats:
    """V = sum_i p_i A_i A_i'."""
    total = np.zeros((matrices.shape[1], matrices.shape[1]))
    for matrix, weight in zip(matrices, weights, strict=True):
        total += weight * matrix @ matrix.T
    return total


def log_det(matrices: Floats, weights: Floats) -> float:
    sign, value = np.linalg.slogdet(information(matrices, weights))
    assert sign > 0
    return float(value)


def gradients(matrices: Floats, weights: Floats) -> Floats:
    """g_i = tr(A_i' V^-1 A_i)."""
    inverse = np.linalg.inv(information(matrices, weights))
    return np.array([np.trace(matrix.T @ inverse @ matrix) for matrix in matrices])


def best_log_det(matrices: Floats) -> float:
    """The largest log det V of all, by a general optimiser."""

    def loss(weights: Floats) -> tuple[float, Floats]:
        return -log_det(matrices, weights), -gradients(matrices, weights)

    count = len(matrices)
    found = minimize(
        loss,
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=[(1e-12, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": np.ones_like},
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    return -float(found.fun)


def all_matrices(
    features: Floats, size: int, *, is_ranking: bool, groups: Floats | None = None
) -> tuple[list[tuple[int, ...]], Floats]:
    """All subsets of a size within a group, and their matrices."""
    label = np.zeros(len(features)) if groups is None else groups
    subsets = [one for one in combinations(range(len(features)), size) if len(set(label[list(one)])) == 1]
    matrices = []
    for subset in subsets:
        rows = features[list(subset)]
        pairs = [rows[j] - rows[k] for j, k in combinations(range(size), 2)]
        matrices.append(np.array(pairs if is_ranking else rows).T)
    return subsets, np.array(matrices)


def scatter_matrix(features: Floats, subset: NDArray[np.int64]) -> Floats:
    """A_S A_S' of a ranked subset as K times the scatter about the mean."""
    rows = features[subset] - features[subset].mean(axis=0)
    return np.asarray(len(subset) * rows.T @ rows)
