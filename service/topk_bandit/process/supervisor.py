"""The process that is started: it owns the port, the metrics page, the embedded store and the worker processes.

It promises that what it starts is stopped again, and that a worker that dies or hangs, or an embedded store that dies,
is started again. While workers start it reports how far they have compiled, and gives a worker up only when it makes no
progress. It never answers a call itself, and never imports what only a worker needs.
"""

from __future__ import annotations

import logging
import math
import multiprocessing.connection
import os
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process import worker
from topk_bandit.process.descriptors import raise_limit
from topk_bandit.process.fleet_metrics import Fleet, render
from topk_bandit.process.metrics_folder import forget_worker, metrics_folder
from topk_bandit.process.metrics_page import MetricsServer
from topk_bandit.process.store_supervisor import StoreSupervisor
from topk_bandit.process.threads import use_one_thread
from topk_bandit.process.worker_process import WorkerProcess
from topk_bandit.process.worker_spec import Compiling, GaveUp, Outdated, WorkerSpec
from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.process.fleet_metrics import RestartReason
    from topk_bandit.process.settings import Address, Settings
    from topk_bandit.process.worker_process import WorkerMain

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

STALL_SECONDS = 120.0
"""How long a worker that starts may go without progress. A start may take longer, because it compiles."""

HUNG_SECONDS = 5.0
"""How long a worker whose event loop ran may be silent before it is killed and replaced."""

REPORT_SECONDS = 3.0
RESTART_PAUSE_SECONDS = 1.0
LISTEN_SECONDS = 0.1


