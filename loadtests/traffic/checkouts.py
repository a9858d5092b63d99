"""`topk-bandit serve` of a checkout, as a process of its own with one worker and an embedded store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["HERE", "Service", "python_of", "serving"]

HERE = Path(__file__).resolve().parents[2]
STOP_SECONDS, POLL_SECONDS = 60.0, 0.05
LOG = "service.log"
OFF = ("--http-listen=", "--metrics-listen=")


@dataclass(frozen=True, slots=True)
class Service:
    """A running service.

    Attributes
    ----------
    worker_pid
        0 where there is no ``/proc`` to find it in.
    store_socket
        Of the embedded store.
    metrics_port
        Of its metrics page; 0 when there is none.
    """

    address: str
    worker_pid: int
    store_pid: int
    store_socket: Path
    metrics_port: int


def python_of(checkout: Path) -> Path:
    """Return the Python that runs a checkout's code: this one for our own, else that of its ``.venv``.

    Raises
    ------
    FileNotFoundError
        The checkout has none: `make .venv/dev.stamp` there makes it.
    """
    python = Path(sys.executable) if checkout == HERE else checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"{checkout} has no .venv: run make .venv/dev.stamp there")
    return python


@contextmanager
def serving(checkout: Path, flags: Sequence[str] = ()) -> Iterator[Service]:
    """Run a checkout's service on a folder that is deleted afterwards, on a port of its own.

    Raises
    ------
    RuntimeError
        It ended before it served.
    """
    with tempfile.TemporaryDirectory(prefix="topk-bandit-load-") as folder:
        where = ("--listen=127.0.0.1:0", *OFF, f"--data-dir={folder}")
        # From the data folder and without our variables, so that nothing of this checkout gets in.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOPK_BANDIT_", "PYTHON"))}
        with (Path(folder) / LOG).open("wb") as log:
            process = subprocess.Popen(
                [python_of(checkout), "-m", "topk_bandit", "serve", *where, *flags], cwd=folder, env=clean, stderr=log
            )
        try:
            yield _started(process, Path(folder))
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _started(process: subprocess.Popen[bytes], folder: Path) -> Service:
    while True:
        ended = process.poll() is not None
        records = list(_records(folder / LOG))
        told = {str(record.get("message")): record for record in records}
        if "serving" in told:
            break
        if ended:
            raise RuntimeError(f"the service ended before it served: {records[-3:]}")
        time.sleep(POLL_SECONDS)
    known = {key: value for record in records for key, value in record.items()} | told["serving"]
    worker_pid = next((pid for pid in _children(process.pid) if "spawn_main" in _command(pid)), 0)
    store_pid, port = int(str(known["store_pid"])), int(str(known["metrics_port"] or 0))
    return Service(str(known["address"]), worker_pid, store_pid, folder / "valkey.sock", port)


def _records(log: Path) -> Iterator[dict[str, object]]:
    """Give the records of a log as far as it is written; a line that is none is one of its own."""
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = line
        yield record if isinstance(record, dict) else {"raw": line}


def _children(parent: int) -> Iterator[int]:
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            state = (one / "stat").read_text(encoding="utf-8", errors="replace")
            if int(state.rpartition(")")[2].split()[1]) == parent:
                yield int(one.name)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""
