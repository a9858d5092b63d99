"""A worker process as its supervisor sees it.

It is started when it is made, and heard through a pipe; `end` waits for its end and closes the pipe. It never waits
for a message, and never restarts itself: that is the supervisor's decision.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.process.worker_spec import GaveUp, Ready, Stop, StoreAt

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import FromWorker, ToWorker, WorkerSpec

    WorkerMain: TypeAlias = Callable[[Settings, WorkerSpec, Connection], None]

__all__ = ["WorkerProcess"]

_log = logging.getLogger(__name__)


class WorkerProcess:
    """A worker process that was started.

    Parameters
    ----------
    main
        What the process runs; something that can be pickled.

    Attributes
    ----------
    ready
        Whether it has said that it serves.
    """

    def __init__(self, settings: Settings, spec: WorkerSpec, *, main: WorkerMain) -> None:
        context = multiprocessing.get_context("spawn")
        self.spec = spec
        self.ready = False
        self.connection: Connection
        self.connection, remote = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=main, args=(settings, spec, remote), name=f"topk-bandit-{spec.number}"
        )
        self.process.start()
        remote.close()
        self._progress_at = time.monotonic()

    @property
    def seconds_without_progress(self) -> float:
        """How long ago it was started, told where the store is, or heard, whichever came last."""
        return time.monotonic() - self._progress_at

    def receive(self) -> FromWorker | None:
        """Return its next message, if there is one; a pipe that broke says that the process gave up."""
        if not self.connection.poll():
            return None
        try:
            message: FromWorker = self.connection.recv()
        except (EOFError, OSError):
            message = GaveUp(f"worker {self.spec.number} died while starting; see its log")
        self.ready = isinstance(message, Ready)
        self._progress_at = time.monotonic()
        return message

    def send_store(self, url: str) -> None:
        """Tell it where the store is."""
        self._send(StoreAt(url))
        self._progress_at = time.monotonic()

    def stop(self) -> None:
        """Make it drain and end; one that serves nobody yet, and may be compiling, is killed."""
        if not self.ready:
            self.process.kill()
        self.ready = False
        self._send(Stop())

    def end(self, seconds: float) -> None:
        """Wait for its end, and kill it after `seconds`."""
        self.process.join(seconds)
        if self.process.is_alive():
            _log.warning("worker %s does not drain in time; killed", self.spec.number)
            self.process.kill()
            self.process.join()
        self.connection.close()

    def _send(self, message: ToWorker) -> None:
        with suppress(OSError):  # it may have died, which its supervisor sees next
            self.connection.send(message)
