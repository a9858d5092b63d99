"""One serving process put together: a store, a learner, a designer and its servers, from start to drain.

A worker compiles, then connects, and waits for a store that is away as long as it takes. It serves no call before it
has examined the store, and refuses a store that can't keep what it acknowledges. It ends only after its calls have
ended, or their time is up.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import select
import time
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Self

from topk_bandit.bandits.administration import Bandits
from topk_bandit.bandits.budget import MIB, MemoryBudget
from topk_bandit.bandits.cold_writer import ColdEnd, ColdRetention, ColdWriter
from topk_bandit.bandits.guardrails import Guardrails
from topk_bandit.bandits.housekeeping import Housekeeper
from topk_bandit.bandits.log_retention import LogRetention, Retention
from topk_bandit.bandits.model_cache import ModelCache
from topk_bandit.bandits.operators import Operators
from topk_bandit.bandits.recommender import Recommender
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.errors import ConfigurationError, NotPermittedError, UnavailableError
from topk_bandit.domain.operators import WorkerStatus
from topk_bandit.domain.quotas import Quotas
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.learning.warm_up import warm_up, warm_up_rules
from topk_bandit.preferences.warm_up import warm_up as warm_up_studies
from topk_bandit.process import loop_lag
from topk_bandit.process.call_threads import CallThreads
from topk_bandit.process.damage_watch import DamageWatch
from topk_bandit.process.file_watch import FileWatch
from topk_bandit.process.identities_file import read_identities
from topk_bandit.process.keys_file import read_keys
from topk_bandit.process.listeners import read_certificate, read_own_quotas
from topk_bandit.process.machine_memory import memory_bytes, models_bytes
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.servers import Servers
from topk_bandit.process.store_identity import StoreIdentity
from topk_bandit.process.store_watch import StoreWatch
from topk_bandit.process.upgrade_watch import UpgradeWatch
from topk_bandit.process.worker_spec import Compiling, Heartbeat, Outdated, Ready, StoreAt
from topk_bandit.rpc.access import AUDIT_LOGGER, Access, AdmittedElsewhere
from topk_bandit.rpc.peers import Peers
from topk_bandit.rpc.server import served_methods
from topk_bandit.rpc.services import Services
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.timing import time_calls
from topk_bandit.store.whole_logs import WholeLogs
from topk_bandit.studies.administration import Studies
from topk_bandit.studies.designer import Designer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from multiprocessing.connection import Connection
    from pathlib import Path

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.process.latencies import RecentLatencies
    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import FromWorker, ToWorker, WorkerSpec
    from topk_bandit.rpc.tls import ServerCertificate
    from topk_bandit.store.redis.programs import Programs
    from topk_bandit.store.redis.studies import RedisStudies

__all__ = ["serve"]

_log = logging.getLogger(__name__)

DECISION_THREADS = 2
LEARNING_THREADS = 2
"""More than one, so that a bandit whose model comes back does not wait for another's rows to be refitted."""

DESIGN_THREADS = 1
STUDY_THREADS = 2
INSPECTION_THREADS = 1
STUDY_BYTES = 256 * MIB
HEARTBEAT_SECONDS = 1.0
WATCHING_WORKER = 1


