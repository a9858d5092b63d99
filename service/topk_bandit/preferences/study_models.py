"""Each model of a study by its name: what it learns of the items and queries of a study from the same answers.

All models take a study's coordinates (`designs.spans`), and give each row a utility with a standard deviation:

- ``PLACKETT_LUCE`` and ``LEAST_SQUARES``: `inference.learn_utilities`, with items' own parts.
- ``PAIRWISE``: the same for all pairs that the answers order, as if each had been asked about by itself
  (Bradley-Terry). The pairs of one answer are not independent, so standard deviations are too small.
- ``VARIATIONAL_...``: `variational.fit` of the weights and the own parts of items in questions, under the most probable
  prior of ``PLACKETT_LUCE``.
- ``AGGREGATION_...``: `aggregation.fit` of these pairs with the values 1, or of the differences of ratings.
- ``STREAM_...``: `Online`, one step for each pair in the order of the answers. It has no spread, so that of
  `aggregation.fit` with as much of a ridge stands for it.

Where respondents are named, each model learns from data sets without those who answer at random (`respondents`), and
raters have levels of their own.

Utilities of the squared loss are not in the unit of Plackett-Luce's: no item is worth much more than 1 above another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import DEFAULT_STREAM_RATE, MODELS_OF, AnswerKind, PreferenceModel
from topk_bandit.preferences.answers import Orderings, Ratings
from topk_bandit.preferences.models import aggregation, variational
from topk_bandit.preferences.models.comparisons import Comparisons, Loss
from topk_bandit.preferences.models.variational import Bound
from topk_bandit.preferences.respondents import Carelessness, weigh_ratings
from topk_bandit.preferences.tiers import TieredAnswers
from topk_bandit.preferences.utilities import Gaussian, Utilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.preferences.answers import IntArray
    from topk_bandit.preferences.inference import UtilityPosterior
    from topk_bandit.preferences.questions import QuestionPool
    from topk_bandit.preferences.utilities import FloatArray

__all__ = ["IMPUTED", "LearnedUtilities", "RatedLists", "StudyAnswers", "fit", "leave_out_careless"]

_RIDGE_RATIO = 0.1
"""The ridge of weights over that of residuals, as `aggregation.fit` has it by default."""

_LOSSES = {
    PreferenceModel.AGGREGATION_SQUARED: Loss.SQUARED,
    PreferenceModel.AGGREGATION_LOGISTIC: Loss.LOGISTIC,
    PreferenceModel.STREAM_SQUARED: Loss.SQUARED,
    PreferenceModel.STREAM_LOGISTIC: Loss.LOGISTIC,
}
_BOUNDS = {
    PreferenceModel.VARIATIONAL_TILTED: Bound.TILTED,
    PreferenceModel.VARIATIONAL_QUADRATIC: Bound.QUADRATIC,
}
IMPUTED = 5
"""From so many data sets a model learns where answers have ties, or respondents are named."""

_RATHER = 0.5

_BURN_IN = 5
"""So many are drawn before, until their utilities no longer depend on the first."""

_MOST_WORK = {Bound.TILTED: 2e10, Bound.QUADRATIC: 2e9}
"""Rows of answers times directions squared: a sweep takes about twice as many operations, and there are 8 or 100."""


@dataclass(frozen=True, slots=True, eq=False)
class RatedLists:
    """Ratings, list by list.

    Attributes
    ----------
    lists, values
        The rows that were rated together, none twice, and their ratings; A lists.
    n_items
        Rows are in [0, n_items).
    respondents
        The number of the one that rated each list, from 0 on, shape (A,); -1 for one that is not named. None: nobody
        is.
    """

    lists: Sequence[Sequence[int]]
    values: Sequence[Sequence[float]]
    n_items: int
    respondents: IntArray | None = None

    def __len__(self) -> int:
        return len(self.lists)

    def take(self, numbers: Sequence[int] | IntArray) -> RatedLists:
        """Return some of the lists, in this order."""
        lists, values = [self.lists[n] for n in numbers], [self.values[n] for n in numbers]
        return RatedLists(lists, values, self.n_items, None if self.respondents is None else self.respondents[numbers])

    @property
    def has_ties(self) -> bool:
        """Ratings need no order."""
        return False

    def weigh(self, utilities: FloatArray) -> FloatArray:
        """Return by how many nats the ratings of each list are more probable under utilities than at random, (A,)."""
        lists = np.repeat(np.arange(len(self)), [len(one) for one in self.lists])
        nats = weigh_ratings(self.to_ratings(), utilities)
        return np.bincount(lists, nats, minlength=len(self)).astype(np.float64)

    def complete(self, utilities: FloatArray, rng: np.random.Generator) -> Ratings:  # noqa: ARG002 - as `TieredAnswers` has it
        """Return all ratings by themselves."""
        return self.to_ratings()

    def to_ratings(self) -> Ratings:
        """Return all ratings by themselves."""
        items = [item for one in self.lists for item in one]
        rated = Ratings.of(items, [value for one in self.values for value in one], n_items=self.n_items)
        if self.respondents is None:
            return rated
        return replace(rated, raters=np.repeat(self.respondents, [len(one) for one in self.lists]))


StudyAnswers: TypeAlias = TieredAnswers | RatedLists


@dataclass(frozen=True, slots=True, eq=False)
class LearnedUtilities:
    """What a model learned of a study's rows.

    Attributes
    ----------
    utilities
        Of the Q N rows, query by query.
    weights
        Of the coordinates, shape (r,).
    own
        What each item has for every query alike, beside its features, shape (N,).
    careless
        The probability that each respondent answers at random, shape (P,); empty where nobody is named.
    """

    utilities: Utilities
    weights: FloatArray
    own: FloatArray
    careless: FloatArray = field(default_factory=lambda: np.zeros(0))

    def of_query(self, query: int) -> Utilities:
        """Return the utilities of all items for one query."""
        n = len(self.own)
        rows = slice(query * n, (query + 1) * n)
        return Utilities(self.utilities.mean[rows], self.utilities.standard_deviation[rows])


def fit(
    model: PreferenceModel, pool: QuestionPool, answers: StudyAnswers, *, stream_rate: float | None = None
) -> LearnedUtilities:
    """Return what a model learns from answers about rows of a pool.

    Parameters
    ----------
    stream_rate
        The ridge of residuals of a stream: step t has a size of 2 / (rate t + 2 C). None: `DEFAULT_STREAM_RATE`.

    Raises
    ------
    InvalidArgumentError
        Naming ``model``: it does not learn from such answers, or from so many about so many items. Else as
        `inference.learn_utilities` does.
    """
    if model not in MODELS_OF[AnswerKind.RATINGS if isinstance(answers, RatedLists) else AnswerKind.RANKING]:
        raise InvalidArgumentError("model", f"{model} does not learn from such answers")
    rate = DEFAULT_STREAM_RATE if stream_rate is None else stream_rate
    takes_orders = model is PreferenceModel.PLACKETT_LUCE or model in _BOUNDS
    if answers.respondents is None and not (takes_orders and answers.has_ties):
        whole = answers.complete(np.zeros(answers.n_items), np.random.default_rng(0))
        return _fit_whole(model, pool, _Whole(answers, whole), rate)
    data_sets, careless = _impute(pool, answers)
    return replace(_combine([_fit_whole(model, pool, one, rate) for one in data_sets]), careless=careless)


def leave_out_careless(pool: QuestionPool, answers: StudyAnswers) -> StudyAnswers:
    """Return the answers of those who are rather careful than not, by no names; without names all."""
    if answers.respondents is None:
        return answers
    _, careless = _impute(pool, answers)
    kept = np.append(careless, 0.0)[answers.respondents] < _RATHER
    return replace(answers.take(np.flatnonzero(kept)), respondents=None)


class _Whole(NamedTuple):
    """A data set without doubt: answers that count, and how a model of whole orders or of ratings takes them."""

    answers: StudyAnswers
    complete: Orderings | Ratings


def _fit_whole(model: PreferenceModel, pool: QuestionPool, data: _Whole, stream_rate: float) -> LearnedUtilities:
    if model in _LOSSES:
        return _aggregate(model, pool, data.answers, stream_rate)
    if model is PreferenceModel.PAIRWISE and isinstance(data.answers, TieredAnswers):
        pairs = Orderings.from_pairs(data.answers.to_pairs(), n_items=data.answers.n_items)
        return _of_posterior(pool, pool.learn(pairs))
    if isinstance(data.complete, Orderings) and model in _BOUNDS:
        return _fit_variational(pool, data.complete, _BOUNDS[model])
    return _of_posterior(pool, pool.learn(data.complete))


def _impute(pool: QuestionPool, answers: StudyAnswers) -> tuple[list[_Whole], FloatArray]:
    """Return data sets with ties in drawn orders, of respondents who are careful in a draw, and who is not.

    Each is drawn by what the one before teaches; see `tiers` and `respondents`.
    """
    rng, utilities = np.random.default_rng(0), np.zeros(answers.n_items)
    known = None if answers.respondents is None else Carelessness.before(answers.respondents)
    found, careless = list[_Whole](), list["FloatArray"]()
    for turn in range(_BURN_IN + IMPUTED):
        chosen = np.arange(len(answers)) if known is None else known.draw_careful(rng)
        part = answers if known is None else answers.take(chosen)
        found.append(_Whole(part, part.complete(utilities, rng)))
        teaches = found[-1].complete
        if known is not None:
            teaches = answers.take(known.leave_out(chosen, turn)).complete(utilities, rng)
        learned = _of_posterior(pool, pool.learn(teaches)).utilities
        utilities = rng.normal(learned.mean, learned.standard_deviation)
        if known is not None:
            known = known.judge(answers.weigh(learned.mean), answers.weigh(-learned.mean), turn)
        careless.append(np.zeros(0) if known is None else known.careless)
    return found[_BURN_IN:], np.asarray(np.mean(careless[_BURN_IN:], axis=0))


def _combine(parts: Sequence[LearnedUtilities]) -> LearnedUtilities:
    """Return what several imputed data sets teach together, by Rubin's rules."""
    means = np.array([one.utilities.mean for one in parts])
    within = np.mean([one.utilities.standard_deviation**2 for one in parts], axis=0)
    between = means.var(axis=0, ddof=1)
    deviations = np.sqrt(within + (1.0 + 1.0 / len(parts)) * between)
    weights, own = (np.mean([getattr(one, name) for one in parts], axis=0) for name in ("weights", "own"))
    return LearnedUtilities(Utilities(means.mean(axis=0), deviations), weights, own)


