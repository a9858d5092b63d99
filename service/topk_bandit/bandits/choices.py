"""The slate of a request: a pure function of a model and the request, whose id is the seed."""

from __future__ import annotations

import math
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.bandits.absences import explain_absences
from topk_bandit.bandits.contexts import check_context
from topk_bandit.bandits.exposures import can_pay, find_unpaid, rules_that_pay
from topk_bandit.bandits.showable import check_request_rules, complete_baseline, find_showable, is_quickly_found
from topk_bandit.bandits.stages import baseline_of, gets_baseline, group_of, no_baseline
from topk_bandit.domain.errors import ExhaustedError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.rules import describe_rule
from topk_bandit.domain.slates import Recommendation
from topk_bandit.domain.stages import Group, Shadow, Stage, check_baseline_size
from topk_bandit.learning.decisions import decide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.bandits.items import Eligible
    from topk_bandit.bandits.model import Model, OddFeatures
    from topk_bandit.bandits.showable import Showable
    from topk_bandit.domain.slates import RecommendationRequest

__all__ = ["ChosenSlate", "choose", "choose_slate", "is_short", "recommendation_id_of", "too_few_items"]

ROWS_TIMES_ITEMS_AT_ONCE = 20_000
ITEMS_AT_ONCE = 512
SLATE_SIZE_AT_ONCE = 8
"""A slate is chosen on the event loop if none of the three is exceeded: it takes a millisecond or two, and a thread
would add to that. Larger slates and more items take longer even before anything is learned, and would delay all
calls."""


def recommendation_id_of(incarnation: str, request_id: str) -> str:
    """Return the id of a bandit's recommendation for a request, 32 hexadecimal digits: always the same."""
    return _digest(incarnation, request_id).hex()


class ChosenSlate(NamedTuple):
    """A slate, and how much of its request's context was not taken as it is."""

    recommendation: Recommendation
    odd: OddFeatures


def choose_slate(model: Model, request: RecommendationRequest, *, strict_candidates: bool = False) -> Recommendation:
    """Choose the slate for a request: a pure function of the model and the request, whose id is the seed.

    Parameters and errors are those of `choose`.
    """
    return choose(model, request, strict_candidates=strict_candidates).recommendation


def choose(model: Model, request: RecommendationRequest, *, strict_candidates: bool = False) -> ChosenSlate:
    """Choose the slate for a request, and return how its context was taken.

    It is the baseline slate where the stage or the request's group asks for it. It is, too, where too few candidates
    are left, if there is one and all of it is available. In shadow the bandit's own slate is chosen beside it.

    Parameters
    ----------
    strict_candidates
        Whether candidates that are unknown or retired are refused instead of passed over.

    Raises
    ------
    InvalidArgumentError
        A context or features that the bandit does not take, or fewer candidates than the slate shows.
    NotFoundError
        A candidate that is refused.
    NotReadyError
        TOO_FEW_ITEMS: too few can be shown, and there is no baseline slate that can. NO_BASELINE: the stage or the
        group asks for a baseline slate, and there is none that can be shown. RULES_CLASH: no slate keeps the rules.
    ExhaustedError
        RULES_TOO_ENTANGLED: whether one does takes too long to find.
    """
    settings = model.settings
    check_context(settings, request.context)
    check_baseline_size("baseline_item_ids", request.baseline_item_ids, slate_size=settings.slate_size)
    context, odd = model.take(request.context)
    if request.candidates is not None and len(request.candidates) < settings.slate_size:
        problem = f"has {len(request.candidates)} items, the slate needs {settings.slate_size}"
        raise InvalidArgumentError("candidate_item_ids", problem)
    if strict_candidates:
        model.items.check_candidates(request.candidates or ())
    check_request_rules(model, request)
    eligible = model.items.find_eligible(request.candidates)
    group, is_enough = group_of(model, request), len(eligible.places) >= settings.slate_size
    if is_enough and not gets_baseline(settings.stage, group):
        showable = find_showable(model, request, eligible.places)
        shown = _choose_own(model, request, context, showable, passed_over=eligible.passed_over)
        showable, shown = _pay_promises(model, request, context, eligible, (showable, shown))
    else:
        showable, shown = _show_baseline(model, request, context, group, eligible)
    if settings.stage is Stage.SHADOW and is_enough:
        shown = replace(shown, shadow=_stay_in_shadow(model, request, context, eligible.places, shown))
    if request.explain:
        shown = replace(shown, absent=explain_absences(model, request, showable, shown.slate))
    is_usual = settings.stage is Stage.LIVE and group is Group.NONE
    return ChosenSlate(shown if is_usual else replace(shown, stage=settings.stage, group=group), odd)


def _choose_own(
    model: Model,
    request: RecommendationRequest,
    context: NDArray[np.float64],
    showable: Showable,
    *,
    passed_over: int = 0,
) -> Recommendation:
    """Return the bandit's own slate."""
    seed = int.from_bytes(_digest(model.incarnation, request.request_id))
    decision = decide(
        model.state,
        model.settings.exploration,
        context=context,
        eligible=showable.places,
        rng=np.random.default_rng(seed),
        allowed=showable.allowed,
    )
    return Recommendation(
        recommendation_id=recommendation_id_of(model.incarnation, request.request_id),
        slate=model.items.find_ids(decision.ranking),
        propensity=decision.propensity,
        mean=decision.mean,
        standard_deviation=decision.standard_deviation,
        regret_bound=decision.regret_bound,
        estimated_regret=decision.estimated_regret,
        explored=decision.explored,
        model_version=model.version,
        observations=model.state.remembered,
        position_propensities=tuple(decision.position_propensities.tolist()),
        best_slate=() if decision.best is decision.ranking else model.items.find_ids(decision.best),
        passed_over=passed_over,
        relaxed=showable.relaxed,
    )


