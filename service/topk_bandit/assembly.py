"""One serving process put together: a store, a learner and a gRPC server, from start to drain."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc
from prometheus_client import CollectorRegistry

from topk_bandit.errors import UnavailableError
from topk_bandit.learning.policy import Limits, warm_up
from topk_bandit.rpc.methods import served_methods
from topk_bandit.rpc.server import Server
from topk_bandit.serving.bandits import Bandits
from topk_bandit.serving.learner import Learner
from topk_bandit.serving.observed import ObservedStore
from topk_bandit.serving.recommender import Recommender
from topk_bandit.store.redis import RedisStore
from topk_bandit.telemetry import Metrics, share_metrics
from topk_bandit.worker import READY

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topk_bandit.settings import Settings
    from topk_bandit.worker import Post

__all__ = ["serve"]

_log = logging.getLogger(__name__)

DECISION_THREADS = 2


async def serve(settings: Settings, post: Post, line: Connection) -> None:
    """Serve at `post` until something is heard on `line`, or it breaks."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_reader(line.fileno(), stopped.set)
    async with AsyncExitStack() as stack:
        deciders = stack.enter_context(ThreadPoolExecutor(DECISION_THREADS, thread_name_prefix="decide"))
        learners = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="learn"))
        await loop.run_in_executor(deciders, warm_up)
        share_metrics(post.metrics_folder, worker=post.number)
        metrics = Metrics(CollectorRegistry(), methods=served_methods())
        store = ObservedStore(await _connected(settings, post.store_url), metrics)
        stack.push_async_callback(store.close)
        learner = Learner(store, learners, limits=Limits(), hooks=metrics, clock_ms=_clock_ms)
        stack.push_async_callback(learner.stop)
        learner.start()
        server = _server(settings, post, store, learner, deciders, metrics)
        await server.start()
        line.send(READY)
        await stopped.wait()
        loop.remove_reader(line.fileno())
        await server.drain(settings.drain_seconds)


async def _connected(settings: Settings, url: str) -> RedisStore:
    """Connect, however long the store is away: a worker that restarts meanwhile must not give up."""
    while True:
        try:
            return await RedisStore.connect(
                url,
                prefix=settings.key_prefix,
                timeout=settings.store_timeout_seconds,
                record_retention_ms=round(settings.record_retention_seconds * 1000),
            )
        except UnavailableError as error:
            _log.warning("waiting for the store: %s", error)
            await asyncio.sleep(error.retry_after)


def _server(
    settings: Settings,
    post: Post,
    store: ObservedStore,
    learner: Learner,
    deciders: ThreadPoolExecutor,
    metrics: Metrics,
) -> Server:
    return Server(
        post.address,
        recommender=Recommender(store, learner, deciders, hooks=metrics, new_id=_new_id),
        bandits=Bandits(
            store,
            learner,
            default_exploration=settings.default_exploration,
            quota=settings.max_bandits_per_tenant,
            new_id=_new_id,
        ),
        hooks=metrics,
        max_in_flight=settings.max_calls_in_flight,
        credentials=_credentials(settings),
        so_reuseport=True,
        max_message_bytes=settings.max_message_bytes,
    )


def _credentials(settings: Settings) -> grpc.ServerCredentials | None:
    if settings.tls_private_key is None or settings.tls_certificate is None:
        return None
    pair = (settings.tls_private_key.read_bytes(), settings.tls_certificate.read_bytes())
    return grpc.ssl_server_credentials([pair])


def _new_id() -> str:
    return uuid.uuid4().hex


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
