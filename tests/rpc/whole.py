"""The wire over the real use cases and any store, as one worker has them."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tests.bandits.harness import Notebook, worker_status
from tests.rpc.harness import Ledger
from tests.rpc.studies import studies_of
from tests.waiting import PATIENCE

from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import AsyncClient
from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.learning.limits import Limits
from topk_bandit.rpc.access import Access
from topk_bandit.rpc.server import Server
from topk_bandit.rpc.services import Services
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from topk_bandit.client import RetryPolicy
    from topk_bandit.store.cold_log import ColdLog
    from topk_bandit.store.log import Store

__all__ = ["served"]

FEW = Quotas({Quota.BANDITS: 2})


@asynccontextmanager
async def served(
    store: Store,
    *,
    follows: bool = True,
    quotas: Quotas = FEW,
    retry: RetryPolicy | None = None,
    worker: str = "one",
    cold: ColdLog | None = None,
) -> AsyncIterator[AsyncClient]:
    """Serve a store until the end of the block, and give a client.

    Without `follows` logs are read only when asked. Whatever is drawn depends on ids, which begin with the worker's
    name and are counted: of several workers on the same data each has a name of its own.
    """
    births = itertools.count()

    def new_id() -> str:
        return f"{worker}-{next(births)}"

    async with AsyncExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(1))
        models = ModelCache(
            store,
            executor,
            limits=Limits(),
            hooks=Hooks(),
            clock_ms=lambda: time.time_ns() // 1_000_000,
            worker_id=new_id(),
            retention=AS_SNAPSHOTS_ALLOW,
            look_seconds=1.0 if follows else 600.0,
        )
        stack.push_async_callback(models.stop)
        if follows:
            models.start()
        in_store = TenantQuotas(store, quotas)
        stack.push_async_callback(in_store.stop)
        services = Services(
            Recommender(store, models, executor, quotas=in_store, hooks=Hooks(), new_id=new_id),
            Bandits(
                store,
                models,
                logs=WholeLogs(store, cold),
                default_exploration=Exploration(ConstantBeta(1.0), 0.1),
                quotas=in_store,
                new_id=new_id,
                priors=Notebook(),
            ),
            studies_of(MemoryStudies(clock_ms=lambda: 0), executor)[0],
            Operators(
                store,
                models,
                executor,
                logs=WholeLogs(store, cold),
                quotas=in_store,
                clock_ms=lambda: 0,
                worker=worker_status,
            ),
            hooks=Ledger(),
            access=Access(None),
            quotas=quotas,
            max_in_flight=64,
        )
        server = Server("127.0.0.1:0", services=services, max_message_bytes=8 * 1024 * 1024, max_connections=1000)
        port = await server.start()
        stack.push_async_callback(server.drain, PATIENCE)
        yield await stack.enter_async_context(
            AsyncClient(
                f"127.0.0.1:{port}",
                tenant="acme",
                timeout=PATIENCE,
                retry=retry,
                new_request_id=lambda: f"asked-{new_id()}",
            )
        )
