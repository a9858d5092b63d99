"""DopeWolfe as its paper writes it (Algorithms 2 and 4), with the settings of its experiments.

Each iteration draws R subsets uniformly, takes the one with the largest gradient by the cached pair gradients, finds
its share by golden-section search on an r x r determinant, r = K (K - 1) / 2, and updates V^-1 by Woodbury's identity.
It begins with one subset and gamma I. Pair gradients come from one matrix product instead of a form for each pair.
`preferences.designs.optimal.d_optimal_subsets` is what this project uses instead, with a certificate of its gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["GAMMA", "SampledFrankWolfe", "random_subsets"]

GAMMA = 1e-6
MOST_SAMPLED = 100_000
TOLERANCE = 1e-16
GOLDEN = (1.0 + math.sqrt(5.0)) / 2.0


@dataclass(slots=True, eq=False)
class SampledFrankWolfe:
    """One run, iteration by iteration.

    Attributes
    ----------
    features
        For all items, shape (N, d).
    size
        K.
    weights
        The sparse iterate.
    inverse
        (V + gamma I)^-1.
    """

    features: Floats
    size: int
    rng: np.random.Generator
    weights: dict[tuple[int, ...], float] = field(init=False)
    inverse: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Begin with one subset."""
        subset = random_subsets(self.rng, len(self.features), self.size, 1)[0]
        differences = self._differences(subset)
        self.weights = {tuple(sorted(subset.tolist())): 1.0}
        regular: Floats = differences @ differences.T + GAMMA * np.eye(self.features.shape[1])
        self.inverse = np.asarray(np.linalg.inv(regular), dtype=np.float64)

    @property
    def sampled(self) -> int:
        """How many subsets an iteration draws, R."""
        return min(math.comb(len(self.features), self.size), MOST_SAMPLED)

    def iterate(self) -> None:
        """Take one step."""
        gram = self.features @ self.inverse @ self.features.T
        pairs = np.diag(gram)[:, None] + np.diag(gram) - 2.0 * gram
        subsets = random_subsets(self.rng, len(self.features), self.size, self.sampled)
        gradients = np.zeros(len(subsets))
        for j, k in combinations(range(self.size), 2):
            gradients += pairs[subsets[:, j], subsets[:, k]]
        best = subsets[np.argmax(gradients)]
        differences = self._differences(best)
        share = self._golden_search(differences.T @ self.inverse @ differences)
        self._move(tuple(sorted(best.tolist())), differences, share)

    def _differences(self, subset: Integers) -> Floats:
        """Return A_S, shape (d, r)."""
        first, second = np.triu_indices(self.size, 1)
        return np.asarray((self.features[subset[first]] - self.features[subset[second]]).T)

    def _golden_search(self, inner: Floats) -> float:
        """Return the share that maximises log det, given A_S' V^-1 A_S."""
        d, r = len(self.inverse), len(inner)

        def log_det(share: float) -> float:
            return d * math.log(1.0 - share) + float(np.linalg.slogdet(np.eye(r) + share / (1.0 - share) * inner)[1])

        low, high = 0.0, 1.0
        left, right = high - (high - low) / GOLDEN, low + (high - low) / GOLDEN
        at_left, at_right = log_det(left), log_det(right)
        for _ in range(math.ceil(math.log(1.0 / TOLERANCE, GOLDEN))):
            if at_left > at_right:
                high, right, at_right = right, left, at_left
                left = high - (high - low) / GOLDEN
                at_left = log_det(left)
            else:
                low, left, at_left = left, right, at_right
                right = low + (high - low) / GOLDEN
                at_right = log_det(min(right, 1.0 - 1e-15))
        return 0.5 * (low + high)

    def _move(self, subset: tuple[int, ...], differences: Floats, share: float) -> None:
        scaled, step = self.inverse / (1.0 - share), math.sqrt(share) * differences
        image = scaled @ step
        kept = scaled - image @ np.linalg.solve(np.eye(step.shape[1]) + step.T @ image, image.T)
        # `image.T` stands for step' V^-1: the inverse would else drift from symmetry, and from V.
        self.inverse = 0.5 * (kept + kept.T)
        self.weights = {one: (1.0 - share) * weight for one, weight in self.weights.items()}
        self.weights[subset] = self.weights.get(subset, 0.0) + share


def random_subsets(rng: np.random.Generator, n_items: int, size: int, count: int) -> Integers:
    """Return `count` subsets drawn uniformly, shape (count, K); they may repeat, their items do not."""
    subsets = rng.integers(n_items, size=(count, size))
    while True:
        ordered = np.sort(subsets, axis=1)
        repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not repeated.any():
            return subsets
        subsets[repeated] = rng.integers(n_items, size=(int(repeated.sum()), size))