def _of_posterior(pool: QuestionPool, posterior: UtilityPosterior) -> LearnedUtilities:
    of_queries = pool.predict_utilities(posterior)
    utilities = Utilities(
        np.concatenate([one.mean for one in of_queries]), np.concatenate([one.standard_deviation for one in of_queries])
    )
    return LearnedUtilities(utilities, posterior.posterior.mean, posterior.own.mean)


def _fit_variational(pool: QuestionPool, orderings: Orderings, bound: Bound) -> LearnedUtilities:
    """Return the variational posterior of beta = (theta, own parts of all items), under the prior that fits best."""
    rows, n = pool.span.coordinates, pool.n_items
    laplace = pool.learn(orderings)
    with_own = laplace.own_variance > 0.0
    asked = np.unique(pool.items[orderings.items]) if with_own else np.zeros(0, dtype=np.int64)
    directions = rows.shape[1] + len(asked)
    work = len(orderings.items) * float(directions) ** 2
    if work > _MOST_WORK[bound]:
        problem = f"variational_{bound} is too slow for {orderings.n_answers} orders with {directions} directions"
        raise InvalidArgumentError("model", f"{problem}: plackett_luce is not")
    own_rows = (pool.items[:, None] == asked[None, :]).astype(np.float64)
    variances = np.repeat([laplace.prior_variance, laplace.own_variance], [rows.shape[1], len(asked)])
    prior = Gaussian(np.zeros(directions), np.diag(variances))
    found = variational.fit(np.hstack([rows, own_rows]), orderings, prior=prior, bound=bound).posterior
    r = rows.shape[1]
    mean, covariance = np.zeros(r + n), np.diag(np.repeat([0.0, laplace.own_variance], [r, n]))
    places = np.concatenate([np.arange(r), r + asked])
    mean[places] = found.mean
    covariance[np.ix_(places, places)] = found.covariance
    # Only differences can be learned: own parts are about the mean of all.
    centred = np.eye(r + n)
    centred[r:, r:] -= 1.0 / n
    mean, covariance = centred @ mean, centred @ covariance @ centred.T
    whole = np.hstack([rows, np.eye(n)[pool.items]])
    return LearnedUtilities(Gaussian(mean, covariance).utilities(whole), mean[:r], mean[r:])


