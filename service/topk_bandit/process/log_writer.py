"""A log handler that holds up nobody: lines are written by a thread of its own.

Who reads standard error may stall, and then a write to it blocks: a pipe to a collector that hangs, a terminal that
was stopped. Lines wait meanwhile, up to a bound; further ones are lost, and counted once lines flow again.

Garbage may be collected anywhere, in that thread too, and what is collected may log: a task that nobody awaited, a
socket that nobody closed. So that thread holds no lock that who logs waits for, and who logs never waits for it.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LogWriter"]

MOST_WAITING_BYTES = 4 * 2**20
_PAUSE_SECONDS = 0.01
FLUSH_SECONDS = 1.0
"""How long the end of a process waits for its last lines to be written."""


class LogWriter(logging.Handler):
    """Writes records to a stream.

    Parameters
    ----------
    stream
        Where to; one that is a file is written to past its buffer.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: SimpleQueue[bytes | Callable[[], None]] = SimpleQueue()
        self._given_bytes = self._lost = 0  # changed by who logs, under the handler's lock
        self._done_bytes = 0  # changed by the thread alone
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written soon, or lose it if too many wait."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as the library's own handlers do: a bad record is reported, and nothing fails
            self.handleError(record)
            return
        size = len(line)
        if self._given_bytes - self._done_bytes + size > MOST_WAITING_BYTES:
            self._lost += 1
            return
        self._given_bytes += size
        self._waiting.put(line)

    def flush(self) -> None:
        """Wait until all is written, or as long as can be waited for."""
        written = threading.Lock()
        written.acquire()
        self._waiting.put(written.release)
        written.acquire(timeout=FLUSH_SECONDS)

    def _write_all(self) -> None:
        reported = 0
        while True:
            waiting = self._waiting.get()
            if not isinstance(waiting, bytes):
                waiting()
                continue
            self._write(waiting)
            self._done_bytes += len(waiting)
            lost = self._lost
            if lost > reported:
                self._write(self._losses(lost - reported))
                reported = lost

    def _losses(self, lost: int) -> bytes:
        text = "%d records are lost: nobody read what was logged"
        record = logging.LogRecord(__name__, logging.ERROR, __file__, 0, text, (lost,), None)
        return f"{self.format(record)}\n".encode()

    def _write(self, line: bytes) -> None:
        """Write a line, at once so that lines of several processes stay whole, however long that takes."""
        try:
            number = self._stream.fileno()
        except io.UnsupportedOperation:
            self._stream.write(line.decode())
            return
        except ValueError:  # it is closed: nobody can read it any more
            return
        while line:
            try:
                line = line[os.write(number, line) :]
            except BlockingIOError:  # somebody else who has it, too, wants not to be held up by it
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # nobody can read it any more
                return
