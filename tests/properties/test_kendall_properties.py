"""What holds for every Kendall kernel of top-k rankings, whatever the sizes, weights and rankings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.dense import dcg, one

from topk_bandit.learning.kendall import (
    KendallKernel,
    convolutional_kendall,
    weighted_convolutional_kendall,
    weighted_kendall,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def steep(first: int, second: int) -> float:
    return math.exp(-0.7 * (first + second))


def coupled(first: int, second: int) -> float:
    return 1.0 / (first + second) - 0.02 * abs(first - second)


WEIGHTS = st.sampled_from([dcg, one, steep, coupled])


@st.composite
def kernels(draw: st.DrawFn) -> KendallKernel:
    n_items = draw(st.integers(2, 14))
    kind = draw(st.sampled_from(["wk", "ck", "wck"]))
    slate_size = draw(st.integers(2 if kind == "wk" else 1, min(n_items, 6)))
    match kind:
        case "wk":
            return weighted_kendall(n_items, slate_size, rank_weight=draw(WEIGHTS))
        case "ck":
            return convolutional_kendall(n_items, slate_size)
        case _:
            return weighted_convolutional_kendall(n_items, slate_size, rank_weight=draw(WEIGHTS))


@st.composite
def rankings_for(draw: st.DrawFn, kernel: KendallKernel, *, most: int = 12) -> NDArray[np.int32]:
    orders = st.permutations(range(kernel.n_items)).map(lambda order: order[: kernel.slate_size])
    rows = draw(st.lists(orders, min_size=1, max_size=most))
    return np.array(rows, dtype=np.int32)


@given(st.data())
def test_a_gram_matrix_is_symmetric_with_a_unit_diagonal_and_no_negative_direction(data: st.DataObject) -> None:
    kernel = data.draw(kernels())
    rankings = data.draw(rankings_for(kernel))
    gram = kernel.gram(rankings, rankings)
    np.testing.assert_allclose(gram, gram.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(gram), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(0.5 * (gram + gram.T)).min() > -1e-10
    assert np.abs(gram).max() <= 1.0 + 1e-12


@given(st.data())
def test_the_names_of_the_items_do_not_matter(data: st.DataObject) -> None:
    kernel = data.draw(kernels())
    left, right = data.draw(rankings_for(kernel)), data.draw(rankings_for(kernel))
    names = np.array(data.draw(st.permutations(range(kernel.n_items))), dtype=np.int32)
    np.testing.assert_allclose(kernel.gram(names[left], names[right]), kernel.gram(left, right), atol=1e-12)


@given(st.data())
def test_sides_may_be_exchanged_and_rows_taken_one_by_one(data: st.DataObject) -> None:
    kernel = data.draw(kernels())
    left, right = data.draw(rankings_for(kernel)), data.draw(rankings_for(kernel))
    gram = kernel.gram(left, right)
    assert gram.shape == (len(left), len(right))
    np.testing.assert_allclose(kernel.gram(right, left), gram.T, atol=1e-12)
    for row, ranking in enumerate(left):
        assert kernel.gram(ranking[None], right)[0].tolist() == gram[row].tolist()


@given(st.data(), st.floats(1e-3, 1e3))
def test_the_size_of_the_weights_does_not_matter(data: st.DataObject, factor: float) -> None:
    n_items = data.draw(st.integers(2, 10))
    slate_size = data.draw(st.integers(2, min(n_items, 5)))
    weight = data.draw(WEIGHTS)
    make = data.draw(st.sampled_from([weighted_kendall, weighted_convolutional_kendall]))
    kernel = make(n_items, slate_size, rank_weight=weight)
    scaled = make(n_items, slate_size, rank_weight=lambda a, b: factor * weight(a, b))
    rankings = data.draw(rankings_for(kernel))
    np.testing.assert_allclose(scaled.gram(rankings, rankings), kernel.gram(rankings, rankings), atol=1e-10)
