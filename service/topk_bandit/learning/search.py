"""Local search for the slate with the largest upper confidence bound.

Breadth-first local search (Appendix B.2) climbs from several starts by moving to better neighbours until there is none.
Here the neighbours are replacements of one item and exchanges of two positions, which reach the same optima as the
paper's (n - k) k k! + k! at a small part of the evaluations, and most climbs are among the few items that matter.

A slate of more than `LONGEST_FINE` items has too many pairs to weigh in each climb. Climbs go by the exact means and by
the variance of the items' parts. The best of the slates that they reach climbs on, with all features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.acquisition import UpperConfidenceBound
from topk_bandit.learning.compiled import climbing, long_slates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["Found", "best_seen", "local_search", "variance_beside_items"]

FINE_STARTS = 12
COARSE_STARTS, FEWEST_FINE_ITEMS = 2, 16
COARSE_STARTS_OF_PAIRS, FEWEST_FINE_ITEMS_OF_PAIRS = 24, 24
"""Under WK an item has no part of its own in mean and variance, and which items matter is less certain."""
FINE_STARTS_UNDER_RULES, FINE_STARTS_OF_PAIRS_UNDER_RULES = 8, 48
"""Each climb costs more. Under WK a slate has fewer neighbours then, which say less of where better ones are."""
LONGEST_FINE = 12
"""Longer slates are searched by their items."""
LONG_STARTS, LONG_STARTS_OF_PAIRS, LONG_SEEN = 4, 24, 2
SETTLED_ITEMS, OTHERS_TO_SETTLE_BY = 40, 16
BEST_SEEN = 4
FEWEST_TO_CLIMB_AMONG = 9
"""Climbs begin among the first few of the items that matter; the best of them go on among all of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Where a search ended.

    Attributes
    ----------
    ranking
        The best ranking met, as positions in the at_context's items, shape (k,). No neighbour of it is
        better; of a long one (`LONGEST_FINE`) one may be.
    evaluations
        How many rankings were evaluated.
    """

    ranking: NDArray[np.int32]
    evaluations: int


def best_seen(at_context: ContextPosterior) -> Rankings:
    """Return a few of the rewarded rankings whose items are all in the at_context: those with the largest means."""
    at = at_context.contraction
    best = climbing.best_seen(
        at.weights, at.pair_weights, at_context.places, at_context.n_rows, BEST_SEEN, *at_context.position_weights
    )
    return np.asarray(best, dtype=np.int32)


def local_search(
    at_context: ContextPosterior,
    covariance: NDArray[np.float64],
    rules: SlateRules | None = None,
    anchor: NDArray[np.int64] | None = None,
    *,
    beta: float,
    starts: Rankings,
    rng: np.random.Generator,
) -> Found:
    """Climb from `starts` and from random rankings, and return the best ranking met by mean + sqrt(beta) sd.

    Under rules each ranking is one that they allow.

    Parameters
    ----------
    at_context
        The posterior at one context.
    covariance
        For the items' parts there, `ItemDraws.covariance`, shape (E, E).
    rules, anchor
        Rules over the at_context's items, and places of a slate that keeps them, shape (k,), such as
        `topk_bandit.learning.slate_rules.find_slate` returns. A start that breaks them is completed anew. Both are None
        where there are no rules.
    beta
        At least 0.
    starts
        Rankings of positions in the at_context's items, shape (A, k), A >= 0, the most promising first.
    rng
        Draws the random starts, always the same number of them.
    """
    k = at_context.slate_size
    if k > LONGEST_FINE:
        return _search_long(at_context, covariance, (rules, anchor), beta=beta, starts=starts.astype(np.int64), rng=rng)
    coarse_starts, fewest = COARSE_STARTS, FEWEST_FINE_ITEMS
    fine_starts = FINE_STARTS if rules is None else FINE_STARTS_UNDER_RULES
    if not at_context.kernel.item_weight.any():
        coarse_starts, fewest = COARSE_STARTS_OF_PAIRS, FEWEST_FINE_ITEMS_OF_PAIRS
        fine_starts = FINE_STARTS if rules is None else FINE_STARTS_OF_PAIRS_UNDER_RULES
    ranking, evaluations = _search(
        at_context,
        covariance,
        starts.astype(np.int64),
        rng.random((coarse_starts, k)),
        rng.random((fine_starts, k)),
        ruled=(rules, anchor),
        spread=_spread(at_context, beta),
        size=max(fewest, k + 8),
    )
    return Found(ranking.astype(np.int32), evaluations)


def _search(
    at_context: ContextPosterior,
    covariance: NDArray[np.float64],
    starts: NDArray[np.int64],
    coarse_uniforms: NDArray[np.float64],
    fine_uniforms: NDArray[np.float64],
    *,
    ruled: tuple[SlateRules | None, NDArray[np.int64] | None],
    spread: float,
    size: int,
) -> tuple[NDArray[np.int64], int]:
    """Return the best ranking and how many were evaluated; `size` items are in the fine stage.

    The stages are compiled one by one: in one function each of them would be compiled twice.
    """
    at, every, weights = at_context.contraction, np.arange(len(at_context.items)), at_context.position_weights
    numbers = at_context.prior, spread, *weights
    if size >= len(every):
        # Of the few climbs under rules some begin anywhere.
        starts = np.concatenate((starts, starts)) if ruled[0] is None else starts
        return climbing.climb(  # type: ignore[no-any-return]
            at, *ruled, every, every, len(every), starts, fine_uniforms, *numbers
        )
    of_items = covariance / at_context.amplitude, variance_beside_items(at_context)
    items, climbed, weighed = climbing.weigh_items(
        at, *ruled, of_items, starts, coarse_uniforms, size, spread, *weights
    )
    inside = np.full_like(every, -1)
    inside[items] = every[:size]
    among, rules = min(size, max(FEWEST_TO_CLIMB_AMONG, at_context.slate_size + 3)), ruled[0]
    inner: tuple[SlateRules | None, NDArray[np.int64] | None] = None, None
    if rules is not None:
        among, inner = size, (rules.among(items), inside[climbed[0]])
    starts = np.concatenate((starts, climbed))
    ranking, tried = climbing.climb(at, *inner, items, inside, among, starts, fine_uniforms, *numbers)
    more = climbing.polish(at, rules, ranking, inside, *numbers)
    return ranking, weighed + tried + more


def _search_long(
    at_context: ContextPosterior,
    covariance: NDArray[np.float64],
    ruled: tuple[SlateRules | None, NDArray[np.int64] | None],
    *,
    beta: float,
    starts: NDArray[np.int64],
    rng: np.random.Generator,
) -> Found:
    """Climb by items, and on from the best by all features."""
    at, numbers, spread = at_context.contraction, at_context.position_weights, _spread(at_context, beta)
    n_random, n_others = LONG_STARTS, OTHERS_TO_SETTLE_BY
    if not at_context.kernel.item_weight.any():
        n_random, n_others = LONG_STARTS_OF_PAIRS, len(at_context.items)
    of_items = covariance / at_context.amplitude, variance_beside_items(at_context)
    uniforms = rng.random((n_random, at_context.slate_size))
    reached, tried = long_slates.climb_by_items(at, *ruled, of_items, starts[:LONG_SEEN], uniforms, spread, *numbers)
    best = reached[_highest(at_context, reached, beta)[: SETTLED_ITEMS // at_context.slate_size]]
    for slate in best:
        tried += long_slates.settle(at, ruled[0], slate, of_items, n_others, at_context.prior, spread, *numbers)
    return Found(best[_highest(at_context, best, beta)[0]].astype(np.int32), tried + len(reached) + len(best))


def _highest(at_context: ContextPosterior, slates: NDArray[np.int64], beta: float) -> NDArray[np.intp]:
    """Return the order of slates by their upper confidence bounds, the highest first."""
    bounds = UpperConfidenceBound(beta)(at_context.moments(slates.astype(np.int32)))
    return np.argsort(-bounds, kind="stable")


def _spread(at_context: ContextPosterior, beta: float) -> float:
    return math.sqrt(beta * at_context.amplitude)


def variance_beside_items(at_context: ContextPosterior) -> float:
    """Return what a slate's variance has before the rows beside that of its items' parts, at an amplitude of one."""
    kernel, u = at_context.kernel, at_context.kernel.item_weight
    of_items = kernel.n_items * float(u @ u) - (float(u.sum()) ** 2 if kernel.centred else 0.0)
    return at_context.prior * (1.0 - kernel.scale * of_items)
