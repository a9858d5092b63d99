"""Pairs of items with how much one is worth above the other, and the losses of scores that explain them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import validate_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Comparisons", "Loss", "check_positive", "validate_item_features"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LARGEST = 1e150
"""The squares of larger numbers overflow."""


class Loss(StrEnum):
    """Of a difference of scores t = s_j - s_i and what was observed of it, P.

    ``SQUARED``: (t - P)^2, for a number P or a sign. ``LOGISTIC``: log(1 + exp(-P t)), for a sign.
    """

    SQUARED = "squared"
    LOGISTIC = "logistic"


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """Pairs of items and how much more the second is worth than the first.

    Attributes
    ----------
    first, second
        Items i and j of each comparison, shape (m,).
    values
        P, an observation of s_j - s_i or of its sign, shape (m,).
    """

    first: IntArray
    second: IntArray
    values: FloatArray

    @classmethod
    def of(cls, pairs: ArrayLike, values: ArrayLike, *, n_items: int) -> Comparisons:
        """Return comparisons of pairs (i, j), shape (m, 2); a pair may come any number of times, and contradict itself.

        Raises
        ------
        InvalidArgumentError
            Naming ``pairs``, ``pairs[c]``, ``values`` or ``values[c]``: wrong shape, an item against itself, an index
            outside [0, n_items), or a value that is not finite.
        """
        array = np.asarray(pairs)
        if array.size == 0:
            array = np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidArgumentError("pairs", f"expected integers of shape (m, 2), got {array.dtype} {array.shape}")
        out = ((array < 0) | (array >= n_items)).any(axis=1)
        same = array[:, 0] == array[:, 1]
        for wrong, problem in ((out, f"expected items in [0, {n_items})"), (same, "an item against itself")):
            if wrong.any():
                raise InvalidArgumentError(f"pairs[{int(np.argmax(wrong))}]", problem)
        first, second = np.ascontiguousarray(array.T, dtype=np.int64)
        return cls(first, second, _numbers(values, len(array)))

    def __len__(self) -> int:
        return len(self.values)

    def check(self, loss: Loss, *, n_items: int) -> None:
        """Refuse comparisons of items outside [0, n_items), or whose values the loss can't be of.

        Raises
        ------
        InvalidArgumentError
            Naming ``comparisons`` or ``values[c]``.
        """
        ends = self.first, self.second
        if len(self) and not 0 <= min(int(end.min()) for end in ends) <= max(int(end.max()) for end in ends) < n_items:
            raise InvalidArgumentError("comparisons", f"expected items in [0, {n_items})")
        signs = np.abs(self.values) == 1.0
        if loss is Loss.LOGISTIC and not signs.all():
            raise InvalidArgumentError(f"values[{int(np.argmin(signs))}]", "expected -1 or 1 for the logistic loss")


def _numbers(values: ArrayLike, count: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError("values", "expected numbers") from None
    if array.shape != (count,):
        raise InvalidArgumentError("values", f"expected shape ({count},), got {array.shape}")
    wrong = ~(np.abs(array) < _LARGEST)
    if wrong.any():
        raise InvalidArgumentError(f"values[{int(np.argmax(wrong))}]", f"expected a number below {_LARGEST:g} in size")
    return array


def validate_item_features(features: ArrayLike, *, dimension: int | None = None) -> FloatArray:
    """Return features as a finite (n, d) matrix; d, which is `dimension` if that is given, may be 0.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``.
    """
    rows = np.asarray(features)
    if rows.ndim == 2 and rows.shape[1] == 0 and dimension in {None, 0}:
        return np.zeros(rows.shape)
    rows = validate_features(features, dimension=dimension)
    if np.abs(rows).max(initial=0.0) >= _LARGEST:
        raise InvalidArgumentError("features", f"expected numbers below {_LARGEST:g} in size")
    return rows


def check_positive(**numbers: float) -> None:
    """Refuse a number that is not positive and finite, by its name."""
    for field, number in numbers.items():
        if not (math.isfinite(number) and number > 0.0):
            raise InvalidArgumentError(field, f"expected a positive number, got {number}")
