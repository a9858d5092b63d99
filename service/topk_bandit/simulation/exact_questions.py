"""The few questions that tell most about an order, chosen one by one.

An optimal design says in which shares to ask very many questions, of people who know nothing else. A few questions
can't follow shares, and a model with a prior N(0, v I) of the weights knows something: where a hundred answers tell
little, it matters as much which directions can be learned at all as how well all are. So each next question is the one
after which utility differences z'theta are known best on average. With S the posterior covariance that the questions
so far leave, and M the mean of z z' / |z|^2 over all pairs of items in one list, it minimises

    tr(M S) = the mean over pairs of the variance of z'theta, as a multiple of |z|^2,

that is, the prediction error that Dope bounds by its maximum (dope.md, Eq. 4), averaged, under the prior: Bayesian
I-optimality (Chaloner and Verdinelli 1995). A pair's expected part in the ranking loss is arccos(sqrt(1 - z'Sz /
(v |z|^2))) / pi, so it depends on just this ratio. With information A_i A_i' of list i, one question lowers it by
tr((I + A_i' S A_i)^-1 A_i' S M S A_i).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_bandit.errors import InvalidArgumentError

__all__ = ["contrasts", "most_telling", "pair_scatter", "ranking_information", "unit_scatter"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def most_telling(matrices: FloatArray, *, scatter: FloatArray, prior_variance: float, count: int) -> IntArray:
    """Return which lists to ask about, in order; one may come any number of times.

    Parameters
    ----------
    matrices
        A_i, so that A_i A_i' is the information that an answer about list i has of theta, shape (L, d, M).
    scatter
        The mean of z z' / |z|^2 over what is to be predicted, shape (d, d).
    prior_variance
        v.

    Returns
    -------
    Indices of lists, shape (count,).
    """
    if not (np.isfinite(prior_variance) and prior_variance > 0.0):
        raise InvalidArgumentError("prior_variance", f"expected a positive number, got {prior_variance}")
    n_lists, d, width = matrices.shape
    rows = np.ascontiguousarray(matrices.transpose(0, 2, 1)).reshape(-1, d)
    covariance = prior_variance * np.eye(d)
    chosen = np.empty(count, dtype=np.int64)
    for number in range(count):
        known = rows @ covariance
        inner = np.eye(width) + known.reshape(n_lists, width, d) @ matrices
        told = (known @ scatter).reshape(n_lists, width, d) @ known.reshape(n_lists, width, d).transpose(0, 2, 1)
        gains = np.trace(np.linalg.solve(inner, told), axis1=1, axis2=2)
        chosen[number] = best = int(np.argmax(gains))
        one = known.reshape(n_lists, width, d)[best]
        covariance = covariance - one.T @ np.linalg.solve(inner[best], one)
    return chosen


def pair_scatter(features: FloatArray) -> FloatArray:
    """Return the mean of z z' / |z|^2 over all pairs of different items of each list, for features (L, K, d)."""
    first, second = np.triu_indices(features.shape[1], 1)
    return unit_scatter((features[:, first] - features[:, second]).reshape(-1, features.shape[2]))


def unit_scatter(rows: FloatArray) -> FloatArray:
    """Return the mean of z z' / |z|^2 over rows (n, d) that are not 0."""
    lengths = np.linalg.norm(rows, axis=1)
    directions = rows[lengths > 0.0] / lengths[lengths > 0.0, None]
    return np.asarray(directions.T @ directions / max(len(directions), 1))


def contrasts(features: FloatArray) -> FloatArray:
    """Return matrices B_i with K - 1 columns and the B_i B_i' of all pair differences, for features (L, K, d).

    The K(K - 1)/2 differences of `design.ranking_matrices` have K - 1 dimensions, and sum to K times the scatter.
    """
    size = features.shape[1]
    helmert = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, : size - 1]]))[0][:, 1:]
    return np.asarray(np.sqrt(size) * np.einsum("lkd,km->ldm", features, helmert))


def ranking_information(size: int) -> float:
    """Return c_K: a ranking of K items of equal utility has the expected information c_K sum over pairs of z z'.

    Of the stages of Plackett-Luce, that with m items left has sum z z' / m^2 over its pairs, and holds a given pair
    with probability m (m - 1) / (K (K - 1)).
    """
    return sum((left - 1) / left for left in range(2, size + 1)) / (size * (size - 1))
