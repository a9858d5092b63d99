"""The hot path: recommend slates and take in their rewards.

Every slate with an id is in the log, and was chosen from a model that knew the newest items. A request id that is sent
again gets the slate that it got before. While the store is away, slates are given out marked as degraded, with their id
if they may be recorded. A call waits for the log only while there is no model, after a change of items, if the model
refuses, or if it asks for a newer one.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.bandits.absences import explain_absences
from topk_bandit.bandits.contexts import check_context, complete_context, known_context
from topk_bandit.bandits.exposures import can_pay, find_unpaid, rules_that_pay
from topk_bandit.bandits.model import OddFeatures
from topk_bandit.bandits.showable import (
    check_request_rules,
    complete_baseline,
    find_broken_rule,
    find_showable,
    is_quickly_found,
)
from topk_bandit.bandits.slate_rates import is_set_aside
from topk_bandit.bandits.stages import baseline_of, gets_baseline, group_of, no_baseline
from topk_bandit.bandits.tenant_quotas import A_SLATE
from topk_bandit.domain.bandits import NOTHING_NAMED, Recommendation, RecommendationRequest, Reward
from topk_bandit.domain.errors import (
    CorruptDataError,
    ExhaustedError,
    InvalidArgumentError,
    NotDurableError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.domain.rules import describe_rule
from topk_bandit.domain.stages import Group, Shadow, Stage, check_baseline_size
from topk_bandit.learning.decisions import decide
from topk_bandit.store.log import Correctable, NewSlate, RecordOutcome, RecordStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from topk_bandit.bandits.items import Eligible
    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.showable import Showable
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import ActivationReceipt, BanditName, RewardReceipt
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.store.log import Store

__all__ = ["Asked", "ChosenSlate", "Recommender", "choose", "choose_slate", "recommendation_id_of", "too_few_items"]

DECISIONS_PER_CALL = 8
"""How often a call decides again because items were changed meanwhile, before it gives up."""

CORRECTIONS_PER_CALL = 16
"""How often a correction looks at the model again because the log has grown meanwhile, before it gives up."""

CHOSEN_AT_ONCE = 10
"""So many slates of a batch are chosen in one piece of work: other calls that wait for a thread wait for no more."""

ROWS_TIMES_ITEMS_AT_ONCE = 20_000
ITEMS_AT_ONCE = 512
SLATE_SIZE_AT_ONCE = 8
"""A slate is chosen on the event loop if none of the three is exceeded: it takes a millisecond or two, and a thread
would add to that. Larger slates and more items take longer even before anything is learned, and would delay all
calls."""


def recommendation_id_of(incarnation: str, request_id: str) -> str:
    """Return the id of a bandit's recommendation for a request, 32 hexadecimal digits: always the same."""
    return _digest(incarnation, request_id).hex()


class Asked(NamedTuple):
    """One of several requests; see `Recommender.recommend`."""

    request: RecommendationRequest
    min_model_version: int = 0
    strict_candidates: bool = False


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
    spread = math.sqrt(model.state.posterior.amplitude)
    return (paying, paid) if can_pay(unpaid, loss, spread=spread) else own


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


