"""The adaptive family of kernels by definition."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tests.learning.dense import Kind, dcg, pair_features

from topk_bandit.learning.kendall import Shape, adaptive_kendall

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]

FIRST = Shape()


@dataclass(frozen=True)
class ShapedKind(Kind):
    """A kernel of the family, and its features by definition: those of Claim 3 with D times tau, and a constant."""

    shape: Shape = FIRST

    def features(self, rankings: ArrayLike, n_items: int) -> FloatArray:
        orders = np.atleast_2d(np.asarray(rankings)).astype(np.intp)
        whole = pair_features(orders, n_items=n_items, rank_weight=self.rank_weight, counts_unshown=True)
        beyond = range(orders.shape[1] + 1, n_items + 1)
        outside = [sum(self.rank_weight(rank + 1, other) for other in beyond) for rank in range(orders.shape[1])]
        u = np.zeros((len(orders), n_items))
        np.put_along_axis(u, orders, np.tile(outside, (len(orders), 1)) / max(len(beyond), 1), axis=1)
        first, second = np.array(list(itertools.combinations(range(n_items), 2)), dtype=np.intp).T
        gradient = u[:, first] - u[:, second]
        features = gradient + self.shape.pair_scale * (whole - gradient)
        own = features / np.linalg.norm(features, axis=1, keepdims=True)
        return np.column_stack([own, np.full(len(own), math.sqrt(self.shape.constant))])


def kind_of(shape: Shape) -> ShapedKind:
    """Return the kernel with this shape, and its definition."""
    return ShapedKind(
        f"{shape}",
        lambda n_items, slate_size: adaptive_kendall(n_items, slate_size, shape),
        lambda first, second: dcg(first, second) ** shape.power,
        counts_unshown=True,
        shape=shape,
    )
