"""Rank aggregation with features (RABF): scores from pairwise comparisons, by features as far as these can be trusted.

Item i has the score s_i = x_i'w + r_i; the residual r_i corrects an item whose features mislead. With t = s_j - s_i for
a comparison P of i and j::

    J(w, r) = sum loss(t, P) + lambda_w |w|^2 + lambda_r |r|^2            (problem 1 and Eq. 6 of the source)

Newton's steps, of which the squared loss needs one, eliminate r. With c the second derivatives of loss / 2, B the m x n
matrix of e_j - e_i, the graph Laplacian L = B' diag(c) B, and M = L + lambda_r I::

    (lambda_w I + lambda_r X'Y) dw = u_w - Y'u_r,      dr = M^-1 u_r - Y dw,      Y = M^-1 L X

u being minus half the gradient. Items that were never compared have r = 0, and only the others enter. The inverse of
the Hessian gives the spread of the scores::

    cov s = M^-1 + (X - Y) (lambda_w I + lambda_r X'Y)^-1 (X - Y)'

Source: the appendix on rank aggregation with features, Appendices A and C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from topk_bandit.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import Utilities

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Aggregate", "Comparisons", "Loss", "Online", "fit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_DENSE = 2048
_PROBES = 128
_ACCURACY = 1e-12


class Loss(StrEnum):
    """Of a difference of scores t = s_j - s_i and what was observed of it, P.

    ``SQUARED``: (t - P)^2, for a number P or a sign. ``LOGISTIC``: log(1 + exp(-P t)), for a sign.
    """

    SQUARED = "squared"
    LOGISTIC = "logistic"


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """Pairs of items and how much more the second is worth than the first.

    Attributes
    ----------
    first, second
        Items i and j of each comparison, shape (m,).
    values
        P, an observation of s_j - s_i or of its sign, shape (m,).
    """

    first: IntArray
    second: IntArray
    values: FloatArray

    @classmethod
    def of(cls, pairs: ArrayLike, values: ArrayLike, *, n_items: int) -> Comparisons:
        """Return comparisons of pairs (i, j), shape (m, 2); a pair may come any number of times, and contradict itself.

        Raises
        ------
        InvalidArgumentError
            Naming ``pairs``, ``pairs[c]``, ``values`` or ``values[c]``: wrong shape, an item against itself, an index
            outside [0, n_items), or a value that is not finite.
        """
        array = np.asarray(pairs)
        if array.size == 0:
            array = np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidArgumentError("pairs", f"expected integers of shape (m, 2), got {array.dtype} {array.shape}")
        out = ((array < 0) | (array >= n_items)).any(axis=1)
        same = array[:, 0] == array[:, 1]
        for wrong, problem in ((out, f"expected items in [0, {n_items})"), (same, "an item against itself")):
            if wrong.any():
                raise InvalidArgumentError(f"pairs[{int(np.argmax(wrong))}]", problem)
        first, second = np.ascontiguousarray(array.T, dtype=np.int64)
        return cls(first, second, _numbers(values, len(array)))

    def __len__(self) -> int:
        return len(self.values)


def _numbers(values: ArrayLike, count: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError("values", "expected numbers") from None
    if array.shape != (count,):
        raise InvalidArgumentError("values", f"expected shape ({count},), got {array.shape}")
    wrong = ~np.isfinite(array)
    if wrong.any():
        raise InvalidArgumentError(f"values[{int(np.argmax(wrong))}]", "expected a finite number")
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Scores learned from comparisons.

    Attributes
    ----------
    weights
        w, shape (d,).
    residuals
        r, shape (n,); 0 for an item that was never compared.
    objective
        J at the minimum.
    noise_variance
        What the inverse Hessian is multiplied with: 1 for the logistic loss (whose J is a negative log density); for
        the squared loss (1 + J) / (1 + m), the variance of a comparison that makes the comparisons most probable,
        one more of squared deviation 1 being added to them.
    weights_covariance, explained, residual_variances
        (lambda_w I + lambda_r X'Y)^-1, Y of the items compared and 0 for others, and the diagonal of M^-1, all for a
        noise variance of 1; shapes (d, d), (n, d) and (n,).
    residual_ridge
        lambda_r in the unit of the Hessian.
    """

    weights: FloatArray
    residuals: FloatArray
    objective: float
    noise_variance: float
    weights_covariance: FloatArray
    explained: FloatArray
    residual_variances: FloatArray
    residual_ridge: float

    def utilities(self, features: ArrayLike) -> Utilities:
        """Return the scores x'w + r with their standard deviations.

        Parameters
        ----------
        features
            Row i is item i as in `fit`; rows after these are new items, shape (n or more, d).

        Raises
        ------
        InvalidArgumentError
            Naming ``features``: not finite, another d, or fewer rows than items.
        """
        rows = _features(features, dimension=len(self.weights))
        new = len(rows) - len(self.residuals)
        if new < 0:
            raise InvalidArgumentError("features", f"expected at least {len(self.residuals)} rows, got {len(rows)}")
        residuals = np.append(self.residuals, np.zeros(new))
        left = rows.copy()
        left[: len(rows) - new] -= self.explained
        variances = np.append(self.residual_variances, np.full(new, 1.0 / self.residual_ridge))
        variances += np.einsum("nd,nd->n", left @ self.weights_covariance, left)
        return Utilities(rows @ self.weights + residuals, np.sqrt(self.noise_variance * variances))


def fit(
    features: ArrayLike,
    comparisons: Comparisons,
    *,
    loss: Loss = Loss.SQUARED,
    weights_ridge: float = 1.0,
    residual_ridge: float = 1.0,
    tolerance: float = 1e-8,
) -> Aggregate:
    """Return the scores that minimise J.

    Aggregation without features (least squares for `Loss.SQUARED`, maximum likelihood for `Loss.LOGISTIC`, each with a
    ridge) is the case d = 0: features of shape (n, 0). Contradictory and repeated comparisons each count by themselves.
    Items that no path of comparisons connects are told apart by their features alone. Without comparisons the scores
    are 0 with the spread of the ridges.

    Parameters
    ----------
    features
        Row i is item i, shape (n, d); d may be 0.
    comparisons
        Of these items.
    loss
        How a score difference is compared with what was observed.
    weights_ridge, residual_ridge
        lambda_w and lambda_r > 0. Only their size beside that of the features matters for how much is put down to
        features: x'w and r have prior variances in the ratio |x|^2 / lambda_w to 1 / lambda_r.
    tolerance
        Stop after a step that lowers J by at most this much.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``, ``comparisons``, ``values[c]`` (no sign, for the logistic loss), ``weights_ridge``,
        ``residual_ridge`` or ``tolerance``.
    """
    rows = _features(features)
    for field, number in (
        ("weights_ridge", weights_ridge), ("residual_ridge", residual_ridge), ("tolerance", tolerance)
    ):
        if not (math.isfinite(number) and number > 0.0):
            raise InvalidArgumentError(field, f"expected a positive number, got {number}")
    _check(comparisons, loss, n_items=len(rows))
    # Half the objective has the squared loss's Hessian with unit weights, the logistic one's whole does.
    problem = _Problem.of(rows, comparisons, loss, weights_ridge, residual_ridge)
    return _aggregate(problem, _minimum(problem, tolerance), n_items=len(rows), features=rows)
