"""The ranking loss of a Plackett-Luce model over the number of questions, when any K items can be asked about.

Thekumparampil et al., "Comparing Few to Rank Many" (DopeWolfe), Section 6.1: one question with a hundred answers,
embeddings of ten dimensions, x = vec(q a'), theta normal. All questions have the same q, so the hundred features have
rank ten, and log det V is minus infinity whatever is asked about. The source adds a small ridge to V; here features are
first turned into coordinates of the span of their differences (`preferences.spans`), which loses nothing. There is one
set of items for all runs, as in the source; what differs between runs are theta, questions and answers.

The source's embeddings come from BERT and UMAP, which puts texts into clumps of very different sizes. Answers are drawn
so too: around ten centres, the sizes in the proportions 1 : 1/2 : ... : 1/10.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation import comparison_designs as compared
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.optimal import d_optimal_subsets
from topk_bandit.preferences.designs.spans import span_of_differences
from topk_bandit.preferences.losses import ndcg, ranking_loss
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.lab.simulation.comparison_designs import QuestionDesign

__all__ = ["METHODS", "MOST_SUBSETS", "NDCG_DEPTH", "Items", "clumped_answers", "designs", "losses_and_gains"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

METHODS = ("ours", "uniform", "DBSCAN", "m-medoids")

MOST_SUBSETS = 5_000
"""Of more subsets than this, DBSCAN and m-medoids see this many random ones."""

NDCG_DEPTH = 10

_GAP = 1e-3
_RADII = tuple(np.geomspace(1e-5, 1.0, 51).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Items to be put in order within their groups.

    Attributes
    ----------
    features
        As they are known, shape (N, d).
    coordinates
        In the span of the differences within groups, shape (N, r).
    groups
        Rows of each group: one question's answers.
    labels
        Group of each row, shape (N,).
    theta
        Weights of the features where they are known; None draws them anew for each run, from N(0, I).
    prior_variance
        For the weights of coordinates: their mean square, known or expected.
    """

    features: FloatArray
    coordinates: FloatArray
    groups: tuple[IntArray, ...]
    labels: IntArray
    theta: FloatArray | None
    prior_variance: float

    @classmethod
    def of(cls, features: FloatArray, groups: Sequence[IntArray], *, theta: FloatArray | None = None) -> Items:
        """Return items with their coordinates."""
        labels = np.empty(len(features), dtype=np.int64)
        for number, rows in enumerate(groups):
            labels[rows] = number
        span = span_of_differences(features, groups=labels)
        # The columns of the basis are orthogonal and of one length.
        scale = float(span.basis[:, 0] @ span.basis[:, 0])
        variance = 1.0 / scale if theta is None else float(np.mean((span.basis.T @ theta / scale) ** 2))
        return cls(features, span.coordinates, tuple(groups), labels, theta, variance)

    @property
    def rank(self) -> int:
        """How many numbers a coordinate has, r."""
        return int(self.coordinates.shape[1])

    def subsets(self, size: int) -> int:
        """Return how many subsets of a size there are within groups."""
        return sum(comb(len(rows), size) for rows in self.groups)

    @property
    def blocks(self) -> list[IntArray]:
        """Rows of the groups of each size, shape (groups, size)."""
        sizes = sorted({len(rows) for rows in self.groups})
        return [np.stack([rows for rows in self.groups if len(rows) == size]) for size in sizes]


def clumped_answers(rng: np.random.Generator, *, n_items: int = 100, side: int = 10, n_clumps: int = 10) -> Items:
    """Return one question's answers, x = vec(q a'), q and a of length 1 and in clumps of unequal sizes."""
    question = rng.standard_normal(side)
    centres = rng.standard_normal((n_clumps, side))
    shares = 1.0 / np.arange(1, n_clumps + 1)
    clump = rng.choice(n_clumps, size=n_items, p=shares / shares.sum())
    answers = centres[clump] + 0.3 * rng.standard_normal((n_items, side))
    question /= np.linalg.norm(question)
    answers /= np.linalg.norm(answers, axis=1, keepdims=True)
    return Items.of(np.einsum("i,nj->nij", question, answers).reshape(n_items, -1), [np.arange(n_items)])


def designs(items: Items, *, subset_size: int, rng: np.random.Generator) -> dict[str, QuestionDesign]:
    """Return the designs of `METHODS` but uniform, which needs none."""
    found = d_optimal_subsets(
        items.coordinates,
        subset_size=subset_size,
        gap_tolerance=_GAP * items.rank,
        rng=rng,
        groups=items.labels,
    )
    ours = compared.QuestionDesign(found.subsets, found.weights / found.weights.sum())
    candidates = compared.some_subsets(items.groups, size=subset_size, most=MOST_SUBSETS, rng=rng)
    dense = compared.dense_subsets(items.coordinates, candidates, radii=_RADII)
    count = int(np.count_nonzero(found.weights))
    medoids = compared.design_clusters(items.coordinates, candidates, count=count, rng=rng)
    return dict(zip((METHODS[0], *METHODS[2:]), (ours, dense, medoids), strict=True))


def losses_and_gains(
    number: int,
    *,
    seed: int,
    items: Items,
    designed: Mapping[int, Mapping[str, QuestionDesign]],
    budgets: Sequence[int],
) -> FloatArray:
    """Return one run's ranking losses (Eq. 2) and NDCG, means over groups.

    Parameters
    ----------
    number
        The run's. It and `seed` fix all that is random.
    designed
        `designs` for each subset size.
    budgets
        Numbers of questions; the questions of a smaller one are the first ones of a larger.

    Returns
    -------
    Shape (2 * subset sizes, `METHODS`, budgets): losses of each size, then NDCG at `NDCG_DEPTH` of each. An item's
    gain is its utility, from 0 for the worst item to 1 for the best.
    """
    rng = np.random.default_rng([seed, number])
    theta = rng.standard_normal(items.features.shape[1]) if items.theta is None else items.theta
    utilities = items.features @ theta
    found = np.empty((2, len(designed), len(METHODS), len(budgets)))
    for p, (size, ways) in enumerate(designed.items()):
        for m, method in enumerate(METHODS):
            if method in ways:
                shown = ways[method].draw(max(budgets), rng)
            else:
                shown = compared.uniform_subsets(items.groups, size=size, count=max(budgets), rng=rng)
            answers = sampling.draw_rankings(utilities, shown, rng=rng)
            for x, budget in enumerate(budgets):
                found[:, p, m, x] = _measure_estimate(items, utilities, _first(answers, budget, size=size))
    return np.asarray(found.reshape(-1, len(METHODS), len(budgets)))


def _first(answers: Orderings, count: int, *, size: int) -> Orderings:
    return Orderings(answers.items[: count * size], answers.starts[: count + 1], answers.places[:count])


def _measure_estimate(items: Items, utilities: FloatArray, answers: Orderings) -> tuple[float, float]:
    prior = Gaussian.isotropic(items.rank, variance=items.prior_variance)
    estimate = items.coordinates @ plackett_luce.fit(items.coordinates, answers, prior=prior).posterior.mean
    losses, gains = [], []
    for rows in items.blocks:
        true, guessed = utilities[rows], estimate[rows]
        losses.append(ranking_loss(true, guessed))
        above = true - true.min(axis=1, keepdims=True)
        relevance = above / np.maximum(above.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        gains.append(ndcg(relevance, guessed, depth=NDCG_DEPTH))
    return float(np.concatenate(losses).mean()), float(np.concatenate(gains).mean())
