"""Linear Thompson sampling on features of items, positions' weights and contexts: what most shops would try first.

::

    y = w_0 . c + sum_a d_a (w_{pi_a} . c) + noise        d_a = 1 / log2(a + 1)

with a context c and a weight for each item and number of the context; d are DCG's discounts. The posterior is that of
a ridge regression: with a ridge of r, a weight's prior deviation is the noise's by sqrt(r). Its draws are shrunk to a
width: the literature's width is one, and smaller ones explore less (Agrawal and Goyal, *Thompson Sampling for
Contextual Bandits with Linear Payoffs*, ICML 2013). Where there are thousands of weights a draw serves a few rounds.

Where a shop says what each item did, the same model is of single items: o_a = d_a (w_0 . c + w_{pi_a} . c) + noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.ridge_posteriors import ridge_posterior

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

__all__ = ["AdditiveThompson", "ItemThompson"]

FloatArray = NDArray[np.float64]


class AdditiveThompson:
    """Shows the items with the best weights that are drawn from their posterior, in their order.

    Parameters
    ----------
    size
        n, k and C.
    ridge
        Of how many rewards' information the prior is worth.
    width
        Draws deviate from the mean by so many times the posterior's deviation.
    rng
        Draws the weights.
    """

    def __init__(self, size: ProblemSize, rng: np.random.Generator, *, ridge: float, width: float) -> None:
        self._width = width
        self._rng = rng
        self._context_dim = size.context_dim
        self._discounts = 1.0 / np.log2(np.arange(2, size.slate_size + 2))
        dim, row_size = size.context_dim * (size.n_items + 1), size.context_dim * (size.slate_size + 1)
        self._posterior = ridge_posterior(dim, ridge=ridge, row_size=row_size)
        self._weights = np.zeros((size.n_items, size.context_dim))
        self._rounds_left = 0
        self._slates: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        if self._rounds_left <= 0:
            drawn = self._posterior.draw(self._width, self._rng)
            self._weights = drawn.reshape(-1, self._context_dim)[1:]
            self._rounds_left = self._posterior.rounds_a_draw
        self._rounds_left -= 1
        values = self._weights[visit.eligible] @ visit.context
        best = np.argsort(-values, kind="stable")[: len(self._discounts)]
        ranking = np.asarray(visit.eligible[best], dtype=np.int32)
        self._slates[visit.number] = visit.context, ranking
        return ranking

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        context, ranking = self._slates.pop(number)
        blocks = np.append(0, 1 + ranking).astype(np.intp)
        columns = (blocks[:, None] * self._context_dim + np.arange(self._context_dim)).ravel()
        values = (np.append(1.0, self._discounts)[:, None] * context).ravel()
        self._posterior.observe(columns, values, reward)

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._slates[number]


class ItemThompson(AdditiveThompson):
    """The same by what each item did: what slates earn is not looked at where that is known."""

    def observe_items(self, number: int, reward: float, outcomes: FloatArray) -> None:
        """Learn the outcomes of a slate's items."""
        if np.isnan(outcomes).all():
            self.observe(number, reward)
            return
        context, ranking = self._slates.pop(number)
        own = np.arange(self._context_dim)
        for place in np.flatnonzero(np.isfinite(outcomes)).tolist():
            columns = np.concatenate([own, (1 + int(ranking[place])) * self._context_dim + own]).astype(np.intp)
            values = self._discounts[place] * np.tile(context, 2)
            self._posterior.observe(columns, values, float(outcomes[place]))
