"""Worker processes that do nothing but what a supervisor has to bear."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from topk_bandit.process.worker_spec import Compiling, Heartbeat, Outdated, Ready, Stop, StoreAt

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import WorkerSpec

__all__ = ["FUNCTIONS", "PAUSE_SECONDS", "become_outdated", "die", "hang_once", "progress_slowly", "stall"]

FUNCTIONS, PAUSE_SECONDS = 24, 0.25


def progress_slowly(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Take long to compile, report each function, and serve until `Stop` comes."""
    for number in range(1, FUNCTIONS + 1):
        time.sleep(PAUSE_SECONDS)
        connection.send(Compiling(number, FUNCTIONS))
    assert isinstance(connection.recv(), StoreAt)
    connection.send(Ready())
    assert isinstance(connection.recv(), Stop)


def stall(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Report one function and nothing more."""
    connection.send(Compiling(1, FUNCTIONS))
    time.sleep(3600.0)


def hang_once(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Serve, the first time without a sign of life, as when the event loop waits for something that does not come."""
    connection.send(Heartbeat())
    assert isinstance(connection.recv(), StoreAt)
    connection.send(Ready())
    hung = spec.metrics_folder / f"hung-{spec.number}"
    if not hung.exists():
        hung.touch()
        time.sleep(3600.0)
    while not connection.poll(0.1):
        connection.send(Heartbeat())


def become_outdated(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Serve, and end at once because an upgrade was finalized, with other words before."""
    connection.send(Heartbeat())
    assert isinstance(connection.recv(), StoreAt)
    connection.send(Ready())
    for _ in range(9):
        connection.send(Heartbeat())
    connection.send(Outdated("too old"))


def die(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """End without a word."""
