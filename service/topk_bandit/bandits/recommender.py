"""The hot path: recommend slates and take in their rewards.

Every slate with an id is in the log, and was chosen from a model that knew the newest items. A request id that is sent
again gets the slate that it got before. While the store is away, slates are given out marked as degraded, with their id
if they may be recorded. A call waits for the log only while there is no model, after a change of items, if the model
refuses, or if it asks for a newer one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.bandits.batches import Batches
from topk_bandit.bandits.choices import ChosenSlate, choose, is_short, recommendation_id_of
from topk_bandit.bandits.contexts import complete_context, known_context
from topk_bandit.bandits.model import OddFeatures
from topk_bandit.bandits.showable import find_broken_rule, is_quickly_checked
from topk_bandit.bandits.slate_rates import is_set_aside
from topk_bandit.bandits.tenant_quotas import A_SLATE
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
from topk_bandit.domain.slates import NOTHING_NAMED, Recommendation, RecommendationRequest, Reward
from topk_bandit.store.log import Correctable, RecordOutcome, RecordStatus
from topk_bandit.store.visits import Visits, find_reached, frequencies_of, visitor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.batches import Asked
    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.slates import ActivationReceipt, RewardReceipt
    from topk_bandit.store.log import Store

__all__ = ["Recommender"]

DECISIONS_PER_CALL = 8
"""How often a call decides again because items were changed meanwhile, before it gives up."""

CORRECTIONS_PER_CALL = 16
"""How often a correction looks at the model again because the log has grown meanwhile, before it gives up."""


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
        self._batches = Batches(self, store, models, executor, quotas=quotas, hooks=hooks)

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
        request = self.complete(request, model)
        try:
            await self._quotas.check(name.tenant, A_SLATE)
        except QuotaError:
            repeated = await self.find_repeated(name, request, await self._models.follow(name))
            if repeated is None:
                raise
            return repeated
        for _ in range(DECISIONS_PER_CALL):
            visits = await self._find_visits(name, request, model)
            if model.version < min_model_version:
                model = await self._models.catch_up(name, min_model_version)
            if model.version < min_model_version:
                return await self._repeat(name, request, model, min_model_version)
            request, choice = await self._decide(name, request, model, visits, strict_candidates=strict_candidates)
            recommendation, odd = choice
            try:
                outcome = await self._record(name, request, recommendation, model, visits)
            except (UnavailableError, CorruptDataError) as error:
                # The watch over damage names what is corrupt; a page has a slate all the same.
                is_unrecorded = error is visits or isinstance(error, CorruptDataError) or error.nothing_sent
                newest = self._models.peek_model(name)
                if newest is None or _has_same_slates(newest, model):
                    return self._degrade(name, recommendation, is_unrecorded=is_unrecorded)
                if not is_unrecorded:  # this slate may be recorded, and another one can't have its id
                    raise
                model = newest
                continue
            if outcome.recommendation is not None:
                return await self.give_out(name, request, outcome, outcome.recommendation, odd)
            model = await self._models.follow(name)
        raise UnavailableError(f"the items and rules of {name} change faster than a slate can be chosen")

    async def recommend_all(
        self, name: BanditName, asked: Sequence[Asked], *, time_left: Callable[[], float | None] = lambda: None
    ) -> Sequence[Recommendation | Exception]:
        """Do what `recommend` does for each of one or more; see `topk_bandit.bandits.batches.Batches.recommend`."""
        return await self._batches.recommend(name, asked, time_left=time_left)

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

    def complete(self, request: RecommendationRequest, model: Model) -> RecommendationRequest:
        """Fill in what the caller may leave out, and read the features as the model's schema has them."""
        asked = known_context(model.settings, request.context) if request.known_features_only else request.context
        context = complete_context(model.settings, asked)
        return replace(request, request_id=request.request_id or self._new_id(), context=context)

    async def _find_visits(
        self, name: BanditName, request: RecommendationRequest, model: Model
    ) -> Visits | TopkBanditError | None:
        """Return what the visitor saw lately, where rules count it, or why that is not known; None where none does."""
        visitor = visitor_of(model.incarnation, model.settings, request)
        if not visitor:
            return None
        try:
            return await self._store.find_visits(name, visitor)
        except (UnavailableError, CorruptDataError) as error:
            return error
        except NotFoundError:
            await self._models.confirm_gone(name)
            raise

    async def _decide(
        self,
        name: BanditName,
        request: RecommendationRequest,
        model: Model,
        visits: Visits | TopkBanditError | None,
        *,
        strict_candidates: bool,
    ) -> tuple[RecommendationRequest, ChosenSlate]:
        """Choose a slate; if the model refuses, find the one given out before, or choose with the newest model.

        The request comes back, too, as that model's schema reads it.
        """
        try:
            return await self._choose(request, model, visits, strict_candidates=strict_candidates)
        except (NotFoundError, NotReadyError, InvalidArgumentError, ExhaustedError):
            newest = await self._models.follow(name)
            request = self.complete(request, newest)
            repeated = await self.find_repeated(name, request, newest)
            if repeated is not None:
                return request, ChosenSlate(repeated, OddFeatures(0, 0))
            try:
                return await self._choose(request, newest, visits, strict_candidates=strict_candidates)
            except NotReadyError as error:
                if error.reason == "RULES_CLASH":
                    self._hooks.rules_clashed()
                raise

    async def _repeat(
        self, name: BanditName, request: RecommendationRequest, model: Model, min_model_version: int
    ) -> Recommendation:
        """Return what the request was answered with before; refuse a new one, since the log does not go so far."""
        repeated = await self.find_repeated(name, request, model)
        if repeated is None:
            raise NotReadyError(
                "MODEL_VERSION_AHEAD", f"the log ends at {model.version}, before min_model_version {min_model_version}"
            )
        return repeated

    async def find_repeated(
        self, name: BanditName, request: RecommendationRequest, model: Model
    ) -> Recommendation | None:
        """Return what a request was answered with before, None if it was not.

        The errors ITEM_GONE, RULES_CHANGED and SLATE_GONE are those of `recommend`.
        """
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
        if model is not None and await self._find_change(model, request, repeated) is None:
            return repeated
        change = await self._find_change(await self._models.follow(name), request, repeated)
        if change is not None:
            raise change
        return repeated

    async def _find_change(
        self, model: Model, request: RecommendationRequest, repeated: Recommendation
    ) -> NotReadyError | None:
        """Return why a slate of before can't be shown any more, None if it can."""
        for item_id in model.items.find_hidden(repeated.slate):
            problem = f"item {item_id[:128]!r} of its slate can't be shown any more; ask with another id"
            return NotReadyError("ITEM_GONE", problem)
        check = partial(find_broken_rule, model, request, repeated)
        if is_quickly_checked(model, request):
            broken = check()
        else:
            broken = await asyncio.get_running_loop().run_in_executor(self._executor, check)
        if broken is None:
            return None
        problem = f"its slate breaks a rule by now, {describe_rule(broken)}; ask with another id"
        return NotReadyError("RULES_CHANGED", problem)

    async def _choose(
        self,
        request: RecommendationRequest,
        model: Model,
        visits: Visits | TopkBanditError | None,
        *,
        strict_candidates: bool,
    ) -> tuple[RecommendationRequest, ChosenSlate]:
        """Choose a slate, and return the request with what its visitor has seen often enough."""
        start = time.perf_counter()
        request, uncounted = _count(request, model, visits)
        work = partial(choose, model, request, strict_candidates=strict_candidates)
        if is_short(model, request):
            choice = work()
        else:
            choice = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        given = choice.recommendation
        if uncounted:
            given = replace(given, relaxed=tuple(dict.fromkeys([*given.relaxed, *uncounted])))
        self._hooks.decided(given, time.perf_counter() - start)
        return request, choice._replace(recommendation=given)

    async def _record(
        self,
        name: BanditName,
        request: RecommendationRequest,
        recommendation: Recommendation,
        model: Model,
        visits: Visits | TopkBanditError | None,
    ) -> RecordOutcome:
        if isinstance(visits, TopkBanditError):  # a slate is recorded with all that its visitor saw before, or not
            raise visits
        recorded = self._store.record_recommendation(
            name,
            request,
            recommendation,
            incarnation=model.incarnation,
            items_position=model.items_position,
            rules=model.settings.rules,
            aside=self.is_set_aside(name, request, model),
            visits=visits,
        )
        try:
            return await self._models.take_in(name, recorded)
        except NotFoundError:
            await self._models.confirm_gone(name)
            raise

    def is_set_aside(self, name: BanditName, request: RecommendationRequest, model: Model) -> bool:
        """Return whether the slate of a request is one that the model does not learn."""
        rate, most = self._models.find_slate_rate(name), model.settings.learned_per_second
        return is_set_aside(model.incarnation, request.request_id, rate=rate, most=most)

    async def give_out(
        self,
        name: BanditName,
        request: RecommendationRequest,
        outcome: RecordOutcome,
        recommendation: Recommendation,
        odd: OddFeatures,
    ) -> Recommendation:
        """Return what a request is answered with once it is recorded, and report it to the hooks."""
        if outcome.status is RecordStatus.REPEATED:
            return await self._check_again(name, request, recommendation)
        self._models.note_written(name, outcome.position, recommendation.recommendation_id)
        self._models.note_slate(name, outcome.position)
        self._note_given(name, recommendation)
        self._hooks.encoded(clamped=odd.clamped, unknown=odd.unknown)
        return recommendation

    def _degrade(self, name: BanditName, recommendation: Recommendation, *, is_unrecorded: bool) -> Recommendation:
        """Mark a slate; it keeps its id if it may be recorded, so that a caller can be credited for it."""
        known_id = "" if is_unrecorded else recommendation.recommendation_id
        degraded = replace(recommendation, recommendation_id=known_id, degraded=True)
        self._note_given(name, degraded)
        return degraded

    def _note_given(self, name: BanditName, given: Recommendation) -> None:
        model = self._models.peek_model(name)
        self._hooks.recommended(given, in_reward_units=model is not None and model.has_unit(given))


def _count(
    request: RecommendationRequest, model: Model, visits: Visits | TopkBanditError | None
) -> tuple[RecommendationRequest, tuple[str, ...]]:
    """Return a request with what its visitor has seen often enough, and the rules that nobody counts, in words."""
    if visits is None:
        return request, ()
    rules = frequencies_of(model.settings, request)
    words = tuple(map(describe_rule, rules))
    if isinstance(visits, TopkBanditError):
        return replace(request, reached=()), words
    reached = find_reached(rules, visits, model.items.values_of)
    return replace(request, reached=reached), () if visits.is_counted else words


def _has_same_slates(newest: Model, model: Model) -> bool:
    """Return whether a slate that was chosen with a model may still be shown by the newest one."""
    return (newest.items_position, newest.settings.rules) == (model.items_position, model.settings.rules)


def _name_refusal(error: TopkBanditError) -> str:
    known = {
        "NotFoundError": "not_found",
        "ConflictError": "conflict",
        "InvalidArgumentError": "invalid",
        "UnavailableError": "unavailable",
        "NotDurableError": "unavailable",
    }
    return known.get(type(error).__name__, "refused")
