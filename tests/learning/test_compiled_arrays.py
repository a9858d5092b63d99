"""What loops need of arrays, against numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from topk_bandit.learning.compiled.arrays import add_up, are_equal, copy, find_largest, sort_descending

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = st.lists(st.integers(-3, 3), min_size=1, max_size=9)


@njit
def called(values: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], bool, int, NDArray[np.int64]]:
    """Return what the four say of some numbers; compiled code alone can call them."""
    copied = np.empty_like(values)
    copy(copied, values)
    return copied, are_equal(values, copied), find_largest(values), sort_descending(values, count)


@njit
def same(left: NDArray[np.int64], right: NDArray[np.int64]) -> bool:
    """Return whether two arrays are equal."""
    return are_equal(left, right)


@njit
def summed(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums up to each number."""
    return add_up(numbers)


@given(numbers=NUMBERS)
def test_sums_are_those_of_numpy(numbers: list[int]) -> None:
    assert summed(np.array(numbers)).tolist() == np.cumsum(numbers).tolist()


@given(numbers=NUMBERS, count=st.integers(1, 9))
def test_they_do_what_numpy_does(numbers: list[int], count: int) -> None:
    values, count = np.array(numbers, dtype=np.float64), min(count, len(numbers))
    copied, equal, largest, places = called(values, count)
    assert copied.tolist() == numbers
    assert equal
    assert largest == np.argmax(values)
    assert places.tolist() == np.argsort(-values, kind="stable")[:count].tolist()


@given(left=NUMBERS, right=NUMBERS)
def test_arrays_are_equal_if_all_numbers_are(left: list[int], right: list[int]) -> None:
    size = min(len(left), len(right))
    assert same(np.array(left[:size]), np.array(right[:size])) == (left[:size] == right[:size])
