"""Slow, plain versions of what the learner computes fast: nothing here uses the package's arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.kendall import convolutional_kendall, weighted_convolutional_kendall, weighted_kendall
from topk_bandit.learning.observed_rows import Observations, ObservedRows
from topk_bandit.learning.posterior import Moments, PendingSlates, Posterior

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from topk_bandit.learning.kendall import KendallKernel

    RankWeight: TypeAlias = Callable[[int, int], float]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]


def dcg(first: int, second: int) -> float:
    return 1.0 / math.log(first + 1) / math.log(second + 1)


def one(_first: int, _second: int) -> float:
    return 1.0


@dataclass(frozen=True)
class Kind:
    """A kernel of the package and the definition that it stands for."""

    name: str
    make: Callable[[int, int], KendallKernel]
    rank_weight: RankWeight
    counts_unshown: bool

    def features(self, rankings: ArrayLike, n_items: int) -> FloatArray:
        return unit_features(
            rankings, n_items=n_items, rank_weight=self.rank_weight, counts_unshown=self.counts_unshown
        )


WK = Kind("wk", weighted_kendall, dcg, counts_unshown=False)
CK = Kind("ck", convolutional_kendall, one, counts_unshown=True)
WCK = Kind("wck", weighted_convolutional_kendall, dcg, counts_unshown=True)
KINDS = (WK, CK, WCK)


def unit_features(rankings: ArrayLike, *, n_items: int, rank_weight: RankWeight, counts_unshown: bool) -> FloatArray:
    """Return the features of Claim 3, one row per ranking, one column per pair of items, each row of norm 1."""
    features = pair_features(rankings, n_items=n_items, rank_weight=rank_weight, counts_unshown=counts_unshown)
    return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))


def pair_features(rankings: ArrayLike, *, n_items: int, rank_weight: RankWeight, counts_unshown: bool) -> FloatArray:
    """Return the features of Claim 3 as they are, one row per ranking, one column per pair of items."""
    orders = np.atleast_2d(np.asarray(rankings))
    slate_size = orders.shape[1]
    unshown = slate_size + 1
    weight = np.zeros((unshown + 1, unshown + 1))
    for a in range(1, unshown):
        for b in range(1, unshown):
            weight[a, b] = rank_weight(a, b)
        if counts_unshown and slate_size < n_items:
            beyond = [rank_weight(a, b) for b in range(unshown, n_items + 1)]
            weight[a, unshown] = weight[unshown, a] = sum(beyond) / len(beyond)
    ranks = np.full((len(orders), n_items), unshown)
    np.put_along_axis(ranks, orders.astype(np.intp), np.arange(1, unshown), axis=1)
    first, second = np.array(list(combinations(range(n_items), 2)), dtype=np.intp).T
    above, below = ranks[:, first], ranks[:, second]
    return np.asarray(weight[above, below] * np.sign(below - above))


def completions(ranking: Sequence[int], n_items: int) -> NDArray[np.intp]:
    """Return the item ranks (from 1) of every full ranking that starts with `ranking`, shape ((n-k)!, n)."""
    rest = [item for item in range(n_items) if item not in ranking]
    orders = np.array([[*ranking, *tail] for tail in permutations(rest)])
    return np.argsort(orders, axis=1) + 1


def convolution(left: Sequence[int], right: Sequence[int], *, n_items: int, rank_weight: RankWeight) -> float:
    """Return Eq. 4 as it is written: Eq. 2 with the weights of Eq. 5, averaged over all pairs of completions."""
    ranks = range(1, n_items + 1)
    table = np.array([[0.0] * (n_items + 1), *([0.0, *(rank_weight(a, b) for b in ranks)] for a in ranks)])
    total, count = 0.0, 0
    for s in completions(left, n_items):
        for t in completions(right, n_items):
            count += 1
            for i, j in combinations(range(n_items), 2):
                concordant = (s[i] < s[j]) == (t[i] < t[j])
                total += table[s[i], s[j]] * table[t[i], t[j]] * (1 if concordant else -1)
    return total / count / math.comb(n_items, 2)


def shown_pairs(left: Sequence[int], right: Sequence[int], *, n_items: int, rank_weight: RankWeight) -> float:
    """Return Eq. 2 with a weight of zero for every pair that is not in both slates."""
    total = 0.0
    for i, j in combinations(sorted(set(left) & set(right)), 2):
        a, b, c, d = left.index(i), left.index(j), right.index(i), right.index(j)
        sign = 1 if (a < b) == (c < d) else -1
        total += sign * rank_weight(a + 1, b + 1) * rank_weight(c + 1, d + 1)
    return total / math.comb(n_items, 2)


@dataclass(frozen=True)
class DenseGp:
    """A Gaussian process by the textbook: an explicit covariance matrix and `np.linalg.solve`."""

    kind: Kind
    n_items: int
    noise_variance: float
    contexts: FloatArray
    rankings: IntArray
    rewards: FloatArray
    pending_contexts: FloatArray | None = None
    pending_rankings: IntArray | None = None
    offset: float = 0.0
    amplitude: float = 1.0

    def covariance(self, left: tuple[FloatArray, IntArray], right: tuple[FloatArray, IntArray]) -> FloatArray:
        rows, columns = self.kind.features(left[1], self.n_items), self.kind.features(right[1], self.n_items)
        return np.asarray((left[0] @ right[0].T) * (rows @ columns.T))

    @property
    def rewarded(self) -> tuple[FloatArray, IntArray]:
        return self.contexts, self.rankings

    @property
    def shown(self) -> tuple[FloatArray, IntArray]:
        """The rewarded rows and then the pending ones."""
        if self.pending_rankings is None or self.pending_contexts is None or not len(self.pending_rankings):
            return self.rewarded
        return np.vstack([self.contexts, self.pending_contexts]), np.vstack([self.rankings, self.pending_rankings])

    def noisy(self, rows: tuple[FloatArray, IntArray]) -> FloatArray:
        return self.covariance(rows, rows) + self.noise_variance * np.eye(len(rows[1]))

    def predict(self, context: ArrayLike, rankings: ArrayLike) -> Moments:
        c = np.asarray(context, dtype=np.float64)
        orders = np.asarray(rankings, dtype=np.int32)
        asked = np.tile(c, (len(orders), 1)), orders
        mean = np.full(len(orders), self.offset)
        variance = np.full(len(orders), (c @ c) * (self.kind.features(orders, self.n_items) ** 2).sum(axis=1))
        if len(self.rankings):
            k = self.covariance(self.rewarded, asked)
            mean += k.T @ np.linalg.solve(self.noisy(self.rewarded), self.rewards - self.offset)
        if len(self.shown[1]):
            k = self.covariance(self.shown, asked)
            variance -= np.einsum("ij,ij->j", k, np.linalg.solve(self.noisy(self.shown), k))
        return Moments(mean, self.amplitude * variance)

    @property
    def best_offset(self) -> float:
        """1'A^-1 y / 1'A^-1 1."""
        ones = np.ones(len(self.rewards))
        solved = np.linalg.solve(self.noisy(self.rewarded), np.column_stack([self.rewards, ones]))
        return float(ones @ solved[:, 0] / (ones @ solved[:, 1]))

    def whitened_square(self, offset: float) -> float:
        """(y - b)'A^-1 (y - b)."""
        centred = self.rewards - offset
        return float(centred @ np.linalg.solve(self.noisy(self.rewarded), centred))


