"""The ranking loss of a preference model over the number of questions, by which design chose them (Dope, Section 6).

All designs' answers go into one estimate: the most probable weights under a prior N(0, v I), by least squares for
ratings with noise of variance 1, by Plackett-Luce for rankings. The source has no prior; but fewer than d numbers have
no unique maximum likelihood estimate, and rankings that some weights explain in full have none.

Each design asks in two ways. *Drawn*: questions are drawn independently from its distribution, as in the source.
*Chosen*: a sequence is made from it by the rule that fits it. Ours and the pairs choose the most telling question next
(`preferences.exact_questions`); the mean-feature design does the same for lists' means; uniform asks about no list
twice before all were asked about; k-medoids ask about each medoid in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation import comparison_designs as compared
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.designs.exact_questions import choose_most_informative, contrasts, ranking_information
from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_lists, ranking_matrices, rating_matrices
from topk_bandit.preferences.losses import kendall_tau_distance
from topk_bandit.preferences.models import least_squares, plackett_luce
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "METHODS",
    "NOISE_VARIANCE",
    "N_MEDOIDS",
    "Asker",
    "Survey",
    "World",
    "choosing",
    "drawing",
    "estimate_weights",
    "outer_product_world",
    "pair_scatter",
    "prefix",
    "ranking_losses",
    "unit_scatter",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

METHODS = ("ours", "uniform", "mean features", "k-medoids", "pairs only")

N_MEDOIDS = 6
"""k of k-medoids: what the source tuned it to."""

NOISE_VARIANCE = 1.0
"""Of a rating, as in the source."""

_GAP = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Lists to be put in order, and people whose preference is known.

    Attributes
    ----------
    features
        For each item of each list, shape (N, d).
    lists
        Rows of the lists, shape (L, K).
    theta
        The weights to be learned, shape (d,).
    """

    features: FloatArray
    lists: IntArray
    theta: FloatArray

    @property
    def utilities(self) -> FloatArray:
        """Of each row, shape (N,)."""
        return np.asarray(self.features @ self.theta)


def outer_product_world(rng: np.random.Generator, *, n_lists: int = 400, list_size: int = 4, side: int = 6) -> World:
    """Return questions q in [0, 1]^side with answers a in [1, 2]^side, x = vec(q a'), theta in [0, 1]^d, all uniform.

    Questions and answers have length 1. The defaults are the source's Synthetic 1 and 2: d = 36.
    """
    questions = rng.random((n_lists, side))
    answers = 1.0 + rng.random((n_lists, list_size, side))
    questions /= np.linalg.norm(questions, axis=-1, keepdims=True)
    answers /= np.linalg.norm(answers, axis=-1, keepdims=True)
    features = np.einsum("li,lkj->lkij", questions, answers).reshape(n_lists * list_size, side * side)
    lists = np.arange(n_lists * list_size, dtype=np.int64).reshape(n_lists, list_size)
    return World(features, lists, rng.random(side * side))


class Asker(Protocol):
    """A way to ask."""

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return lists to ask about, the next ones after the first, shape (count, K)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """A world and the ways to ask in it.

    Attributes
    ----------
    askers
        How each of `METHODS` draws, and how it chooses, by what people say.
    """

    world: World
    askers: Mapping[Feedback, tuple[list[Asker], list[Asker]]]

    @classmethod
    def of(
        cls,
        world: World,
        *,
        feedbacks: Sequence[Feedback],
        count: int,
        prior_variance: float,
        rng: np.random.Generator,
    ) -> Survey:
        """Return the ways to ask up to `count` questions."""
        chosen = partial(choosing, world, count=count, prior_variance=prior_variance, rng=rng)
        return cls(world, {kind: (drawing(world, kind, rng=rng), chosen(kind)) for kind in feedbacks})


def ranking_losses(
    number: int,
    *,
    seed: int,
    questions: Callable[[np.random.Generator], Survey],
    budgets: Sequence[int],
    answer_sets: int,
    prior_variance: float,
) -> FloatArray:
    """Return one run's wrongly ordered pairs a list: the ranking loss of Eq. 3, over L.

    Parameters
    ----------
    number
        The run's. It and `seed` fix all that is random.
    questions
        Makes the run's world and the ways to ask in it, for as many questions as the largest budget.
    budgets
        Numbers of questions; the questions of a smaller one are the first ones of a larger.
    answer_sets
        How many times questions and answers are drawn anew in the world, to average over.
    prior_variance
        v of the estimate.

    Returns
    -------
    Shape (2 * feedbacks, `METHODS`, budgets): drawn with each feedback, then chosen with each.
    """
    rng = np.random.default_rng([seed, number])
    made = questions(rng)
    prior = Gaussian.isotropic(made.world.features.shape[1], variance=prior_variance)
    found = np.zeros((2, len(made.askers), len(METHODS), len(budgets)))
    for f, (feedback, ways) in enumerate(made.askers.items()):
        for way, askers in enumerate(ways):
            for m, asker in enumerate(askers):
                for _ in range(answer_sets):
                    shown = asker.draw(max(budgets), rng)
                    found[way, f, m] += _losses(made.world, shown, feedback, budgets=budgets, prior=prior, rng=rng)
    return np.asarray(found.reshape(-1, len(METHODS), len(budgets)) / answer_sets)


