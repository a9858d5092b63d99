"""What a study can ask about, and its design, from its settings alone.

Nothing here depends on a store, a clock or on what was asked and answered. The computing may take seconds, and belongs
on a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import AnswerKind, QuestionList, StudyDesign
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.questions import QuestionPool, name_rows, number_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from topk_bandit.domain.studies import StudySettings
    from topk_bandit.preferences.designs.optimal import Progress, SubsetDesign

__all__ = ["build_pool", "design_study", "features_of_items", "rows_of"]


def features_of_items(settings: StudySettings) -> NDArray[np.float64]:
    """Return the features of a study's items, shape (n, d); without any, each item has one of its own."""
    features = np.array([item.features for item in settings.items], dtype=np.float64)
    return features if features.shape[1] else np.eye(len(features))


def build_pool(settings: StudySettings) -> QuestionPool:
    """Return what a study can ask about.

    Raises
    ------
    InvalidArgumentError
        Naming ``study.items``, or ``study.lists``: no answer could distinguish the items.
    """
    items = features_of_items(settings)
    queries = np.array([query.features for query in settings.queries]) if settings.queries else None
    feedback = Feedback.RATING if settings.answer_kind is AnswerKind.RATINGS else Feedback.RANKING
    given = _given_rows(settings) if settings.lists else None
    try:
        return QuestionPool.of(items, queries, feedback=feedback, features_alone=settings.features_alone, given=given)
    except InvalidArgumentError as error:
        raise InvalidArgumentError("study.lists" if settings.lists else "study.items", error.problem) from error


def _given_rows(settings: StudySettings) -> NDArray[np.int64]:
    """Return the rows of the pool that stand for the items of given lists, shape (L, K)."""
    lists = np.frombuffer(settings.lists, dtype="<i4").reshape(-1, 1 + settings.list_size).astype(np.int64)
    return number_rows(lists, len(settings.items))


def rows_of(lists: Iterable[QuestionList], *, n_items: int) -> list[list[int]]:
    """Return for each list the rows of the pool that stand for its items."""
    return [[one.query * n_items + item for item in one.items] for one in lists]


def design_study(
    settings: StudySettings, *, rng: np.random.Generator, watch: Callable[[Progress, float], bool]
) -> StudyDesign:
    """Return a study's design.

    Parameters
    ----------
    watch
        Called now and then with the progress and the gap that is aimed at; if it returns true, the design is returned
        as it is then.

    Raises
    ------
    InvalidArgumentError
        Naming ``study.items``: they allow no design.
    """
    pool = build_pool(settings)
    target = pool.target_gap(settings.list_size, settings.budget)
    try:
        found = pool.design(
            list_size=settings.list_size,
            budget=settings.budget,
            rng=rng,
            watch=lambda progress: watch(progress, target),
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError("study.items", error.problem) from error
    return _name_items(found, n_items=pool.n_items, target_gap=target)


def _name_items(found: SubsetDesign, *, n_items: int, target_gap: float) -> StudyDesign:
    """Return a design of the pool's rows as one of queries and items."""
    return StudyDesign(
        lists=tuple(QuestionList(query, tuple(items)) for query, items in name_rows(found.subsets, n_items)),
        weights=tuple(np.asarray(found.weights, dtype=np.float64).tolist()),
        log_det=float(found.log_det),
        gap=float(found.gap),
        target_gap=target_gap,
        steps=int(found.steps),
    )
