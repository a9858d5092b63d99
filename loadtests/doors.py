"""What a Recommend costs a worker beside the decision and the store: over gRPC, and over HTTP as binary and as JSON."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import multiprocessing
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grpc
import numpy as np

from figures import Bench, Figure, Outcome, mean_with_error, ratio_with_error
from served import BANDIT, CALL_SECONDS, TENANT, Storefront
from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.log_retention import AS_SNAPSHOTS_ALLOW
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.client import Client
from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.operators import WorkerStatus
from topk_bandit.domain.quotas import Quotas
from topk_bandit.learning.limits import Limits
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.worker import SWITCH_SECONDS
from topk_bandit.rpc.access import Access
from topk_bandit.rpc.converters import recommendation_request
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.server import Server, served_methods
from topk_bandit.rpc.services import Services
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.timing import time_calls
from topk_bandit.store.whole_logs import WholeLogs
from topk_bandit.studies.administration import Studies
from topk_bandit.studies.designer import Designer
from topk_bandit.v1.recommender_service_pb2 import RecommendRequest, RecommendResponse
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from figures import Report

__all__ = ["doors"]

OBSERVATIONS, CALLS, TURNS = 60, 25, 40
WARM_UP_TURNS = 2
SETTLING_SECONDS = 0.05
MESSAGE_BYTES, CONNECTIONS, IN_FLIGHT = 8 << 20, 100, 64
ANY_PORT = "127.0.0.1:0"
NAME = f"tenants/{TENANT}/bandits/{BANDIT}"
PATH = "/topk_bandit.v1.RecommenderService/Recommend"
DIRECT, GRPC, BINARY, AS_JSON = "decision and store", "gRPC", "HTTP, binary", "HTTP, JSON"
DOORS = (GRPC, BINARY, AS_JSON)
KEYS = {GRPC: "grpc", BINARY: "binary", AS_JSON: "json"}


class _Job(NamedTuple):
    observations: int
    calls: int
    turns: int


def doors(bench: Bench) -> Outcome:
    """Measure the processor time of a process that is put together as a worker is, and called from another one.

    The same bandit is asked in turns without any door, which is the decision and the store, and through each.
    """
    job = _Job(OBSERVATIONS, CALLS, bench.scaled(TURNS, 3))
    seconds = bench.alone(_measure, job)
    return Outcome(
        _figures(seconds),
        {"n": 50, "k": 6, "C": 5, "observations": job.observations, "turns": job.turns, "calls_a_turn": job.calls}
        | {"callers": 1, "cpu": "of the process, learning in the background included", "store": "embedded"},
    )


def _figures(seconds: dict[str, list[float]]) -> list[Figure]:
    direct = np.array(seconds[DIRECT])
    beside = {door: np.array(seconds[door]) - direct for door in DOORS}
    return [
        mean_with_error("direct_cpu", "CPU of the decision and the store", direct * 1e3, unit="ms"),
        *(mean_with_error(f"{KEYS[door]}_cpu", f"beside it, {door}", beside[door] * 1e3, unit="ms") for door in DOORS),
        *(
            ratio_with_error(f"{KEYS[door]}_ratio", f"{door} / gRPC", beside[door], beside[GRPC])
            for door in (BINARY, AS_JSON)
        ),
    ]


def _measure(job: _Job, report: Report) -> dict[str, list[float]]:
    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as folder:
        store = EmbeddedStore.start(Path(folder) / "store")
        try:
            return asyncio.run(_served(job, store.url, Path(folder), report))
        finally:
            store.stop()


async def _served(job: _Job, url: str, folder: Path, report: Report) -> dict[str, list[float]]:
    async with AsyncExitStack() as stack:
        metrics = Metrics.of_worker(1, folder, methods=served_methods())
        recommender, services = await _assembled(url, metrics, stack)
        server = Server(ANY_PORT, services=services, max_message_bytes=MESSAGE_BYTES, max_connections=CONNECTIONS)
        http_server = HttpServer(
            ANY_PORT, services=services, max_message_bytes=MESSAGE_BYTES, max_connections=CONNECTIONS
        )
        ports = await server.start(), await http_server.start()
        stack.push_async_callback(server.drain, 1.0)
        stack.push_async_callback(http_server.drain, 1.0)
        caller = _Caller.start(*ports, stack)
        contexts = await caller.ask("fill", job.observations)
        gc.collect()
        gc.freeze()
        return await _in_turns(job, recommender, caller, contexts, report)


async def _assembled(url: str, metrics: Metrics, stack: AsyncExitStack) -> tuple[Recommender, Services]:
    """Put together what a worker has, with its threads."""
    threads = stack.enter_context(ThreadPoolExecutor(2))
    connected = await RedisStore.connect(url)
    stack.push_async_callback(connected.close)
    store, study_store = time_calls(connected, metrics), time_calls(connected.studies(), metrics)
    models = ModelCache(
        store,
        threads,
        limits=Limits(),
        hooks=metrics,
        clock_ms=_clock_ms,
        worker_id=_new_id(),
        retention=AS_SNAPSHOTS_ALLOW,
    )
    stack.push_async_callback(models.stop)
    models.start()
    designer = Designer(study_store, threads, threads=1, hooks=metrics, owner=_new_id(), new_reference=_new_id)
    quotas = Quotas()
    in_store = TenantQuotas(store, quotas)
    stack.push_async_callback(in_store.stop)
    studies = Studies(
        study_store,
        designer,
        threads,
        hooks=metrics,
        quotas=quotas,
        new_id=_new_id,
        clock_ms=_clock_ms,
        most_bytes=1 << 20,
    )
    exploration = Exploration(ConstantBeta(1.0), 0.1)
    logs = WholeLogs(store, None)
    bandits = Bandits(
        store, models, logs=logs, default_exploration=exploration, quotas=in_store, new_id=_new_id, priors=studies
    )
    operators = Operators(store, models, threads, logs=logs, quotas=in_store, clock_ms=_clock_ms, worker=_status)
    recommender = Recommender(store, models, threads, quotas=in_store, hooks=metrics, new_id=_new_id)
    return recommender, Services(
        recommender,
        bandits,
        studies,
        operators,
        hooks=metrics,
        access=Access(None),
        quotas=quotas,
        max_in_flight=IN_FLIGHT,
    )


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _status() -> WorkerStatus:
    return WorkerStatus("bench", "bench", _clock_ms(), 1.0, ())


def _new_id() -> str:
    return uuid.uuid4().hex


async def _in_turns(
    job: _Job, recommender: Recommender, caller: _Caller, contexts: Sequence[Sequence[float]], report: Report
) -> dict[str, list[float]]:
    """Return the seconds that a call computes, by the door and the turn; the order is another one each time."""
    seconds: dict[str, list[float]] = {way: [] for way in (DIRECT, *DOORS)}
    rng = np.random.default_rng(1)
    for turn in range(WARM_UP_TURNS + job.turns):
        report(turn, WARM_UP_TURNS + job.turns)
        for way in rng.permutation((DIRECT, *DOORS)).tolist():
            start = time.process_time()
            if way == DIRECT:
                await _ask_directly(recommender, contexts, job.calls)
            else:
                await caller.ask(way, job.calls)
            await asyncio.sleep(SETTLING_SECONDS)
            if turn >= WARM_UP_TURNS:
                seconds[way].append((time.process_time() - start) / job.calls)
    return seconds


async def _ask_directly(recommender: Recommender, contexts: Sequence[Sequence[float]], calls: int) -> None:
    for number in range(calls):
        context = contexts[number % len(contexts)]
        name, wanted, _ = recommendation_request(RecommendRequest(bandit=NAME, context=context))
        await recommender.recommend(name, wanted)


class _Caller(NamedTuple):
    """A process that calls when it is asked to."""

    line: Connection

    @classmethod
    def start(cls, grpc_port: int, http_port: int, stack: AsyncExitStack) -> _Caller:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_call, args=(theirs, grpc_port, http_port))
        process.start()
        stack.callback(process.join)
        stack.callback(ours.send, None)
        return cls(ours)

    async def ask(self, what: str, number: int) -> list[list[float]]:
        """Have it do something so often; return the contexts that it asks with."""
        self.line.send((what, number))
        return await asyncio.to_thread(self.line.recv)


def _call(line: Connection, grpc_port: int, http_port: int) -> None:
    """Do what is asked for until there is nothing more."""
    target = f"127.0.0.1:{grpc_port}"
    with Client(target, tenant=TENANT, timeout=CALL_SECONDS) as client, grpc.insecure_channel(target) as channel:
        connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=CALL_SECONDS)
        storefront = Storefront.opened(client, seed=1)
        contexts = storefront.shop.customers.tolist()
        ways = _ways(channel, connection)
        for number in count():
            asked = line.recv()
            if asked is None:
                break
            what, calls = asked
            if what == "fill":
                storefront.fill(calls, lambda _done, _all: None)
            else:
                for call in range(calls):
                    ways[what](contexts[(number + call) % len(contexts)])
            line.send(contexts)
        connection.close()


def _ways(
    channel: grpc.Channel, connection: http.client.HTTPConnection
) -> dict[str, Callable[[Sequence[float]], object]]:
    stub = RecommenderServiceStub(channel)

    def binary(context: Sequence[float]) -> object:
        request = RecommendRequest(bandit=NAME, context=context)
        return RecommendResponse.FromString(_posted(connection, request.SerializeToString(), "application/proto"))

    def as_json(context: Sequence[float]) -> object:
        request = json.dumps({"bandit": NAME, "context": context}).encode()
        return json.loads(_posted(connection, request, "application/json"))

    def over_grpc(context: Sequence[float]) -> object:
        return stub.Recommend(RecommendRequest(bandit=NAME, context=context), timeout=CALL_SECONDS)

    return {GRPC: over_grpc, BINARY: binary, AS_JSON: as_json}


def _posted(connection: http.client.HTTPConnection, body: bytes, kind: str) -> bytes:
    connection.request("POST", PATH, body, {"Content-Type": kind})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {answer[:200]!r}")
    return answer
