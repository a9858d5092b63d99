"""The best few slates at a context, not only the best one: a beam that widens from where a search ended.

Every slate in the answer has been compared with all its neighbours, by replacement of one item or exchange of two
positions. As with any local search there may be a better slate elsewhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.slate_rules import keep_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior, Moments
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["RankedSlates", "find_top_slates"]

_MOST_ROUNDS = 64
_WIDTH = 4
"""The beam is so many times as wide as what is asked for: good slates may be behind some that are not so good."""

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
    width, found = math.sqrt(beta), _Pool(_WIDTH * limit)
    found.add(starts, _bounds(at_context.moments(starts), width))
    for _ in range(_MOST_ROUNDS):
        fresh = found.take_unexpanded()
        if not len(fresh):
            break
        for rankings, bounds in _neighbours(at_context, fresh, width, _WIDTH * limit, rules):
            found.add(rankings, bounds)
    return found.rank_best(limit)


class _Pool:
    """The best slates so far, and which of them have had their neighbours looked at."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bounds: dict[_Slate, float] = {}
        self._expanded: set[_Slate] = set()

    def add(self, rankings: Rankings, bounds: NDArray[np.float64]) -> None:
        """Take in slates; one that is known keeps its bound."""
        for slate, bound in zip(map(tuple, rankings.tolist()), bounds.tolist(), strict=True):
            self._bounds.setdefault(slate, bound)

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


def _neighbours(
    at_context: ContextPosterior, rankings: Rankings, width: float, limit: int, rules: SlateRules | None
) -> Iterator[tuple[Rankings, NDArray[np.float64]]]:
    """Give the best neighbours of rankings (A, k), by the position that is replaced, and all exchanges."""
    k, n_items = at_context.slate_size, len(at_context.items)
    shown = np.zeros((len(rankings), n_items), dtype=np.bool_)
    np.put_along_axis(shown, rankings.astype(np.intp), values=True, axis=1)
    for position in range(k):
        bounds = _bounds(at_context.replacements(rankings, position), width)
        bounds[shown] = -np.inf
        if rules is not None:
            bounds[~shown] = np.where(_keep_replaced(rules, rankings, position, shown), bounds[~shown], -np.inf)
        chosen = np.argsort(-bounds, axis=None, kind="stable")[:limit]
        chosen = chosen[np.isfinite(bounds.flat[chosen])]
        replaced = rankings[chosen // n_items].copy()
        replaced[:, position] = chosen % n_items
        yield replaced, bounds.flat[chosen]
    for first, second in zip(*np.triu_indices(k, 1), strict=True):
        exchanged = rankings.copy()
        exchanged[:, [first, second]] = rankings[:, [second, first]]
        if rules is not None:
            exchanged = exchanged[keep_rules(rules, exchanged)]
        if not len(exchanged):
            continue
        yield exchanged, _bounds(at_context.moments(exchanged), width)


def _keep_replaced(rules: SlateRules, rankings: Rankings, position: int, shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which replacements at a position keep rules, of the items that are not `shown` (A, n), row by row."""
    rows, items = np.nonzero(~shown)
    replaced = rankings[rows].copy()
    replaced[:, position] = items
    return keep_rules(rules, replaced)


def _bounds(moments: Moments, width: float) -> NDArray[np.float64]:
    return np.asarray(moments.mean + width * np.sqrt(moments.variance), dtype=np.float64)


def _as_rankings(slates: Iterable[_Slate]) -> Rankings:
    return np.array(list(slates), dtype=np.int32)
