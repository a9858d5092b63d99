"""How far answers agree: whether two of them that order the same two items order them alike."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.preferences.study_models import RatedLists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.preferences.study_models import StudyAnswers

__all__ = ["Agreement", "measure_agreement"]


class Agreement(NamedTuple):
    """The share of pairs of answers that order two items alike, and how many pairs there are; 0 and 0 for none.

    Answers of people who guess have a share of 1/2, and those of people who all have one order of the items 1.
    """

    share: float
    pairs: int


def measure_agreement(answers: StudyAnswers) -> Agreement:
    """Return how far answers agree.

    Each two answers that order the same two items count once for these items. Items that an answer ties, or rates
    alike, are not ordered by it. With n answers for an order of two items and m against it, these are
    C(n, 2) + C(m, 2) pairs that agree, of C(n + m, 2): the share of all is Rand's, weighted by the answers.

    Parameters
    ----------
    answers
        Tiers, or ratings of lists.
    """
    pairs = _pairs_of_ratings(answers) if isinstance(answers, RatedLists) else answers.to_pairs()
    ascending = np.sort(pairs, axis=1)
    _, which = np.unique(ascending[:, 0] * np.int64(answers.n_items) + ascending[:, 1], return_inverse=True)
    for_order = np.bincount(which, weights=pairs[:, 0] == ascending[:, 0])
    all_orders = np.bincount(which)
    count = int(_two_of(all_orders).sum())
    agreeing = _two_of(for_order).sum() + _two_of(all_orders - for_order).sum()
    return Agreement(float(agreeing) / count if count else 0.0, count)


def _two_of(counts: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(counts * (counts - 1) / 2, dtype=np.float64)


def _pairs_of_ratings(answers: RatedLists) -> NDArray[np.int64]:
    """Return all pairs that ratings of one list order, the better item first, shape (P, 2)."""
    pairs = [
        (one[0], other[0]) if one[1] > other[1] else (other[0], one[0])
        for rows, values in zip(answers.lists, answers.values, strict=True)
        for one, other in combinations(zip(rows, values, strict=True), 2)
        if one[1] != other[1]
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
