from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.learning.compiled.kendall import rotate_out, rotate_rows, rotate_to_front

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SIZES = [1, 2, 3, 15, 16, 17, 40]


def factor_of(size: int, rng: np.random.Generator) -> FloatArray:
    return np.tril(rng.normal(size=(size, size))) + 4.0 * np.eye(size)


def rotated_one_after_the_other(whitened: FloatArray, rotations: FloatArray) -> FloatArray:
    turned = whitened.copy()
    for first, cosine, sine in rotations.tolist():
        left, right = turned[:, int(first)].copy(), turned[:, int(first) + 1].copy()
        turned[:, int(first)] = cosine * left + sine * right
        turned[:, int(first) + 1] = cosine * right - sine * left
    return turned


def rotate(
    whitened: FloatArray, order: NDArray[np.intp], rotations: FloatArray, gone: int
) -> tuple[FloatArray, FloatArray]:
    others, column = np.full((len(order), whitened.shape[1] - 1), np.nan), np.full(len(order), np.nan)
    rotate_rows(whitened, order, rotations, gone, others, column)
    return others, column


@pytest.mark.parametrize("size", SIZES)
def test_a_row_comes_to_the_front_of_the_factor(size: int) -> None:
    rng = np.random.default_rng(size)
    for chosen in range(size):
        before = factor_of(size, rng)
        after = before.copy()
        rotations = rotate_to_front(after, chosen)
        order = [chosen, *(row for row in range(size) if row != chosen)]
        np.testing.assert_allclose(after @ after.T, (before @ before.T)[np.ix_(order, order)], atol=1e-11)
        np.testing.assert_allclose(np.triu(after, 1), 0.0, atol=1e-13)
        np.testing.assert_allclose(rotated_one_after_the_other(before[order], rotations), after, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("size", SIZES)
def test_a_row_leaves_the_factor(size: int) -> None:
    rng = np.random.default_rng(size)
    for chosen in range(size):
        before = factor_of(size, rng)
        after = before.copy()
        rotations = rotate_out(after, chosen)
        others = [row for row in range(size) if row != chosen]
        left = after[:-1, :-1]
        np.testing.assert_allclose(left @ left.T, (before @ before.T)[np.ix_(others, others)], atol=1e-11)
        turned = rotated_one_after_the_other(before[others], rotations)
        np.testing.assert_allclose(turned[:, :-1], left, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_rows", [0, 1, 16, 37])
def test_rows_are_rotated_to_the_bit_as_one_rotation_after_the_other_does(size: int, n_rows: int) -> None:
    rng = np.random.default_rng([size, n_rows])
    whitened = rng.normal(size=(n_rows + size, size))
    order = rng.permutation(len(whitened))[: n_rows + size - n_rows % 2]
    for chosen in range(size):
        to_front, out = rotate_to_front(factor_of(size, rng), chosen), rotate_out(factor_of(size, rng), chosen)
        for rotations, gone in ((to_front, 0), (out, size - 1)):
            expected = rotated_one_after_the_other(whitened[order], rotations)
            others, column = rotate(whitened, order, rotations, gone)
            assert others.tobytes() == np.delete(expected, gone, axis=1).tobytes()
            assert column.tobytes() == expected[:, gone].tobytes()
