"""Whole numbers of questions in the proportions of a design."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["allocate"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def allocate(weights: FloatArray, n: int) -> IntArray:
    """Return counts that sum to n, by efficient rounding (Pukelsheim and Rieder 1992).

    With a support of l it starts from ceil((n - l/2) w_i), and then takes from the count whose (n_i - 1) / w_i is
    largest, or adds to that whose n_i / w_i is smallest, until the sum is n. No rounding in proportion loses less of
    the worst n_i / (n w_i). It asks every question of the support at least once, so that n < l has to leave some out:
    then the n largest weights count once each.

    Parameters
    ----------
    weights
        Non-negative, with sum 1, shape (L,).

    Raises
    ------
    InvalidArgumentError
        Naming ``n``: negative.
    """
    if n < 0:
        raise InvalidArgumentError("n", f"expected a number of questions, got {n}")
    counts, support = np.zeros(len(weights), dtype=np.int64), np.flatnonzero(weights)
    if n < len(support):
        counts[support[np.argsort(-weights[support], kind="stable")[:n]]] = 1
        return counts
    shares = weights[support]
    parts = np.maximum(np.ceil((n - 0.5 * len(support)) * shares), 1.0)
    while parts.sum() < n:
        parts[np.argmin(parts / shares)] += 1.0
    while parts.sum() > n:
        parts[np.argmax((parts - 1.0) / shares)] -= 1.0
    counts[support] = parts.astype(np.int64)
    return counts
