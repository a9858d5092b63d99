"""Several requests of one bandit at once: their slates are chosen in a few pieces of work, and recorded together."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from topk_bandit.bandits.choices import choose
from topk_bandit.bandits.stages import count_given
from topk_bandit.bandits.tenant_quotas import A_SLATE
from topk_bandit.domain.errors import (
    ExhaustedError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    TopkBanditError,
    UnavailableError,
)
from topk_bandit.store.log import NewSlate, RecordOutcome, RecordStatus
from topk_bandit.store.visits import visitor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.choices import ChosenSlate
    from topk_bandit.bandits.model import Model, OddFeatures
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks
    from topk_bandit.domain.slates import Recommendation, RecommendationRequest
    from topk_bandit.store.log import Store

__all__ = ["Alone", "Asked", "Batches"]

CHOSEN_AT_ONCE = 10
"""So many slates of a batch are chosen in one piece of work: other calls that wait for a thread wait for no more."""


class Asked(NamedTuple):
    """One of several requests; see `Recommender.recommend`."""

    request: RecommendationRequest
    min_model_version: int = 0
    strict_candidates: bool = False


class Alone(Protocol):
    """What a batch asks of `topk_bandit.bandits.recommender.Recommender`, which answers requests one by one."""

    async def recommend(
        self, name: BanditName, request: RecommendationRequest, *, min_model_version: int, strict_candidates: bool
    ) -> Recommendation:
        """Recommend a slate."""

    async def find_repeated(
        self, name: BanditName, request: RecommendationRequest, model: Model
    ) -> Recommendation | None:
        """Return what a request was answered with before, None if it was not."""

    async def give_out(
        self,
        name: BanditName,
        request: RecommendationRequest,
        outcome: RecordOutcome,
        recommendation: Recommendation,
        odd: OddFeatures,
    ) -> Recommendation:
        """Return what a request is answered with once it is recorded, and report it to the hooks."""

    def complete(self, request: RecommendationRequest, model: Model) -> RecommendationRequest:
        """Fill in what the caller may leave out, and read the features as the model's schema has them."""

    def is_set_aside(self, name: BanditName, request: RecommendationRequest, model: Model) -> bool:
        """Return whether the slate of a request is one that the model does not learn."""


class Batches:
    """Answers several requests together, and by itself each of which anything is not as usual.

    Parameters
    ----------
    alone
        Answers one request.
    store, models, executor, quotas, hooks
        As of it.
    """

    def __init__(
        self,
        alone: Alone,
        store: Store,
        models: ModelCache,
        executor: Executor,
        *,
        quotas: TenantQuotas,
        hooks: Hooks,
    ) -> None:
        self._alone = alone
        self._store = store
        self._models = models
        self._executor = executor
        self._quotas = quotas
        self._hooks = hooks

    async def recommend(
        self, name: BanditName, asked: Sequence[Asked], *, time_left: Callable[[], float | None]
    ) -> Sequence[Recommendation | Exception]:
        """Do what `Recommender.recommend` does for each of one or more; return what became of each, or its error.

        Slates are chosen away from the event loop and recorded together. One of which anything is not as usual is asked
        for by itself: a request that is repeated or refused, a change of items meanwhile, a store that is away, and a
        visitor whose slates are counted, as each counts for the next.

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
        completed = [one._replace(request=self._alone.complete(one.request, model)) for one in asked]
        outcomes = await self._answer_over_quota(name, [one.request for one in completed], model)
        usual = [
            place
            for place, one in enumerate(completed)
            if place not in outcomes
            and one.min_model_version <= model.version
            and not visitor_of(model.incarnation, model.settings, one.request)
        ]
        chosen: dict[int, ChosenSlate] = {}
        counted = model
        for first in range(0, len(usual), CHOSEN_AT_ONCE):
            if time_left() == 0.0:
                break
            part = {place: completed[place] for place in usual[first : first + CHOSEN_AT_ONCE]}
            choosing = partial(self._choose_each, counted, part)
            counted, found = await asyncio.get_running_loop().run_in_executor(self._executor, choosing)
            chosen |= found
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
                    outcomes[place] = await self._alone.find_repeated(name, request, model) or refusal
                except TopkBanditError as error:
                    outcomes[place] = error
        return outcomes

    def _choose_each(self, model: Model, part: Mapping[int, Asked]) -> tuple[Model, dict[int, ChosenSlate]]:
        """Choose slates, and return the model that counts them, too; those that the model refuses are left out."""
        chosen: dict[int, ChosenSlate] = {}
        for place, one in part.items():
            start = time.perf_counter()
            with suppress(NotFoundError, NotReadyError, InvalidArgumentError, ExhaustedError):
                chosen[place] = choose(model, one.request, strict_candidates=one.strict_candidates)
                self._hooks.decided(chosen[place].recommendation, time.perf_counter() - start)
                model = count_given(model, chosen[place].recommendation)
        return model, chosen

    async def _record_all(
        self,
        name: BanditName,
        requests: Mapping[int, RecommendationRequest],
        chosen: Mapping[int, ChosenSlate],
        model: Model,
    ) -> dict[int, Recommendation | Exception]:
        """Record slates together and return what became of them; those that were not recorded now are left out."""
        slates = [
            NewSlate(request, chosen[place].recommendation, self._alone.is_set_aside(name, request, model))
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
                outcomes[place] = await self._alone.give_out(
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
            return await self._alone.recommend(
                name, request, min_model_version=version, strict_candidates=strict_candidates
            )
        except Exception as error:  # noqa: BLE001 - it stops no other
            return error
