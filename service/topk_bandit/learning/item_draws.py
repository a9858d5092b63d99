"""Draws of the items' parts of the expected reward at one context: for exploration and for estimates of regret.

With the pair weights Z of a draw from the prior (`thompson`), a slate's value is the sum of u_p r_i over its items and
of D_pq Z_ij over its pairs, and r_i = sum_j Z_ij is what item i brings in by itself. Before any reward the r have the
covariance n I - 1 1' (times the kernel's scale), to which content adds the products of the items' features, and their
covariance with the rows is the sum of two features of the contraction. So their posterior at a context is one product
of the E items' features, and a draw of it costs O(E^2): a draw of the whole function would have to draw all pairs in
all coordinates of the context.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from topk_bandit.domain.slates import REGRET_CONFIDENCE
from topk_bandit.learning.compiled.regret import regrets, rivals

if TYPE_CHECKING:
    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["ItemDraws", "RegretFigures"]

FloatArray = NDArray[np.float64]

_NONE_STANDS = np.zeros(0, dtype=np.intp)

_FIGURE_DRAWS = 24
"""Each has a slate that is best in it; to know the variance of more of these would take longer than to decide."""

_BOUND_MARGIN = 6.0
"""So many times as far from the estimate as the draws' quantile is the bound: draws take the kernel's choice, the noise
and the scale for known and preferences for constant, and in shops where they are not the quantile held in half of the
rounds."""

_JITTER = 1e-5
"""Added to the diagonal, as a share of the prior variance: features are float32 numbers, and rounded."""


class RegretFigures(NamedTuple):
    """The expected regret of a slate under the posterior, and what it is below with probability REGRET_CONFIDENCE."""

    estimate: float
    bound: float


class ItemDraws:
    """The joint posterior of the items' parts at a context, in the unit of the rewards.

    Parameters
    ----------
    at
        The posterior at a context, over E items.
    with_pending
        Whether slates that wait for their rewards count; by the rewarded ones alone is what is known.

    Attributes
    ----------
    covariance
        Of the r of all items, shape (E, E).
    """

    def __init__(self, at: ContextPosterior, *, with_pending: bool = True) -> None:
        kernel, n_items, features = at.kernel, len(at.items), at.contraction.features
        self._n_columns = features.shape[1] if with_pending else at.n_rows  # pending rows come last
        of_items = features[:n_items, : self._n_columns] + features[2 * n_items, : self._n_columns]
        unit = at.amplitude * kernel.scale * at.prior
        self.covariance = -at.amplitude * (of_items @ of_items.T).astype(np.float64)
        if kernel.centred:
            self.covariance -= unit
        self.covariance.flat[:: n_items + 1] += unit * kernel.n_items
        jitter = _JITTER * unit * kernel.n_items
        if len(taken := at.contraction.taken):
            added = -at.amplitude * taken.astype(np.float64)
            self.covariance.flat[:: n_items + 1] += added
            jitter += _JITTER * max(float(added.max()), 0.0)
        if at.contraction.content.shape[1]:
            of_content = at.amplitude * at.prior * _products(at.contraction.content)
            self.covariance += of_content
            jitter += _JITTER * float(of_content.diagonal().max())
        self._at = at
        self._factor = _factor(self.covariance, jitter) if jitter > 0.0 else np.zeros((n_items, n_items))

    def without_pending(self) -> ItemDraws:
        """Return those of the rewarded rows alone."""
        return self if self._n_columns == self._at.n_rows else ItemDraws(self._at, with_pending=False)

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws of the deviations of all r from their means, shape (count, E)."""
        return np.asarray(rng.standard_normal((count, len(self._factor))) @ self._factor.T, dtype=np.float64)

    def shift(self, width: float, rng: np.random.Generator) -> ContextPosterior:
        """Return the posterior at the context with means as in one draw, whose deviations are `width` times as wide.

        Where content counts the draw is of what features tell, a share rho of it, beside one of all that is unknown of
        the items: what is tried of one item is then learned of many, and where items are many there is no end to what
        each of them could be by itself.
        """
        at = self._at
        weights = at.contraction.weights.copy()
        weights[: len(at.items)] += width * self._draw_to_follow(rng)
        return replace(at, contraction=at.contraction._replace(weights=weights))

    def _draw_to_follow(self, rng: np.random.Generator) -> FloatArray:
        drawn: FloatArray = self.draw(1, rng)[0]
        content, shape = self._at.contraction.content, self._at.kernel.shape
        if not content.shape[1] or shape is None:
            return drawn
        of_features = content @ (_factor_of_features(self._at, self._n_columns) @ rng.standard_normal(content.shape[1]))
        return np.asarray((drawn + shape.content * of_features) / (1.0 + shape.content), dtype=np.float64)

    def regret_of(
        self,
        shown: NDArray[np.int32],
        best: NDArray[np.int32],
        rng: np.random.Generator,
        standing: NDArray[np.intp] = _NONE_STANDS,
        count: int = 0,
        *,
        rules: SlateRules | None = None,
        anchor: NDArray[np.int64] | None = None,
    ) -> RegretFigures:
        """Return figures of the regret of one slate.

        In each of some draws the slate is compared with `best` and with the slates of the items that are best in one
        draw or another. What slates deviate by beside their items' parts is drawn for each slate on its own.

        Parameters
        ----------
        shown, best
            Slates, as positions in the items, both (k,).
        standing, count
            Positions of items that stand for `count` which are alike, themselves among them, and are not shown: in each
            draw they are the best of these.
        rules, anchor
            Rules over the items, and a slate of their places that keeps them: then it is compared with slates that they
            allow. None: with any.
        """
        at, draws = self._at, self.draw(_FIGURE_DRAWS, rng)
        normals = rng.standard_normal((_FIGURE_DRAWS, _FIGURE_DRAWS + 2))
        if 0 < len(standing) < count:
            deviations = np.sqrt(np.maximum(self.covariance.diagonal()[standing], 0.0))
            draws[:, standing] = deviations * _largest(_FIGURE_DRAWS, len(standing), count, rng)
        compared = rivals(at.contraction.weights, draws, rules, anchor, shown, best, _FIGURE_DRAWS)
        explained = at.explain(compared, self._n_columns)
        regret = regrets(
            *(
                at.contraction.weights,
                at.contraction.pair_weights,
                self.covariance,
                draws,
                normals,
                compared,
                explained,
            ),
            *(at.prior, at.amplitude, *at.position_weights),
        )
        regret.sort()
        estimate = float(regret.mean())
        beyond = max(_quantile(regret, REGRET_CONFIDENCE) - estimate, 0.0)
        return RegretFigures(estimate, estimate + _BOUND_MARGIN * beyond)


