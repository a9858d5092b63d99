"""Linear Thompson sampling with hill climbing: a Bayesian linear model of position-item and item-item indicators.

Source: Hill, Nassif, Liu, Iyer and Vishwanathan, *An Efficient Bandit Algorithm for Realtime Multivariate
Optimization*, KDD 2017. They choose one of several variations for each of a page's slots. The model has an intercept,
a weight for each variation in each slot, a weight for each pair of variations in two slots, weights of the context, and
of the context crossed with each variation::

    y = w_0 + w_c . c + sum_a (w_{a, pi_a} + w'_{a, pi_a} . c) + sum_{a < b} w''_{pi_a pi_b} + noise

A layout is chosen by drawing all weights from their posterior and climbing: slot by slot, from several starts, each
slot gets its best variation. Where rankings differ from pages: the k slots share one set of n variations, none of which
can be in two slots, so that climbs also exchange two slots; the pair's weight is that of the two items in whatever
slots, which is n (n - 1) / 2 weights instead of k (k - 1) / 2 times n (n - 1); and rewards are real numbers, so that
the likelihood is Gaussian where theirs is probit, and the posterior is exact.

There are thousands of weights and hundreds of rewards, so the posterior is kept by rows: with X the rows' features, Q
the prior variances and A = X Q X' + sigma^2 I, a draw of the weights is (Matheron's rule)

    w = w_prior + Q X' A^-1 (y - X w_prior - e)        w_prior ~ N(0, Q), e ~ N(0, sigma^2 I)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.slate_functions import SlateFunction, maximiser

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
    from topk_bandit.learning.rankings import Rankings

__all__ = ["LinearModel", "LinearPrior", "LinearThompson", "Weights"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearPrior:
    """Prior variances of the weights, all of mean zero, and of the noise.

    The noise is the simulator's own, 0.05^2. Of the weights' variances tried on synthetic shops, from 0.00003 to 0.03
    for items and to 0.003 for pairs, 0.003 did best for both with n = 20 and k = 3, and 0.0003 with n = 50 and k = 6;
    the default lies between them. The larger they are the longer it explores: with 0.03 for items and n = 50, for more
    than 500 rounds.

    Attributes
    ----------
    context
        Of the intercept, and of the weights of the context.
    item
        Of a position's item, alone and crossed with each number of the context.
    pair
        Of a pair of items.
    noise
        sigma^2 > 0.
    """

    context: float = 1.0
    item: float = 0.001
    pair: float = 0.001
    noise: float = 0.0025

    def __post_init__(self) -> None:
        for name in ("context", "item", "pair", "noise"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise InvalidArgumentError(name, f"expected a positive number, got {getattr(self, name)}")


class Weights(NamedTuple):
    """One value of all weights; the first number of each context is the one that goes with the intercept.

    Attributes
    ----------
    context
        Shape (1 + C,).
    item
        By position, shape (1 + C, k, n).
    pair
        Symmetric, shape (n, n), the diagonal zero.
    """

    context: FloatArray
    item: FloatArray
    pair: FloatArray

    def values(self, inputs: FloatArray, rankings: NDArray[np.integer]) -> FloatArray:
        """Return the model's values of rows: inputs (N, 1 + C), rankings (N, k)."""
        positions = np.arange(rankings.shape[1])
        first, second = np.triu_indices(rankings.shape[1], 1)
        of_items = self.item[:, positions, rankings].sum(axis=2)
        of_pairs = self.pair[rankings[:, first], rankings[:, second]].sum(axis=1)
        return np.asarray(inputs @ self.context + (inputs * of_items.T).sum(axis=1) + of_pairs)