@dataclass(frozen=True)
class Sample:
    """Rows drawn from the model itself, and what to ask about."""

    contexts: FloatArray
    rankings: IntArray
    rewards: FloatArray

    @property
    def rows(self) -> tuple[FloatArray, IntArray, FloatArray]:
        return self.contexts, self.rankings, self.rewards

    def __getitem__(self, chosen: slice | list[int] | NDArray[np.intp]) -> Sample:
        return Sample(self.contexts[chosen], self.rankings[chosen], self.rewards[chosen])


def joined(first: Sample, second: Sample) -> Sample:
    """Return the rows of both, one after the other."""
    return Sample(
        np.concatenate([first.contexts, second.contexts]),
        np.concatenate([first.rankings, second.rankings]),
        np.concatenate([first.rewards, second.rewards]),
    )


def rankings_of(n_items: int, slate_size: int, count: int, rng: np.random.Generator) -> IntArray:
    drawn = [rng.permutation(n_items)[:slate_size] for _ in range(count)]
    return np.array(drawn, dtype=np.int32).reshape(count, slate_size)


def sample(
    kind: Kind,
    rng: np.random.Generator,
    *,
    n_items: int,
    slate_size: int,
    context_dim: int,
    count: int,
    noise_variance: float = 0.1,
) -> Sample:
    """Draw contexts, rankings and rewards; without contexts (C = 1) the context is [1.0]."""
    rankings = rankings_of(n_items, slate_size, count, rng)
    contexts = (
        rng.normal(size=(count, context_dim)) / math.sqrt(context_dim) if context_dim > 1 else np.ones((count, 1))
    )
    rewards = rewards_of(kind, contexts, rankings, rng, n_items=n_items, noise_variance=noise_variance)
    return Sample(contexts, rankings, rewards)


def rewards_of(
    kind: Kind,
    contexts: FloatArray,
    rankings: IntArray,
    rng: np.random.Generator,
    *,
    n_items: int,
    noise_variance: float,
) -> FloatArray:
    """Draw the rewards of given rows from the model."""
    features = kind.features(rankings, n_items)
    tastes = rng.normal(size=(features.shape[1], contexts.shape[1]))
    expected = np.einsum("nc,nf,fc->n", contexts, features, tastes)
    return np.asarray(expected + math.sqrt(noise_variance) * rng.normal(size=len(rankings)))


def same(left: Moments, right: Moments) -> bool:
    """Return whether two predictions are equal to the bit."""
    return left.mean.tobytes() == right.mean.tobytes() and left.variance.tobytes() == right.variance.tobytes()


def assert_close(actual: Moments, expected: Moments, *, atol: float) -> None:
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=0, atol=atol)
    np.testing.assert_allclose(actual.variance, expected.variance, rtol=0, atol=atol)


def fitted(kind: Kind, data: Sample, *, n_items: int, noise_variance: float = 0.1) -> Posterior:
    kernel = kind.make(n_items, data.rankings.shape[1])
    prior = Posterior.prior(kernel, context_dim=data.contexts.shape[1], noise_variance=noise_variance)
    return prior.observe(*data.rows)


def all_but_known() -> tuple[Posterior, IntArray]:
    """Return a posterior of all slates of 3 of 9 items with the least noise that a fit can have, and these slates."""
    every = np.array(list(permutations(range(9), 3)), dtype=np.int32)
    rows = ObservedRows.of(Observations(np.ones((len(every), 1)), every, np.zeros(len(every))))
    none = PendingSlates(np.zeros((0, 1)), every[:0])
    return Posterior.fit(WCK.make(9, 3), rows, none, noise_variance=1e-30), every


def newest_rows(posterior: Posterior, count: int) -> ObservedRows:
    """Return the last `count` rows, or all if there are fewer."""
    n = posterior.n_rows
    return posterior.observed_rows.select(np.arange(max(n - count, 0), n))
