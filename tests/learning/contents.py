"""The content part of a kernel by definition, and shops whose items have features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tests.learning.shaped import ShapedKind, kind_of

from topk_bandit.learning.kendall import Shape, adaptive_kendall

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]


def attributes(n_items: int, n_features: int, seed: int = 0) -> FloatArray:
    """Draw features of items, all of length 1."""
    drawn = np.random.default_rng(seed).normal(size=(n_items, n_features))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


@dataclass(frozen=True)
class ContentKind(ShapedKind):
    """A kernel of the family for items with features, and its features by definition."""

    z: FloatArray | None = None

    def features(self, rankings: ArrayLike, n_items: int) -> FloatArray:
        assert self.z is not None
        orders = np.atleast_2d(np.asarray(rankings)).astype(np.intp)
        k = orders.shape[1]
        beyond = range(k + 1, n_items + 1)
        u = np.array([sum(self.rank_weight(place, other) for other in beyond) for place in range(1, k + 1)])
        sums = [sum(u[place] * self.z[item] for place, item in enumerate(order)) / u.sum() for order in orders]
        return np.column_stack([super().features(orders, n_items), np.sqrt(self.shape.content) * np.array(sums)])


def content_kind(shape: Shape, z: FloatArray) -> ContentKind:
    """Return the kernel with this shape for items with these features, and its definition."""
    plain = kind_of(shape)
    return ContentKind(
        f"{shape}",
        lambda n_items, slate_size: adaptive_kendall(n_items, slate_size, shape).with_item_features(z),
        plain.rank_weight,
        counts_unshown=True,
        shape=shape,
        z=z,
    )
