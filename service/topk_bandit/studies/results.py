"""What a study hands out once there are answers: preferences for its readers, and a prior for a bandit.

Both are made from one analysis and what it learned, by item id. The functions are pure, and never learn anything
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.bandits import ItemUtility, Prior
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.studies import MAX_RESPONDENTS, ItemPreference, Preferences, QueryPreferences
from topk_bandit.studies.pool import features_of_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import PreferenceModel, StudyName
    from topk_bandit.preferences.agreement import Agreement
    from topk_bandit.preferences.study_models import LearnedUtilities
    from topk_bandit.preferences.utilities import Utilities
    from topk_bandit.studies.analysis import StudyAnalysis
    from topk_bandit.studies.model import StudyModel

__all__ = ["check_is_prior", "make_preferences", "make_prior"]


def make_preferences(
    analysis: StudyAnalysis,
    learned: LearnedUtilities,
    agreement: Agreement,
    *,
    by: PreferenceModel | None = None,
    after: int,
    queries: int,
    items: int,
) -> Preferences:
    """Return what was learned by a model or the study's own, from query number `after` on.

    See `Studies.get_preferences`.
    """
    model = analysis.model
    item_ids = [item.item_id for item in model.settings.items]
    query_ids = [query.query_id for query in model.settings.queries] or [""]
    end = after + max(1, min(queries, items // len(item_ids)))
    shown = query_ids[after:end]
    return Preferences(
        answered=model.answer_count,
        gathered=analysis.measure_efficiency() if model.design else 0.0,
        total=len(query_ids),
        queries=tuple(
            QueryPreferences(query, _sort_items(item_ids, learned.of_query(number)))
            for number, query in enumerate(shown, start=after)
        ),
        model=by or model.settings.chosen_model,
        skipped=model.skipped,
        none_of_these=model.none_of_these,
        agreement=agreement.share,
        agreements=agreement.pairs,
        respondents=analysis.respondents.describe(learned.careless)[:MAX_RESPONDENTS],
        respondents_named=len(analysis.respondents.distinct),
    )


def _sort_items(item_ids: Sequence[str], utilities: Utilities) -> tuple[ItemPreference, ...]:
    """Return items with their utilities, best first."""
    ranks = utilities.ranks
    columns = utilities.mean.tolist(), utilities.standard_deviation.tolist(), ranks.tolist()
    preferences = [ItemPreference(*row) for row in zip(item_ids, *columns, strict=True)]
    return tuple(preferences[index] for index in np.argsort(ranks))


def check_is_prior(name: StudyName, model: StudyModel, *, context_dim: int) -> None:
    """Check that a study can be the prior of a bandit whose contexts have `context_dim` numbers.

    Raises
    ------
    InvalidArgumentError
        Naming ``prior_study``: it has no answers, or its queries have another number of features.
    """
    if not model.answer_count:
        raise InvalidArgumentError("prior_study", f"{name} has no answers yet from which something is learned")
    queries = model.settings.queries
    width = len(queries[0].features) if queries else 0
    if width not in {0, context_dim}:
        problem = f"{name} has queries of {width} features, and the bandit contexts of {context_dim} numbers"
        raise InvalidArgumentError("prior_study", problem)


def make_prior(study: str, analysis: StudyAnalysis, learned: LearnedUtilities) -> Prior:
    """Return what a study hands to a bandit; see `Studies.prior`."""
    model = analysis.model
    make = _make_slopes if model.settings.queries else _make_constants
    return Prior(study, model.answer_count, make(analysis, learned))


def _make_constants(analysis: StudyAnalysis, learned: LearnedUtilities) -> tuple[ItemUtility, ...]:
    items, means = analysis.model.settings.items, learned.of_query(0).mean.tolist()
    return tuple(ItemUtility(item.item_id, constant) for item, constant in zip(items, means, strict=True))


def _make_slopes(analysis: StudyAnalysis, learned: LearnedUtilities) -> tuple[ItemUtility, ...]:
    items, features = analysis.model.settings.items, features_of_items(analysis.model.settings)
    weights = (analysis.pool.span.basis @ learned.weights).reshape(-1, features.shape[1])
    slopes = ((features - features.mean(axis=0)) @ weights.T).tolist()
    own = (learned.own - learned.own.mean()).tolist()  # what an item has for every query alike
    return tuple(ItemUtility(item.item_id, *row) for item, *row in zip(items, own, map(tuple, slopes), strict=True))
