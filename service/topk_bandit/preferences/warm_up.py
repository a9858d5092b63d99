"""Compiling ahead of the first study."""

from __future__ import annotations

import numpy as np

from topk_bandit.domain.studies import MODELS_OF, AnswerKind
from topk_bandit.preferences.answers import Ratings
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists
from topk_bandit.preferences.study_models import fit
from topk_bandit.preferences.tiers import TieredAnswers

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile all that a study calls, or load it from the cache of an earlier start.

    It takes small studies from items to utilities, for lists of each size that is searched for in a way of its own.
    """
    items = np.random.default_rng(0).normal(size=(12, 3))
    for feedback, list_size in (
        (Feedback.RATING, 2),
        (Feedback.RANKING, 2),
        (Feedback.RANKING, 3),
        (Feedback.RANKING, 5),
    ):
        pool = QuestionPool.of(items, None, feedback=feedback)
        design = pool.design(list_size=list_size, budget=20, rng=np.random.default_rng(0))
        choose_next_lists(pool, design, asked=np.zeros(len(design.weights), dtype=np.int64), count=2)
    ranked, rated = (QuestionPool.of(items, None, feedback=one) for one in (Feedback.RANKING, Feedback.RATING))
    answers = TieredAnswers.of([[[0], [1], [2], [3]], [[3, 2], [1, 0]]], n_items=12)
    for model in MODELS_OF[AnswerKind.RANKING]:
        answers.score(fit(model, ranked, answers).utilities.mean)
    rated.learn(Ratings.of([0, 1, 2], [1.0, 2.0, 3.0], n_items=12))
