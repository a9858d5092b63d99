"""How the paper maximises an upper confidence bound: over all rankings, or by local search."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.context_posterior import Moments
from topk_bandit.learning.rankings import all_rankings, random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.rankings import Rankings

__all__ = ["BreadthFirst", "Climbed", "Exhaustive", "Maximiser", "Step", "breadth_first"]

FloatArray = NDArray[np.float64]

CANDIDATES, RESTARTS, STEPS = 1000, 10, 5
"""The paper's "10 restarts and 5 steps in each search direction ..., starting with 1000 initial candidates"."""


class Maximiser(Protocol):
    """Finds the ranking with the largest upper confidence bound."""

    def best(
        self,
        posterior: Posterior,
        context: FloatArray,
        eligible: NDArray[np.int32],
        *,
        beta: float,
        rng: np.random.Generator,
    ) -> NDArray[np.int32]:
        """Return a ranking of eligible items, shape (k,).

        Parameters
        ----------
        posterior
            Has no pending rows. Of one that has the rows of the last one asked about and more, only the new rows may be
            looked at.
        context
            Shape (C,).
        eligible
            Items in ascending order, at least k.
        beta
            The bound is mean + sqrt(beta) standard deviation.
        rng
            Breaks ties, and draws what is random about the search.
        """
        ...