class Supervisor:
    """A running service: `start` returns once every worker serves, `watch` keeps it so, `stop` drains.

    Parameters
    ----------
    stop_requested
        Set when the service is to end: `start` and `watch` then return early, for `stop` to be called.
    worker_main
        What a worker process runs.
    stall_seconds
        How long a worker may be silent while it starts.
    hung_seconds
        How long it may be silent once its event loop runs.
    report_seconds
        How long `start` waits at least between two reports of how far the compiling is.

    Attributes
    ----------
    address
        Where gRPC is served, ``host:port``.
    http_address
        Where HTTP is served, ``host:port``; empty when it is not.
    console_address
        Where the console is, ``host:port``; empty when it is nowhere.
    metrics_port
        Where the metrics page is; None when there is none.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        stop_requested: threading.Event | None = None,
        worker_main: WorkerMain = worker.run,
        stall_seconds: float = STALL_SECONDS,
        hung_seconds: float = HUNG_SECONDS,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._settings = settings
        self._stop_requested = stop_requested or threading.Event()
        self._worker_main = worker_main
        self._stall_seconds = stall_seconds
        self._hung_seconds = hung_seconds
        self._report_seconds = report_seconds
        self._reported_at = -math.inf
        self._stack = ExitStack()
        self._workers: list[WorkerProcess] = []
        self._restarts: Counter[RestartReason] = Counter()
        self._store_url = ""
        self._store: EmbeddedStore | None = None
        self.address = ""
        self.http_address = ""
        self.console_address = ""
        self.metrics_port: int | None = None

    @property
    def ready(self) -> bool:
        """Whether any worker serves."""
        return any(one.serving for one in list(self._workers))

    def start(self) -> None:
        """Start everything, in order; what was started is stopped again if something can't be.

        Raises
        ------
        ConfigurationError
            The port, the data folder or the store can't be used, or a worker died or made no progress; the message
            says why.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        use_one_thread(os.environ)
        raise_limit()
        self._reserve_ports()
        folder = self._stack.enter_context(metrics_folder())
        self._start_metrics(folder)
        numbers = range(1, self._settings.workers + 1)
        peers = tuple(str(folder / f"worker-{number}.sock") for number in numbers) if len(numbers) > 1 else ()
        specs = (
            WorkerSpec(number, self.address, self.http_address, folder, self.console_address, peers)
            for number in numbers
        )
        self._workers.extend(map(self._start_worker, specs))
        # While the workers prepare themselves, a store with a long log reads it.
        self._store_url = self._settings.redis_url or self._start_embedded()
        for one in self._workers:
            one.send_store(self._store_url)
        self._await_workers()

    def watch(self, seconds: float) -> None:
        """Look after the workers for `seconds`: replace those that died or hang. The store has its own supervisor.

        Raises
        ------
        ConfigurationError
            An upgrade of the store's data was finalized that these workers are too old for; the message says so.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._stop_requested.is_set():
            multiprocessing.connection.wait(
                [waited for one in self._workers for waited in (one.process.sentinel, one.connection)],
                timeout=min(left, 0.5),
            )
            self._check()

    def stop(self) -> None:
        """Let the workers drain, then stop the store and the page. Again: no effect."""
        for one in self._workers:
            one.stop()
        deadline = time.monotonic() + self._settings.drain_seconds + 5.0
        for one in self._workers:
            one.end(max(deadline - time.monotonic(), 0.1))
        self._workers.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _reserve_ports(self) -> None:
        self.address = self._reserve_port("listen", self._settings.listen)
        if self._settings.http_listen is not None:
            self.http_address = self._reserve_port("http_listen", self._settings.http_listen)
        if self._settings.console_listen is not None:
            self.console_address = self._reserve_port("console_listen", self._settings.console_listen)

    def _reserve_port(self, setting: str, listen: Address) -> str:
        """Hold the port for the workers, which share it, and see that no other program does."""
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        holder = self._stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((listen.host, listen.port))
                port = probe.getsockname()[1]
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((listen.host, port))
        except OSError as error:
            raise ConfigurationError(f"{setting}: {listen} can't be used: {error.strerror}") from error
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{host}:{port}"

    def _start_embedded(self) -> str:
        store = EmbeddedStore.start(self._settings.data_dir, fsync=self._settings.fsync)
        self._stack.enter_context(StoreSupervisor(store))
        self._store = store
        _log.info("embedded store is up", extra={"folder": str(store.folder), "store_pid": store.pid})
        return store.url

    def _start_metrics(self, folder: Path) -> None:
        if self._settings.metrics_listen is None:
            return
        host, port = self._settings.metrics_listen.host, self._settings.metrics_listen.port
        page = MetricsServer(port, host=host, render=partial(render, folder, self._describe), ready=lambda: self.ready)
        self.metrics_port = page.port
        self._stack.enter_context(page)

    def _describe(self) -> Fleet:
        """Return what the metrics page shows of the processes."""
        workers, store = list(self._workers), self._store
        processes = {"supervisor": os.getpid()} | {f"worker-{one.spec.number}": one.pid for one in workers}
        return Fleet(
            workers=self._settings.workers,
            ready=sum(one.serving for one in workers),
            restarts=dict(self._restarts),
            processes=processes if store is None else processes | {"store": store.pid},
        )

    def _start_worker(self, spec: WorkerSpec) -> WorkerProcess:
        return WorkerProcess(self._settings, spec, main=self._worker_main)

    def _await_workers(self) -> None:
        """Return once every worker serves; raise if one gives up or stalls."""
        while not self._stop_requested.is_set() and (waiting := [one for one in self._workers if not one.ready]):
            multiprocessing.connection.wait([one.connection for one in waiting], timeout=LISTEN_SECONDS)
            for one in waiting:
                self._listen_while_starting(one)

    def _listen_while_starting(self, one: WorkerProcess) -> None:
        match one.receive():
            case Compiling(functions, total):
                self._report(one.spec.number, functions, total)
            case GaveUp(reason):
                raise ConfigurationError(reason)
        if self._hangs(one):
            problem = f"has made no progress for {one.silent_seconds:.0f} seconds; see its log"
            raise ConfigurationError(f"worker {one.spec.number} does not serve, and {problem}")

    def _hangs(self, one: WorkerProcess) -> bool:
        return one.silent_seconds > (self._hung_seconds if one.has_heartbeat else self._stall_seconds)

    def _report(self, number: int, functions: int, total: int) -> None:
        """Log how far a worker has compiled, unless this was logged only just now."""
        if time.monotonic() - self._reported_at >= self._report_seconds:
            self._reported_at = time.monotonic()
            _log.info(
                "worker %s compiles for this processor: %s of about %s functions; the next start will find them",
                number,
                functions,
                total,
            )

    def _check(self) -> None:
        """Hear all workers, and replace those that died or hang."""
        for index, one in enumerate(self._workers):
            self._hear(one)
            if one.process.is_alive():
                if not self._hangs(one):
                    continue
                _log.error("worker %s hangs: no sign of life for %.0f seconds", one.spec.number, one.silent_seconds)
                self._restarts["hung"] += 1
            else:
                _log.error("worker %s died", one.spec.number, extra={"exit_code": one.process.exitcode})
                self._restarts["died"] += 1
            self._workers[index] = self._replace_worker(one)

    def _hear(self, one: WorkerProcess) -> None:
        """Take in all that a worker says; raise if no worker of this program can serve any more."""
        while (message := one.receive()) is not None:
            if isinstance(message, Outdated):
                raise ConfigurationError(message.reason)
            if isinstance(message, GaveUp):
                return

    def _replace_worker(self, one: WorkerProcess) -> WorkerProcess:
        one.process.kill()
        one.end(RESTART_PAUSE_SECONDS)
        forget_worker(one.spec.metrics_folder, worker=one.spec.number)
        time.sleep(RESTART_PAUSE_SECONDS)
        new = self._start_worker(one.spec)
        new.send_store(self._store_url)
        return new
