"""Why a slate was given out, and which slates a model thinks best: functions of a model and a request."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.bandits.absences import explain_absences
from topk_bandit.bandits.choices import choose_slate, too_few_items
from topk_bandit.bandits.contexts import check_context
from topk_bandit.bandits.exposures import rules_that_pay
from topk_bandit.bandits.showable import Showable, find_showable
from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.operators import ItemPart, PairPart, RankedSlate, Reasons, TopSlates
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.rules import check_rules, describe_declared, describe_rule
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Group, Stage
from topk_bandit.learning.decisions import search_best
from topk_bandit.learning.mean_parts import split_mean
from topk_bandit.learning.top_slates import find_top_slates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.rules import Absence, SlateRule
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.learning.decisions import Search

__all__ = ["NEXT_BEST", "explain", "explain_absent", "list_top_slates"]

NEXT_BEST = 10
"""So many other slates are explained beside the one that was shown."""

_BY_MEAN = Exploration(ConstantBeta(0.0), uniform_share=0.0)


def explain(model: Model, request: RecommendationRequest, recommendation: Recommendation) -> Reasons:
    """Return why a recommendation was what it was, by the model that decided.

    Parameters
    ----------
    request, recommendation
        As the log has them.
    """
    context = model.state.encode(model.encode(request.context))
    ranking = model.items.find_indices(recommendation.slate)
    eligible, _ = model.items.find_eligible(request.candidates)
    search, showable, beta, score = None, None, 0.0, None
    if len(eligible) >= model.settings.slate_size:
        with suppress(NotReadyError):  # a baseline slate may have kept rules that no slate of these items keeps
            showable = find_showable(model, request, eligible, _rules_paid(model, recommendation))
    if showable is not None:
        search = search_best(
            model.state, model.settings.exploration, context, showable.places, allowed=showable.allowed
        )
        beta, score = search.beta, _score(search, ranking)
    [shown] = _judge(model, context, ranking[None], beta=beta, scores=[score])
    items, pairs, offset, of_context = _part(model, context, recommendation.slate)
    return Reasons(
        shown=shown,
        offset=offset,
        context=of_context,
        items=items,
        pairs=pairs,
        beta=beta,
        chosen_again=_choose_again(model, request, recommendation) == recommendation.slate,
        next_best=()
        if search is None or showable is None
        else _find_next_best(model, context, search, showable, ranking),
    )


def _choose_again(model: Model, request: RecommendationRequest, recommendation: Recommendation) -> tuple[str, ...]:
    """Return the slate that the model chooses for a request of the recommendation's group.

    Whether that was the conservative one depended on slates that were not in the log yet, too: those of its batch.
    """
    settings = replace(model.settings, conservative_share=0.0)
    if recommendation.group is Group.CONSERVATIVE:
        settings = replace(settings, stage=Stage.OFF)
    return choose_slate(replace(model, settings=settings), request).slate


def explain_absent(
    model: Model, request: RecommendationRequest, recommendation: Recommendation, item_ids: tuple[str, ...]
) -> tuple[Absence, ...]:
    """Return those of some items that a recommendation does not show, with the reason, by the model that decided."""
    eligible, _ = model.items.find_eligible(request.candidates)
    showable = Showable(eligible)
    if len(eligible) >= model.settings.slate_size:
        with suppress(NotReadyError):  # as in `explain`
            showable = find_showable(model, request, eligible, _rules_paid(model, recommendation))
    return explain_absences(model, replace(request, explain=item_ids), showable, recommendation.slate)


def list_top_slates(
    model: Model, context: Context, *, limit: int, proposed: tuple[SlateRule, ...] | None = None
) -> TopSlates:
    """Return the slates of available items with the largest means that are found, best first; they keep the rules.

    Parameters
    ----------
    proposed
        Rules to try in place of the bandit's own; None tries those.

    Raises
    ------
    InvalidArgumentError
        A context or features that the bandit does not take, and what is no rule of it.
    NotReadyError
        TOO_FEW_ITEMS: fewer items are available than a slate shows. RULES_CLASH: no slate keeps the rules.
    ExhaustedError
        RULES_TOO_ENTANGLED: whether one does takes too long to find.
    """
    check_context(model.settings, context)
    asked = RecommendationRequest("", context, None)
    declared = model.settings.rules if proposed is None else proposed
    if proposed is not None:
        # As rules of a request, so that what the bandit's own allow, which is kept for requests, stays.
        model, asked = replace(model, settings=replace(model.settings, rules=())), replace(asked, rules=proposed)
        check_rules(
            [one.rule for one in proposed],
            model.settings.item_schema or (),
            model.settings.slate_size,
            field="proposed.rules",
        )
    encoded = model.state.encode(model.encode(context))
    eligible, _ = model.items.find_eligible(None)
    if len(eligible) < model.settings.slate_size:
        raise too_few_items(model, n_left=len(eligible))
    showable = find_showable(model, asked, eligible)
    search = search_best(model.state, _BY_MEAN, encoded, showable.places, allowed=showable.allowed)
    at_context, rules = model.state.posterior.at(encoded, search.items), showable.rules_among(search.items)
    top = find_top_slates(at_context, beta=0.0, starts=search.places[None], limit=limit, rules=rules)
    slates = _judge(model, encoded, search.items[top.rankings], beta=0.0, scores=top.bounds.tolist())
    words = tuple(map(describe_declared, declared))
    return TopSlates(slates, model.version, len(showable.places), words, showable.relaxed)


def _rules_paid(model: Model, recommendation: Recommendation) -> tuple[SlateRule, ...]:
    """Return the rules that a slate kept besides, because it paid for promised exposures."""
    paid = (one for one in model.exposures.promises if describe_rule(one.rule) in recommendation.paid)
    return rules_that_pay(paid)


def _part(
    model: Model, context: NDArray[np.float64], slate: Sequence[str]
) -> tuple[tuple[ItemPart, ...], tuple[PairPart, ...], float, float]:
    parts = split_mean(model.state.posterior, context, model.items.find_indices(slate))
    by_item = zip(slate, parts.items.tolist(), parts.content.tolist(), parts.prior.tolist(), strict=True)
    items = tuple(ItemPart(item_id, place, *means) for place, (item_id, *means) in enumerate(by_item, 1))
    pairs = tuple(
        PairPart(slate[first], slate[second], float(parts.pairs[first, second]))
        for first, second in combinations(range(len(slate)), 2)
    )
    return items, pairs, parts.offset, parts.context


def _score(search: Search, ranking: NDArray[np.int32]) -> float | None:
    """Return what a slate was compared by, None if it was drawn with items that were not looked at."""
    if not np.isin(ranking, search.items).all():
        return None
    moments = search.drawn.moments(np.searchsorted(search.items, ranking).astype(np.int32)[None])
    return float(moments.mean[0] + math.sqrt(search.beta * float(moments.variance[0])))


def _find_next_best(
    model: Model, context: NDArray[np.float64], search: Search, showable: Showable, ranking: NDArray[np.int32]
) -> tuple[RankedSlate, ...]:
    rules = showable.rules_among(search.items)
    top = find_top_slates(search.drawn, beta=search.beta, starts=search.places[None], limit=NEXT_BEST + 1, rules=rules)
    rankings = search.items[top.rankings]
    others = np.flatnonzero((rankings != ranking).any(axis=1))[:NEXT_BEST]
    return _judge(model, context, rankings[others], beta=search.beta, scores=top.bounds[others].tolist())


def _judge(
    model: Model,
    context: NDArray[np.float64],
    rankings: NDArray[np.int32],
    *,
    beta: float,
    scores: Sequence[float | None],
) -> tuple[RankedSlate, ...]:
    """Return slates (A, k) with their moments, which are exact: those of a search are of float32 numbers.

    As in a recommendation, deviations are by the rewards that came; the bounds that chose count waiting slates, too.
    """
    if not len(rankings):
        return ()
    state = model.state
    moments, known = (state.posterior.predict(context, rankings, with_pending=pending) for pending in (True, False))
    deviations = np.sqrt(state.widen(known).variance)
    bounds = moments.mean + math.sqrt(beta) * np.sqrt(moments.variance)
    rows = zip(rankings, moments.mean.tolist(), deviations.tolist(), bounds.tolist(), scores, strict=True)
    return tuple(RankedSlate(model.items.find_ids(ranking), *figures) for ranking, *figures in rows)
