"""What exploration costs: by how much a bandit's slates are worse than the best ones by its own means.

With v the true expected reward of a slate, and these slates of one decision::

    own     the largest posterior mean
    bound   the largest mean + sqrt(beta) sd
    best    the largest of all that with the draws added, which is shown but for the shares

the prices are v(own) - v(bound), v(bound) - v(best), and each share times v(best) - v of the slates that it draws, on
average. They add up to v(own) - E v(shown).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import ConstantBeta
from topk_bandit.learning.decisions import search_best, slates_of
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.learning.policy import State
    from topk_bandit.learning.rankings import Rankings

__all__ = ["Prices", "price_exploration"]

FloatArray = NDArray[np.float64]

_UNIFORM_SLATES = 128


class Prices(NamedTuple):
    """Expected rewards that a decision gives up, in the unit of the rewards."""

    bound: float
    draw: float
    near: float
    uniform: float


def price_exploration(
    state: State,
    exploration: Exploration,
    *,
    context: FloatArray,
    eligible: NDArray[np.int32],
    expect: Callable[[Rankings], FloatArray],
) -> Prices:
    """Return what a decision for a context gives up.

    Parameters
    ----------
    context, eligible
        As of `decide`.
    expect
        Returns the true expected rewards of rankings (A, k) in that context, shape (A,).
    """
    encoded = state.encode(context)
    greedy = replace(exploration, beta=ConstantBeta(0.0))
    own = search_best(state, greedy, encoded, eligible, with_draws=False).ranking
    bound = search_best(state, exploration, encoded, eligible, with_draws=False).ranking
    slates = slates_of(state, exploration, search_best(state, exploration, encoded, eligible), eligible)
    rng = np.random.default_rng(0)
    uniform = random_rankings(eligible, slate_size=len(own), count=_UNIFORM_SLATES, rng=rng)
    of_own, of_bound, of_best = expect(np.stack([own, bound, slates.best])).tolist()
    near = slates.near_share * (of_best - float(expect(slates.near.slates).mean())) if slates.near_share else 0.0
    return Prices(
        of_own - of_bound, of_bound - of_best, near, slates.uniform_share * (of_best - float(expect(uniform).mean()))
    )
