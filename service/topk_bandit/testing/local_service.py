"""The service of a shop's tests: the real servicers over the store in memory, behind the real guard, on one thread.

What comes of a call depends on the calls before it and on the seed alone. Each call ends once all that it has written
is learned. Time stands still until a test lets it pass.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import grpc

from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.budget import MIB, MemoryBudget
from topk_bandit.bandits.guardrails import Guardrails
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import AsyncClient, BreakerPolicy, Client, RetryPolicy
from topk_bandit.client.connections import AsyncConnections, Connections
from topk_bandit.client.http_calls import CLOSED_HERE, HttpError
from topk_bandit.domain.errors import NotFoundError
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.operators import WorkerStatus
from topk_bandit.domain.quotas import Quotas
from topk_bandit.process.call_threads import CallThreads
from topk_bandit.process.settings import Settings
from topk_bandit.rpc.access import Access
from topk_bandit.rpc.call_context import CallContext
from topk_bandit.rpc.call_ids import call_of
from topk_bandit.rpc.services import Services
from topk_bandit.rpc.unheard_calls import UnheardCalls
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.whole_logs import WholeLogs
from topk_bandit.studies.administration import Studies
from topk_bandit.studies.designer import Designer
from topk_bandit.testing.local_channels import AsyncLocalChannel, LocalChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
    from concurrent.futures import Future
    from typing import Self, Unpack

    from topk_bandit.domain.calls import Call

__all__ = ["AsyncLocalClient", "LocalClient", "LocalOptions", "LocalService", "local_service"]

T = TypeVar("T")

TARGET = "this process"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which each service begins."""

PATIENCE_SECONDS = 120.0
"""So long a call may take. The first calls of a machine compile the learner's loops, whose code is kept on disk."""

_NEVER_AGAIN = RetryPolicy(initial_backoff=2 * PATIENCE_SECONDS, max_backoff=2 * PATIENCE_SECONDS)
"""A call that fails is not sent again: nothing here passes by waiting."""

_STUDY_BYTES = 1 << 26


class LocalOptions(TypedDict, total=False):
    """What a client of a local service may be given; see `topk_bandit.client.Client`."""

    timeout: float
    fallback_timeout: float
    breaker: BreakerPolicy | None
    raise_late: bool


class LocalClient(Client):
    """A client of a service in this process; `LocalService.client` makes it."""

    def __init__(self, service: LocalService, tenant: str, options: LocalOptions) -> None:
        self._service = service
        patient: LocalOptions = {"timeout": PATIENCE_SECONDS, "fallback_timeout": PATIENCE_SECONDS, **options}
        super().__init__(TARGET, tenant=tenant, retry=_NEVER_AGAIN, new_request_id=service.new_id, **patient)

    def _connect(self) -> None:
        opened = partial(LocalChannel, self._service.begin_call)
        self._connections = Connections(opened, hedge_after=None, clock=self._clock)


class AsyncLocalClient(AsyncClient):
    """The asynchronous form of `LocalClient`; `LocalService.async_client` makes it."""

    def __init__(self, service: LocalService, tenant: str, options: LocalOptions) -> None:
        self._service = service
        patient: LocalOptions = {"timeout": PATIENCE_SECONDS, "fallback_timeout": PATIENCE_SECONDS, **options}
        super().__init__(TARGET, tenant=tenant, retry=_NEVER_AGAIN, new_request_id=service.new_id, **patient)

    def _connect(self) -> None:
        opened = partial(AsyncLocalChannel, self._service.begin_call)
        self._connections = AsyncConnections(opened, hedge_after=None, clock=self._clock)


