"""Coordinates in which answers can tell features apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.designs.spans import cross_features, span_of_differences, span_of_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.preferences.designs.spans import Span


def test_differences_of_utilities_keep_their_prior() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(12, 4)) @ rng.normal(size=(4, 9)) + 5.0
    span = span_of_differences(features)
    scale = np.sqrt(((features - features.mean(axis=0)) ** 2).sum() / 12)
    differences = features[:, None] - features[None]
    reduced = span.coordinates[:, None] - span.coordinates[None]
    assert span.rank == 4
    np.testing.assert_allclose(span.coordinates.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose((features - features.mean(axis=0)) @ span.basis, span.coordinates, atol=1e-12)
    expected = np.einsum("ijd,kld->ijkl", differences, differences) / scale**2
    np.testing.assert_allclose(np.einsum("ijd,kld->ijkl", reduced, reduced), expected, atol=1e-10)


def test_only_differences_within_a_group_count() -> None:
    # The third feature differs between the groups alone, so no list of one group can tell about it.
    features = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [0, 0, 2], [1, 1, 2], [2, 0, 2]], dtype=float)
    assert span_of_differences(features).rank == 3
    span = span_of_differences(features, groups=np.array([7, 7, 7, 3, 3, 3]))
    assert span.rank == 2
    np.testing.assert_allclose(span.coordinates.reshape(2, 3, 2).mean(axis=1), 0.0, atol=1e-12)


def test_items_without_features_of_their_own_have_one_direction_less() -> None:
    assert span_of_differences(np.eye(6)).rank == 5


@pytest.mark.parametrize("span", [span_of_differences, span_of_values])
def test_what_the_mean_of_equal_numbers_is_rounded_by_is_no_difference(span: Callable[..., Span]) -> None:
    assert (0.1 + 0.1 + 0.1) / 3 != 0.1
    rows = np.full((3, 1), 0.1)
    with pytest.raises(InvalidArgumentError, match="alike"):
        span(rows)


def test_mean_squares_do_not_depend_on_the_unit() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(30, 3))
    for unit in (1e-6, 1.0, 1e6):
        coordinates = span_of_differences(features * unit).coordinates
        np.testing.assert_allclose((coordinates**2).sum() / 30, 1.0)


def test_values_can_say_what_their_differences_and_a_constant_can() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 5)) + 3.0
    span = span_of_values(features)
    assert span.rank == 3
    np.testing.assert_allclose((features - features.mean(axis=0)) @ span.basis[:, :2], span.coordinates[:, :2])
    np.testing.assert_allclose(span.coordinates[:, -1], 1.0)
    utilities = features @ rng.normal(size=5) + 2.0
    theta, *_ = np.linalg.lstsq(span.coordinates, utilities)
    np.testing.assert_allclose(span.coordinates @ theta, utilities)


def test_crossed_features_are_outer_products() -> None:
    rng = np.random.default_rng(3)
    queries, items = rng.normal(size=(3, 2)), rng.normal(size=(4, 5))
    rows = cross_features(queries, items)
    assert rows.shape == (12, 10)
    np.testing.assert_array_equal(rows[1 * 4 + 2], np.outer(queries[1], items[2]).reshape(-1))


@pytest.mark.parametrize("exponent", [-400, -3, 0, 60, 1000])
def test_another_unit_of_features_is_another_unit_of_the_basis(exponent: int) -> None:
    features = np.random.default_rng(5).normal(size=(7, 3))
    one, other = (span_of_differences(unit * features) for unit in (1.0, 2.0**exponent))
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.basis, 2.0**exponent * other.basis)


@pytest.mark.parametrize("span", [span_of_differences, span_of_values])
def test_features_that_tell_nothing_are_refused(span: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^features: all items .* are alike$"):
        span(np.ones((3, 2)))  # type: ignore[operator]
    with pytest.raises(InvalidArgumentError, match=r"^features: all items .* are alike$"):
        span([[1e-320, 0.0], [2e-320, 5e-324]])  # type: ignore[operator]
    with pytest.raises(InvalidArgumentError, match=r"^features\[1\]\[0\]: expected a finite number$"):
        span([[1.0], [np.nan]])  # type: ignore[operator]
