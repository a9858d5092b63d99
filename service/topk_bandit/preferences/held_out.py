"""Which model explains a study's answers best: the log-probability that each gives to answers it did not learn from.

Answers are put into folds by question: all about one list of items are left out together. If there are fewer lists
than folds, each answer is a question of its own. Each model learns from all folds but one, and its mean utilities
predict that one. Answers that order items have the log-probability of `tiers`, in nats. Utilities of the squared loss
are in a unit of their own, so they are multiplied by the number that makes the answers learned from most probable.
Ratings have the log density of a normal distribution about the utility, whose variance is the mean square of what
was learned from.

The score of a model is its mean over answers. The standard error of that, and of its distance from the best model, is
that of a ratio of sums over questions, because answers about one list are alike:

    se^2 = Q / (Q - 1) sum_q (sum of q - count of q * mean)^2 / A^2

Folds share most of the answers learned from, which this leaves out: Bengio and Grandvalet, No Unbiased Estimator of the
Variance of K-Fold Cross-Validation (2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import ModelScore, PreferenceModel
from topk_bandit.preferences.study_models import RatedLists, fit, leave_out_careless
from topk_bandit.preferences.tiers import TieredAnswers

if TYPE_CHECKING:
    from topk_bandit.preferences.answers import IntArray
    from topk_bandit.preferences.questions import QuestionPool
    from topk_bandit.preferences.study_models import StudyAnswers
    from topk_bandit.preferences.utilities import FloatArray

__all__ = ["FEWEST_COMPARED", "FOLDS", "MOST_COMPARED", "MOST_ITEMS_COMPARED", "compare_models"]

FOLDS = 5

FEWEST_COMPARED = 10
"""Fewer answers compare nothing."""

MOST_COMPARED = 2000
"""Of more answers so many are taken, evenly from first to last: every model learns from each `FOLDS` - 1 times."""

MOST_ITEMS_COMPARED = 300
"""With more, the own parts of items take half an hour to compare."""

_MOST_WORK = 1e8
"""Rows of answers times squared coordinates: with more, fewer answers are taken."""

_OWN_UNIT = frozenset({PreferenceModel.AGGREGATION_SQUARED, PreferenceModel.STREAM_SQUARED})
_LEAST_VARIANCE = 1e-12


def compare_models(
    models: Sequence[PreferenceModel], pool: QuestionPool, answers: StudyAnswers, *, stream_rate: float | None = None
) -> tuple[tuple[ModelScore, ...], int]:
    """Return the score of each model, best first, and how many answers were predicted.

    Answers of respondents who rather answer at random are left out, and so are models that are too slow. With fewer
    than `FEWEST_COMPARED` there are no scores.

    Raises
    ------
    InvalidArgumentError
        Naming ``compare``: there are more than `MOST_ITEMS_COMPARED` items. Else as `study_models.fit` does, but for
        ``model``.
    """
    if pool.n_items > MOST_ITEMS_COMPARED:
        raise InvalidArgumentError("compare", f"models are compared for at most {MOST_ITEMS_COMPARED} items")
    answers = leave_out_careless(pool, answers)
    most = _find_most(pool, answers)
    if len(answers) > most:
        answers = answers.take(np.linspace(0, len(answers) - 1, most).astype(np.int64))
    if len(answers) < FEWEST_COMPARED:
        return (), 0
    questions = _number_questions(answers)
    scores: dict[PreferenceModel, FloatArray] = {}
    for model in models:
        try:
            scores[model] = _predict(model, pool, answers, questions, stream_rate)
        except InvalidArgumentError as error:
            if error.field != "model":
                raise
    best = max(scores, key=lambda one: float(scores[one].mean()))
    found = [_compare_with_best(model, scores[model], scores[best], questions) for model in scores]
    return tuple(sorted(found, key=lambda one: one.behind)), len(answers)


def _find_most(pool: QuestionPool, answers: StudyAnswers) -> int:
    """Return how many answers are compared at most: fewer where a fit takes long."""
    lists = answers.lists if isinstance(answers, RatedLists) else answers.answers
    shown = sum(len(part) if isinstance(part, Sequence) else 1 for one in lists for part in one)
    work = shown / max(len(answers), 1) * pool.span.rank**2
    return int(np.clip(_MOST_WORK / max(work, 1.0), FEWEST_COMPARED, MOST_COMPARED))


def _number_questions(answers: StudyAnswers) -> IntArray:
    """Return the number of each answer's question, from 0 in the order of their first answers, shape (A,)."""
    if isinstance(answers, RatedLists):
        shown = [tuple(sorted(rows)) for rows in answers.lists]
    else:
        shown = [tuple(sorted(row for tier in tiers for row in tier)) for tiers in answers.answers]
    known = {one: number for number, one in enumerate(dict.fromkeys(shown))}
    if len(known) < FOLDS:
        return np.arange(len(answers))
    return np.array([known[one] for one in shown], dtype=np.int64)


def _predict(
    model: PreferenceModel, pool: QuestionPool, answers: StudyAnswers, questions: IntArray, stream_rate: float | None
) -> FloatArray:
    """Return the log-probability of each answer under what the other folds teach."""
    found = np.empty(len(answers))
    for fold in range(FOLDS):
        left_out = np.flatnonzero(questions % FOLDS == fold)
        others = answers.take(np.flatnonzero(questions % FOLDS != fold))
        mean = fit(model, pool, others, stream_rate=stream_rate).utilities.mean
        part = answers.take(left_out)
        if isinstance(part, RatedLists):
            found[left_out] = _score_ratings(mean, part, learned=others)
        else:
            unit = others.find_unit(mean) if model in _OWN_UNIT and isinstance(others, TieredAnswers) else 1.0
            found[left_out] = part.score(unit * mean)
    return found


def _score_ratings(mean: FloatArray, answers: RatedLists, *, learned: StudyAnswers) -> FloatArray:
    known = learned.to_ratings()  # type: ignore[union-attr]
    scale = max(1.0, float(np.mean(known.values**2)))
    variance = max(float(np.mean((known.values - mean[known.items]) ** 2)), _LEAST_VARIANCE * scale)
    surprises = [
        float(np.sum((np.array(values) - mean[list(rows)]) ** 2)) / variance + len(rows) * np.log(2 * np.pi * variance)
        for rows, values in zip(answers.lists, answers.values, strict=True)
    ]
    return -0.5 * np.array(surprises, dtype=np.float64)


def _compare_with_best(model: PreferenceModel, own: FloatArray, best: FloatArray, questions: IntArray) -> ModelScore:
    behind = best - own
    return ModelScore(
        model=model,
        log_probability=float(own.mean()),
        standard_error=_standard_error(own, questions),
        behind=float(behind.mean()),
        behind_standard_error=_standard_error(behind, questions),
    )


def _standard_error(values: FloatArray, questions: IntArray) -> float:
    """Return the standard error of a mean whose values are alike within a question."""
    sums = np.bincount(questions, values - values.mean())
    count = len(np.unique(questions))
    return float(np.sqrt(count / (count - 1) * np.sum(sums**2))) / len(values)
