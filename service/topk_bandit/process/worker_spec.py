"""What a worker process gets when it starts, and the messages between it and its supervisor.

A worker prepares itself, reports its progress with `Compiling`, and then sends `Heartbeat` each second. It waits
for `StoreAt`, connects, and sends `Ready` once it serves; if it can't serve, or not any more, it sends `GaveUp` and
ends. It drains and ends when it receives `Stop`, or when the pipe breaks. Messages hold nothing but the values below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Compiling",
    "FromWorker",
    "GaveUp",
    "Heartbeat",
    "Outdated",
    "Ready",
    "Stop",
    "StoreAt",
    "ToWorker",
    "WorkerSpec",
]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How a worker differs from the others.

    Attributes
    ----------
    number
        Its number among the workers, from 1.
    address
        Where it serves gRPC, together with all others.
    http_address
        Where it serves HTTP, likewise; empty for nowhere.
    metrics_folder
        The folder that it counts into.
    console_address
        Where it serves the console, likewise; empty for nowhere.
    peer_paths
        Paths of the sockets over which workers ask each other, in the order of their numbers; empty for one worker.
    store_id
        The store that the service was started with; empty where that is not known yet.
    """

    number: int
    address: str
    http_address: str
    metrics_folder: Path
    console_address: str = ""
    peer_paths: tuple[str, ...] = ()
    store_id: str = ""


@dataclass(frozen=True, slots=True)
class Compiling:
    """The compiler has finished one more function; `functions` of the `total` functions of the service are compiled."""

    functions: int
    total: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker's event loop runs."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker serves calls, from a store of this id."""

    store_id: str = ""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The worker can't serve, and ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outdated(GaveUp):
    """The worker can't serve since an upgrade was finalized; no other of this program can."""


@dataclass(frozen=True, slots=True)
class StoreAt:
    """The store is up; `url` may hold a password."""

    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """The worker is to drain and end."""


FromWorker: TypeAlias = Compiling | Heartbeat | Ready | GaveUp
ToWorker: TypeAlias = StoreAt | Stop
