"""Which lists to ask people about: D-optimal designs over lists, each with a certificate.

List i has a matrix A_i, (d, M): the features of its items if people rate them, the differences of the features of its
pairs if people rank them. A design is a distribution p over lists that maximises log det V, with V = sum_i p_i A_i A_i'
and g_i = tr(A_i' V^-1 A_i). The matrix Kiefer-Wolfowitz theorem (Dope, Theorem 1) says that p is optimal if and only if
max_i g_i = d. The *gap*, max_i g_i - d, is what every design here carries: log det V can gain at most
d log(1 + gap / d), hence at most the gap.

Sources: Mukherjee et al., "Optimal Design for Human Feedback" (Dope), where the lists are given; and Thekumparampil et
al., "Comparing Few to Rank Many" (DopeWolfe), where they are all subsets of a size. The algorithms are described in
`designs.ascent`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.designs.ascent import ascend
from topk_bandit.preferences.designs.given_subsets import GivenSubsets
from topk_bandit.preferences.designs.lists import Lists
from topk_bandit.preferences.designs.rounding import allocate
from topk_bandit.preferences.designs.subsets import RankedSubsets, RatedSubsets
from topk_bandit.preferences.designs.whitening import RankError
from topk_bandit.preferences.utilities import validate_features

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
    """What people say about a list: a number for every item, or which items are better than which."""

    RATING = "rating"
    RANKING = "ranking"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the making of a design is.

    Attributes
    ----------
    steps
        Sweeps over the weights, and Newton steps.
    log_det, gap
        Of the design with the smallest gap so far.
    """

    steps: int
    log_det: float
    gap: float