async def serve(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Serve until the supervisor, at the other end of `connection`, says stop or is gone.

    Raises
    ------
    TopkBanditError
        The worker can't serve with these settings; the message says why.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        threads = _Threads.start(stack)
        metrics = _metrics(settings, spec, stack)  # the last spans do not wait for threads that may compile
        await _compile(threads.deciding, connection)
        heartbeats = loop.create_task(_send_heartbeats(connection))
        stack.callback(heartbeats.cancel)
        url = await _store_url(connection)
        stopped = asyncio.Event()
        loop.add_reader(connection.fileno(), stopped.set)
        found = await _connect(settings, url, stopped, metrics) if url else None
        if found is None:
            return
        connected, upgrades = found
        stack.push_async_callback(connected.close)
        stack.push_async_callback(upgrades.leave)
        servers, peers, models = _assemble(settings, spec, connected, threads=threads, metrics=metrics, stack=stack)
        upgrades.identity = _identity(spec, upgrades.programs, models, metrics)
        models.look_for_loss, models.ranks_first = upgrades.look, peers.ranks_first
        await upgrades.identity.look(upgrades.programs.store_id)
        # What is loaded by now stays; a full collection over it would stop every call for some 75 ms.
        gc.collect()
        gc.freeze()
        await servers.start()
        await stack.enter_async_context(peers)
        stack.callback(loop.create_task(loop_lag.watch_loop_lag(metrics.note_loop_lag)).cancel)
        if spec.number == WATCHING_WORKER:
            for watch in (StoreWatch(connected, hooks=metrics), DamageWatch(connected, hooks=metrics)):
                stack.callback(loop.create_task(watch.run()).cancel)
        _log.info("ready", extra={"arithmetic": describe_arithmetic()})
        for what_few_need in (warm_up_rules, warm_up_studies):
            loop.run_in_executor(threads.designing, what_few_need)  # and keeps nobody waiting
        _send(connection, Ready(upgrades.identity.known_id))
        await _await_stop(stopped, upgrades, connection)
        loop.remove_reader(connection.fileno())
        await servers.drain(settings.drain_seconds)


async def _await_stop(stopped: asyncio.Event, upgrades: UpgradeWatch, connection: Connection) -> None:
    """Return once the supervisor says stop, or after a report to it that the store's data are for newer programs."""
    stopping, watching = asyncio.create_task(stopped.wait()), asyncio.create_task(upgrades.run())
    await asyncio.wait({stopping, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        _send(connection, Outdated(str(watching.result())))
    for one in (stopping, watching):
        one.cancel()


def _metrics(settings: Settings, spec: WorkerSpec, stack: AsyncExitStack) -> Metrics:
    """Return hooks that count, and that make spans too if traces are asked for."""
    methods, tenants = served_methods(), settings.metrics_tenants
    if not settings.traces:
        return Metrics.of_worker(spec.number, spec.metrics_folder, methods=methods, tenants=tenants)
    from topk_bandit.process.traces import TracingMetrics  # noqa: PLC0415 - of an extra, and not small

    tracing = TracingMetrics.of_worker(spec.number, spec.metrics_folder, methods=methods, tenants=tenants)
    stack.callback(tracing.close)
    return tracing


@dataclass(frozen=True, slots=True)
class _Threads:
    """The threads that a worker computes in, by what they do."""

    deciding: Executor
    learning: Executor
    designing: Executor
    studying: Executor
    inspecting: Executor

    @classmethod
    def start(cls, stack: AsyncExitStack) -> Self:
        def pool(count: int, name: str) -> Executor:
            return stack.enter_context(CallThreads(count, thread_name_prefix=name))

        return cls(
            deciding=pool(DECISION_THREADS, "decide"),
            learning=pool(LEARNING_THREADS, "learn"),
            designing=pool(DESIGN_THREADS, "design"),
            studying=pool(STUDY_THREADS, "study"),
            inspecting=pool(INSPECTION_THREADS, "inspect"),
        )


async def _compile(executor: Executor, connection: Connection) -> None:
    """Compile what serving calls, and send the supervisor how far it is."""

    def report(functions: int, total: int) -> None:
        _send(connection, Compiling(functions, total))

    await asyncio.get_running_loop().run_in_executor(executor, warm_up, report)


def _send(connection: Connection, message: FromWorker) -> None:
    with suppress(OSError):  # the supervisor may be gone by now, which is seen when the pipe is read
        connection.send(message)


async def _send_heartbeats(connection: Connection) -> None:
    """Send a heartbeat each second while this event loop runs; a supervisor that does not read does not hold it up."""
    while True:
        if select.select((), (connection,), (), 0.0)[1]:
            _send(connection, Heartbeat())
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def _store_url(connection: Connection) -> str:
    """Wait until the supervisor says where the store is; return nothing if it says stop or is gone."""
    loop, received = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), received.set)
    await received.wait()
    loop.remove_reader(connection.fileno())
    try:
        message: ToWorker = connection.recv()
    except (EOFError, OSError):
        return ""
    return message.url if isinstance(message, StoreAt) else ""


async def _connect(
    settings: Settings, url: str, stopped: asyncio.Event, metrics: Metrics
) -> tuple[RedisStore, UpgradeWatch] | None:
    """Connect, however long the store is away: a worker that restarts meanwhile must not give up; None once stopped."""
    waits = False
    while not stopped.is_set():
        try:
            connected = await _examine_store(await _open_store(settings, url))
            upgrades = await _note_worker(connected, metrics)
        except NotPermittedError as error:
            raise ConfigurationError(str(error)) from error
        except UnavailableError as error:
            if not waits:
                _log.warning("waiting for the store: %s", error)
            waits = True
            with suppress(TimeoutError):
                async with asyncio.timeout(error.retry_after):
                    await stopped.wait()
        else:
            if waits:
                _log.warning("the store is there")
            return connected, upgrades
    return None


async def _open_store(settings: Settings, url: str) -> RedisStore:
    return await RedisStore.connect(
        url,
        prefix=settings.key_prefix,
        timeout=settings.store_timeout_seconds,
        record_retention_ms=round(settings.record_retention_seconds * 1000),
        durability=settings.awaited,
        writer=_new_id(),
    )


async def _examine_store(store: RedisStore) -> RedisStore:
    """Return a store that can keep its promises, or close it and raise: UnavailableError if it may be able to soon."""
    try:
        report = await store.check()
    except BaseException:
        await store.close()
        raise
    if report.problems:
        await store.close()
        raise ConfigurationError(f"the store can't keep what it acknowledges. {' '.join(report.problems)}")
    if report.shortages:
        await store.close()
        raise UnavailableError(" ".join(report.shortages))
    return store


async def _note_worker(store: RedisStore, metrics: Metrics) -> UpgradeWatch:
    """Note this worker in a store whose data version it can write, or close the store and raise."""
    about = f"{metadata.version('topk-bandit')} on {platform.node()}/{os.getpid()}"
    upgrades = UpgradeWatch(store.programs(_new_id(), about=about), hooks=metrics)
    try:
        await upgrades.look()
    except BaseException:
        await store.close()
        raise
    return upgrades


def _identity(spec: WorkerSpec, programs: Programs, models: ModelCache, metrics: Metrics) -> StoreIdentity:
    return StoreIdentity(
        spec.store_id,
        refuse_all=programs.refuse_all,
        is_known=models.find_known,
        count_lost=models.count_lost,
        note_older=models.note_older,
        hooks=metrics,
    )


def _assemble(
    settings: Settings,
    spec: WorkerSpec,
    connected: RedisStore,
    *,
    threads: _Threads,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> tuple[Servers, Peers, ModelCache]:
    """Put the servers and all that they call together; what runs beside them is started, and stopped with `stack`."""
    store, study_store = time_calls(connected, metrics), time_calls(connected.studies(), metrics)
    peers = Peers(spec.number, spec.peer_paths, hooks=metrics)
    written: dict[BanditName, ColdEnd] = {}
    models = _models(settings, store, threads.learning, metrics, peers, worker_id=connected.writer, written=written)
    designer = _designer(study_store, threads.designing, metrics)
    quotas = _quotas(settings, stack)
    studies = _studies(quotas, study_store, designer, threads.studying, metrics)
    in_store = TenantQuotas(store, quotas)
    stack.push_async_callback(in_store.stop)
    cold = None if settings.cold_log_dir is None else ColdLog(settings.cold_log_dir)
    logs = WholeLogs(store, cold)
    bandits = _bandits(settings, store, models, in_store, studies, logs=logs)
    loops: list[Housekeeper | Guardrails | ColdWriter] = [Guardrails(models, bandits, hooks=metrics)]
    if cold is not None:
        if spec.number == WATCHING_WORKER:
            stack.callback(asyncio.get_running_loop().create_task(_check(cold)).cancel)
        keep_seconds = settings.cold_log_retention_seconds
        loops.append(
            ColdWriter(
                store,
                cold,
                models=models,
                written=written,
                hooks=metrics,
                clock_ms=_clock_ms,
                keep_seconds=keep_seconds,
            )
        )
    if spec.number == WATCHING_WORKER:
        loops.append(Housekeeper(store, models))
    _start(models, designer, loops, stack)
    use_cases = (
        Recommender(store, models, threads.deciding, quotas=in_store, hooks=metrics, new_id=_new_id),
        bandits,
        studies,
        _operators(store, models, in_store, threads.inspecting, metrics.latencies, logs=logs),
    )
    services = Services(
        *use_cases,
        hooks=metrics,
        access=_access(settings, stack),
        quotas=quotas,
        peers=peers,
        max_in_flight=settings.max_calls_in_flight,
    )
    for_peers = Services(
        *use_cases,
        hooks=metrics.for_peers(),
        access=AdmittedElsewhere(),
        quotas=Quotas(),
        max_in_flight=settings.max_calls_in_flight,
        queue=services.guard.queue,
    )
    servers = Servers.of(settings, spec, services, for_peers, certificate=_certificate(settings, stack))
    return servers, peers, models


def _start(
    models: ModelCache,
    designer: Designer,
    loops: Sequence[Housekeeper | Guardrails | ColdWriter],
    stack: AsyncExitStack,
) -> None:
    """Start what runs beside the calls, until `stack` ends; one worker of a service keeps house for all."""
    for one in (models, designer):
        stack.push_async_callback(one.stop)
        one.start()
    for loop in loops:
        stack.callback(asyncio.get_running_loop().create_task(loop.run()).cancel)


def _status_of(latencies: RecentLatencies) -> Callable[[], WorkerStatus]:
    """Return a function that reports the status of this worker, which begins now."""
    version, worker, start_ms = metadata.version("topk-bandit"), f"{platform.node()}/{os.getpid()}", _clock_ms()
    return lambda: WorkerStatus(version, worker, start_ms, latencies.window_seconds, latencies.summarise())


def _access(settings: Settings, stack: AsyncExitStack) -> Access:
    """Return who may call, by the newest keys and identities."""
    access = Access(None, serves_links=settings.answer_links)
    if (keys := settings.keys_file) is not None:
        _follow("keys_file", keys, lambda: setattr(access, "keys", read_keys(keys)), stack)
    if (identities := settings.client_identities) is not None:
        _follow(
            "client_identities", identities, lambda: setattr(access, "identities", read_identities(identities)), stack
        )
    if keys is not None or identities is not None:
        logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)  # whatever else is logged
    return access


def _follow(setting: str, path: Path, take: Callable[[], None], stack: AsyncExitStack) -> None:
    """Take a file in, now and whenever it changes."""
    take()
    _watch(FileWatch(setting, [path], take), stack)


def _quotas(settings: Settings, stack: AsyncExitStack) -> Quotas:
    """Return what tenants may use, by the newest file."""
    quotas = Quotas(settings.default_quotas, read_own_quotas(settings))

    def take() -> None:
        quotas.of_tenants = read_own_quotas(settings)

    if settings.quotas_file is not None:
        _watch(FileWatch("quotas_file", [settings.quotas_file], take), stack)
    return quotas


async def _check(cold: ColdLog) -> None:
    """Say that nothing can be written there, before there is something to write; a disk may hang."""
    if problem := await asyncio.to_thread(cold.find_problem):
        _log.warning("cold_log_dir: %s; events wait in the store until it can be written", problem)


def _certificate(settings: Settings, stack: AsyncExitStack) -> ServerCertificate | None:
    """Return the newest certificate."""
    certificate = read_certificate(settings)
    if certificate is not None:
        if certificate.problem:
            _log.warning("tls_certificate: callers refuse %s: %s", settings.tls_certificate, certificate.problem)
        named = settings.tls_certificate, settings.tls_private_key, settings.tls_client_ca
        files = [file for file in named if file is not None]
        _watch(FileWatch("tls_certificate", files, certificate.reload), stack)
    return certificate


def _watch(watch: FileWatch, stack: AsyncExitStack) -> None:
    stack.callback(asyncio.get_running_loop().create_task(watch.run()).cancel)


def _models(
    settings: Settings,
    store: RedisStore,
    executor: Executor,
    metrics: Metrics,
    peers: Peers,
    *,
    worker_id: str,
    written: Mapping[BanditName, ColdEnd],
) -> ModelCache:
    one_model, wanted = settings.bandit_memory_mib * MIB, settings.worker_memory_mib * MIB
    taken = models_bytes(wanted, one_model=one_model, workers=settings.workers, memory=memory_bytes())
    if taken < wanted:
        _log.warning("models may take %d MiB in each worker, of %d wanted", taken // MIB, wanted // MIB)
    budget = MemoryBudget(
        model_bytes=one_model,
        worker_bytes=taken,
        idle_seconds=settings.idle_seconds,
    )
    return ModelCache(
        store,
        executor,
        limits=budget.limits(),
        budget=budget,
        hooks=metrics,
        clock_ms=_clock_ms,
        worker_id=worker_id,
        owns=peers.owns,
        retention=_retention(settings, peers, written),
    )


def _retention(settings: Settings, peers: Peers, written: Mapping[BanditName, ColdEnd]) -> Retention:
    asked = LogRetention(settings.log_retention_seconds, settings.log_retention_bytes)
    return asked if settings.cold_log_dir is None else ColdRetention(asked, written, owns=peers.ranks_first)


def _designer(store: RedisStudies, executor: Executor, metrics: Metrics) -> Designer:
    return Designer(store, executor, threads=DESIGN_THREADS, hooks=metrics, owner=_new_id(), new_reference=_new_id)


def _bandits(
    settings: Settings,
    store: RedisStore,
    models: ModelCache,
    quotas: TenantQuotas,
    studies: Studies,
    *,
    logs: WholeLogs,
) -> Bandits:
    exploration = settings.default_exploration
    return Bandits(
        store, models, logs=logs, default_exploration=exploration, quotas=quotas, new_id=_new_id, priors=studies
    )


def _operators(
    store: RedisStore,
    models: ModelCache,
    quotas: TenantQuotas,
    executor: Executor,
    latencies: RecentLatencies,
    *,
    logs: WholeLogs,
) -> Operators:
    worker = _status_of(latencies)
    return Operators(store, models, executor, logs=logs, quotas=quotas, clock_ms=_clock_ms, worker=worker)


def _studies(quotas: Quotas, store: RedisStudies, designer: Designer, executor: Executor, metrics: Metrics) -> Studies:
    return Studies(
        store,
        designer,
        executor,
        hooks=metrics,
        quotas=quotas,
        new_id=_new_id,
        most_bytes=STUDY_BYTES,
        clock_ms=_clock_ms,
    )


def _new_id() -> str:
    return uuid.uuid4().hex


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
