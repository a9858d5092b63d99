"""The process that is started: it owns the embedded store, the port, the metrics page and the worker processes."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import socket
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process import worker
from topk_bandit.process.metrics import MetricsServer, forget_worker, render
from topk_bandit.process.threads import use_one_thread
from topk_bandit.process.worker_spec import READY, STOP, Post
from topk_bandit.store.embedded import EmbeddedStore, FsyncPolicy

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import TracebackType

    from topk_bandit.process.settings import Address, Settings

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

START_SECONDS = 120.0
"""How long a worker may take to serve: the first start on a machine compiles."""

RESTART_PAUSE_SECONDS = 1.0
LISTEN_SECONDS = 0.1


class _Employed:
    """A worker process, and the line to it."""

    def __init__(self, settings: Settings, post: Post) -> None:
        context = multiprocessing.get_context("spawn")
        self.post = post
        self.ready = False
        self.placed = False
        self.line: Connection
        self.line, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=worker.run, args=(settings, post, theirs), name=f"topk-bandit-{post.number}"
        )
        self.process.start()
        theirs.close()

    def listen(self, seconds: float) -> str | None:
        """Return what it says within `seconds`: None for nothing, an empty word when it hung up."""
        if not self.line.poll(seconds):
            return None
        try:
            word: str = self.line.recv()
        except EOFError:
            return ""
        self.ready = word == READY
        return word

    def tell_where_the_store_is(self, url: str) -> None:
        self.placed = True
        with suppress(OSError):
            self.line.send(url)

    def tell_to_stop(self) -> None:
        self.ready = False
        if not self.placed:  # it serves nobody, and may be compiling
            self.process.kill()
        with suppress(OSError):
            self.line.send(STOP)

    def end(self, seconds: float) -> None:
        """Wait for its end, and after `seconds` bring it about."""
        self.process.join(seconds)
        if self.process.is_alive():
            _log.warning("worker %s does not drain in time; killed", self.post.number)
            self.process.kill()
            self.process.join()
        self.line.close()


class Supervisor:
    """A running service: `start` returns once every worker serves, `watch` keeps it so, `stop` drains.

    Parameters
    ----------
    asked
        Set when the service is to end: `start` and `watch` then return early, for `stop` to be called.

    Attributes
    ----------
    address
        Where gRPC is served, ``host:port``.
    metrics_port
        Where the metrics page is; None when there is none.
    """

    def __init__(self, settings: Settings, *, asked: threading.Event | None = None) -> None:
        self._settings = settings
        self._asked = asked or threading.Event()
        self._stack = ExitStack()
        self._workers: list[_Employed] = []
        self._embedded: EmbeddedStore | None = None
        self._store_url = ""
        self.address = ""
        self.metrics_port: int | None = None

    @property
    def ready(self) -> bool:
        """Whether every worker serves."""
        return bool(self._workers) and all(one.ready and one.process.is_alive() for one in self._workers)

    def start(self) -> None:
        """Start everything, in order; what was started is stopped again if something can't be.

        Raises
        ------
        ConfigurationError
            The port, the data folder or the store can't be used; the message says why.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        use_one_thread(os.environ)
        self.address = self._reserve_port(self._settings.listen)
        folder = Path(tempfile.mkdtemp(prefix="topk-bandit-metrics-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._start_metrics(folder)
        posts = [Post(number, self.address, folder) for number in range(1, self._settings.workers + 1)]
        self._workers.extend(_Employed(self._settings, post) for post in posts)
        # While the workers make themselves ready, a store with a long log reads it.
        self._store_url = self._settings.redis_url or self._start_embedded()
        for one in self._workers:
            one.tell_where_the_store_is(self._store_url)
        deadline = time.monotonic() + START_SECONDS
        for one in self._workers:
            self._await_ready(one, deadline)

    def watch(self, seconds: float) -> None:
        """Look after everything for `seconds`: bring a dead worker or a dead embedded store back."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._asked.is_set():
            multiprocessing.connection.wait(
                [one.process.sentinel for one in self._workers] + [one.line for one in self._workers if not one.ready],
                timeout=min(left, 0.5),
            )
            self._look()

    def stop(self) -> None:
        """Let the workers drain, then stop the store and the page. Again: no effect."""
        for one in self._workers:
            one.tell_to_stop()
        deadline = time.monotonic() + self._settings.drain_seconds + 5.0
        for one in self._workers:
            one.end(max(deadline - time.monotonic(), 0.1))
        self._workers.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.stop()

    def _reserve_port(self, listen: Address) -> str:
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
            raise ConfigurationError(f"listen: {listen} can't be used: {error.strerror}") from error
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{host}:{port}"

    def _start_embedded(self) -> str:
        fsync: FsyncPolicy = "always" if self._settings.fsync == "always" else "everysec"
        self._embedded = self._stack.enter_context(EmbeddedStore.start(self._settings.data_dir, fsync=fsync))
        _log.info("embedded store is up", extra={"folder": str(self._embedded.folder), "store_pid": self._embedded.pid})
        return self._embedded.url

    def _start_metrics(self, folder: Path) -> None:
        if self._settings.metrics_listen is None:
            return
        host, port = self._settings.metrics_listen.host, self._settings.metrics_listen.port
        page = MetricsServer(port, host=host, render=lambda: render(folder), ready=lambda: self.ready)
        self.metrics_port = page.port
        self._stack.enter_context(page)

    def _await_ready(self, one: _Employed, deadline: float) -> None:
        word = None
        while word is None and not self._asked.is_set():
            if time.monotonic() > deadline:
                raise ConfigurationError(f"worker {one.post.number} does not serve within {START_SECONDS:.0f} seconds")
            word = one.listen(LISTEN_SECONDS)
        if word not in {None, READY}:
            raise ConfigurationError(word or f"worker {one.post.number} died while starting; see its log")

    def _look(self) -> None:
        if self._embedded is not None and self._embedded.ensure_running():
            _log.error("the embedded store had died and was started again", extra={"store_pid": self._embedded.pid})
        for index, one in enumerate(self._workers):
            if one.process.is_alive():
                if not one.ready:
                    one.listen(0.0)
                continue
            _log.error("worker %s died", one.post.number, extra={"exit_code": one.process.exitcode})
            one.end(0.0)
            forget_worker(one.post.metrics_folder, worker=one.post.number)
            time.sleep(RESTART_PAUSE_SECONDS)
            self._workers[index] = _Employed(self._settings, one.post)
            self._workers[index].tell_where_the_store_is(self._store_url)
