"""Ways to choose which lists to ask about, to compare the D-optimal design with.

A question design is a distribution over lists of rows of a feature matrix. Sources: Mukherjee et al., "Optimal Design
for Human Feedback" (Dope), Section 6; Thekumparampil et al., "Comparing Few to Rank Many" (DopeWolfe), Section 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_lists, ranking_matrices, rating_matrices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "NEIGHBOURS",
    "QuestionDesign",
    "core_points",
    "dense_subsets",
    "design_clusters",
    "k_medoids",
    "mean_feature_design",
    "pairs_of",
    "pairs_only",
    "some_subsets",
    "uniform",
    "uniform_subsets",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

NEIGHBOURS = 5
"""How many points, itself among them, a core point has within the radius: the common setting of DBSCAN."""

_ROUNDS = 100
_NOTHING = 1e-9
"""Directions whose singular value is this part of the largest are taken for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class QuestionDesign:
    """A distribution over lists.

    Attributes
    ----------
    lists
        Rows of the feature matrix, shape (L, K).
    weights
        Probability of each list, shape (L,).
    """

    lists: IntArray
    weights: FloatArray

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return lists to ask about, drawn independently, shape (count, K)."""
        return self.lists[rng.choice(len(self.lists), size=count, p=self.weights)]


def uniform(lists: IntArray) -> QuestionDesign:
    """Return the design that asks about every list as often."""
    return QuestionDesign(lists, np.full(len(lists), 1.0 / len(lists)))


def mean_feature_design(features: FloatArray, lists: IntArray, *, gap_tolerance: float) -> QuestionDesign:
    """Return the D-optimal design for lists that each stand for the mean of their items' features (Avg-Design)."""
    means = _means(features, lists)
    _, sizes, directions = np.linalg.svd(means, full_matrices=False)
    within = means @ directions[sizes > _NOTHING * sizes[0]].T
    found = d_optimal_lists(within[:, :, None], gap_tolerance=gap_tolerance)
    return QuestionDesign(lists, found.weights / found.weights.sum())


def design_clusters(features: FloatArray, lists: IntArray, *, count: int, rng: np.random.Generator) -> QuestionDesign:
    """Return the design that is uniform over k medoids of the lists' mean features (Clustered-Design; m-medoids)."""
    return uniform(lists[k_medoids(_means(features, lists), count=count, rng=rng)])


def pairs_only(features: FloatArray, lists: IntArray, *, feedback: Feedback, gap_tolerance: float) -> QuestionDesign:
    """Return the D-optimal design over all pairs of items of one list (Dueling-Design)."""
    pairs = pairs_of(lists)
    rows = features[pairs]
    matrices = rating_matrices(rows) if feedback is Feedback.RATING else ranking_matrices(rows)
    found = d_optimal_lists(matrices, gap_tolerance=gap_tolerance)
    return QuestionDesign(pairs, found.weights / found.weights.sum())


def pairs_of(lists: IntArray) -> IntArray:
    """Return all pairs of items of one list, shape (L K (K - 1) / 2, 2)."""
    first, second = np.triu_indices(lists.shape[1], 1)
    return np.stack([lists[:, first], lists[:, second]], axis=2).reshape(-1, 2)


def uniform_subsets(groups: Sequence[IntArray], *, size: int, count: int, rng: np.random.Generator) -> IntArray:
    """Return subsets drawn independently and uniformly from all subsets of a size within a group.

    Parameters
    ----------
    groups
        Rows of each group.

    Returns
    -------
    Rows, shape (count, size).
    """
    ways = np.array([comb(len(group), size) for group in groups], dtype=np.float64)
    drawn = rng.choice(len(groups), size=count, p=ways / ways.sum())
    lists = np.empty((count, size), dtype=np.int64)
    for number, group in enumerate(drawn):
        lists[number] = rng.choice(groups[group], size=size, replace=False)
    return lists


def some_subsets(groups: Sequence[IntArray], *, size: int, most: int, rng: np.random.Generator) -> IntArray:
    """Return all subsets of a size within a group if they are at most `most`, else that many random ones."""
    if sum(comb(len(group), size) for group in groups) > most:
        return uniform_subsets(groups, size=size, count=most, rng=rng)
    return np.array([chosen for group in groups for chosen in combinations(group.tolist(), size)], dtype=np.int64)


def dense_subsets(features: FloatArray, lists: IntArray, *, radii: Iterable[float]) -> QuestionDesign:
    """Return the design that is uniform over the core points of DBSCAN, lists standing for their mean features.

    The source takes the radius with the sparsest outcome. Of few lists nothing can be learned, so here it is the
    sparsest one whose lists tell something of every direction that all lists tell something of.

    Raises
    ------
    InvalidArgumentError
        Naming ``radii``: there is no such radius.
    """
    reach = _core_radii(_means(features, lists))
    whole = _rank(features, lists)
    best: IntArray | None = None
    for radius in radii:
        core = np.flatnonzero(reach <= radius)
        if (best is None or len(core) < len(best)) and len(core) and _rank(features, lists[core]) == whole:
            best = core
    if best is None:
        raise InvalidArgumentError("radii", "none leaves core points that tell of every direction")
    return uniform(lists[best])


def core_points(points: FloatArray, *, radius: float) -> IntArray:
    """Return which points (n, d) are core points of DBSCAN: at least `NEIGHBOURS` are within `radius`, itself one."""
    return np.flatnonzero(_core_radii(points) <= radius)


def _core_radii(points: FloatArray) -> FloatArray:
    """Return from which radius on each point is a core point, shape (n,)."""
    if len(points) < NEIGHBOURS:
        return np.full(len(points), np.inf)
    return np.asarray(KDTree(points).query(points, k=[NEIGHBOURS])[0][:, 0])


def k_medoids(points: FloatArray, *, count: int, rng: np.random.Generator) -> IntArray:
    """Return medoids: points so that the sum of all points' distances to the nearest of them is small.

    Medoids are drawn far from each other (k-means++); then, in turn, points go to the nearest medoid, and each
    cluster's medoid becomes its most central point, until nothing changes: the alternating method.

    Parameters
    ----------
    points
        Shape (n, d).
    count
        k, at least 1; more than there are different points gives one medoid for each of these.

    Returns
    -------
    Indices of points, increasing, shape (k,).
    """
    medoids = _draw_medoids(points, count=count, rng=rng)
    for _ in range(_ROUNDS):
        nearest = np.argmin(cdist(points, points[medoids]), axis=1)
        moved = np.array([_centre(points, np.flatnonzero(nearest == one)) for one in range(len(medoids))])
        if np.array_equal(moved, medoids):
            break
        medoids = moved
    return np.sort(medoids)


def _draw_medoids(points: FloatArray, *, count: int, rng: np.random.Generator) -> IntArray:
    chosen = [int(rng.integers(len(points)))]
    squared = np.full(len(points), np.inf)
    while len(chosen) < count:
        squared = np.minimum(squared, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
        if not squared.any():
            break
        chosen.append(int(rng.choice(len(points), p=squared / squared.sum())))
    return np.array(chosen, dtype=np.int64)


def _centre(points: FloatArray, members: IntArray) -> int:
    return int(members[np.argmin(cdist(points[members], points[members]).sum(axis=0))])


def _means(features: FloatArray, lists: IntArray) -> FloatArray:
    return np.asarray(features[lists].mean(axis=1))


def _rank(features: FloatArray, lists: IntArray) -> int:
    rows = features[lists]
    centred = (rows - rows.mean(axis=1, keepdims=True)).reshape(-1, features.shape[1])
    return int(np.linalg.matrix_rank(centred.T @ centred, hermitian=True))
