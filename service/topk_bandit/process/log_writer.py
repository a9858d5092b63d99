"""A log handler that holds up nobody: lines are written by a thread of its own.

Who reads standard error may stall, and then a write to it blocks: a pipe to a collector that hangs, a terminal that
was stopped. Lines wait meanwhile, up to a bound, and what is beyond it is lost and told of once lines flow again.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._is_idle = True
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written soon, or lose it if too many wait."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as the library's own handlers do: a bad record is told, and nothing fails
            self.handleError(record)
            return
        with self._changed:
            if self._waiting_bytes + len(line) > MOST_WAITING_BYTES:
                self._lost += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, or as long as can be waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle and not self._waiting, timeout=FLUSH_SECONDS)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_idle = not self._waiting
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._is_idle = False
                lines, lost = [*self._waiting], self._lost
                self._waiting.clear()
                self._waiting_bytes = self._lost = 0
            for line in (*lines, *self._told(lost)):
                self._write(line)

    def _told(self, lost: int) -> Iterator[bytes]:
        if not lost:
            return
        text = "%d records are lost: nobody read what was logged"
        record = logging.LogRecord(__name__, logging.ERROR, __file__, 0, text, (lost,), None)
        yield f"{self.format(record)}\n".encode()

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