@dataclass(frozen=True, slots=True, eq=False)
class _Turns:
    """All lists in a random order, then in another."""

    lists: IntArray

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        turns = -(-count // len(self.lists))
        order = np.concatenate([rng.permutation(len(self.lists)) for _ in range(turns)])
        return np.asarray(self.lists[order[:count]])


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """The most telling list next, of those that `matrices` say the information of."""

    lists: IntArray

    @classmethod
    def of(
        cls, lists: IntArray, matrices: FloatArray, *, scatter: FloatArray, prior_variance: float, count: int
    ) -> _Sequence:
        covariance = prior_variance * np.eye(len(scatter))
        return cls(lists[choose_most_informative(matrices, scatter=scatter, covariance=covariance, count=count)])

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:  # noqa: ARG002 - nothing of it is random
        return self.lists[:count]


def drawing(world: World, feedback: Feedback, *, rng: np.random.Generator) -> list[Asker]:
    """Return how each of `METHODS` draws questions from its distribution."""
    features, lists = world.features, world.lists
    gap = _GAP * features.shape[1]
    rows = features[lists]
    matrices = rating_matrices(rows) if feedback is Feedback.RATING else ranking_matrices(rows)
    found = d_optimal_lists(matrices, gap_tolerance=gap)
    return [
        compared.QuestionDesign(lists, found.weights / found.weights.sum()),
        compared.uniform(lists),
        compared.mean_feature_design(features, lists, gap_tolerance=gap),
        compared.design_clusters(features, lists, count=min(N_MEDOIDS, len(lists)), rng=rng),
        compared.pairs_only(features, lists, feedback=feedback, gap_tolerance=gap),
    ]


def choosing(
    world: World, feedback: Feedback, *, count: int, prior_variance: float, rng: np.random.Generator
) -> list[Asker]:
    """Return how each of `METHODS` chooses up to `count` questions one by one."""
    features, lists = world.features, world.lists
    pairs = compared.pairs_of(lists)
    means = features[lists].mean(axis=1)
    telling = partial(_Sequence.of, prior_variance=prior_variance, count=count)
    differences = pair_scatter(features[lists])
    return [
        telling(lists, _informations(features[lists], feedback), scatter=differences),
        _Turns(lists),
        telling(lists, means[:, :, None], scatter=unit_scatter(means)),
        _Turns(compared.design_clusters(features, lists, count=min(N_MEDOIDS, len(lists)), rng=rng).lists),
        telling(pairs, _informations(features[pairs], feedback), scatter=differences),
    ]


def pair_scatter(features: FloatArray) -> FloatArray:
    """Return the mean of z z' / |z|^2 over all pairs of different items of each list, for features (L, K, d).

    A pair's expected part in the ranking loss under the prior is arccos(sqrt(1 - z'Sz / (v |z|^2))) / pi, so what
    counts is the variance of z'theta as a multiple of |z|^2.
    """
    first, second = np.triu_indices(features.shape[1], 1)
    return unit_scatter((features[:, first] - features[:, second]).reshape(-1, features.shape[2]))


def unit_scatter(rows: FloatArray) -> FloatArray:
    """Return the mean of z z' / |z|^2 over rows (n, d) that are not 0."""
    lengths = np.linalg.norm(rows, axis=1)
    directions = rows[lengths > 0.0] / lengths[lengths > 0.0, None]
    return np.asarray(directions.T @ directions / max(len(directions), 1))


def _informations(rows: FloatArray, feedback: Feedback) -> FloatArray:
    if feedback is Feedback.RATING:
        return np.asarray(rating_matrices(rows) / np.sqrt(NOISE_VARIANCE))
    return np.asarray(np.sqrt(ranking_information(rows.shape[1])) * contrasts(rows))


def _losses(
    world: World,
    shown: IntArray,
    feedback: Feedback,
    *,
    budgets: Sequence[int],
    prior: Gaussian,
    rng: np.random.Generator,
) -> FloatArray:
    utilities = world.utilities
    answers: Orderings | Ratings
    if feedback is Feedback.RATING:
        answers = sampling.draw_ratings(utilities, shown, noise_variance=NOISE_VARIANCE, rng=rng)
    else:
        answers = sampling.draw_rankings(utilities, shown, rng=rng)
    losses = np.empty(len(budgets))
    for x, budget in enumerate(budgets):
        theta = estimate_weights(world.features, prefix(answers, budget, list_size=shown.shape[1]), prior)
        order = (world.features @ theta)[world.lists]
        losses[x] = kendall_tau_distance(utilities[world.lists], order).mean()
    return losses


def estimate_weights(features: FloatArray, answers: Orderings | Ratings, prior: Gaussian) -> FloatArray:
    """Return the most probable weights, shape (d,)."""
    if isinstance(answers, Ratings):
        return least_squares.fit(features, answers, prior=prior, noise_variance=NOISE_VARIANCE).posterior.mean
    return plackett_luce.fit(features, answers, prior=prior).posterior.mean


def prefix(answers: Orderings | Ratings, count: int, *, list_size: int) -> Orderings | Ratings:
    """Return the answers to the first `count` questions, each about `list_size` items."""
    items = answers.items[: count * list_size]
    if isinstance(answers, Ratings):
        return Ratings(items, answers.values[: count * list_size])
    return Orderings(items, answers.starts[: count + 1], answers.places[:count])
