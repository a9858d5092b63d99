"""Prior means the slow way: by Claim 3's pair features, one pair after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.posterior import Moments
from topk_bandit.learning.prior_mean import PriorMean

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.learning.dense import DenseGp, IntArray, Kind

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Utilities:
    """Utilities of all items of a bandit, constants_i + c . slopes_i, centred: what a prior mean is made of."""

    constants: FloatArray
    slopes: FloatArray

    @classmethod
    def draw(cls, rng: np.random.Generator, *, n_items: int, context_dim: int, of: str) -> Utilities:
        constants = rng.normal(size=n_items) if of == "items" else np.zeros(n_items)
        slopes = rng.normal(size=(n_items, context_dim)) if of == "contexts" else np.zeros((n_items, context_dim))
        return cls(constants - constants.mean(), slopes - slopes.mean(axis=0))

    def prior_mean(self, kind: Kind, slate_size: int) -> PriorMean:
        kernel = kind.make(len(self.constants), slate_size)
        return PriorMean.of(kernel, self.constants, self.slopes, np.arange(len(self.constants)))

    def h(self, kind: Kind, contexts: FloatArray, rankings: IntArray) -> FloatArray:
        """Return the prior mean of each (context, ranking), from pair features and the variance of single places."""
        n_items, slate_size = len(self.constants), rankings.shape[1]
        wbar = mean_weights(kind, slate_size, n_items)
        values = []
        for context, ranking in zip(contexts, rankings.tolist(), strict=True):
            scale = context[0] if len(context) == 1 else 1.0
            utilities = self.constants * scale + self.slopes @ context
            total = 0.0
            for i, j in combinations(range(n_items), 2):
                total += _pair_feature(kind, ranking, i, j, wbar) * (utilities[i] - utilities[j])
            values.append(total)
        return np.array(values) / self._deviation(kind, slate_size, wbar)

    def _deviation(self, kind: Kind, slate_size: int, wbar: list[float]) -> float:
        """Standard deviation of the prior mean over slates whose places are filled independently."""
        weights = weights_of_places(kind, len(self.constants), wbar)
        assert len(weights) == slate_size
        variance = np.var(self.constants) + self.slopes.var(axis=0).mean()
        return math.sqrt(variance * sum(weight * weight for weight in weights))


def weights_of_places(kind: Kind, n_items: int, wbar: list[float]) -> list[float]:
    """Return what a place gives to the one item that it has a utility for: what its item's pairs add up to."""
    ranking = list(range(len(wbar)))
    others = [[j for j in range(n_items) if j != i] for i in ranking]
    return [
        sum(wbar) + sum(_pair_feature(kind, ranking, i, j, wbar) for j in rest)
        for i, rest in zip(ranking, others, strict=True)
    ]


def mean_weights(kind: Kind, slate_size: int, n_items: int) -> list[float]:
    """Return the mean rank weight of each place and of the places beyond the slate."""
    return [_mean_weight(kind, p, slate_size, n_items) for p in range(1, slate_size + 1)]


def _mean_weight(kind: Kind, position: int, slate_size: int, n_items: int) -> float:
    if not kind.counts_unshown or slate_size == n_items:
        return 0.0
    beyond = [kind.rank_weight(position, rank) for rank in range(slate_size + 1, n_items + 1)]
    return sum(beyond) / len(beyond)


def _pair_feature(kind: Kind, ranking: list[int], i: int, j: int, wbar: list[float]) -> float:
    """Return F_ij: how much i is above j."""
    if i in ranking and j in ranking:
        a, b = ranking.index(i), ranking.index(j)
        return kind.rank_weight(a + 1, b + 1) * (1 if a < b else -1)
    if i in ranking:
        return wbar[ranking.index(i)]
    return -wbar[ranking.index(j)] if j in ranking else 0.0


@dataclass(frozen=True)
class Believer:
    """A dense Gaussian process with a prior mean: one without, of what the prior mean does not explain."""

    gp: DenseGp
    utilities: Utilities
    slope: float

    @property
    def h(self) -> FloatArray:
        return self.utilities.h(self.gp.kind, self.gp.contexts, self.gp.rankings)

    def predict(self, context: FloatArray, rankings: IntArray) -> Moments:
        rest = replace(self.gp, rewards=self.gp.rewards - self.slope * self.h).predict(context, rankings)
        there = self.utilities.h(self.gp.kind, np.tile(context, (len(rankings), 1)), rankings)
        return Moments(rest.mean + self.slope * there, rest.variance)
