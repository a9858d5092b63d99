"""A worker process as seen from outside: where it is put, what it says, and how it begins.

Nothing heavy is imported here, so that the supervising process stays small.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit import logs
from topk_bandit.errors import TopkBanditError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from topk_bandit.settings import Settings

__all__ = ["READY", "STOP", "Post", "run"]

_log = logging.getLogger(__name__)

READY = "ready"
"""What a worker says once it serves; any other word is why it gave up."""

STOP = "stop"
"""What a worker is told to make it drain and end; a pipe that breaks means the same."""

@dataclass(frozen=True, slots=True)
class Post:
    """Where a worker is put.

    Attributes
    ----------
    number
        Its number among the workers, from 1.
    address
        Where it serves, together with all others.
    store_url
        The store.
    metrics_folder
        Where it counts.
    """

    number: int
    address: str
    store_url: str
    metrics_folder: Path


def run(settings: Settings, post: Post, line: Connection) -> None:
    """Serve until the supervisor says stop or is gone: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logs.configure("json" if settings.log_format == "json" else "text", level=settings.log_level)
    from topk_bandit.assembly import serve  # noqa: PLC0415 - numpy, numba and grpc belong in the worker alone

    try:
        asyncio.run(serve(settings, post, line))
    except TopkBanditError as error:
        _log.error("worker %s gives up: %s", post.number, error)  # noqa: TRY400 - it says all there is
        line.send(str(error))