class LocalService:
    """A service in this process; `local_service` makes it.

    Clients of any threads and event loops may call it at once.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed, self._numbers = seed, count()
        self._now_ms = round(1000.0 * BEGIN.timestamp())
        self._is_away = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="topk-bandit-local", daemon=True)
        self._parts = AsyncExitStack()
        self._thread.start()
        try:
            self._run(self._open())
        except BaseException:
            self._end_loop()
            raise

    def client(self, tenant: str = "shop", **options: Unpack[LocalOptions]) -> LocalClient:
        """Return a client. Its calls wait long, so that a test does not depend on how fast the machine is."""
        return LocalClient(self, tenant, options)

    def async_client(self, tenant: str = "shop", **options: Unpack[LocalOptions]) -> AsyncLocalClient:
        """Return an asynchronous client; call this inside the event loop that the client is used on."""
        return AsyncLocalClient(self, tenant, options)

    @property
    def now(self) -> datetime:
        """The service's time."""
        return datetime.fromtimestamp(self._now_ms / 1000.0, UTC)

    def let_pass(self, span: timedelta) -> None:
        """Let time pass: when this returns, waits for rewards that are over by then have ended, and guardrails looked.

        Raises
        ------
        ValueError
            The span is negative.
        """
        if span < timedelta():
            raise ValueError(f"span must not be negative, got {span}")
        self._run(self._let_pass(round(span / timedelta(milliseconds=1))))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Have each call fail as Unavailable until the end of the block, as when nothing listens."""
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False

    def close(self) -> None:
        """End the service, its threads and all that it knows. Calls fail from then on."""
        if self._thread.is_alive():
            self._run(self._parts.aclose())
            self._end_loop()

    def new_id(self) -> str:
        """Return the next id that the seed gives, for a request or a bandit's life."""
        return blake2b(f"{self._seed} {next(self._numbers)}".encode(), digest_size=16).hexdigest()

    def begin_call(
        self, path: str, payload: bytes, metadata: tuple[tuple[str, str], ...], seconds: float
    ) -> Future[bytes]:
        """Begin a call; its failure is an `HttpError`, with the values of gRPC's own errors."""
        if not self._thread.is_alive():
            raise HttpError(grpc.StatusCode.CANCELLED, CLOSED_HERE)
        if self._is_away:
            raise HttpError(grpc.StatusCode.UNAVAILABLE, "the test has the service away")
        return asyncio.run_coroutine_threadsafe(self._answer(path, payload, metadata, seconds), self._loop)

    async def _answer(self, path: str, payload: bytes, metadata: tuple[tuple[str, str], ...], seconds: float) -> bytes:
        context = CallContext(time.monotonic() + seconds, metadata, clock=time.monotonic)
        try:
            async with asyncio.timeout(seconds):
                return await self._methods[path](payload, context, call_of(metadata))
        except grpc.aio.AbortError:
            raise HttpError(context.code(), context.status.message, context.status) from None
        except TimeoutError:
            raise HttpError(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is up") from None
        finally:
            await self._learn()

    async def _open(self) -> None:
        """Put together what a worker of the service has, as `topk_bandit.process.assembly` does."""
        parts, settings, clock_ms = self._parts, Settings(), lambda: self._now_ms
        threads = parts.enter_context(CallThreads(1, thread_name_prefix="topk-bandit-local"))
        store, study_store = MemoryStore(clock_ms=clock_ms), MemoryStudies(clock_ms=clock_ms)
        parts.push_async_callback(store.close)
        hooks, quotas, exploration = Hooks(), Quotas(), settings.default_exploration
        self._store = store
        budget = MemoryBudget(model_bytes=settings.bandit_memory_mib * MIB)
        limits = budget.limits()
        self._models = models = ModelCache(
            store,
            threads,
            limits=limits,
            hooks=hooks,
            clock_ms=clock_ms,
            worker_id=self.new_id(),
            budget=budget,
            retention=AS_SNAPSHOTS_ALLOW,
        )
        logs = WholeLogs(store, None)
        designer = Designer(
            study_store, threads, threads=1, hooks=hooks, owner=self.new_id(), new_reference=self.new_id
        )
        for one in (models, designer):
            parts.push_async_callback(one.stop)
            one.start()
        in_store = TenantQuotas(store, quotas)
        parts.push_async_callback(in_store.stop)
        studies = Studies(
            study_store,
            designer,
            threads,
            hooks=hooks,
            quotas=quotas,
            new_id=self.new_id,
            most_bytes=_STUDY_BYTES,
            clock_ms=clock_ms,
        )
        bandits = Bandits(
            store,
            models,
            logs=logs,
            default_exploration=exploration,
            quotas=in_store,
            new_id=self.new_id,
            priors=studies,
        )
        self._guardrails = Guardrails(models, bandits, hooks=hooks)
        services = Services(
            Recommender(store, models, threads, quotas=in_store, hooks=hooks, new_id=self.new_id),
            bandits,
            studies,
            Operators(store, models, threads, logs=logs, quotas=in_store, clock_ms=clock_ms, worker=self._status),
            hooks=UnheardCalls(),
            access=Access(None, serves_links=True),
            quotas=quotas,
            max_in_flight=settings.max_calls_in_flight,
        )
        self._methods: Mapping[str, Callable[[bytes, Any, Call], Awaitable[bytes]]] = {
            path: services.guard.guard_method(path, handler).call for path, handler in services.handlers().items()
        }

    def _status(self) -> WorkerStatus:
        return WorkerStatus("", TARGET, round(1000.0 * BEGIN.timestamp()), 0.0, ())

    async def _let_pass(self, span_ms: int) -> None:
        self._now_ms += span_ms
        async for name in self._store.find_overdue():
            await self._models.expire(name)
        await self._learn()
        await self._guardrails.go_round()

    async def _learn(self) -> None:
        """Fold the logs to their ends."""
        for name in self._models.find_own():
            with suppress(NotFoundError):  # it was deleted
                await self._models.follow(name)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def local_service(*, seed: int = 0) -> LocalService:
    """Start the real service in this process, with an empty store in memory; use it in a ``with`` statement.

    Parameters
    ----------
    seed
        The same calls with the same seed are given the same slates.
    """
    return LocalService(seed=seed)
