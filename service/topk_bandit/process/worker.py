"""The main function of a worker process; it imports nothing heavy at its top, so that the supervisor stays small."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.process import logs

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import Post

__all__ = ["run"]

_log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005


def run(settings: Settings, post: Post, line: Connection) -> None:
    """Serve until the supervisor says stop or is gone: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Threads here compute for microseconds between calls that release the lock; none should wait 5 ms for its turn.
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.configure("json" if settings.log_format == "json" else "text", level=settings.log_level)
    from topk_bandit.process.assembly import serve  # noqa: PLC0415 - numpy, numba and grpc belong in the worker alone

    try:
        asyncio.run(serve(settings, post, line))
    except TopkBanditError as error:
        _log.error("worker %s gives up: %s", post.number, error)
        with suppress(OSError):
            line.send(str(error))
