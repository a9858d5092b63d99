"""What is learned from people's own rankings, which have no noise and may have ties, by the size K of a list.

Thekumparampil et al., "Comparing Few to Rank Many" (DopeWolfe), Section 6.2 and Appendix D.2: one question with a
hundred answers, whose order is fixed, so that asking twice tells nothing. Each method asks about as many lists of K:
those that tell most, chosen one by one (ours); the heaviest ones of the optimal design, as in the source; or random.
Where answers have grades, lists have ties, and the model learns from all pairs that a list orders (rank breaking).
Elsewhere it learns from whole rankings.

The source's data need downloads. These are made in their form: features of full rank whose spectrum falls, as principal
components of embeddings do, and utilities that are linear in them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.comparison_designs import some_subsets, uniform_subsets
from topk_bandit.lab.simulation.design_loss import pair_scatter
from topk_bandit.lab.simulation.subset_loss import NDCG_DEPTH, Items
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.designs.exact_questions import choose_most_informative, contrasts, ranking_information
from topk_bandit.preferences.designs.optimal import d_optimal_subsets
from topk_bandit.preferences.losses import ndcg, ranking_loss
from topk_bandit.preferences.models import plackett_luce
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FEEDBACKS", "METHODS", "Feedback", "choose_lists", "embedded_answers", "losses_and_gains"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

METHODS = ("ours", "heaviest", "uniform")

_POOL = 2_000
"""So many random lists are there to choose from one by one, if there are more."""

_GAP = 1e-2
_SHARES = (0.6, 0.25)
"""Of answers of grade 0 and 1; the rest have grade 2, as few answers of a question are relevant."""


class Feedback(NamedTuple):
    """How people answer: with grades, whose ties are no order, or with whole rankings; and about how many lists."""

    key: str
    is_graded: bool
    lists: int


FEEDBACKS = (Feedback("graded", is_graded=True, lists=25), Feedback("ranked", is_graded=False, lists=500))
"""As the source has them: BEIR-COVID, and TREC-DL."""


def embedded_answers(rng: np.random.Generator, *, n_items: int = 100, dimension: int = 78) -> Items:
    """Return one question's answers, with features whose variances fall like 1 / rank."""
    features = rng.standard_normal((n_items, dimension)) / np.sqrt(np.arange(1, dimension + 1))
    return Items.of(features, [np.arange(n_items)])


def choose_lists(items: Items, *, size: int, count: int, rng: np.random.Generator) -> dict[str, IntArray]:
    """Return what each of `METHODS` but the uniform one asks about: no list twice, shape (count, size).

    There have to be at least `count` lists. If the optimal design has fewer, random ones follow them.
    """
    ways = (_most_telling, _heaviest)
    return {method: way(items, size=size, count=count, rng=rng) for method, way in zip(METHODS, ways, strict=False)}


def _heaviest(items: Items, *, size: int, count: int, rng: np.random.Generator) -> IntArray:
    design = d_optimal_subsets(items.coordinates, subset_size=size, gap_tolerance=_GAP * items.rank, rng=rng)
    order = np.argsort(-design.weights, kind="stable")
    heaviest = design.subsets[order[: min(count, np.count_nonzero(design.weights))]]
    return _pass_over_twins(np.concatenate([heaviest, _pool(items, size=size, rng=rng)]))[:count]


def _most_telling(items: Items, *, size: int, count: int, rng: np.random.Generator) -> IntArray:
    """Return lists in the order in which each is the one that tells most beside those before it."""
    pool = _pass_over_twins(_pool(items, size=size, rng=rng))
    informations = np.sqrt(ranking_information(size)) * contrasts(items.coordinates[pool])
    everything = pair_scatter(items.coordinates[None])
    covariance = items.prior_variance * np.eye(items.rank)
    order = choose_most_informative(informations, scatter=everything, covariance=covariance, count=count)
    return _pass_over_twins(np.concatenate([pool[order], pool]))[:count]


def _pool(items: Items, *, size: int, rng: np.random.Generator) -> IntArray:
    return some_subsets(items.groups, size=size, most=_POOL, rng=rng)


def _pass_over_twins(lists: IntArray) -> IntArray:
    """Return lists without those that are there before, each in the order of its items' numbers."""
    ordered = np.sort(lists, axis=1)
    _, first = np.unique(ordered, axis=0, return_index=True)
    return np.asarray(ordered[np.sort(first)])


def losses_and_gains(
    number: int,
    *,
    seed: int,
    items: Items,
    designed: Mapping[str, Mapping[int, Mapping[str, IntArray]]],
    feedbacks: Sequence[Feedback] = FEEDBACKS,
) -> FloatArray:
    """Return one run's ranking losses (Eq. 2) and NDCG@10 for each way to answer.

    Parameters
    ----------
    number
        The run's. It and `seed` fix all that is random.
    designed
        `choose_lists` for each way to answer, by its key, and each size.

    Returns
    -------
    Shape (2 * ways, `METHODS`, sizes): losses of each way, then NDCG of each. The gain of an answer is its grade, or
    its utility from 0 for the worst answer to 1 for the best.
    """
    rng = np.random.default_rng([seed, number])
    utilities = items.features @ rng.standard_normal(items.features.shape[1])
    sizes = len(next(iter(designed.values())))
    found = np.empty((2, len(feedbacks), len(METHODS), sizes))
    for f, feedback in enumerate(feedbacks):
        true = _grade(utilities) if feedback.is_graded else utilities
        for s, (size, chosen) in enumerate(designed[feedback.key].items()):
            lists_of = {**chosen, METHODS[2]: uniform_subsets(items.groups, size=size, count=feedback.lists, rng=rng)}
            for m, lists in enumerate(lists_of[method] for method in METHODS):
                found[:, f, m, s] = _measure(items, true, _answer(true, lists, is_graded=feedback.is_graded))
    return np.asarray(found.reshape(-1, len(METHODS), sizes))


def _grade(utilities: FloatArray) -> FloatArray:
    """Return grades 0, 1 and 2 by utility."""
    return np.searchsorted(np.quantile(utilities, np.cumsum(_SHARES)), utilities).astype(np.float64)


def _answer(true: FloatArray, lists: IntArray, *, is_graded: bool) -> Orderings:
    """Return what people say of lists: whole rankings, or the pairs that grades order."""
    ranked = np.take_along_axis(lists, np.argsort(-true[lists], axis=1, kind="stable"), axis=1)
    if not is_graded:
        return Orderings.from_rankings(ranked.tolist(), n_items=len(true))
    answers = TieredAnswers.of([_tiers(row, true) for row in ranked], n_items=len(true))
    return Orderings.from_pairs(answers.to_pairs(), n_items=len(true))


def _tiers(ranked: IntArray, true: FloatArray) -> list[list[int]]:
    cuts = [0, *(np.flatnonzero(np.diff(true[ranked])) + 1).tolist(), len(ranked)]
    return [ranked[start:end].tolist() for start, end in pairwise(cuts)]


def _measure(items: Items, true: FloatArray, answers: Orderings) -> tuple[float, float]:
    prior = Gaussian.isotropic(items.rank, variance=items.prior_variance)
    estimate = items.coordinates @ plackett_luce.fit(items.coordinates, answers, prior=prior).posterior.mean
    gains = (true - true.min()) / (true.max() - true.min())
    return float(ranking_loss(true, estimate)), float(ndcg(gains, estimate, depth=NDCG_DEPTH))
