"""The best few slates at a context, not only the best one: a beam that widens from where a search ended.

Every slate in the answer has been compared with all its neighbours, by replacement of one item or exchange of two
positions. As with any local search there may be a better slate elsewhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.search import LONGEST_FINE
from topk_bandit.learning.slate_rules import keep_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["RankedSlates", "find_top_slates"]

_MOST_ROUNDS = 64
_WIDTH = 4
"""The beam is so many times as wide as what is asked for: good slates may be behind some that are not so good.

For long slates it is no wider: they have many neighbours, and each takes long to score.
"""

_Slate = tuple[int, ...]


class RankedSlates(NamedTuple):
    """Slates as positions in the items of an at_context, shape (L, k), and their bounds (L,), falling."""

    rankings: Rankings
    bounds: NDArray[np.float64]


def find_top_slates(
    at_context: ContextPosterior, *, beta: float, starts: Rankings, limit: int, rules: SlateRules | None = None
) -> RankedSlates:
    """Return up to `limit` slates with the largest mean + sqrt(beta) sd that a beam of this width meets.

    Parameters
    ----------
    at_context
        The posterior at one context.
    beta
        At least 0.
    starts
        Rankings of positions in its items, shape (A, k) with A >= 1: where searches ended.
    limit
        At least 1.
    rules
        Over its items; the starts keep them, and so does each slate that is returned. None for no rules.
    """
    size = limit if at_context.slate_size > LONGEST_FINE else _WIDTH * limit
    bounds_of, found = _Bounds(at_context, UpperConfidenceBound(beta)), _Pool(size)
    found.add(starts, bounds_of.slates(starts))
    for _ in range(_MOST_ROUNDS):
        fresh = found.take_unexpanded()
        if not len(fresh):
            break
        for around in _neighbours(bounds_of, fresh, rules):
            found.add_best(around)
    return found.rank_best(limit)


class _Bounds(NamedTuple):
    """The upper confidence bounds of slates: variances are worked out where they count alone."""

    at_context: ContextPosterior
    of: UpperConfidenceBound

    def slates(self, rankings: Rankings) -> NDArray[np.float64]:
        """Return the bounds of rankings (A, k), shape (A,)."""
        if not self.of.beta:
            return self.at_context.means(rankings)
        return self.of(self.at_context.moments(rankings))

    def replacements(self, rankings: Rankings, position: int) -> NDArray[np.float64]:
        """Return those with each item in turn at a position, (A, E); of no use for items that a ranking shows."""
        if not self.of.beta:
            return self.at_context.replaced_means(rankings, position)
        return self.of(self.at_context.replacements(rankings, position))


class _Pool:
    """The best slates so far, and which of them have had their neighbours looked at."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bounds: dict[_Slate, float] = {}
        self._expanded: set[_Slate] = set()

    def add(self, rankings: Rankings, bounds: NDArray[np.float64]) -> int:
        """Take in slates, of which one that is known keeps its bound; return how many were not known."""
        known = len(self._bounds)
        for slate, bound in zip(map(tuple, rankings.tolist()), bounds.tolist(), strict=True):
            self._bounds.setdefault(slate, bound)
        return len(self._bounds) - known

    def add_best(self, slates: _Slates) -> None:
        """Take in the best of some slates: as many as there may be that were not known, since no more can stay."""
        order = np.argsort(-slates.bounds, kind="stable")
        order, missing = order[np.isfinite(slates.bounds[order])], self._size
        for start in range(0, len(order), self._size):
            part = order[start : start + self._size]
            missing -= self.add(slates.build(part), slates.bounds[part])
            if missing <= 0:
                break

    def take_unexpanded(self) -> Rankings:
        """Forget all but the best, and return those of them that were not returned before, shape (A, k)."""
        best = self._best()
        self._bounds = {slate: self._bounds[slate] for slate in best}
        fresh = [slate for slate in best if slate not in self._expanded]
        self._expanded.update(fresh)
        return _as_rankings(fresh)

    def rank_best(self, limit: int) -> RankedSlates:
        """Return up to `limit` of the best, best first."""
        best = self._best()[:limit]
        return RankedSlates(_as_rankings(best), np.array([self._bounds[slate] for slate in best]))

    def _best(self) -> list[_Slate]:
        # Ties are broken by the items, so that the answer is a function of the posterior.
        return sorted(self._bounds, key=lambda slate: (-self._bounds[slate], slate))[: self._size]


class _Slates(NamedTuple):
    """Slates that are made when they are asked for, by their numbers, and their bounds; -inf stands for none."""

    bounds: NDArray[np.float64]
    build: Callable[[NDArray[np.intp]], Rankings]


def _neighbours(bounds_of: _Bounds, rankings: Rankings, rules: SlateRules | None) -> Iterator[_Slates]:
    """Give the neighbours of rankings (A, k): by the position that is replaced, and all exchanges."""
    shown = np.zeros((len(rankings), len(bounds_of.at_context.items)), dtype=np.bool_)
    np.put_along_axis(shown, rankings.astype(np.intp), values=True, axis=1)
    for position in range(rankings.shape[1]):
        bounds = bounds_of.replacements(rankings, position)
        bounds[shown] = -np.inf
        if rules is not None:
            bounds[~shown] = np.where(_keep_replaced(rules, rankings, position, shown), bounds[~shown], -np.inf)
        yield _Slates(bounds.reshape(-1), partial(_replace, rankings, position, n_items=bounds.shape[1]))
    pairs = np.transpose(np.triu_indices(rankings.shape[1], 1))
    bounds = np.full((len(pairs), len(rankings)), -np.inf)
    for row, pair in zip(bounds, pairs, strict=True):
        exchanged = _exchange(rankings, pair)
        kept = np.ones(len(exchanged), dtype=np.bool_) if rules is None else keep_rules(rules, exchanged)
        row[kept] = bounds_of.slates(exchanged[kept])
    yield _Slates(
        bounds.reshape(-1), lambda chosen: _exchange(rankings[chosen % len(rankings)], pairs[chosen // len(rankings)])
    )


def _replace(rankings: Rankings, position: int, chosen: NDArray[np.intp], *, n_items: int) -> Rankings:
    """Return rankings with an item at a position, by the numbers of the ranking and the item in one."""
    replaced = rankings[chosen // n_items].copy()
    replaced[:, position] = chosen % n_items
    return replaced


def _exchange(rankings: Rankings, pairs: NDArray[np.intp]) -> Rankings:
    """Return rankings (A, k) with two positions exchanged: the same two of all, (2,), or of each, (A, 2)."""
    pairs = np.broadcast_to(pairs, (len(rankings), 2))
    exchanged = rankings.copy()
    np.put_along_axis(exchanged, pairs, np.take_along_axis(rankings, pairs[:, ::-1], axis=1), axis=1)
    return exchanged


def _keep_replaced(rules: SlateRules, rankings: Rankings, position: int, shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which replacements at a position keep rules, of the items that are not `shown` (A, n), row by row."""
    rows, items = np.nonzero(~shown)
    replaced = rankings[rows].copy()
    replaced[:, position] = items
    return keep_rules(rules, replaced)


def _as_rankings(slates: Iterable[_Slate]) -> Rankings:
    return np.array(list(slates), dtype=np.int32)
