"""What tenants have in the store, held against their quotas.

A worker measures a tenant's bandits when somebody wants more of what is limited, once a second at most, and less often
if that takes long. So a tenant can have more than its quota by what it gets within that time, and no call but its first
waits. Of items this worker knows at once what it adds. Nothing is measured where nothing is limited.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import QuotaError, UnavailableError
from topk_bandit.domain.quotas import UNLIMITED, Quota, TenantUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.quotas import Quotas
    from topk_bandit.store.log import Store

__all__ = ["A_SLATE", "TenantQuotas"]

_log = logging.getLogger(__name__)

MEASURED_SECONDS = 1.0
MEASURED_SHARE = 0.1
"""At most this share of the time is a tenant measured in."""

A_SLATE: Mapping[Quota, int] = {Quota.OPEN_SLATES: 1, Quota.LOG_BYTES: 1}
"""What a slate adds, at the least."""

_RETRY_SECONDS = {Quota.OPEN_SLATES: 1.0, Quota.LOG_BYTES: 10.0}
"""Slates end and logs are trimmed by themselves; items are retired by their tenant."""


@dataclass(slots=True)
class _Measured:
    """What a tenant had, what this worker has added of items since, and when it is to be measured again."""

    use: TenantUse
    due_at: float
    added: int = 0

    def count_used(self, quota: Quota) -> int:
        found: int = getattr(self.use, quota)
        return found + self.added if quota is Quota.ITEMS else found


class TenantQuotas:
    """Refuses what would give a tenant more than its quota; lives on one event loop.

    Parameters
    ----------
    now
        Seconds, monotonic.
    """

    def __init__(self, store: Store, quotas: Quotas, *, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._quotas = quotas
        self._now = now
        self._measured: dict[str, _Measured] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, float] = {}

    def limit(self, tenant: str, quota: Quota) -> int:
        """Return how much a tenant may have of something."""
        return self._quotas.limit(tenant, quota)

    async def check(self, tenant: str, added: Mapping[Quota, int]) -> None:
        """Let a tenant that exists have more, or raise; what can't be measured, because the store is away, is let.

        Raises
        ------
        QuotaError
            With what is added it would have more than its quota.
        """
        limits = {quota: limit for quota in added if (limit := self.limit(tenant, quota)) < UNLIMITED}
        known = await self._find_measured(tenant) if limits else None
        if known is None:
            return
        refusal = _find_refusal(tenant, known, limits, added)
        if refusal is not None and (task := self._measuring.get(tenant)):
            # The figure is an old one: nobody is refused by it.
            await asyncio.wait([task])
            known = self._measured.get(tenant, known)
            refusal = _find_refusal(tenant, known, limits, added)
        if refusal is not None:
            raise refusal
        known.added += added.get(Quota.ITEMS, 0)

    async def stop(self) -> None:
        """Measure nothing any more."""
        tasks = list(self._measuring.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find_measured(self, tenant: str) -> _Measured | None:
        """Return what is known of a tenant, which is measured anew beside; wait for that only if nothing is known."""
        known = self._measured.get(tenant)
        due_at = max(known.due_at if known else 0.0, self._failed.get(tenant, 0.0))
        if self._now() >= due_at:
            task = self._measuring.get(tenant) or self._begin(tenant)
            if known is None:
                await asyncio.wait([task])
        return self._measured.get(tenant)

    def _begin(self, tenant: str) -> asyncio.Task[None]:
        task = self._measuring[tenant] = asyncio.create_task(
            self._measure(tenant, self._count_added(tenant)), context=Context()
        )
        task.add_done_callback(lambda _: self._measuring.pop(tenant, None))
        return task

    def _count_added(self, tenant: str) -> int:
        known = self._measured.get(tenant)
        return 0 if known is None else known.added

    async def _measure(self, tenant: str, added_before: int) -> None:
        begun = self._now()
        try:
            use = await self._store.measure(tenant)
        except Exception as error:  # noqa: BLE001 - what a tenant may have must not depend on it
            if not isinstance(error, UnavailableError):
                _log.exception("what a tenant has can't be measured", extra={"tenant": tenant})
            self._failed[tenant] = self._now() + MEASURED_SECONDS
            return
        self._failed.pop(tenant, None)
        ended = self._now()
        due_at = ended + max(MEASURED_SECONDS, (ended - begun) / MEASURED_SHARE)
        # What was added meanwhile may have been measured or not: rather twice, until the next time, than never.
        self._measured[tenant] = _Measured(use, due_at, self._count_added(tenant) - added_before)
        if use == TenantUse():  # it has no bandit, and anybody can make up names of tenants
            del self._measured[tenant]


def _find_refusal(
    tenant: str, known: _Measured, limits: Mapping[Quota, int], added: Mapping[Quota, int]
) -> QuotaError | None:
    """Return why a tenant can't have more, None if it can."""
    for quota, limit in limits.items():
        used = known.count_used(quota)
        if added[quota] and used + added[quota] > limit:
            return QuotaError(quota, tenant, limit=limit, used=used, retry_after=_RETRY_SECONDS.get(quota))
    return None
