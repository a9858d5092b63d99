"""The content part of a kernel: slates are alike whose items have like attributes, be they the same items or not.

With features z_i of the items and the weights u_p of the positions, s_pi = sum_p u_p z_{pi_p} and

    k_content(pi, pi') = s_pi.s_pi' / (sum_p u_p)^2

a kernel of rank q, which no slate's variance exceeds 1 under when no z_i is longer than 1. It is what a linear
function of the features adds to a slate, item by item, so it says something of items that were never shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.compiled import kendall

__all__ = ["MOST_FEATURES", "Content", "validated_features"]

FloatArray = NDArray[np.float64]

MOST_FEATURES = 64
"""q at most."""

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """rho k_content as the product of explicit features, phi_pi = sqrt(rho) s_pi / sum_p u_p.

    Attributes
    ----------
    features
        z, shape (n, q).
    item_weight
        u by position, shape (k,).
    unit
        sqrt(rho) / sum_p u_p: an item at position p adds u_p unit z to phi; 0 where the part counts for nothing.
    """

    features: FloatArray
    item_weight: FloatArray
    unit: float

    @classmethod
    def of(cls, features: FloatArray, item_weight: FloatArray, share: float) -> Content:
        """Return the part of these features with a share rho; of none, where positions have no weights of their own."""
        total = float(item_weight.sum())
        return cls(features, item_weight, float(np.sqrt(share)) / total if total > 0.0 else 0.0)

    def with_features(self, features: FloatArray) -> Content:
        """Return the part with other features of the items."""
        return replace(self, features=features)

    def of_items(self, items: NDArray[np.integer]) -> FloatArray:
        """Return unit z of items (E,), shape (E, q): what they add to phi at a position of weight one."""
        return np.asarray(self.unit * self.features[items], dtype=np.float64)

    def of_slates(self, rankings: NDArray[np.integer]) -> FloatArray:
        """Return phi of rankings (A, k), shape (A, q)."""
        return np.asarray(kendall.sum_rows(self.features, rankings, self.unit * self.item_weight), dtype=np.float64)


def validated_features(features: NDArray[np.float64], *, n_items: int) -> FloatArray:
    """Return a copy of the features of all items.

    Raises
    ------
    InvalidArgumentError
        They are not 1 to `MOST_FEATURES` finite numbers for each of `n_items` items, or longer than 1.
    """
    rows = lay_out(np.asarray(features, dtype=np.float64))
    if rows.ndim != 2 or len(rows) != n_items or not 1 <= rows.shape[1] <= MOST_FEATURES:
        raise InvalidArgumentError(
            "features", f"expected 1 to {MOST_FEATURES} numbers for each of {n_items} items, got {np.shape(features)}"
        )
    squares = np.einsum("iq,iq->i", rows, rows)
    # Numbers that are not finite are not less than anything either.
    if not (squares <= (1.0 + _ROUNDING) ** 2).all():
        raise InvalidArgumentError("features", "expected finite numbers, of length 1 or less for each item")
    return rows
