"""Rank aggregation with features by stochastic gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.compiled.online import take_steps
from topk_bandit.preferences.models.comparisons import Loss, check_positive, validate_item_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from topk_bandit.preferences.models.comparisons import Comparisons

__all__ = ["Online"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Online:
    """Scores learned by one gradient step per comparison (online RABF, Algorithm 1 and Eq. 19).

    The steps go downhill on E[loss] + (weights_ridge |w|^2 + residual_ridge |r|^2) / 2, the expectation being over
    comparisons to come. So after m comparisons it is `fit` with m / 2 times these ridges that this is to be compared
    with. Features are scaled by (residual_ridge / weights_ridge)^1/2, which leaves one ridge (Eq. 6), and step t of
    size 2 / (ridge t + 2 C), with C a bound of the second derivatives along any direction, is the quickest that is
    known to converge for certain. The scores are those of the mean of the iterates, iterate t weighing t: it is within
    O(1 / t) of the minimum, while the last iterate keeps moving with every comparison.

    Attributes
    ----------
    features
        Scaled, shape (n, d).
    ridge, steepest
        The one ridge, and C.
    last, mean
        Weights of the scaled features and then residuals: the last iterate and the mean, shape (d + n,).
    steps
        Comparisons so far.
    """

    loss: Loss
    features: FloatArray
    ridge: float
    steepest: float
    last: FloatArray
    mean: FloatArray
    steps: int

    @classmethod
    def start(
        cls,
        features: ArrayLike,
        *,
        loss: Loss = Loss.SQUARED,
        weights_ridge: float = 0.01,
        residual_ridge: float = 0.1,
    ) -> Online:
        """Return the scores before any comparison, which are 0.

        Parameters
        ----------
        features
            Row i is item i, shape (n, d); d may be 0.

        Raises
        ------
        InvalidArgumentError
            Naming ``features``, ``weights_ridge`` or ``residual_ridge``.
        """
        check_positive(weights_ridge=weights_ridge, residual_ridge=residual_ridge)
        rows = validate_item_features(features) * math.sqrt(residual_ridge / weights_ridge)
        longest = float((rows**2).sum(axis=1).max(initial=0.0))
        steepest = (2.0 if loss is Loss.SQUARED else 0.25) * (4.0 * longest + 2.0) + residual_ridge
        nothing = np.zeros(sum(rows.shape))
        return cls(loss, rows, residual_ridge, steepest, nothing, nothing, 0)

    @property
    def scores(self) -> FloatArray:
        """Of the items, shape (n,)."""
        d = self.features.shape[1]
        return np.asarray(self.features @ self.mean[:d] + self.mean[d:])

    def observe(self, comparisons: Comparisons) -> Online:
        """Return the state after one step for each comparison, in their order.

        Raises
        ------
        InvalidArgumentError
            Naming ``comparisons`` or ``values[c]``, as `fit` does.
        """
        comparisons.check(self.loss, n_items=len(self.features))
        last, mean = self.last.copy(), self.mean.copy()
        pairs = np.column_stack([comparisons.first, comparisons.second])
        steps = take_steps(
            self.loss is Loss.SQUARED,
            self.features,
            self.ridge,
            self.steepest,
            pairs,
            comparisons.values,
            last,
            mean,
            self.steps,
        )
        return replace(self, last=last, mean=mean, steps=steps)
