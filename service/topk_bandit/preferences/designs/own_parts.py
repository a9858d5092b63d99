"""What answers can tell where items have parts of their own beside their features.

The utility of a row with coordinates z of item i is z'theta + e_i, theta ~ N(0, I) and e_i ~ N(0, w): it is x'beta with
the direction x = (z, sqrt(w) 1_i) and beta ~ N(0, I). A design by z alone asks about the few items whose features are
far from each other, since it takes the utilities of all others to follow from theirs. By x it is Bayesian D-optimal
(Chaloner and Verdinelli 1995): of n questions, each with c times the information A_S A_S', it maximises

    log det(I + n c V) = log det(I / (n c) + V) + constant,

which is twice the nats that n answers give about all utilities together. `optimal.d_optimal_subsets` does this with the
prior I / (n c), and bounds what is left to gain as without one. The more questions there are, the more is asked of own
parts: what the first answers say of weights need not be asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.preferences.answers import IntArray
    from topk_bandit.preferences.utilities import FloatArray

__all__ = ["EXPECTED_VARIANCE", "directions_of", "questions_worth"]

EXPECTED_VARIANCE = 0.25
"""w before there are answers: own parts have half the spread of what features explain."""

_NOTHING = 1e-10
"""Squares in a direction that are this part of the largest are taken for rounding."""

_MOST_STEPS = 100


def directions_of(
    coordinates: FloatArray, items: IntArray, *, compare: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return x of rows with these coordinates and items, turned so that there are as many numbers as answers can tell.

    Parameters
    ----------
    coordinates
        z, shape (R, r).
    items
        Item of each row, from 0 on without gaps, shape (R,).
    compare
        Returns of rows (R, r + N) others that span what answers can tell of theirs.

    Returns
    -------
    Shape (R, d), d at most R and r + N; own parts are about the mean of all N items.
    """
    n_items = int(items.max()) + 1
    own = np.sqrt(EXPECTED_VARIANCE) * (np.eye(n_items) - 1.0 / n_items)[items]
    rows = np.hstack([coordinates, own])
    compared = compare(rows)
    squares, axes = np.linalg.eigh(compared.T @ compared)
    return np.ascontiguousarray(rows @ axes[:, squares > _NOTHING * squares[-1]])


def questions_worth(information: FloatArray, of_one: FloatArray) -> float:
    """Return n for which log det(I + n V) is log det(I + M): so many questions say as much as all answers do.

    Parameters
    ----------
    information
        M, the information of all answers, positive semidefinite, shape (d, d).
    of_one
        V, that of a question of the design, positive semidefinite, shape (d, d).
    """
    gain = float(np.linalg.slogdet(np.eye(len(information)) + information)[1])
    sizes = np.maximum(np.linalg.eigvalsh(of_one), 0.0)
    n = 0.0
    # The sum of logarithms is concave in n: Newton's steps from the left never overshoot.
    for _ in range(_MOST_STEPS):
        missing = gain - float(np.log1p(n * sizes).sum())
        if missing <= 1e-12 * max(gain, 1.0):
            break
        n += missing / float((sizes / (1.0 + n * sizes)).sum())
    return n