class _Enumeration(NamedTuple):
    """Every ranking of some items, shape (A, k), and its coordinates (`ContextPosterior.coordinates`), shape (A, F)."""

    items: NDArray[np.int32]
    rankings: Rankings
    sparse: csr_array

    @classmethod
    def of(cls, kernel: KendallKernel, items: NDArray[np.int32]) -> _Enumeration:
        n, k = len(items), kernel.slate_size
        places, (first, second) = all_rankings(np.arange(n), slate_size=k), np.triu_indices(k, 1)
        above, below = places[:, first], places[:, second]
        pair_of = np.zeros((n, n), dtype=np.int32)
        pair_of[np.triu_indices(n, 1)] = np.arange(n * (n - 1) // 2)
        pair_of += pair_of.T
        same = np.full((len(places), 1), 2 * n)
        columns = np.hstack([places, n + places, same, 2 * n + 1 + pair_of[above, below]])
        of_positions = kernel.item_weight, kernel.divergence, [kernel.total], kernel.pair_weight[first, second]
        values = np.tile(np.concatenate(of_positions), (len(places), 1))
        values[:, 2 * k + 1 :] *= np.where(above < below, 1.0, -1.0)
        starts = np.arange(0, columns.size + 1, columns.shape[1])
        shape = len(places), 2 * n + 1 + n * (n - 1) // 2
        return cls(items, items[places], csr_array((values.ravel(), columns.ravel(), starts), shape=shape))


class _AtContext(NamedTuple):
    """A posterior's moments of each ranking, and what its rows explain of the prior variance, all (A,)."""

    posterior: Posterior
    moments: Moments
    explained: FloatArray

    @classmethod
    def of(
        cls, posterior: Posterior, at_context: ContextPosterior, enumeration: _Enumeration, before: _AtContext | None
    ) -> _AtContext:
        """Work them out; `before` is of a posterior of some of the rows, with the same noise."""
        weights, features = at_context.coordinates(0 if before is None else before.posterior.n_rows)
        across = enumeration.sparse @ features
        explained = np.einsum("ij,ij->i", across, across)
        if before is not None:
            explained += before.explained
        variance = at_context.amplitude * np.maximum(at_context.prior - explained, 0.0)
        return cls(posterior, Moments(at_context.offset + enumeration.sparse @ weights, variance), explained)


@dataclass(slots=True, eq=False)
class Exhaustive:
    """Looks at every ranking of the eligible items. Those with the same bound are equally likely.

    While the same items are eligible, what it works out for a context is kept, and only what the posterior's new rows
    add is worked out anew.
    """

    _enumeration: _Enumeration | None = None
    _at: dict[bytes, _AtContext] = field(default_factory=dict)

    def best(
        self,
        posterior: Posterior,
        context: FloatArray,
        eligible: NDArray[np.int32],
        *,
        beta: float,
        rng: np.random.Generator,
    ) -> NDArray[np.int32]:
        """See `Maximiser.best`."""
        if self._enumeration is None or not np.array_equal(self._enumeration.items, eligible):
            self._enumeration, self._at = _Enumeration.of(posterior.kernel, eligible), {}
        at = self._at.get(context.tobytes())
        if at is not None and at.posterior.noise_variance != posterior.noise_variance:
            at = None
        if at is None or at.posterior is not posterior:
            at = _AtContext.of(posterior, posterior.at(context, eligible), self._enumeration, at)
            self._at[context.tobytes()] = at
        bounds = UpperConfidenceBound(beta)(at.moments)
        ties = np.flatnonzero(bounds == bounds.max())
        return np.asarray(self._enumeration.rankings[ties[rng.integers(len(ties))]])


class Step(NamedTuple):
    """How far a search has come: rankings evaluated, and the largest bound among them."""

    evaluations: int
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Climbed:
    """Where a search ended: the best ranking, as positions in the at_context's items (k,), and how it got there."""

    ranking: NDArray[np.int32]
    steps: tuple[Step, ...]


def breadth_first(at_context: ContextPosterior, *, beta: float, rng: np.random.Generator) -> Climbed:
    """Climb from the best of many random rankings (paper, Section 5 and Appendix B.2).

    1,000 random rankings are evaluated, and climbs start from the best 10. A climb goes in each direction in turn, five
    times in each, or until no direction has anything better. The directions are the positions, and the exchanges. In
    the direction of a position it moves to the best ranking that comes from taking an item out and putting that or
    another one in at this position; in the last one it exchanges two positions. The paper's neighbours are all orders
    of all slates with one item replaced. These are some of them, and climbs end as high.

    Parameters
    ----------
    at_context
        The posterior at one context.
    beta
        The search is for the largest mean + sqrt(beta) standard deviation.
    rng
        Draws the random rankings.
    """
    bound, k, n_items = UpperConfidenceBound(beta), at_context.slate_size, len(at_context.items)
    drawn = random_rankings(np.arange(n_items), slate_size=k, count=CANDIDATES, rng=rng)
    values = bound(at_context.moments(drawn))
    rankings = drawn[np.argsort(-values, kind="stable")[:RESTARTS]]
    best, steps = rankings[0], [Step(CANDIDATES, float(values.max()))]
    for _ in range(STEPS):
        before, high = rankings, steps[-1].value
        for direction in range(k + 1):
            if direction < k:
                rankings, values = _place_items(at_context, bound, rankings, direction)
                evaluations = len(rankings) * (k * (n_items - k) + k - 1)
            else:
                rankings, values = _exchange_positions(at_context, bound, rankings)
                evaluations = len(rankings) * k * (k - 1) // 2
            steps.append(Step(steps[-1].evaluations + evaluations, max(steps[-1].value, float(values.max()))))
        if values.max() > high:
            best = rankings[int(np.argmax(values))]
        # Climbs that meet go on together, and those that stand still are over.
        rankings = np.unique(rankings[(rankings != before).any(axis=1)], axis=0)
        if not len(rankings):
            break
    return Climbed(best, tuple(steps))


def _place_items(
    at_context: ContextPosterior, bound: UpperConfidenceBound, rankings: Rankings, position: int
) -> tuple[Rankings, FloatArray]:
    """Return the best that comes of each ranking by taking an item out and putting one in at `position`; their bounds.

    The items in between move up or down by one.
    """
    n_rankings, k = rankings.shape
    moved = rankings[:, _moves(k, position)]
    bounds = bound(at_context.replacements(moved.reshape(-1, k), position)).reshape(n_rankings, -1)
    every, best = np.arange(n_rankings), bounds.argmax(axis=1)
    taken, item = np.divmod(best, len(at_context.items))
    found = moved[every, taken]
    # An item that the ranking shows already stands for the ranking as it is.
    new = (found != item[:, None]).all(axis=1)
    found[new, position] = item[new]
    own = bounds[every, position * len(at_context.items) + rankings[:, position]]
    better = bounds[every, best] > own
    return np.where(better[:, None], found, rankings), np.where(better, bounds[every, best], own)


def _exchange_positions(
    at_context: ContextPosterior, bound: UpperConfidenceBound, rankings: Rankings
) -> tuple[Rankings, FloatArray]:
    """Return each ranking, or the best that comes of it by an exchange of two positions, and their bounds."""
    n_rankings, k = rankings.shape
    candidates = rankings[:, _exchanges(k)]
    bounds = bound(at_context.moments(candidates.reshape(-1, k))).reshape(n_rankings, -1)
    # The ranking itself is the first, and so it stays unless another is better.
    every, best = np.arange(n_rankings), bounds.argmax(axis=1)
    return candidates[every, best], bounds[every, best]


@cache
def _moves(slate_size: int, position: int) -> list[list[int]]:
    """Return the orders in which the a-th of k comes at `position` and the rest stay in order, for each a."""
    orders = []
    for a in range(slate_size):
        order = [b for b in range(slate_size) if b != a]
        order.insert(position, a)
        orders.append(order)
    return orders


@cache
def _exchanges(slate_size: int) -> list[list[int]]:
    """Return the order of k as it is, and then with each two positions exchanged."""
    orders = [list(range(slate_size))]
    for a, b in combinations(range(slate_size), 2):
        order = list(range(slate_size))
        order[a], order[b] = b, a
        orders.append(order)
    return orders


@dataclass(slots=True, eq=False)
class BreadthFirst:
    """Searches by `breadth_first`. While the posterior is the same, what it works out for a context is kept."""

    _posterior: Posterior | None = None
    _at: dict[tuple[bytes, bytes], ContextPosterior] = field(default_factory=dict)

    def best(
        self,
        posterior: Posterior,
        context: FloatArray,
        eligible: NDArray[np.int32],
        *,
        beta: float,
        rng: np.random.Generator,
    ) -> NDArray[np.int32]:
        """See `Maximiser.best`."""
        if self._posterior is not posterior:
            self._posterior, self._at = posterior, {}
        key = context.tobytes(), eligible.tobytes()
        if key not in self._at:
            self._at[key] = posterior.at(context, eligible)
        return np.asarray(eligible[breadth_first(self._at[key], beta=beta, rng=rng).ranking])
