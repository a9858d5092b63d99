"""Features as answers can tell them apart.

Rankings, choices and pairs only tell about differences of utilities between items that can be in one list, so a
direction in which no such two items differ can never be learned. Features are therefore turned into coordinates of the
span of these differences. Nothing is lost: with theta ~ N(0, v I) in the features as given, the differences of
utilities have the same distribution in the coordinates. Ratings tell about utilities themselves, up to what a rating of
zero means: the features are joined by a one.

Utilities in coordinates are those above the mean item's, so that their spread is not that of a constant which nobody
can learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import FloatArray, validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Span", "centre", "cross_features", "span_of_differences", "span_of_values"]

_NOTHING = 1e-9
"""Directions whose singular value is this part of the largest are taken for rounding."""

_LEAST = 1e-150
"""Features that differ by less are alike: coordinates that tell them apart would be too large."""

_ROUNDING = 1e-13
"""Differences that are this part of the features themselves are taken for rounding, of the mean for example."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Coordinates for features.

    Attributes
    ----------
    coordinates
        For the items that the span was made of, about the mean of their group, shape (N, r).
    basis
        Turns features into coordinates, but for a constant of their group, shape (d, r). So ``basis @ theta`` are the
        weights of the features as given.
    """

    coordinates: FloatArray
    basis: FloatArray

    @property
    def rank(self) -> int:
        """How many numbers a coordinate has, r."""
        return int(self.basis.shape[1])


def span_of_differences(
    features: ArrayLike,
    *,
    groups: NDArray[np.integer] | None = None,
    compared: NDArray[np.integer] | None = None,
) -> Span:
    """Return the span of the differences of items that are compared, scaled so that these have a mean square of 1.

    Parameters
    ----------
    features
        Shape (N, d).
    groups
        Group of each item, shape (N,), about whose mean coordinates are. None: all are one group.
    compared
        Which items are compared, as groups of their own, each within one of `groups`. None: all of one group are.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: no finite matrix, or all items that are compared are alike, or differ by less than 1e-150.
    """
    rows = validate_features(features)
    # A power of two, by which squares of the largest numbers are finite, and no digit is lost.
    unit = 2.0 ** float(np.frexp(np.abs(rows).max(initial=_LEAST))[1])
    rows = rows / unit
    group_of = np.zeros(len(rows), dtype=np.intp) if groups is None else groups
    within = centre(rows, group_of)
    differences = within if compared is None else centre(rows, compared)
    basis = _find_basis(differences, least=max(_ROUNDING * float(np.linalg.norm(rows)), _LEAST / unit))
    return Span(within @ basis, basis / unit)


def span_of_values(features: ArrayLike, *, compared: NDArray[np.integer] | None = None) -> Span:
    """Return the span of features joined by a one, scaled as differences are; the one is the last coordinate.

    Arguments and errors as for `span_of_differences`.
    """
    span = span_of_differences(features, compared=compared)
    ones, nothing = np.ones((len(span.coordinates), 1)), np.zeros((len(span.basis), 1))
    return Span(np.hstack([span.coordinates, ones]), np.hstack([span.basis, nothing]))


def centre(rows: FloatArray, groups: NDArray[np.integer]) -> FloatArray:
    """Return rows, shape (N, d), about the mean of their group; groups have labels of shape (N,)."""
    group_of = np.unique(groups, return_inverse=True)[1]
    means = np.zeros((int(group_of.max(initial=0)) + 1, rows.shape[1]))
    np.add.at(means, group_of, rows)
    return np.asarray(rows - (means / np.bincount(group_of)[:, None])[group_of])


def cross_features(queries: FloatArray, items: FloatArray) -> FloatArray:
    """Return the features vec(query item') of every query with every item, query by query, shape (Q N, d_q d_i)."""
    rows = np.einsum("qa,nb->qnab", queries, items).reshape(len(queries) * len(items), -1)
    return np.ascontiguousarray(rows, dtype=np.float64)


def _find_basis(rows: FloatArray, *, least: float) -> FloatArray:
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    if not len(sizes) or sizes[0] <= least:
        raise InvalidArgumentError("features", "all items that can be compared are alike")
    kept = directions[sizes > _NOTHING * sizes[0]]
    scale = np.sqrt(len(rows)) / np.linalg.norm(rows)
    return np.ascontiguousarray(kept.T * scale)