def _aggregate(
    model: PreferenceModel, pool: QuestionPool, answers: StudyAnswers, stream_rate: float
) -> LearnedUtilities:
    loss, rows = _LOSSES[model], pool.span.coordinates
    comparisons, unit = _compare(answers, loss)
    if model in {PreferenceModel.AGGREGATION_SQUARED, PreferenceModel.AGGREGATION_LOGISTIC}:
        found = aggregation.fit(rows, comparisons, loss=loss)
        utilities, weights, residuals = found.utilities(rows), found.weights, found.residuals
    else:
        ridges = {"weights_ridge": _RIDGE_RATIO * stream_rate, "residual_ridge": stream_rate}
        state = aggregation.Online.start(rows, loss=loss, **ridges).observe(comparisons)
        half = 0.5 * max(len(comparisons), 1)
        batch = aggregation.fit(rows, comparisons, loss=loss, **{name: half * one for name, one in ridges.items()})
        utilities = Utilities(state.scores, batch.utilities(rows).standard_deviation)
        weights, residuals = state.mean[: rows.shape[1]] / np.sqrt(_RIDGE_RATIO), state.mean[rows.shape[1] :]
    own = residuals.reshape(pool.n_queries, pool.n_items).mean(axis=0)
    mean, level = unit * utilities.mean, _level(answers, unit * utilities.mean)
    if isinstance(answers, TieredAnswers):
        of_queries = mean.reshape(pool.n_queries, -1)
        mean = (of_queries - of_queries.mean(axis=1, keepdims=True)).reshape(-1)
    return LearnedUtilities(Utilities(level + mean, unit * utilities.standard_deviation), unit * weights, unit * own)


