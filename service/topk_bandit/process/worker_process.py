"""A worker process as its supervisor sees it.

It is started when it is made, and heard through a pipe; `end` waits for its end and closes the pipe. Its silence is
counted while it is listened to, so that a machine that slept blames nobody. It never waits for a message, and never
restarts itself: that is the supervisor's decision.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.process.worker_spec import GaveUp, Heartbeat, Ready, Stop, StoreAt

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import FromWorker, ToWorker, WorkerSpec

    WorkerMain: TypeAlias = Callable[[Settings, WorkerSpec, Connection], None]

__all__ = ["WorkerProcess"]

_log = logging.getLogger(__name__)

NOTICE_SECONDS = 5.0
"""A worker that has been silent for so long is not counted on."""

LONGEST_LOOK_SECONDS = 1.0


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
    has_heartbeat
        Whether it has sent a heartbeat; it sends one each second from then on until it ends or hangs.
    silent_seconds
        How long this process listened in vain since the worker started, got the store's address, or sent a message.
        At most a second counts between two looks: more means that the listener itself was held up.
    """

    def __init__(self, settings: Settings, spec: WorkerSpec, *, main: WorkerMain) -> None:
        context = multiprocessing.get_context("spawn")
        self.spec = spec
        self.ready = False
        self.has_heartbeat = False
        self.silent_seconds = 0.0
        self.connection: Connection
        self.connection, remote = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=main, args=(settings, spec, remote), name=f"topk-bandit-{spec.number}"
        )
        self.process.start()
        remote.close()
        self._listened_at = time.monotonic()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid or 0

    @property
    def serving(self) -> bool:
        """Whether it takes calls, as far as is known."""
        return self.ready and self.silent_seconds < NOTICE_SECONDS and self.process.is_alive()

    def receive(self) -> FromWorker | None:
        """Return its next message, if there is one; a pipe that broke says that the process gave up."""
        before, self._listened_at = self._listened_at, time.monotonic()
        if not self.connection.poll():
            self.silent_seconds += min(self._listened_at - before, LONGEST_LOOK_SECONDS)
            return None
        try:
            message: FromWorker = self.connection.recv()
        except (EOFError, OSError):
            message = GaveUp(f"worker {self.spec.number} died while starting; see its log")
        self.has_heartbeat = isinstance(message, Heartbeat) or self.has_heartbeat
        if isinstance(message, Ready):
            self.spec = replace(self.spec, store_id=message.store_id)
        self.ready = isinstance(message, Ready) or (self.ready and not isinstance(message, GaveUp))
        self.silent_seconds = 0.0
        return message

    def send_store(self, url: str) -> None:
        """Send it the store's address."""
        self._send(StoreAt(url))
        self.silent_seconds = 0.0

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