class LinearModel:
    """The posterior of the weights, from rows that only grow.

    Parameters
    ----------
    n_items, slate_size, context_dim
        n, k and C.
    prior
        Of weights and noise.
    """

    def __init__(self, *, n_items: int, slate_size: int, context_dim: int, prior: LinearPrior) -> None:
        self._n_items = n_items
        self._prior = prior
        self._n_rows = 0
        self._inputs = np.zeros((0, 1 + context_dim))
        self._rankings = np.zeros((0, slate_size), dtype=np.int32)
        self._rewards: FloatArray = np.zeros(0)
        self._factor = np.zeros((0, 0))

    def observe(self, context: FloatArray, ranking: NDArray[np.int32], reward: float) -> None:
        """Learn from a slate: O(N^2)."""
        n, point = self._n_rows, np.append(1.0, context)
        covariance = self._covariance(point, ranking)
        if n == len(self._rewards):
            self._grow()
        column = solve_triangular(self._factor[:n, :n], covariance, lower=True, check_finite=False)
        square = float(self._covariance_of(point[None], ranking[None], point, ranking)[0]) - float(column @ column)
        # In exact arithmetic at least the noise is left.
        self._factor[n, :n], self._factor[n, n] = column, math.sqrt(max(square, 0.0) + self._prior.noise)
        self._inputs[n], self._rankings[n], self._rewards[n] = point, ranking, reward
        self._n_rows += 1

    def draw(self, context: FloatArray, rng: np.random.Generator) -> SlateFunction:
        """Draw the weights from their posterior, as a function of slates of all items in one context: O(N^2 + n^2)."""
        prior, (n_inputs, k), n_items = self._prior, (self._inputs.shape[1], self._rankings.shape[1]), self._n_items
        above = np.triu(rng.normal(scale=math.sqrt(prior.pair), size=(n_items, n_items)), 1)
        weights = Weights(
            rng.normal(scale=math.sqrt(prior.context), size=n_inputs),
            rng.normal(scale=math.sqrt(prior.item), size=(n_inputs, k, n_items)),
            above + above.T,
        )
        return self.draw_from(context, weights, rng.normal(scale=math.sqrt(prior.noise), size=self._n_rows))

    def draw_from(self, context: FloatArray, weights: Weights, noise: FloatArray) -> SlateFunction:
        """Return the draw that one from the prior, and noise of the rows (N,), make by Matheron's rule."""
        prior, n, n_items, k = self._prior, self._n_rows, self._n_items, self._rankings.shape[1]
        inputs, rankings, point = self._inputs[:n], self._rankings[:n].astype(np.intp), np.append(1.0, context)
        of_rows = self._solve_rows(self._rewards[:n] - weights.values(inputs, rankings) - noise)
        at_context = of_rows * (inputs @ point)
        first, second = np.triu_indices(k, 1)
        of_items = _sum_cells(np.arange(k) * n_items + rankings, prior.item * at_context, (k, n_items))
        of_pairs = _sum_cells(
            rankings[:, first] * n_items + rankings[:, second], prior.pair * of_rows, weights.pair.shape
        )
        return SlateFunction(
            np.tensordot(point, weights.item, 1) + of_items,
            np.triu(np.ones((k, k)), 1),
            weights.pair + of_pairs + of_pairs.T,
            float(point @ weights.context) + prior.context * float(at_context.sum()),
        )

    def _solve_rows(self, values: FloatArray) -> FloatArray:
        factor = self._factor[: self._n_rows, : self._n_rows]
        if not len(factor):
            return values
        half = solve_triangular(factor, values, lower=True, check_finite=False)
        return np.asarray(solve_triangular(factor, half, lower=True, trans="T", check_finite=False))

    def _covariance(self, point: FloatArray, ranking: NDArray[np.int32]) -> FloatArray:
        n = self._n_rows
        return self._covariance_of(self._inputs[:n], self._rankings[:n], point, ranking)

    def _covariance_of(
        self, inputs: FloatArray, rankings: Rankings, point: FloatArray, ranking: NDArray[np.int32]
    ) -> FloatArray:
        """Return X Q x of rows and one point, without noise."""
        prior = self._prior
        same = (rankings == ranking).sum(axis=1)
        shared = (rankings[:, :, None] == ranking).sum(axis=(1, 2))
        pairs = shared * (shared - 1) // 2
        return np.asarray((inputs @ point) * (prior.context + prior.item * same) + prior.pair * pairs)

    def _grow(self) -> None:
        n = self._n_rows
        capacity = 2 * n + 64
        factor = np.zeros((capacity, capacity))
        factor[:n, :n] = self._factor
        self._factor = factor
        self._inputs, self._rankings, self._rewards = (
            np.concatenate([old, np.zeros((capacity - n, *old.shape[1:]), dtype=old.dtype)])
            for old in (self._inputs, self._rankings, self._rewards)
        )


class LinearThompson:
    """Shows the best slate by weights drawn from their posterior, found by hill climbing.

    Parameters
    ----------
    model
        What it knows at first.
    rng
        Draws the weights, and the random starts of climbs.
    """

    def __init__(self, model: LinearModel, *, rng: np.random.Generator) -> None:
        self._model = model
        self._rng = rng
        self._slates: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, prior: LinearPrior = LinearPrior()) -> LinearThompson:
        """Return a player for one trial."""
        n_items, slate_size, context_dim, *_ = size
        return cls(LinearModel(n_items=n_items, slate_size=slate_size, context_dim=context_dim, prior=prior), rng=rng)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        eligible = visit.eligible
        function = self._model.draw(visit.context, self._rng).among(eligible)
        best = maximiser(function, starts=np.zeros((0, function.slate_size), dtype=np.int32), rng=self._rng)
        ranking = np.asarray(eligible[best], dtype=np.int32)
        self._slates[visit.number] = visit.context, ranking
        return ranking

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        context, ranking = self._slates.pop(number)
        self._model.observe(context, ranking, reward)

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._slates[number]


def _sum_cells(cells: NDArray[np.intp], weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return an array of this shape: in each of its cells, the weights (N,) of the rows of `cells` (N, ...) with it."""
    values = np.broadcast_to(weights[:, None], cells.shape)
    total = np.bincount(cells.reshape(-1), weights=values.reshape(-1), minlength=math.prod(shape))
    return np.asarray(total.reshape(shape), dtype=np.float64)
