"""Tenants and bandits at a glance: what the store has of each, and the models that happen to be in memory.

Nothing is loaded for it: who looks at a thousand bandits must not drive out the models that serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotFoundError
from topk_bandit.domain.operators import BanditOverview, ModelGlance, QuotaUse, TenantStats
from topk_bandit.domain.quotas import UNLIMITED, Quota

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import BanditRecord, Store

__all__ = ["Overviews", "read_records"]

_PAGE = 256


class Overviews:
    """Looks at the bandits of a store, and at those whose models are in memory."""

    def __init__(self, store: Store, models: ModelCache, quotas: TenantQuotas) -> None:
        self._store = store
        self._models = models
        self._quotas = quotas

    async def of_bandits(
        self, tenant: str | None, *, after: BanditName | None, limit: int, containing: str
    ) -> tuple[Sequence[BanditOverview], BanditName | None]:
        """Return up to `limit` bandits in the order of tenant and id, and where to go on; None at the end.

        Parameters
        ----------
        tenant
            None for every tenant.
        after
            Begin after this one.
        containing
            What tenant/bandit contains, whatever the case; up to `limit` bandits are looked at.
        """
        found: list[BanditOverview] = []
        looked, last = 0, after
        async for record in read_records(self._store, tenant=tenant, after=after):
            if looked == limit:
                return found, last
            looked, last = looked + 1, record.name
            if containing.lower() in f"{record.name.tenant}/{record.name.bandit}".lower():
                found.append(_overview(record, self._peek(record)))
        return found, None

    async def of_tenant(self, tenant: str) -> TenantStats:
        """Return what a tenant uses, or raise `NotFoundError` for one that has no bandits."""
        bandits = log_events = pending = late = 0
        glances = []
        async for record in read_records(self._store, tenant=tenant):
            bandits, log_events = bandits + 1, log_events + record.log_position
            pending, late = pending + record.pending, late + record.late_rewards
            if (model := self._peek(record)) is not None:
                glances.append(_glance(model))
        if not bandits:
            raise NotFoundError(f"tenants/{tenant}")
        return TenantStats(
            tenant=tenant,
            bandits=bandits,
            log_events=log_events,
            pending=pending,
            late_rewards=late,
            models=len(glances),
            memory_bytes=sum(glance.memory_bytes for glance in glances),
            recommendations=sum(glance.recommendation_count for glance in glances),
            observations=sum(glance.observation_count for glance in glances),
            quotas=await self._quotas_of(tenant, bandits),
        )

    async def _quotas_of(self, tenant: str, bandits: int) -> tuple[QuotaUse, ...]:
        use = await self._store.measure(tenant)
        used = {Quota.BANDITS: bandits, **{Quota(name): count for name, count in use._asdict().items()}}
        limits = {quota: self._quotas.limit(tenant, quota) for quota in Quota}
        return tuple(
            QuotaUse(quota, None if limit == UNLIMITED else limit, used.get(quota)) for quota, limit in limits.items()
        )

    def _peek(self, record: BanditRecord) -> Model | None:
        """Return the model that is here of just this bandit, not of one that had its name before."""
        model = self._models.peek_model(record.name)
        return model if model is not None and model.incarnation == record.incarnation else None


async def read_records(
    store: Store, *, tenant: str | None = None, after: BanditName | None = None
) -> AsyncIterator[BanditRecord]:
    """Yield the records of a tenant's bandits, or of all, in the order of their names; none of damaged ones."""
    first = "" if after is None else after.bandit
    last = tenant or ("" if after is None else after.tenant)
    if last:
        async for record in _read_of_one(store, last, first):
            yield record
    while tenant is None and (tenants := await store.list_tenants(after=last, limit=_PAGE)):
        for last in tenants:
            async for record in _read_of_one(store, last, ""):
                yield record


async def _read_of_one(store: Store, tenant: str, after: str) -> AsyncIterator[BanditRecord]:
    while records := await store.list_bandits(tenant, after=after, limit=_PAGE):
        for record in records:
            yield record
        after = records[-1].name.bandit


def _overview(record: BanditRecord, model: Model | None) -> BanditOverview:
    return BanditOverview(
        name=record.name,
        created_ms=record.created_ms,
        log_position=record.log_position,
        snapshot_position=record.snapshot_position,
        pending=record.pending,
        late_rewards=record.late_rewards,
        glance=None if model is None else _glance(model),
    )


def _glance(model: Model) -> ModelGlance:
    tally = model.tally
    return ModelGlance(
        model_version=model.version,
        recommendation_count=tally.recommendations,
        observation_count=model.state.observations,
        explored_count=tally.explored,
        mean_reward=model.mean_reward,
        regret_bound_sum=model.regret_sums.bound,
        estimated_regret_sum=model.regret_sums.estimated,
        item_count=model.items.size,
        memory_bytes=model.memory_bytes,
    )
