"""Reductions of symmetric matrices, against numpy's eigenvalues, inverses and solutions."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.learning._lapack import reduce_to_diagonals, whiten
from topk_bandit.learning.compiled import tridiagonal

each_size = pytest.mark.parametrize("size", [1, 2, 7, 80, 150])
RATIOS = np.array([1e-3, 0.3, 40.0])


def problem(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a covariance, three targets and a lower triangle."""
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size + 2))
    return root @ root.T, rng.normal(size=(3, size)), np.linalg.cholesky(root @ root.T + np.eye(size))


@each_size
def test_a_matrix_is_reduced_with_its_targets(size: int) -> None:
    matrix, targets, _ = problem(size)
    before = matrix.copy(), targets.copy()
    diagonal, beside, taken = reduce_to_diagonals(matrix, targets)
    reduced = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    for ratio in RATIOS:
        dense = targets @ np.linalg.solve(matrix + ratio * np.eye(size), targets.T)
        own = taken @ np.linalg.solve(reduced + ratio * np.eye(size), taken.T)
        np.testing.assert_allclose(own, dense, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(np.linalg.eigvalsh(reduced), np.linalg.eigvalsh(matrix), rtol=1e-9, atol=1e-9)
    for ours, given in zip((matrix, targets), before, strict=True):
        np.testing.assert_array_equal(ours, given)


@each_size
def test_only_the_lower_triangle_counts(size: int) -> None:
    matrix, targets, factor = problem(size)
    for ours, whole in (
        (reduce_to_diagonals(np.tril(matrix), targets), reduce_to_diagonals(matrix, targets)),
        (whiten(np.tril(matrix), targets, factor)[1:], whiten(matrix, targets, np.tril(factor))[1:]),
    ):
        for one, other in zip(ours, whole, strict=True):
            np.testing.assert_array_equal(one, other)


@each_size
def test_whitening_takes_out_the_factor(size: int) -> None:
    matrix, targets, factor = problem(size)
    whitened, taken = whiten(matrix, targets, factor)
    inverse = np.linalg.inv(factor)
    np.testing.assert_allclose(np.tril(whitened), np.tril(inverse @ matrix @ inverse.T), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(taken, targets @ inverse.T, rtol=1e-9, atol=1e-9)


@each_size
def test_the_profile_is_that_of_the_dense_matrix(size: int) -> None:
    matrix, targets, _ = problem(size)
    left = np.cov(np.random.default_rng(0).normal(size=(3, 9)))
    means, products, determinants = tridiagonal.profile(*reduce_to_diagonals(matrix, targets), left, RATIOS)
    for g, ratio in enumerate(RATIOS):
        noisy = matrix + ratio * np.eye(size)
        dense = targets @ np.linalg.solve(noisy, targets.T) + left / ratio
        np.testing.assert_allclose(means[g], dense[1] / dense[1, 1], rtol=1e-7)
        centring = np.eye(3) - np.outer(dense[1] / dense[1, 1], np.eye(3)[1])
        np.testing.assert_allclose(products[g], centring @ dense @ centring.T, rtol=1e-6, atol=1e-7 * dense.max())
        assert determinants[g] == pytest.approx(np.linalg.slogdet(noisy)[1], rel=1e-9, abs=1e-9)
