"""The calls in flight: how many there are, whose they are, and which go on without their callers."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.domain.errors import ExhaustedError, QuotaError, UnavailableError
from topk_bandit.domain.quotas import Quota, Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from topk_bandit.rpc.access import Admission
    from topk_bandit.rpc.failures import Failure

__all__ = ["CallPool", "CallsInFlight", "Place", "no_place"]

_REFUSED_RETRY_SECONDS = 0.1
_SHARED_SECONDS = 60.0
"""So long after calls of two tenants the places count as shared."""


class CallPool(StrEnum):  # texts, since the hash of other enums is computed in Python, some ten times a call
    """Calls of one kind, which share places with each other alone: no flood of requests may keep a reward out."""

    REQUESTS = auto()
    FEEDBACK = auto()

    @property
    def rate(self) -> Quota:
        """The quota that says how many such calls a tenant may send a second."""
        return Quota.REWARDS_PER_SECOND if self is CallPool.FEEDBACK else Quota.CALLS_PER_SECOND


class Place(NamedTuple):
    """Where a call is counted while it is under way: in its pool, and there for its tenant, if that is known."""

    pool: CallPool
    tenant: str = ""


class CallsInFlight:
    """The calls under way, at most `limit` of them in each pool, and none any more once it is closed.

    While several tenants call, none takes more places than it leaves free: so there is one for who has few (dynamic
    thresholds: Choudhury and Hahne, 1998). One alone takes all.

    Parameters
    ----------
    clock
        Seconds, by which tenants have called lately.
    quotas
        How many of them a tenant may have in each pool.
    """

    def __init__(self, *, limit: int, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._quotas = quotas
        self._clock = clock
        self._last_tenant = ""
        self._shared_until = 0.0
        self._closed = False
        self._taken = dict.fromkeys(CallPool, 0)
        # Not a Counter: that one looks new places up in Python, which costs each call half a microsecond.
        self._of_tenants: dict[Place, int] = {}
        self._works: dict[asyncio.Task[bytes | Failure], asyncio.Future[None]] = {}

    def refusal(self, place: Place) -> ExhaustedError | UnavailableError | None:
        """Return why there is no place for another call, None when there is."""
        if self._closed:
            return _shutting_down()
        used = self._of_tenants.get(place, 0)
        if place.tenant:
            limit = self._quotas.limit(place.tenant, Quota.CALLS_IN_FLIGHT)
            if used >= limit:
                soon = _REFUSED_RETRY_SECONDS
                return QuotaError(Quota.CALLS_IN_FLIGHT, place.tenant, limit=limit, used=used, retry_after=soon)
        is_shared, free = self._is_shared_by(place.tenant), self._limit - self._taken[place.pool]
        if free <= 0:
            return no_place(f"{self._limit} such calls are in flight already")
        if is_shared and used >= free:
            return no_place(f"{used} such calls of the tenant are, and what is free is for others")
        return None

    def _is_shared_by(self, tenant: str) -> bool:
        """Return whether another tenant has called lately, and note that this one does."""
        if not tenant:
            return False
        if tenant != self._last_tenant:
            self._shared_until = self._clock() + _SHARED_SECONDS if self._last_tenant else 0.0
            self._last_tenant = tenant
        return self._clock() < self._shared_until

    def take(self, place: Place) -> None:
        """Count a call that begins."""
        self._taken[place.pool] += 1
        self._of_tenants[place] = self._of_tenants.get(place, 0) + 1

    async def run(
        self, work: Coroutine[Any, Any, bytes | Failure], pool: CallPool, admission: Admission, *, to_its_end: bool
    ) -> bytes | Failure | UnavailableError:
        """Return what becomes of `work`, or that it was given up.

        Parameters
        ----------
        admission
            Knows whether it has begun.
        to_its_end
            Whether it goes on, and keeps its place, when the caller is cancelled after it has begun.
        """
        place = Place(pool, admission.tenant)
        loop = asyncio.get_running_loop()
        task, ended = loop.create_task(work), loop.create_future()
        self._works[task] = ended
        self.take(place)
        task.add_done_callback(partial(self._note_end, place))
        try:
            await ended
        except asyncio.CancelledError:
            if not (to_its_end and admission.has_begun):
                task.cancel()
            raise
        if not task.done():
            if not admission.has_begun:
                task.cancel()
            return _shutting_down()
        return task.result()

    def _note_end(self, place: Place, task: asyncio.Task[bytes | Failure]) -> None:
        self._taken[place.pool] -= 1
        self._of_tenants[place] -= 1
        if not self._of_tenants[place]:
            del self._of_tenants[place]
        ended = self._works.pop(task)
        if not ended.done():
            ended.set_result(None)
        elif not task.cancelled():
            task.exception()  # nobody waits for it any more

    def close(self) -> None:
        """Refuse all calls from now on."""
        self._closed = True

    async def finish(self, *, timeout: float) -> None:  # noqa: ASYNC109, the rest is answered after it
        """Wait for the works; after `timeout` seconds answer the callers of those left that they are given up."""
        if self._works:
            await asyncio.wait(set(self._works), timeout=timeout)
        for ended in self._works.values():
            if not ended.done():
                ended.set_result(None)

    async def settle(self, *, timeout: float) -> None:  # noqa: ASYNC109, the rest is cancelled after it
        """Wait for the works that go on without a caller; cancel what is left of them after `timeout` seconds."""
        works = set(self._works)
        if works:
            _, late = await asyncio.wait(works, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def no_place(message: str) -> ExhaustedError:
    """Return the refusal of a call for which there is no place."""
    return ExhaustedError("CALLS_IN_FLIGHT", message, retry_after=_REFUSED_RETRY_SECONDS)


def _shutting_down() -> UnavailableError:
    return UnavailableError("the service is shutting down", retry_after=_REFUSED_RETRY_SECONDS)