def _compare(answers: StudyAnswers, loss: Loss) -> tuple[Comparisons, float]:
    """Return the pairs with what is known of their differences, and the unit that this is in."""
    if isinstance(answers, TieredAnswers):
        pairs = answers.to_pairs()
        return Comparisons.of(pairs[:, ::-1], np.ones(len(pairs)), n_items=answers.n_items), 1.0
    if loss is not Loss.SQUARED:
        raise InvalidArgumentError("model", "the logistic loss does not learn from ratings")
    found, differences = [], []
    for rows, values in zip(answers.lists, answers.values, strict=True):
        for first in range(len(rows)):
            for second in range(first + 1, len(rows)):
                found.append((rows[first], rows[second]))
                differences.append(values[second] - values[first])
    differences_of = np.array(differences, dtype=np.float64)
    unit = float(np.sqrt(np.mean(differences_of**2))) if found else 1.0
    unit = unit or 1.0
    return Comparisons.of(np.array(found, dtype=np.int64), differences_of / unit, n_items=answers.n_items), unit


def _level(answers: StudyAnswers, scores: FloatArray) -> float:
    """Return how far ratings are above scores on average; 0 for other answers."""
    if isinstance(answers, TieredAnswers) or not len(answers):
        return 0.0
    rated = answers.to_ratings()
    return float(np.mean(rated.values - scores[rated.items]))