@dataclass(frozen=True, slots=True, eq=False)
class ListDesign:
    """A distribution over given lists.

    Attributes
    ----------
    weights
        Probability of each list, exactly zero for most, shape (L,).
    log_det
        log det V.
    gap
        max_i g_i - d, at least 0: log det V is at most so much below the largest there is.
    steps
        Sweeps over the weights, and Newton steps, that it took.
    """

    weights: FloatArray
    log_det: float
    gap: float
    steps: int

    def allocate(self, n: int) -> IntArray:
        """Return how often to ask about each list, n times in all, by Pukelsheim's efficient rounding; shape (L,)."""
        return allocate(self.weights, n)

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return n lists drawn from the design, shape (n,)."""
        return rng.choice(len(self.weights), size=n, p=self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class SubsetDesign:
    """A distribution over subsets of items, all others having no weight.

    Attributes
    ----------
    subsets
        Items of each subset of the support, in increasing order, shape (S, K).
    weights
        Their probabilities, the largest first, shape (S,).
    log_det
        log det V, or with a prior log det(R + V).
    gap
        max_S g_S - d over all subsets, or an upper bound of it; at least 0. With a prior the level is not d.
    steps
        Sweeps over the weights, and Newton steps, that it took.
    """

    subsets: IntArray
    weights: FloatArray
    log_det: float
    gap: float
    steps: int

    def allocate(self, n: int) -> IntArray:
        """Return how often to ask about each of `subsets`, n times in all, by Pukelsheim's rounding; shape (S,)."""
        return allocate(self.weights, n)

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return n rows of `subsets` drawn from the design, shape (n,)."""
        return rng.choice(len(self.weights), size=n, p=self.weights)


def rating_matrices(features: ArrayLike) -> FloatArray:
    """Return A_i = [x_i1 .. x_iK] of lists whose items are rated (Dope, Section 4.1).

    Parameters
    ----------
    features
        For each list's items, shape (L, K, d).

    Returns
    -------
    Shape (L, d, K).

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: wrong shape, or not finite.
    """
    return np.ascontiguousarray(_validate_array(features, "features", "(L, K, d)").transpose(0, 2, 1))


def ranking_matrices(features: ArrayLike) -> FloatArray:
    """Return A_i = [x_ij - x_ik, j < k] of lists whose items are ranked (Dope, Section 5.1).

    Parameters
    ----------
    features
        For each list's items, shape (L, K, d), K at least 2.

    Returns
    -------
    Shape (L, d, K (K - 1) / 2).

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: wrong shape, or not finite.
    """
    rows = _validate_array(features, "features", "(L, K, d)")
    if rows.shape[1] < 2:
        raise InvalidArgumentError("features", f"expected lists of at least 2 items, got shape {rows.shape}")
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.ascontiguousarray((rows[:, first] - rows[:, second]).transpose(0, 2, 1))


def d_optimal_lists(matrices: ArrayLike, *, gap_tolerance: float, watch: Watch | None = None) -> ListDesign:
    """Return a D-optimal distribution over lists (Dope, Eq. 6).

    Parameters
    ----------
    matrices
        A_i of each list, shape (L, d, M). A list of zeros is allowed, and so are lists that are the same.
    gap_tolerance
        The design's gap is at most this, unless it is so small that rounding errors prevent it.
    watch
        Receives the progress now and then, as soon as there is a design; if it returns true, the best design so far is
        returned, with its gap.

    Raises
    ------
    InvalidArgumentError
        Naming ``matrices``: wrong shape, not finite, or columns that do not span d dimensions; or ``gap_tolerance``:
        not positive.
    """
    array = _validate_array(matrices, "matrices", "(L, d, M)")
    _check_limits(gap_tolerance)
    try:
        lists = Lists.of(array)
    except RankError as error:
        raise InvalidArgumentError("matrices", f"they {_describe_rank(error.rank, array.shape[1])}") from None
    tell = _make_tell(watch, lists.log_det)
    found = ascend(lists, gap_tolerance=gap_tolerance, max_steps=_MOST_STEPS, tell=tell)
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
    given: ArrayLike | None = None,
    prior: FloatArray | None = None,
    max_steps: int = _MOST_STEPS,
    watch: Watch | None = None,
) -> SubsetDesign:
    """Return a D-optimal distribution over all subsets of K items (DopeWolfe, Eq. 7), or over given ones (Dope, Eq. 6).

    With a prior it is Bayesian D-optimal: it maximises log det(R + V). Then no g_S of the best one exceeds the mean
    l = d - tr((R + V)^-1 R) of its own, and the gap is max_S g_S - l: log det(R + V) can gain at most the gap.

    Parameters
    ----------
    features
        For all items, shape (N, d).
    subset_size
        K: at least 2 where items are ranked, at least 1 where they are rated.
    gap_tolerance
        The design's gap is at most this where the largest g_S can be found: for ratings, for K = 2 and 3, and often
        above. Else no subset with g_S - d above it was found, and the gap is the bound that could be shown.
    rng
        Draws the subsets that the search for good ones begins with, where it is not exhaustive.
    feedback
        What people say about a subset.
    groups
        Group of each item, shape (N,): a subset's items are of one group. None: all items are one group.
    given
        The subsets to choose among, each of items of one group, shape (L, K). The gap is then exact for all of them.
        None: all subsets.
    prior
        R, positive definite, shape (d, d): what is known beforehand, as the information of one question.
    max_steps
        Most sweeps over the weights and Newton steps, at least 1.
    watch
        As in `d_optimal_lists`.

    Raises
    ------
    InvalidArgumentError
        Naming ``features``: wrong shape, not finite, or the items (for rankings: their differences within a group) do
        not span d dimensions; `spans` has coordinates that do. Naming another argument: out of range.
    """
    rows = validate_features(features)
    _check_limits(gap_tolerance, max_steps)
    subsets = _make_candidates(rows, groups, subset_size, feedback=feedback, rng=rng, prior=prior)
    candidates = subsets if given is None else GivenSubsets(subsets, _validate_given(given, subsets))
    tell = _make_tell(watch, candidates.log_det)
    found = ascend(candidates, gap_tolerance=gap_tolerance, max_steps=max_steps, tell=tell)
    return SubsetDesign(found.keys, found.weights, found.log_det + candidates.log_det, found.gap, found.steps)


def _make_candidates(
    rows: FloatArray,
    groups: ArrayLike | None,
    size: int,
    *,
    feedback: Feedback,
    rng: np.random.Generator,
    prior: FloatArray | None,
) -> RankedSubsets | RatedSubsets:
    members = _group_members(groups, len(rows), size, fewest=2 if feedback is Feedback.RANKING else 1)
    try:
        if feedback is Feedback.RATING:
            return RatedSubsets.of(rows, groups=members, size=size, prior=prior)
        return RankedSubsets.of(rows, groups=members, size=size, rng=rng, prior=prior)
    except RankError as error:
        about = "they" if feedback is Feedback.RATING else "differences of items that can be in one subset"
        advice = "" if feedback is Feedback.RATING else "; give coordinates of their span"
        raise InvalidArgumentError("features", f"{about} {_describe_rank(error.rank, rows.shape[1])}{advice}") from None


def _validate_given(given: ArrayLike, among: RankedSubsets | RatedSubsets) -> IntArray:
    """Return given subsets in the order of `SubsetDesign`, each once."""
    keys = np.sort(np.asarray(given), axis=-1)
    if keys.ndim != 2 or keys.shape[1] != among.size or not len(keys) or not np.issubdtype(keys.dtype, np.integer):
        raise InvalidArgumentError(
            "given", f"expected integers of shape (L, {among.size}), got {keys.dtype} {keys.shape}"
        )
    group_of = np.full(len(among.items), -1)
    for number, members in enumerate(among.groups):
        group_of[members] = number
    if keys.min() < 0 or keys.max() >= len(group_of) or (np.diff(keys, axis=1) == 0).any():
        raise InvalidArgumentError("given", f"expected items from 0 to {len(group_of) - 1}, none twice in a subset")
    labels = group_of[keys]
    if (labels != labels[:, :1]).any() or (labels < 0).any():
        raise InvalidArgumentError("given", "expected subsets of items of one group")
    return np.unique(keys.astype(np.int64), axis=0)


def _group_members(groups: ArrayLike | None, n_items: int, size: int, *, fewest: int) -> list[IntArray]:
    """Return the items of each group that has enough of them."""
    labels = np.zeros(n_items, dtype=np.int64) if groups is None else np.asarray(groups)
    if labels.shape != (n_items,) or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidArgumentError(
            "groups", f"expected integers of shape ({n_items},), got {labels.dtype} {labels.shape}"
        )
    sizes = np.unique(labels, return_counts=True)[1]
    largest = int(sizes.max(initial=0))
    if not fewest <= size <= largest:
        raise InvalidArgumentError("subset_size", f"expected {fewest} to {largest}, the items of a group, got {size}")
    order = np.argsort(labels, kind="stable")
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1]) if len(part) >= size]


def _describe_rank(rank: int, d: int) -> str:
    return f"span {rank} of {d} dimensions, so that not all weights can be learned"


def _validate_array(values: ArrayLike, field: str, shape: str) -> FloatArray:
    """Return `values` as a finite array of three dimensions, none of them empty."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(field, f"expected numbers of shape {shape}") from None
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidArgumentError(field, f"expected shape {shape}, got {array.shape}")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        indices = "".join(f"[{index}]" for index in wrong[0])
        raise InvalidArgumentError(f"{field}{indices}", "expected a finite number")
    return array


def _check_limits(gap_tolerance: float, max_steps: int = _MOST_STEPS) -> None:
    if not (np.isfinite(gap_tolerance) and gap_tolerance > 0.0):
        raise InvalidArgumentError("gap_tolerance", f"expected a positive number, got {gap_tolerance}")
    if max_steps < 1:
        raise InvalidArgumentError("max_steps", f"expected at least 1, got {max_steps}")


def _make_tell(watch: Watch | None, constant: float) -> Callable[[int, float, float], bool]:
    if watch is None:
        return lambda *_: False
    return lambda steps, log_det, gap: bool(watch(Progress(steps, log_det + constant, gap)))
