"""The papers' bounds of what a design leaves open, with the constants that they print.

Dope ("Optimal Design for Human Feedback") bounds the prediction error and the loss after n questions of an optimal
design whose shares of n are whole numbers; DopeWolfe ("Comparing Few to Rank Many") the loss over all pairs, and the
iterations until its design is nearly optimal. Nothing is chosen by these bounds: tests hold them to what is measured,
which is far below. A bound of a loss that exceeds the number of pairs says nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "iterations_bound",
    "least_slope",
    "prediction_error_bound",
    "ranking_loss_bound",
    "subset_loss_bound",
]


def prediction_error_bound(d: int, n: int, *, delta: float) -> float:
    """Return what max_i |A_i' (theta - estimate)|^2 of ratings exceeds with probability at most delta.

    Dope, Theorem 3: d / n by Lemma 2 times 4 (2 d log 6 + log(1 / delta)) by Lemma 7, for noise of variance at most 1.
    """
    return 4.0 * d * (2.0 * d * math.log(6.0) + math.log(1.0 / delta)) / n


def ranking_loss_bound(gaps: ArrayLike, d: int, n: int, *, slope: float = 1.0) -> float:
    """Return the bound of the expected number of pairs in the wrong order: sum of 2 exp(-n slope^2 gap^2 / (2 d)).

    Dope, Theorem 4 for ratings, with slope 1, and Theorem 6 for rankings, with `least_slope`.

    Parameters
    ----------
    gaps
        Differences of utilities of the pairs of all lists, any shape.
    """
    return float(2.0 * np.exp(-n * (slope * np.asarray(gaps)) ** 2 / (2.0 * d)).sum())


def least_slope(theta: ArrayLike) -> float:
    """Return kappa = exp(-(1 + |theta|)), the least exp(x'w) where |x| and |w - theta| are at most 1 (Assumption 2)."""
    return math.exp(-1.0 - float(np.linalg.norm(np.asarray(theta, dtype=np.float64))))


def subset_loss_bound(gaps: ArrayLike, d: int, n: int, *, slope: float) -> float:
    """Return the bound of the share of all pairs of items that are in the wrong order (DopeWolfe, Proposition 2).

    4 / (N (N - 1)) sum of exp(-n slope^2 gap^2 / (2 d)); the paper's z_jk^2 stands for the squared gap.

    Parameters
    ----------
    gaps
        Differences of utilities of the N (N - 1) / 2 pairs.
    """
    return ranking_loss_bound(gaps, d, n, slope=slope) / np.size(gaps)


def iterations_bound(n_subsets: int, sampled: int, d: int, *, missing: float, epsilon: float) -> int:
    """Return after how many iterations DopeWolfe is expected to be within epsilon of the best log det.

    Theorem 7 and Corollary 8, for a start with V of full rank, no ridge, and an exact line search.

    Parameters
    ----------
    n_subsets, sampled
        (N choose K), and how many of them an iteration draws, R.
    missing
        By how much the log det that it begins with is below the best, delta_0 > 0.
    """
    ratio = n_subsets / sampled
    first = 5.3 * ratio * (missing + d) * max(math.log(10.6 * ratio * missing), 0.0)
    second = 12.0 * ratio * d**2 * max(1.0 / epsilon - max(1.0 / missing, 10.6 * ratio), 0.0)
    return math.ceil(first) + math.ceil(second)