class Recommender:
    """Recommends and rewards, for requests that are well-formed.

    Parameters
    ----------
    executor
        Where slates are chosen, away from the event loop.
    quotas
        How many open slates a tenant may have, and how much in the store; rewards are never refused for it.
    new_id
        Returns a fresh request id.
    """

    def __init__(
        self,
        store: Store,
        models: ModelCache,
        executor: Executor,
        *,
        quotas: TenantQuotas,
        hooks: Hooks,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._models = models
        self._executor = executor
        self._quotas = quotas
        self._hooks = hooks
        self._new_id = new_id

    async def recommend(
        self,
        name: BanditName,
        request: RecommendationRequest,
        *,
        min_model_version: int = 0,
        strict_candidates: bool = False,
    ) -> Recommendation:
        """Recommend a slate; an empty `request.request_id` is replaced by a fresh one.

        Parameters
        ----------
        min_model_version
            The slate is chosen by a model that knows the log up to there at least, unless the request is a repeated
            one.
        strict_candidates
            As for `choose_slate`, whose errors are raised too.

        Raises
        ------
        QuotaError
            OPEN_SLATE_QUOTA, LOG_QUOTA: the tenant has as much as it may have, and the request is not a repeated one.
        NotReadyError
            MODEL_VERSION_AHEAD: the log ends before `min_model_version`. ITEM_GONE: the request is a repeated one, and
            an item of its slate can't be shown any more. RULES_CHANGED: it is, and its slate breaks a rule by now.
            SLATE_GONE: it is, and its slate has ended and is not kept.
        UnavailableError
            The store is away, and the model is older than that; or items were changed while a slate was recorded of
            which no reply came.
        """
        model = await self._models.get_model(name)
        request = self._complete(request, model)
        try:
            await self._quotas.check(name.tenant, A_SLATE)
        except QuotaError:
            repeated = await self._find_repeated(name, request, await self._models.follow(name))
            if repeated is None:
                raise
            return repeated
        for _ in range(DECISIONS_PER_CALL):
            if model.version < min_model_version:
                model = await self._models.catch_up(name, min_model_version)
            if model.version < min_model_version:
                return await self._repeat(name, request, model, min_model_version)
            request, choice = await self._decide(name, request, model, strict_candidates=strict_candidates)
            recommendation, odd = choice
            try:
                outcome = await self._record(name, request, recommendation, model)
            except (UnavailableError, CorruptDataError) as error:
                # The watch over damage names what is corrupt; a page has a slate all the same.
                is_unrecorded = isinstance(error, CorruptDataError) or error.nothing_sent
                newest = self._models.peek_model(name)
                if newest is None or _has_same_slates(newest, model):
                    return self._degrade(recommendation, is_unrecorded=is_unrecorded)
                if not is_unrecorded:  # this slate may be recorded, and another one can't have its id
                    raise
                model = newest
                continue
            if outcome.recommendation is not None:
                return await self._give_out(name, request, outcome, outcome.recommendation, odd)
            model = await self._models.follow(name)
        raise UnavailableError(f"the items and rules of {name} change faster than a slate can be chosen")

    async def recommend_all(
        self, name: BanditName, asked: Sequence[Asked], *, time_left: Callable[[], float | None] = lambda: None
    ) -> Sequence[Recommendation | Exception]:
        """Do what `recommend` does for each of one or more; return what became of each, or its error.

        Slates are chosen away from the event loop and recorded together. One of which anything is not as usual is asked
        for by itself: a request that is repeated or refused, a change of items meanwhile, a store that is away.

        Parameters
        ----------
        time_left
            Returns how many seconds the caller still waits, None for as long as it takes. What is left then is not
            tried: an `UnavailableError`.

        Raises
        ------
        NotFoundError
            There is no such bandit.
        UnavailableError
            The store is away, and there is no model.
        """
        model = await self._models.get_model(name)
        wanted = max(one.min_model_version for one in asked)
        if model.version < wanted:
            with suppress(UnavailableError):  # the model that is there does for others
                model = await self._models.catch_up(name, wanted)
        completed = [one._replace(request=self._complete(one.request, model)) for one in asked]
        outcomes = await self._answer_over_quota(name, [one.request for one in completed], model)
        usual = [
            place
            for place, one in enumerate(completed)
            if place not in outcomes and one.min_model_version <= model.version
        ]
        chosen: dict[int, ChosenSlate] = {}
        for first in range(0, len(usual), CHOSEN_AT_ONCE):
            if time_left() == 0.0:
                break
            part = {place: completed[place] for place in usual[first : first + CHOSEN_AT_ONCE]}
            choosing = partial(self._choose_each, model, part)
            chosen |= await asyncio.get_running_loop().run_in_executor(self._executor, choosing)
        outcomes |= await self._record_all(name, {place: completed[place].request for place in chosen}, chosen, model)
        for place, (request, version, strict) in enumerate(completed):
            if place not in outcomes:
                outcomes[place] = await self._recommend_alone(
                    name, request, version, strict_candidates=strict, has_time=time_left() != 0.0
                )
        return [outcomes[place] for place in range(len(asked))]

    async def _answer_over_quota(
        self, name: BanditName, requests: Sequence[RecommendationRequest], model: Model
    ) -> dict[int, Recommendation | Exception]:
        """Return what becomes of those requests with whose slates a tenant would have more than its quota."""
        outcomes: dict[int, Recommendation | Exception] = {}
        for place, request in enumerate(requests):
            try:
                await self._quotas.check(name.tenant, {quota: (place + 1) * added for quota, added in A_SLATE.items()})
            except QuotaError as refusal:
                try:
                    outcomes[place] = await self._find_repeated(name, request, model) or refusal
                except TopkBanditError as error:
                    outcomes[place] = error
        return outcomes

    def _choose_each(self, model: Model, part: Mapping[int, Asked]) -> dict[int, ChosenSlate]:
        """Choose slates; those that the model refuses are left out."""
        chosen: dict[int, ChosenSlate] = {}
        for place, one in part.items():
            start = time.perf_counter()
            with suppress(NotFoundError, NotReadyError, InvalidArgumentError, ExhaustedError):
                chosen[place] = choose(model, one.request, strict_candidates=one.strict_candidates)
                self._hooks.decided(chosen[place].recommendation, time.perf_counter() - start)
        return chosen

    async def _record_all(
        self,
        name: BanditName,
        requests: Mapping[int, RecommendationRequest],
        chosen: Mapping[int, ChosenSlate],
        model: Model,
    ) -> dict[int, Recommendation | Exception]:
        """Record slates together and return what became of them; those that were not recorded now are left out."""
        slates = [
            NewSlate(request, chosen[place].recommendation, self._is_set_aside(name, request, model))
            for place, request in requests.items()
        ]
        if not slates:
            return {}
        recorded = self._store.record_recommendations(
            name,
            slates,
            incarnation=model.incarnation,
            items_position=model.items_position,
            rules=model.settings.rules,
        )
        try:
            written = await self._models.take_in(name, recorded)
        except TopkBanditError:
            return {}
        outcomes: dict[int, Recommendation | Exception] = {}
        for place, one in zip(requests, written, strict=True):
            if isinstance(one, RecordOutcome) and one.status is RecordStatus.RECORDED and one.recommendation:
                outcomes[place] = await self._give_out(
                    name, requests[place], one, one.recommendation, chosen[place].odd
                )
        return outcomes

    async def _recommend_alone(
        self,
        name: BanditName,
        request: RecommendationRequest,
        version: int,
        *,
        strict_candidates: bool,
        has_time: bool,
    ) -> Recommendation | Exception:
        """Return what becomes of one of several requests that is not as usual."""
        if not has_time:
            return UnavailableError("not tried, since the caller's time was up", nothing_sent=True)
        await asyncio.sleep(0)  # others have their turns: a slate that is chosen on the event loop takes a while
        try:
            return await self.recommend(name, request, min_model_version=version, strict_candidates=strict_candidates)
        except Exception as error:  # noqa: BLE001 - it stops no other
            return error

    async def activate(self, name: BanditName, recommendation_id: str, shown_slate: Sequence[str]) -> ActivationReceipt:
        """Note that a slate was shown, or another instead of it."""
        return await self._models.take_in(name, self._store.activate(name, recommendation_id, shown_slate))

    async def reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> RewardReceipt:
        """Take in a slate's reward, or one of several; see `topk_bandit.store.log.Store.record_reward`."""
        reward = Reward(recommendation_id, value, reward_id, final, item_values)
        recorded = self._store.record_reward(
            name, recommendation_id, value, reward_id=reward_id, final=final, item_values=item_values
        )
        try:
            receipt = await self._models.take_in(name, recorded)
        except TopkBanditError as error:
            self._note_reward(name, reward, error)
            raise
        self._note_reward(name, reward, receipt)
        return receipt

    async def find_id(self, name: BanditName, request_id: str) -> str:
        """Return the id that a bandit's recommendation for a request has, if there is one."""
        return recommendation_id_of((await self._store.get_bandit(name)).incarnation, request_id)

    async def rewards(self, name: BanditName, rewards: Sequence[Reward]) -> Sequence[RewardReceipt | Exception]:
        """Take in rewards, each with an outcome of its own; see `topk_bandit.store.log.Store.record_rewards`."""
        outcomes = await self._models.take_in(name, self._store.record_rewards(name, rewards))
        for reward, outcome in zip(rewards, outcomes, strict=True):
            self._note_reward(name, reward, outcome)
        return outcomes

    def _note_reward(self, name: BanditName, reward: Reward, outcome: RewardReceipt | Exception) -> None:
        """Report to the hooks, and to the follower of the log, what became of a reward."""
        if isinstance(outcome, TopkBanditError):
            self._hooks.rewarded(_name_refusal(outcome), reward.value)
            if isinstance(outcome, NotDurableError):
                self._hooks.acknowledged("missed")
        elif not isinstance(outcome, Exception):
            self._models.note_written(name, outcome.log_position, reward.recommendation_id, is_reward=True)
            self._hooks.rewarded(outcome.outcome, reward.value)
            self._hooks.acknowledged(outcome.durability.word)

    async def correct_reward(
        self,
        name: BanditName,
        recommendation_id: str,
        value: float | None,
        *,
        reward_id: str = "",
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> RewardReceipt:
        """Replace a slate's reward, or one of several; with None take it back.

        The errors are those of `topk_bandit.store.log.Store.correct_reward`.
        """
        for _ in range(CORRECTIONS_PER_CALL):
            record = await self._store.get_bandit(name)
            model = await self._models.follow(name)
            known = Correctable(
                record.incarnation,
                record.revision,
                model.version,
                model.last_correction(recommendation_id),
                model.find_correctable(recommendation_id),
            )
            try:
                receipt = await self._store.correct_reward(
                    name, recommendation_id, value, reward_id=reward_id, item_values=item_values, known=known
                )
            except NotDurableError:
                self._hooks.acknowledged("missed")
                raise
            if receipt is not None:
                self._hooks.acknowledged(receipt.durability.word)
                return receipt
        raise UnavailableError(f"the log of {name} grows faster than a reward can be corrected")

    def _complete(self, request: RecommendationRequest, model: Model) -> RecommendationRequest:
        """Fill in what the caller may leave out, and read the features as the model's schema has them."""
        asked = known_context(model.settings, request.context) if request.known_features_only else request.context
        context = complete_context(model.settings, asked)
        return replace(request, request_id=request.request_id or self._new_id(), context=context)

    async def _decide(
        self, name: BanditName, request: RecommendationRequest, model: Model, *, strict_candidates: bool
    ) -> tuple[RecommendationRequest, ChosenSlate]:
        """Choose a slate; if the model refuses, find the one given out before, or choose with the newest model.

        The request comes back, too, as that model's schema reads it.
        """
        try:
            return request, await self._choose(request, model, strict_candidates=strict_candidates)
        except (NotFoundError, NotReadyError, InvalidArgumentError, ExhaustedError):
            newest = await self._models.follow(name)
            request = self._complete(request, newest)
            repeated = await self._find_repeated(name, request, newest)
            if repeated is not None:
                return request, ChosenSlate(repeated, OddFeatures(0, 0))
            try:
                return request, await self._choose(request, newest, strict_candidates=strict_candidates)
            except NotReadyError as error:
                if error.reason == "RULES_CLASH":
                    self._hooks.rules_clashed()
                raise

    async def _repeat(
        self, name: BanditName, request: RecommendationRequest, model: Model, min_model_version: int
    ) -> Recommendation:
        """Return what the request was answered with before; refuse a new one, since the log does not go so far."""
        repeated = await self._find_repeated(name, request, model)
        if repeated is None:
            raise NotReadyError(
                "MODEL_VERSION_AHEAD", f"the log ends at {model.version}, before min_model_version {min_model_version}"
            )
        return repeated

    async def _find_repeated(
        self, name: BanditName, request: RecommendationRequest, model: Model
    ) -> Recommendation | None:
        recommendation_id = recommendation_id_of(model.incarnation, request.request_id)
        repeated = await self._store.find_recommendation(name, request, recommendation_id)
        return repeated if repeated is None else await self._check_again(name, request, repeated)

    async def _check_again(
        self, name: BanditName, request: RecommendationRequest, repeated: Recommendation
    ) -> Recommendation:
        """Return a recommendation of before, unless an item of it can't be shown now, or it breaks a rule of now.

        A call that takes out an item returns once the newest model of every worker knows it, but for those that the
        store has not heard of for a while: these look.
        """
        model = self._models.peek_fresh_model(name)
        if model is None or _find_change(model, request, repeated) is not None:
            model = await self._models.follow(name)
        if (change := _find_change(model, request, repeated)) is not None:
            raise change
        return repeated

    async def _choose(self, request: RecommendationRequest, model: Model, *, strict_candidates: bool) -> ChosenSlate:
        start = time.perf_counter()
        work = partial(choose, model, request, strict_candidates=strict_candidates)
        if _is_short(model, request):
            choice = work()
        else:
            choice = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        self._hooks.decided(choice.recommendation, time.perf_counter() - start)
        return choice

    async def _record(
        self, name: BanditName, request: RecommendationRequest, recommendation: Recommendation, model: Model
    ) -> RecordOutcome:
        recorded = self._store.record_recommendation(
            name,
            request,
            recommendation,
            incarnation=model.incarnation,
            items_position=model.items_position,
            rules=model.settings.rules,
            aside=self._is_set_aside(name, request, model),
        )
        try:
            return await self._models.take_in(name, recorded)
        except NotFoundError:
            await self._models.confirm_gone(name)
            raise

    def _is_set_aside(self, name: BanditName, request: RecommendationRequest, model: Model) -> bool:
        rate, most = self._models.find_slate_rate(name), model.settings.learned_per_second
        return is_set_aside(model.incarnation, request.request_id, rate=rate, most=most)

    async def _give_out(
        self,
        name: BanditName,
        request: RecommendationRequest,
        outcome: RecordOutcome,
        recommendation: Recommendation,
        odd: OddFeatures,
    ) -> Recommendation:
        if outcome.status is RecordStatus.REPEATED:
            return await self._check_again(name, request, recommendation)
        self._models.note_written(name, outcome.position, recommendation.recommendation_id)
        self._models.note_slate(name, outcome.position)
        self._hooks.recommended(recommendation)
        self._hooks.encoded(clamped=odd.clamped, unknown=odd.unknown)
        return recommendation

    def _degrade(self, recommendation: Recommendation, *, is_unrecorded: bool) -> Recommendation:
        """Mark a slate; it keeps its id if it may be recorded, so that a caller can be credited for it."""
        known_id = "" if is_unrecorded else recommendation.recommendation_id
        degraded = replace(recommendation, recommendation_id=known_id, degraded=True)
        self._hooks.recommended(degraded)
        return degraded


def _has_same_slates(newest: Model, model: Model) -> bool:
    """Return whether a slate that was chosen with a model may still be shown by the newest one."""
    return (newest.items_position, newest.settings.rules) == (model.items_position, model.settings.rules)


def _find_change(model: Model, request: RecommendationRequest, repeated: Recommendation) -> NotReadyError | None:
    """Return why a slate of before can't be shown any more, None if it can."""
    for item_id in model.items.find_hidden(repeated.slate):
        problem = f"item {item_id[:128]!r} of its slate can't be shown any more; ask with another request id"
        return NotReadyError("ITEM_GONE", problem)
    broken = find_broken_rule(model, request, repeated)
    if broken is None:
        return None
    problem = f"its slate breaks a rule by now, {describe_rule(broken)}; ask with another request id"
    return NotReadyError("RULES_CHANGED", problem)


def _is_short(model: Model, request: RecommendationRequest) -> bool:
    """Return whether a decision takes less time than handing it to a thread and back."""
    n_items = len(model.items.available_places if request.candidates is None else request.candidates)
    return (
        model.state.posterior.n_rows * n_items <= ROWS_TIMES_ITEMS_AT_ONCE
        and n_items <= ITEMS_AT_ONCE
        and model.settings.slate_size <= SLATE_SIZE_AT_ONCE
        and is_quickly_found(model, request)
    )


def _name_refusal(error: TopkBanditError) -> str:
    known = {
        "NotFoundError": "not_found",
        "ConflictError": "conflict",
        "InvalidArgumentError": "invalid",
        "UnavailableError": "unavailable",
        "NotDurableError": "unavailable",
    }
    return known.get(type(error).__name__, "refused")