def _largest(n_draws: int, size: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Draw the `size` largest of `count` standard normal numbers, the largest first, shape (n_draws, size).

    The largest of n uniform numbers is distributed as the n-th root of one, and the others below it as n - 1 of them.
    """
    roots = rng.random((n_draws, size)) ** (1.0 / (count - np.arange(size)))
    return np.asarray(ndtri(np.cumprod(roots, axis=1)), dtype=np.float64)


def _quantile(ascending: FloatArray, probability: float) -> float:
    """Return a quantile of numbers in ascending order, by a line between two of them; numpy's takes much longer.

    With few draws, too, it is exceeded as often as it says (Weibull, 1939).
    """
    share, below = math.modf(probability * (len(ascending) + 1))
    first, second = ascending[int(below) - 1 : int(below) + 1].tolist()
    return float(first + share * (second - first))


def _factor_of_features(at: ContextPosterior, n_columns: int) -> FloatArray:
    """Return a factor of the posterior covariance of the weights of features, of which content is the sum, (q, q)."""
    of_content, unit = at.of_content[:, :n_columns], at.amplitude * at.prior
    n_features = len(of_content)
    covariance = at.amplitude * (at.prior * np.eye(n_features) - (of_content @ of_content.T).astype(np.float64))
    return _factor(covariance, _JITTER * unit) if unit > 0.0 else np.zeros((n_features, n_features))


def _products(content: NDArray[np.float32]) -> FloatArray:
    return np.asarray(content @ content.T, dtype=np.float64)


def _factor(covariance: FloatArray, jitter: float) -> FloatArray:
    """Return L with L L' = covariance, but for rounding."""
    while True:
        certain = covariance.copy()
        certain.flat[:: len(covariance) + 1] += jitter
        try:
            return np.asarray(np.linalg.cholesky(certain))
        except np.linalg.LinAlgError:
            jitter *= 10.0
            if not math.isfinite(jitter):
                raise
