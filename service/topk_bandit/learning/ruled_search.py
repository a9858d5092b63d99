"""Local search among slates that rules allow: the stages of `topk_bandit.learning.search`, with moves of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.compiled import ruled_climbing
from topk_bandit.learning.search import Found, variance_beside_items

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["ruled_search"]

COARSE_STARTS, FINE_STARTS, FEWEST_FINE_ITEMS = 3, 8, 16
COARSE_STARTS_OF_PAIRS, FINE_STARTS_OF_PAIRS, FEWEST_FINE_ITEMS_OF_PAIRS = 24, 48, 24
"""Under WK an item has no part of its own, and a slate has fewer neighbours that tell where better ones are."""


def ruled_search(
    at_context: ContextPosterior,
    covariance: NDArray[np.float64],
    rules: SlateRules,
    anchor: NDArray[np.int64],
    *,
    beta: float,
    starts: Rankings,
    rng: np.random.Generator,
) -> Found:
    """Climb from `starts` and from random allowed rankings, and return the best by mean + sqrt(beta) sd.

    Parameters
    ----------
    at_context, covariance, beta, rng
        As of `topk_bandit.learning.search.local_search`.
    rules
        Over the at_context's items.
    anchor
        Places of a slate that keeps them, shape (k,), such as `topk_bandit.learning.slate_rules.find_slate` returns.
    starts
        Rankings of positions in the at_context's items, shape (A, k); those that break a rule are completed anew.
    """
    every, weights = np.arange(len(at_context.items)), at_context.position_weights
    n_coarse, n_fine, fewest = COARSE_STARTS, FINE_STARTS, FEWEST_FINE_ITEMS
    if not at_context.kernel.item_weight.any():
        n_coarse, n_fine, fewest = COARSE_STARTS_OF_PAIRS, FINE_STARTS_OF_PAIRS, FEWEST_FINE_ITEMS_OF_PAIRS
    size, spread = max(fewest, at_context.slate_size + 8), math.sqrt(beta * at_context.amplitude)
    coarse, fine = rng.random(n_coarse), rng.random(n_fine)
    at, numbers, starts = at_context.contraction, (at_context.prior, spread, *weights), starts.astype(np.int64)
    if size >= len(every):
        ranking, evaluations = ruled_climbing.climb(at, rules, anchor, every, every, starts, fine, *numbers)
    else:
        of_items = covariance / at_context.amplitude, variance_beside_items(at_context)
        items, climbed, weighed = ruled_climbing.weigh_items(
            at, rules, anchor, of_items, starts, coarse, size, spread, *weights
        )
        items, inside = np.sort(items), np.full_like(every, -1)
        inside[items] = every[:size]
        ranking, tried = ruled_climbing.climb(
            at, rules.among(items), inside[climbed[0]], items, inside, climbed, fine, *numbers
        )
        evaluations = weighed + tried + ruled_climbing.polish(at, rules, ranking, *numbers)
    return Found(ranking.astype(np.int32), evaluations)
