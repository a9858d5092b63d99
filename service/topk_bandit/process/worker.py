"""The main function of a worker process.

It sets the process up and serves until its supervisor says stop or is gone. It reports a failure that is ours to the
supervisor as `GaveUp`. The module imports nothing heavy at its top, so that the supervisor, which imports it, stays
small.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import OutdatedError, TopkBanditError
from topk_bandit.process import logs
from topk_bandit.process.worker_spec import GaveUp, Outdated

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from topk_bandit.process.settings import Settings
    from topk_bandit.process.worker_spec import WorkerSpec

__all__ = ["run"]

_log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005


def run(settings: Settings, spec: WorkerSpec, connection: Connection) -> None:
    """Serve until the supervisor, at the other end of `connection`, says stop or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Threads here compute for microseconds between calls that release the lock; none should wait 5 ms for its turn.
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.configure(settings.log_format, level=settings.log_level)
    gc.disable()  # what is imported stays: to look through it for garbage, again and again, takes a tenth of the start
    from topk_bandit.process.assembly import serve  # noqa: PLC0415 - numpy, numba and grpc belong in the worker alone

    gc.freeze()
    gc.enable()
    try:
        asyncio.run(serve(settings, spec, connection))
    except TopkBanditError as error:
        _log.error("worker %s gives up: %s", spec.number, error)
        kind = Outdated if isinstance(error, OutdatedError) else GaveUp
        with suppress(OSError):
            connection.send(kind(str(error)))
