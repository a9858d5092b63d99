"""A fair queue of requests: tenants are served in turn, and requests that have come are taken in before."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FairQueue"]

QUIET_ROUNDS = 8
"""If no request came within so many rounds of the event loop, none waits: gRPC takes some six to take one in."""

TAKING_IN_SHARE = 3.0
"""Requests are taken in for so many times as long at most as the one before computed, however many come. With two the
service could not refuse what is too much soon enough, and with four it did so no sooner."""

ALONE_SECONDS = 0.001
"""A request begins at once if so many seconds have passed since the last one began to leave the event loop alone."""


class FairQueue:
    """A fair queue of requests: they begin one after the other, and others are taken in between.

    gRPC takes in the calls of a method one by one, and needs several rounds of the event loop for each. A request may
    compute for two milliseconds within one round. So if each began as it came, requests would be taken in no sooner
    than others are answered: with more of them than can be answered they would wait where nobody can refuse them, until
    their clients give up. Therefore, while requests come one upon the other, the next one begins once no other has come
    for a few rounds.

    Each tenant has a queue of its own, and the queues are served in turn (round robin: Nagle, 1987). So others wait for
    one request of a tenant that sends many, and not for all of them.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._arrivals = 0
        self._begun_at = 0.0
        self._left_alone_at = -math.inf
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._serving: asyncio.Task[None] | None = None

    def note_arrival(self) -> None:
        """Note that a request was taken in, whether it is refused or not."""
        self._arrivals += 1

    async def wait(self, tenant: str = "") -> None:
        """Return when a request of a tenant may begin: at once, unless others wait or one has begun just before.

        A request that is cancelled leaves the queue.
        """
        loop = asyncio.get_running_loop()
        if self._serving is None and self._clock() - self._left_alone_at >= ALONE_SECONDS:
            self._note_begin()
            loop.call_soon(self._note_end)
            return
        permit = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(permit)
        if self._serving is None:
            self._serving = loop.create_task(self._serve())
        await permit
        self._begun_at = self._clock()  # what others computed since the permit was given does not count

    def _note_begin(self) -> None:
        self._begun_at, self._left_alone_at = self._clock(), math.inf

    def _note_end(self) -> None:
        """Note that a request has computed what it could: this runs after it, in the same round or the next."""
        self._left_alone_at = self._clock()

    async def _serve(self) -> None:
        while self._is_waited():
            await self._take_in_requests()
            if self._is_waited():
                self._note_begin()
                self._pop_first().set_result(None)
                await asyncio.sleep(0)
                self._note_end()
        self._serving = None

    def _pop_first(self) -> asyncio.Future[None]:
        """Return who is next, and put the others of its tenant behind those of all tenants that wait."""
        tenant, queue = self._waiting.popitem(last=False)
        first = queue.popleft()
        if queue:
            self._waiting[tenant] = queue
        return first

    def _is_waited(self) -> bool:
        """Return whether a request waits; those that were cancelled are dropped from the queue."""
        while self._waiting:
            tenant, queue = next(iter(self._waiting.items()))
            while queue and queue[0].done():
                queue.popleft()
            if queue:
                return True
            del self._waiting[tenant]
        return False

    async def _take_in_requests(self) -> None:
        await asyncio.sleep(0)  # the request before may have begun in this very round
        end = self._clock() + TAKING_IN_SHARE * (self._left_alone_at - self._begun_at)
        seen, quiet = self._arrivals, 0
        while quiet < QUIET_ROUNDS and self._clock() < end:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrivals == seen else 0
            seen = self._arrivals
