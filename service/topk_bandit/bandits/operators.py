"""The use cases of those who operate the service: what it did, and why.

All but two look, and change nothing: a bandit can be taken in, and an event passed over. What takes long is computed on
a thread of its own, so that no slate waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.contents import read_contents
from topk_bandit.bandits.contexts import complete_context
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.explanations import explain, explain_absent, list_top_slates
from topk_bandit.bandits.exports import read_page
from topk_bandit.bandits.model import RegretSums, UnitlessPhase
from topk_bandit.bandits.overviews import Overviews
from topk_bandit.bandits.replays import Replays
from topk_bandit.bandits.restores import Restores
from topk_bandit.bandits.skips import Skips
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError, NotReadyError, UnavailableError
from topk_bandit.domain.operators import Explanation, HistoryPoint, ModelSource, StoreStatus, Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from topk_bandit.bandits.contents import ContentsCursor
    from topk_bandit.bandits.history import Interval
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.operators import (
        BanditOverview,
        EventPage,
        SkippedEvent,
        TenantStats,
        TopSlates,
        WorkerStatus,
    )
    from topk_bandit.domain.rules import Absence, SlateRule
    from topk_bandit.store.line_imports import Lines, Receipt
    from topk_bandit.store.log import BanditRecord, Store
    from topk_bandit.store.whole_logs import WholeLogs

__all__ = ["Operators"]

T = TypeVar("T")

MOST_LONG_CALLS = 4
"""So many calls that replay or rank may be under way in a worker; further ones are refused, since each takes a place
among the calls in flight, which storefronts need."""


class Operators:
    """Answers operators; arguments are well-formed.

    Parameters
    ----------
    executor
        Where logs are replayed and slates ranked.
    logs
        How far back logs can be read.
    quotas
        What tenants may have.
    clock_ms
        The time, by this machine's clock.
    worker
        How this worker is.
    """

    def __init__(
        self,
        store: Store,
        models: ModelCache,
        executor: Executor,
        *,
        logs: WholeLogs,
        quotas: TenantQuotas,
        clock_ms: Callable[[], int],
        worker: Callable[[], WorkerStatus],
    ) -> None:
        self._store = store
        self._logs = logs
        self._models = models
        self._overviews = Overviews(store, models, quotas)
        self._executor = executor
        self._restores = Restores(store, executor, limits=models.limits, quotas=quotas)
        self._replays = Replays(store, executor, limits=models.limits, logs=logs)
        self._skips = Skips(store, models, clock_ms=clock_ms)
        self._clock_ms = clock_ms
        self._worker = worker
        self._long_calls = 0

    async def explain_recommendation(
        self, name: BanditName, recommendation_id: str, absent: tuple[str, ...] = ()
    ) -> Explanation:
        """Return why a recommendation was what it was, by the model that decided, and why it lacks some items.

        Where that model can't be had, the explanation says why, and has what was recorded. The errors are those of
        `Replays.find_recommendation`, and `ExhaustedError` (OPERATOR_CALLS) while too many such calls are under way.
        """
        with self._long_call():
            return await self._explain(name, recommendation_id, absent)

    async def _explain(self, name: BanditName, recommendation_id: str, asked: tuple[str, ...]) -> Explanation:
        incarnation, logged, event = await self._replays.find_recommendation(name, recommendation_id)
        version = event.recommendation.model_version
        model, source = self._models.peek_model(name), ModelSource.LIVE
        # A bandit that was created anew is at the same version once more, and this worker may not have heard of it yet.
        recorded = event.request, event.recommendation, logged.position, logged.at_ms
        if model is None or (model.incarnation, model.version) != (incarnation, version):
            try:
                model = await self._replays.model_at(name, version, incarnation=incarnation)
            except (NotReadyError, CorruptDataError) as error:
                return Explanation(*recorded, ModelSource.TRIMMED, None, problem=str(error))
            source = ModelSource.REPLAYED
        reasons = await self._compute(partial(explain, model, event.request, event.recommendation))
        absent: tuple[Absence, ...] = ()
        if asked:
            absent = await self._compute(partial(explain_absent, model, event.request, event.recommendation, asked))
        return Explanation(*recorded, source, reasons, absent=absent)

    async def list_top_slates(
        self, name: BanditName, context: Context, *, limit: int, proposed: tuple[SlateRule, ...] | None = None
    ) -> TopSlates:
        """Return the slates that the bandit's newest model thinks best at a context, under its rules or proposed ones.

        A context without numbers or features is that of a request without one. The errors are those of
        `topk_bandit.bandits.explanations.list_top_slates`.
        """
        with self._long_call():
            model = await self._models.follow(name)
            asked = complete_context(model.settings, context)
            return await self._compute(partial(list_top_slates, model, asked, limit=limit, proposed=proposed))

    async def list_tenants(self, *, after: str, limit: int) -> Sequence[str]:
        """Return up to `limit` tenants that have bandits or studies and whose id sorts after `after`."""
        return await self._store.list_tenants(after=after, limit=limit)

    async def list_overviews(
        self, tenant: str | None, *, after: BanditName | None, limit: int, containing: str
    ) -> tuple[Sequence[BanditOverview], BanditName | None]:
        """Return bandits at a glance; see `Overviews.of_bandits`."""
        return await self._overviews.of_bandits(tenant, after=after, limit=limit, containing=containing)

    async def tenant_stats(self, tenant: str) -> TenantStats:
        """Return what a tenant uses; see `Overviews.of_tenant`."""
        return await self._overviews.of_tenant(tenant)

    async def service_status(self) -> tuple[WorkerStatus, StoreStatus | None]:
        """Return how this worker is, and how the store is; None while that is away."""
        begun_ms = self._clock_ms()
        try:
            report = await self._store.check()
        except UnavailableError:
            return self._worker(), None
        return self._worker(), StoreStatus(
            report.server,
            report.version,
            report.mode,
            str(report.durability),
            report.problems_between(begun_ms / 1e3, self._clock_ms() / 1e3),
            memory_bytes=report.memory_bytes,
            memory_limit_bytes=report.memory_limit_bytes,
        )

    async def history(self, name: BanditName) -> tuple[HistoryPoint, ...]:
        """Return how a bandit's totals grew, oldest first."""
        model = await self._models.follow(name)
        intervals = model.history.intervals(at_ms=model.last.at_ms, totals=model.totals)
        return tuple(_point(interval, model.unitless) for interval in intervals)

    async def verify(self, name: BanditName) -> Verification:
        """Replay a bandit's log as far as it is left, and compare what it comes to with the live model.

        Raises
        ------
        NotReadyError
            LOG_TRIMMED: no snapshot fits before what is left of the log.
        """
        with self._long_call():
            return await self._verify(name)

    async def _verify(self, name: BanditName) -> Verification:
        live = await self._models.follow(name)
        found = await self._replays.longest_replay(name, live.version, incarnation=live.incarnation)
        if found is None:
            raise NotReadyError("LOG_TRIMMED", f"no snapshot of {name} fits before what is left of its log")
        start, replayed = found
        ours, theirs = await self._compute(lambda: (digests_of(live), digests_of(replayed)))
        return Verification(
            replayed_from=start,
            version=live.version,
            log_digest=ours.log,
            posterior_digest=ours.posterior,
            arithmetic=ours.arithmetic,
            replayed_log_digest=theirs.log,
            replayed_posterior_digest=theirs.posterior,
            replayed_arithmetic=theirs.arithmetic,
            difference=ours.difference(theirs),
        )

    async def export_events(self, name: BanditName, *, start: int, limit: int, incarnation: str) -> EventPage:
        """Return a page of a log; see `topk_bandit.bandits.exports.read_page`."""
        return await read_page(self._logs, name, start=start, limit=limit, incarnation=incarnation)

    async def export_state(
        self, name: BanditName, place: ContentsCursor | None
    ) -> tuple[list[str], ContentsCursor | None]:
        """Return a page of what there is beside a log; see `topk_bandit.bandits.contents.read_contents`."""
        return await read_contents(self._store, name, place)

    async def import_events(self, name: BanditName, sent: Lines) -> Receipt[BanditRecord]:
        """Take in lines of a bandit; see `Restores.take`."""
        return await self._restores.take(name, sent)

    async def skip_event(self, name: BanditName, position: int, *, reason: str) -> SkippedEvent:
        """Pass over an event that can't be read or folded; see `Skips.skip_event`."""
        return await self._skips.skip_event(name, position, reason=reason)

    @contextmanager
    def _long_call(self) -> Iterator[None]:
        """Count a call that takes long, or refuse it."""
        if self._long_calls >= MOST_LONG_CALLS:
            raise ExhaustedError("OPERATOR_CALLS", f"{MOST_LONG_CALLS} such calls are under way already")
        self._long_calls += 1
        try:
            yield
        finally:
            self._long_calls -= 1

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _point(interval: Interval, unitless: Sequence[UnitlessPhase]) -> HistoryPoint:
    totals = interval.totals
    regrets = RegretSums(totals.regret_bound_sum, totals.estimated_regret_sum).without(unitless)
    return HistoryPoint(
        interval.start_ms,
        interval.end_ms,
        recommendations=int(totals.recommendations),
        explored=int(totals.explored),
        rewarded=int(totals.rewarded),
        expired=int(totals.expired),
        observations=int(totals.observations),
        reward_sum=totals.reward_sum,
        regret_bound_sum=regrets.bound,
        estimated_regret_sum=regrets.estimated,
    )
