"""The few questions that tell most about an order, chosen one by one.

An optimal design says in which shares to ask very many questions, of people who know nothing else. A few questions
can't follow shares, and a model with a prior of the weights knows something: where a hundred answers tell little, it
matters as much which directions can be learned at all as how well all are. So each next question is the one after which
differences of utilities z'theta are known best on average. With S the covariance that the questions so far leave, and M
the mean of z z' over what is to be predicted, it minimises tr(M S), the mean variance of z'theta: the prediction error
that Dope bounds by its maximum (dope.md, Eq. 4), averaged, under the prior. This is Bayesian I-optimality (Chaloner and
Verdinelli 1995). With information A_i A_i' of list i, one question lowers it by tr((I + A_i' S A_i)^-1 A_i' S M S A_i).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_bandit.preferences.designs.subsets import pair_contrasts

__all__ = ["choose_most_informative", "contrasts", "ranking_information"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def choose_most_informative(
    matrices: FloatArray, *, scatter: FloatArray, covariance: FloatArray, count: int
) -> IntArray:
    """Return which lists to ask about, in order; one may come any number of times.

    Parameters
    ----------
    matrices
        A_i, so that A_i A_i' is the information that an answer about list i has of theta, shape (L, d, M).
    scatter
        M, shape (d, d).
    covariance
        S of theta before the first of these questions, shape (d, d).

    Returns
    -------
    Indices of lists, shape (count,).
    """
    n_lists, d, width = matrices.shape
    rows = np.ascontiguousarray(matrices.transpose(0, 2, 1)).reshape(-1, d)
    values, vectors = np.linalg.eigh(scatter)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # A_i' S and A_i' S M^1/2 of all lists, kept up to date by steps of rank `width`.
    known = rows @ covariance
    scaled = known @ root
    chosen = np.empty(count, dtype=np.int64)
    for number in range(count):
        inner = np.eye(width) + known.reshape(n_lists, width, d) @ matrices
        of_lists = scaled.reshape(n_lists, width, d)
        gains = (of_lists * np.linalg.solve(inner, of_lists)).sum(axis=(1, 2))
        chosen[number] = best = int(np.argmax(gains))
        one = known.reshape(n_lists, width, d)[best].copy()
        step = np.linalg.solve(inner[best], one)
        across = rows @ one.T
        known -= across @ step
        scaled -= across @ (step @ root)
    return chosen


def contrasts(features: FloatArray) -> FloatArray:
    """Return matrices B_i with K - 1 columns and the B_i B_i' of all pair differences, for features (L, K, d).

    The K(K - 1)/2 differences of `design.ranking_matrices` have K - 1 dimensions, and sum to K times the scatter.
    """
    return np.asarray(np.einsum("lkd,mk->ldm", features, pair_contrasts(features.shape[1])))


def ranking_information(size: int) -> float:
    """Return c_K: a ranking of K items of equal utility has the expected information c_K sum over pairs of z z'.

    Of the stages of Plackett-Luce, that with m items left has sum z z' / m^2 over its pairs, and holds a given pair
    with probability m (m - 1) / (K (K - 1)).
    """
    return sum((left - 1) / left for left in range(2, size + 1)) / (size * (size - 1))