def _pay_promises(
    model: Model,
    request: RecommendationRequest,
    context: NDArray[np.float64],
    eligible: Eligible,
    own: tuple[Showable, Recommendation],
) -> tuple[Showable, Recommendation]:
    """Return the slate that pays for the exposures that are owed, and what could be shown for it.

    It is the bandit's `own` where that pays, or where no slate can, none that gives up no other rule, or none at the
    price.
    """
    showable, shown = own
    best = shown.best_slate or shown.slate
    unpaid = find_unpaid(model.exposures, best, model.items)
    if not unpaid:
        return own
    try:
        paying = find_showable(model, request, eligible.places, rules_that_pay(unpaid))
    except (NotReadyError, ExhaustedError):
        return own
    if paying.relaxed != showable.relaxed:
        return own
    paid = _choose_own(model, request, context, paying, passed_over=eligible.passed_over)
    places = (model.items.find_indices(slate) for slate in (best, paid.best_slate or paid.slate))
    loss, _ = model.state.predict_difference(context, *places)
    if not can_pay(unpaid, loss, spread=model.state.prior_spread(context)):
        return own
    return paying, replace(paid, paid=tuple(describe_rule(promise.rule) for promise in unpaid))


def _stay_in_shadow(
    model: Model,
    request: RecommendationRequest,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    shown: Recommendation,
) -> Shadow | None:
    """Return the bandit's own slate beside the one that is shown, and what it would earn more; None if it has none."""
    try:
        showable = find_showable(model, request, eligible)
    except NotReadyError:  # what is shown keeps the rules by an item of the baseline slate
        return None
    own = _choose_own(model, request, context, showable).slate
    if own == shown.slate:
        return Shadow(own, 0.0, 0.0)
    gain, variance = model.state.predict_difference(
        context, model.items.find_indices(own), model.items.find_indices(shown.slate)
    )
    return Shadow(own, gain, math.sqrt(variance))


def _show_baseline(
    model: Model,
    request: RecommendationRequest,
    context: NDArray[np.float64],
    group: Group,
    eligible: Eligible,
) -> tuple[Showable, Recommendation]:
    """Return the baseline slate: nothing else could be shown, so that its propensity is 1 and its regret 0.

    Where it breaks a rule it is changed as little as can be; what could be shown comes with it.
    """
    slate, state = baseline_of(model, request), model.state
    if not slate or model.items.find_hidden(slate):
        if gets_baseline(model.settings.stage, group):
            raise no_baseline(model, request, group)
        raise too_few_items(model, request, n_left=len(eligible.places), passed_over=eligible.passed_over)
    showable, slate = complete_baseline(model, request, slate, eligible.places)
    moments = state.predict(context, model.items.find_indices(slate)[None], with_pending=False)
    return showable, Recommendation(
        recommendation_id=recommendation_id_of(model.incarnation, request.request_id),
        slate=slate,
        propensity=1.0,
        mean=float(moments.mean[0]) if state.posterior.rewards_vary else state.posterior.best_offset,
        standard_deviation=math.sqrt(float(moments.variance[0])),
        regret_bound=0.0,
        estimated_regret=0.0,
        explored=False,
        model_version=model.version,
        observations=state.remembered,
        position_propensities=(1.0,) * len(slate),
        passed_over=eligible.passed_over,
        baseline=True,
        relaxed=showable.relaxed,
    )


def too_few_items(
    model: Model, request: RecommendationRequest | None = None, *, n_left: int, passed_over: int = 0
) -> NotReadyError:
    """Return the error TOO_FEW_ITEMS for a bandit of which so many items are left to be shown."""
    baseline = model.settings.baseline_item_ids if request is None else baseline_of(model, request)
    needed, hidden = model.settings.slate_size, model.items.find_hidden(baseline)
    problem = f"{n_left} items can be shown, {passed_over} were passed over, and the slate needs {needed}"
    if hidden:
        problem += f"; {len(hidden)} items of the baseline slate can't be shown either"
    return NotReadyError("TOO_FEW_ITEMS", problem, items_left=n_left, passed_over=passed_over, slate_size=needed)


def _digest(incarnation: str, request_id: str) -> bytes:
    return blake2b(request_id.encode(), key=incarnation.encode()[:64], digest_size=16).digest()


def is_short(model: Model, request: RecommendationRequest) -> bool:
    """Return whether a decision takes less time than handing it to a thread and back."""
    n_items = len(model.items.available_places if request.candidates is None else request.candidates)
    return (
        model.state.posterior.n_rows * n_items <= ROWS_TIMES_ITEMS_AT_ONCE
        and n_items <= ITEMS_AT_ONCE
        and model.settings.slate_size <= SLATE_SIZE_AT_ONCE
        and is_quickly_found(model, request)
    )
