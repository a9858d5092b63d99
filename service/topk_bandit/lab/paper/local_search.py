"""GP-TopK's breadth-first local search for the largest UCB, as the paper writes it (Section 5 and Appendix B.2).

1,000 random slates are looked at, and the best 10 of them are where climbs start. A climb moves to the best of all
neighbours until none is better. Neighbours are the permutations of the slate and of all slates with one item replaced:
(n - k) k k! + k! of them, 190,800 for n = 50 and k = 6 (the paper's text says (n - k) k! + k!, which counts the
replacement of one position only). Section 5 also names "5 steps in each search direction". Whether that ends a climb
after five moves or widens its neighbourhood is not said; no limit is put on the moves here, which can only help the
paper's search, and the longest climb is reported.

A neighbourhood depends on the items shown alone, not on their order. Within one set of items a ranking's features are a
fixed table, one row for each permutation, over k + k(k-1)/2 coordinates: the items' weights u_i, whose differences make
up F_ij, and what is left of F_ij for each shown pair. So the k! variances of a set come from one small Gram matrix, and
those of a whole neighbourhood from one matrix product. This is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.paper.dense_posterior import PairWeights, pair_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.lab.paper.dense_posterior import DenseAtContext

__all__ = ["CANDIDATES", "RESTARTS", "Orders", "PaperFound", "neighbouring_sets", "paper_search", "ucb_of_sets"]

Floats = NDArray[np.float64]
Rankings = NDArray[np.int32]

CANDIDATES, RESTARTS = 1000, 10


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """All permutations of a set of k items, and their features over its M = k + k(k-1)/2 coordinates.

    Attributes
    ----------
    ranks
        Position of each member, members ascending, shape (k!, k).
    features
        Shape (k!, M): u of each member, then D of each pair of members.
    products
        Products of two features, the mixed ones doubled, shape (k!, M (M + 1) / 2).
    """

    n_items: int
    slate_size: int
    ranks: Rankings
    features: Floats
    products: Floats

    @classmethod
    def of(cls, n_items: int, slate_size: int) -> Orders:
        """Return them for the weighted convolutional kernel."""
        ranks = np.array(list(permutations(range(slate_size))), dtype=np.int32)
        weights, (first, second) = PairWeights.of(n_items, slate_size), np.triu_indices(slate_size, 1)
        u, before = weights.outside[ranks], ranks[:, first] < ranks[:, second]
        both = weights.both[ranks[:, first], ranks[:, second]]
        pairs = np.where(before, both, -both) - (u[:, first] - u[:, second])
        features = np.concatenate([u, pairs], axis=1) / math.sqrt(weights.norm)
        left, right = np.triu_indices(features.shape[1])
        products = features[:, left] * features[:, right] * np.where(left == right, 1.0, 2.0)
        return cls(n_items, slate_size, ranks, features, products)

    def columns(self, sets: Rankings) -> NDArray[np.intp]:
        """Return where the coordinates of sets (S, k) stand among all items and then all pairs: (S, M)."""
        first, second = np.triu_indices(self.slate_size, 1)
        pairs = pair_index(self.n_items)[sets[:, first], sets[:, second]]
        return np.concatenate([sets, self.n_items + pairs], axis=1)

    def ranking(self, members: Sequence[int], order: int) -> NDArray[np.int32]:
        """Return a set of items in one of its orders."""
        return np.array(members, dtype=np.int32)[np.argsort(self.ranks[order])]


@dataclass(frozen=True, slots=True, eq=False)
class _Coordinates:
    """A posterior at one context over u of all items and D of all pairs; `gram` is (n + P, n + P)."""

    gram: Floats
    weights: Floats
    posterior: DenseAtContext
    root_beta: float

    @classmethod
    def of(cls, posterior: DenseAtContext, n_items: int, beta: float) -> _Coordinates:
        first, second = np.triu_indices(n_items, 1)
        incidence = np.zeros((len(first), n_items))
        incidence[np.arange(len(first)), first], incidence[np.arange(len(first)), second] = 1.0, -1.0
        whitened = np.concatenate([posterior.whitened @ incidence, posterior.whitened], axis=1)
        weights = np.concatenate([posterior.weights @ incidence, posterior.weights])
        return cls(whitened.T @ whitened, weights, posterior, math.sqrt(beta))

    def ucb(self, orders: Orders, sets: Rankings) -> Floats:
        """Return the UCB of all orders of sets (S, k) of ascending items, shape (S, k!)."""
        columns = orders.columns(sets)
        left, right = np.triu_indices(columns.shape[1])
        explained = self.gram[columns[:, left], columns[:, right]] @ orders.products.T
        variance = self.posterior.amplitude * np.maximum(self.posterior.prior - explained, 0.0)
        mean = self.posterior.offset + self.weights[columns] @ orders.features.T
        return np.asarray(mean + self.root_beta * np.sqrt(variance))


def ucb_of_sets(posterior: DenseAtContext, orders: Orders, sets: Rankings, *, beta: float) -> Floats:
    """Return the UCB of all orders of sets of items, shape (S, k!)."""
    return _Coordinates.of(posterior, orders.n_items, beta).ucb(orders, sets)


def neighbouring_sets(members: Sequence[int], n_items: int) -> Rankings:
    """Return the set itself and all sets with one item replaced, each ascending, shape (1 + (n - k) k, k)."""
    outside = np.setdiff1d(np.arange(n_items, dtype=np.int32), members)
    sets = np.tile(np.array(members, dtype=np.int32), (1 + len(members) * len(outside), 1))
    sets[np.arange(1, len(sets)), np.repeat(np.arange(len(members)), len(outside))] = np.tile(outside, len(members))
    return np.sort(sets, axis=1)


class _Point(NamedTuple):
    """A ranking and its UCB: the larger, the better."""

    value: float
    members: tuple[int, ...]
    order: int


@dataclass(frozen=True, slots=True, eq=False)
class PaperFound:
    """Where the search ended: a ranking, the rankings evaluated, and the moves of the longest climb."""

    ranking: NDArray[np.int32]
    value: float
    evaluations: int
    longest_climb: int


def paper_search(posterior: DenseAtContext, orders: Orders, *, beta: float, rng: np.random.Generator) -> PaperFound:
    """Return the best ranking that the search meets."""
    coordinates, best_of = _Coordinates.of(posterior, orders.n_items, beta), dict[tuple[int, ...], _Point]()
    ends, moves = [], []
    for start in _starts(coordinates, orders, rng):
        point, count = start, 0
        while True:
            # Climbs that meet go on together: what is best around a set of items is worked out once.
            if point.members not in best_of:
                best_of[point.members] = _best_neighbour(coordinates, orders, point.members)
            if best_of[point.members].value <= point.value:
                break
            point, count = best_of[point.members], count + 1
        ends.append(point)
        moves.append(count)
    best = max(ends)
    n, k = orders.n_items, orders.slate_size
    evaluations = CANDIDATES + len(best_of) * ((n - k) * k + 1) * math.factorial(k)
    return PaperFound(orders.ranking(best.members, best.order), best.value, evaluations, max(moves))


def _starts(coordinates: _Coordinates, orders: Orders, rng: np.random.Generator) -> list[_Point]:
    """Return the best of many random rankings."""
    drawn = np.array([rng.choice(orders.n_items, size=orders.slate_size, replace=False) for _ in range(CANDIDATES)])
    sets, chosen = np.sort(drawn, axis=1).astype(np.int32), rng.integers(len(orders.ranks), size=CANDIDATES)
    values = coordinates.ucb(orders, sets)[np.arange(CANDIDATES), chosen]
    best = np.argsort(-values, kind="stable")[:RESTARTS]
    return [_Point(float(values[s]), tuple(sets[s].tolist()), int(chosen[s])) for s in best]


def _best_neighbour(coordinates: _Coordinates, orders: Orders, members: tuple[int, ...]) -> _Point:
    sets = neighbouring_sets(members, orders.n_items)
    values = coordinates.ucb(orders, sets)
    chosen, order = divmod(int(np.argmax(values)), len(orders.ranks))
    return _Point(float(values[chosen, order]), tuple(sets[chosen].tolist()), order)
