"""Which lists to ask people about: D-optimal designs over lists, with a certificate.

List i has a matrix A_i, (d, M): its items' features for ratings, the differences of its items' features for rankings.
A design p maximises log det V(p), V(p) = sum_i p_i A_i A_i'. With g_i = tr(A_i' V^-1 A_i), the matrix Kiefer-Wolfowitz
theorem says that p is optimal if and only if max_i g_i = d; and max_i g_i - d, the *gap*, bounds what log det V can
still gain. Every design carries its gap.

Sources: Mukherjee et al., "Optimal Design for Human Feedback" (Dope): lists given. Thekumparampil et al., "Comparing Few
to Rank Many" (DopeWolfe): all subsets of a given size.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.errors import InvalidArgumentError
from topk_bandit.preferences._ascent import ascend
from topk_bandit.preferences._lists import Lists
from topk_bandit.preferences._subsets import RankedSubsets, RatedSubsets
from topk_bandit.preferences._whitening import RankError
from topk_bandit.preferences.utilities import validated_features

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    Watch = Callable[["Progress"], bool]

__all__ = [
    "Feedback",
    "ListDesign",
    "Progress",
    "SubsetDesign",
    "d_optimal_lists",
    "d_optimal_subsets",
    "ranking_matrices",
    "rating_matrices",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_MOST_STEPS = 1_000_000


class Feedback(enum.Enum):
    """What a person says about a list: a number for every item, or which items are better than which."""

    RATING = "rating"
    RANKING = "ranking"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a design is."""

    steps: int
    log_det: float
    gap: float


@dataclass(frozen=True, slots=True, eq=False)
class ListDesign:
    """A distribution over lists."""

    weights: FloatArray
    log_det: float
    gap: float
    steps: int

    def rounded(self, n: int) -> IntArray:
        return _rounded(self.weights, n)

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        return rng.choice(len(self.weights), size=n, p=self.weights / self.weights.sum())


@dataclass(frozen=True, slots=True, eq=False)
class SubsetDesign:
    """A distribution over subsets."""

    subsets: IntArray
    weights: FloatArray
    log_det: float
    gap: float
    steps: int

    def rounded(self, n: int) -> IntArray:
        return _rounded(self.weights, n)

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        return rng.choice(len(self.weights), size=n, p=self.weights / self.weights.sum())


def _rounded(weights: FloatArray, n: int) -> IntArray:
    counts = np.zeros(len(weights), dtype=np.int64)
    support = np.flatnonzero(weights)
    if n < len(support):
        counts[support[np.argsort(-weights[support], kind="stable")[:n]]] = 1
        return counts
    w = weights[support]
    c = np.ceil((n - 0.5 * len(support)) * w).astype(np.int64)
    while c.sum() < n:
        c[np.argmin(c / w)] += 1
    while c.sum() > n:
        c[np.argmax((c - 1) / w)] -= 1
    counts[support] = c
    return counts


def rating_matrices(features: ArrayLike) -> FloatArray:
    """Return A_i = [x_ik] of lists with features of shape (L, K, d), as an array of shape (L, d, K)."""
    return np.ascontiguousarray(_lists_of_features(features, fewest=1).transpose(0, 2, 1))


def ranking_matrices(features: ArrayLike) -> FloatArray:
    """Return A_i = [x_ij - x_ik] of lists with features of shape (L, K, d), as (L, d, K(K-1)/2)."""
    rows = _lists_of_features(features, fewest=2)
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.ascontiguousarray((rows[:, first] - rows[:, second]).transpose(0, 2, 1))


def _lists_of_features(features: ArrayLike, *, fewest: int) -> FloatArray:
    rows = _numbers(features, "features", "(L, K, d)")
    if rows.shape[1] < fewest:
        raise InvalidArgumentError("features", f"expected lists of at least {fewest} items, got {rows.shape}")
    return rows


def _numbers(values: ArrayLike, field: str, shape: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, f"expected numbers of shape {shape}") from None
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidArgumentError(field, f"expected shape {shape}, got {array.shape}")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        raise InvalidArgumentError(f"{field}[{wrong[0, 0]}]", "expected finite numbers")
    return array


def d_optimal_lists(matrices: ArrayLike, *, gap_tolerance: float, watch: Watch | None = None) -> ListDesign:
    """Return the D-optimal distribution over lists (Dope, Eq. 6)."""
    array = _numbers(matrices, "matrices", "(L, d, M)")
    _check_tolerance(gap_tolerance)
    try:
        lists = Lists.of(array)
    except RankError as error:
        raise _not_spanning("matrices", "they", error.rank, array.shape[1]) from None
    found = ascend(lists, gap_tolerance=gap_tolerance, max_steps=_MOST_STEPS, tell=_telling(watch, lists.log_det))
    weights = np.zeros(len(array))
    weights[found.keys[:, 0]] = found.weights
    return ListDesign(weights, found.log_det + lists.log_det, found.gap, found.steps)


def d_optimal_subsets(
    features: ArrayLike,
    *,
    subset_size: int,
    gap_tolerance: float,
    rng: np.random.Generator,
    feedback: Feedback = Feedback.RANKING,
    groups: ArrayLike | None = None,
    max_steps: int = 10_000,
    watch: Watch | None = None,
) -> SubsetDesign:
    """Return the D-optimal distribution over all subsets of a size (DopeWolfe)."""
    rows = validated_features(features)
    _check_tolerance(gap_tolerance)
    labels = np.zeros(len(rows), dtype=np.int64) if groups is None else np.asarray(groups)
    if labels.shape != (len(rows),):
        raise InvalidArgumentError("groups", f"expected shape ({len(rows)},), got {labels.shape}")
    fewest = 2 if feedback is Feedback.RANKING else 1
    largest = int(np.unique(labels, return_counts=True)[1].max(initial=0))
    if not fewest <= subset_size <= largest:
        raise InvalidArgumentError("subset_size", f"expected {fewest} to {largest} items, got {subset_size}")
    groups_of = [np.flatnonzero(labels == one) for one in np.unique(labels)]
    groups_of = [one for one in groups_of if len(one) >= subset_size]
    try:
        if feedback is Feedback.RANKING:
            candidates = RankedSubsets.of(rows, groups=groups_of, size=subset_size, rng=rng)
        else:
            candidates = RatedSubsets.of(rows, groups=groups_of, size=subset_size)
    except RankError as error:
        raise _not_spanning("features", "they", error.rank, rows.shape[1]) from None
    found = ascend(candidates, gap_tolerance=gap_tolerance, max_steps=max_steps, tell=_telling(watch, candidates.log_det))
    return SubsetDesign(found.keys, found.weights, found.log_det + candidates.log_det, found.gap, found.steps)


def _not_spanning(field: str, what: str, rank: int, d: int) -> InvalidArgumentError:
    return InvalidArgumentError(field, f"{what} span {rank} of {d} dimensions, so they do not span the features")


def _check_tolerance(gap_tolerance: float) -> None:
    if not (np.isfinite(gap_tolerance) and gap_tolerance > 0.0):
        raise InvalidArgumentError("gap_tolerance", f"expected a positive number, got {gap_tolerance}")


def _telling(watch: Watch | None, constant: float) -> Callable[[int, float, float], bool]:
    if watch is None:
        return lambda *_: False
    return lambda steps, log_det, gap: bool(watch(Progress(steps, log_det + constant, gap)))
