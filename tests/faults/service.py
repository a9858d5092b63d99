"""The real command in processes of its own, to be called over gRPC, frozen and killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.processors import THIS
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.processors import Processor

__all__ = [
    "COMMAND",
    "ITS_PATH",
    "PATIENT",
    "Service",
    "alive",
    "clean_environment",
    "commands",
    "compile_reports",
    "held",
    "page",
    "serving",
]

LISTENERS = ("listen", "http-listen", "metrics-listen")
COMMAND = str(Path(sysconfig.get_path("scripts")) / "topk-bandit")
PATIENT = (sys.executable, str(Path(__file__).with_name("patient_program.py")))
"""The same command, but no process of it takes another for dead, or gives its last spans up, because it is slow."""
ITS_PATH = {"PYTHONPATH": os.pathsep.join(sys.path)}
"""The variable by which it finds the tests."""


STORE_SECONDS = 60.0
"""How long a service under test waits for its store, unless it is told otherwise: none is away because it is slow."""


def clean_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without any setting of the service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPK_BANDIT_")}
    return kept | variables


def _processes() -> list[tuple[int, int, str, str]]:
    """Return all processes as (pid, parent's pid, state, command)."""
    table = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,stat=,command="], stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [line.split(None, 3) for line in table.stdout.splitlines()]
    return [(int(row[0]), int(row[1]), row[2], row[3] if len(row) > 3 else "") for row in rows]


def commands() -> list[str]:
    """Return what runs on this machine."""
    return [line for _, _, _, line in _processes()]


def alive(*pids: int) -> set[int]:
    """Return those of the processes that run; one that ended and was not waited for does not."""
    return {pid for pid, _, state, _ in _processes() if pid in pids and not state.startswith("Z")}


@contextlib.contextmanager
def held(*pids: int) -> Iterator[None]:
    """Hold processes, the first one first, until the end of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def page(port: int, path: str) -> tuple[int, str]:
    """Return status and body of a page of this machine."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


_COMPILING = "compiles for this processor"


class Service:
    """`topk-bandit serve` with given flags; `start` may be called again after it ended, on the same flags."""

    def __init__(
        self, flags: Sequence[str], *, temporary: Path, variables: Mapping[str, str], command: Sequence[str]
    ) -> None:
        self.address = ""
        self.http_address = ""
        self.console_address = ""
        self.metrics_port = 0
        self.process: subprocess.Popen[str] | None = None
        self._command = [*command, "serve", *flags]
        self.temporary = temporary
        self._environment = clean_environment(**{"TMPDIR": str(temporary), **variables})
        self._serving = threading.Event()
        self._store_pids: list[int] = []
        self._children: set[int] = set()
        self._reader: threading.Thread | None = None
        self.records: list[dict[str, Any]] = []

    def spawn(self) -> None:
        """Start the command and do not wait until it serves."""
        self._serving.clear()
        self.records = []
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def start(self) -> None:
        """Start the command, and return once it serves; it may compile for as long as it says how far it is."""
        self.spawn()
        self.start_spawned()

    def start_spawned(self) -> None:
        """Return once the command that was spawned serves."""
        while not (self._serving.is_set() or self._ended):
            self._wait_for_a_record()
        assert self._serving.is_set(), self.log

    def _wait_for_a_record(self) -> None:
        heard = len(self.records)
        until(lambda: self._serving.is_set() or self._ended or len(self.records) > heard, what="serve starts")

    @property
    def _ended(self) -> bool:
        return self.running.poll() is not None

    @property
    def running(self) -> subprocess.Popen[str]:
        assert self.process is not None
        return self.process

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def log(self) -> str:
        return "\n".join(str(record.get("raw", record)) for record in self.records)

    @property
    def store_pid(self) -> int:
        """The embedded store's newest process."""
        return self._store_pids[-1]

    @property
    def worker_pids(self) -> list[int]:
        mine = [(pid, line) for pid, parent, state, line in _processes() if parent == self.pid and state[0] != "Z"]
        self._children |= {pid for pid, _ in mine}
        return [pid for pid, line in mine if "spawn_main" in line]

    def everything(self) -> set[int]:
        """Return all processes of the service that run, orphans too, as far as they were seen before."""
        assert self.worker_pids is not None
        return alive(self.pid, *self._children, *self._store_pids)

    def until_gone(self) -> None:
        """Wait until no process of the service runs; one that Python keeps for itself ends a little after it."""
        until(lambda: not self.everything(), what="all processes have ended")

    def client(self, *, tenant: str = "shop", timeout: float = PATIENCE) -> Client:
        return Client(self.address, tenant=tenant, timeout=timeout)

    def client_at(self, *pids: int, tenant: str = "shop") -> Client:
        """Return a client over HTTP, whose one connection is at one of some workers."""
        while True:
            client = Client(f"http://{self.http_address}", tenant=tenant, timeout=PATIENCE)
            if int(client.service_status().worker.rpartition("/")[2]) in pids:
                return client
            client.close()

    def until_ready(self) -> None:
        until(lambda: self.page("/readyz")[0] == 200, what="it is ready")

    def page(self, path: str) -> tuple[int, str]:
        return page(self.metrics_port, path)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for the command's end; return its exit status."""
        status = self.running.wait(seconds)
        assert self._reader is not None
        self._reader.join(seconds)
        return status

    def kill_supervisor(self) -> None:
        self.running.kill()
        self.running.wait(PATIENCE)

    def kill_everything(self) -> None:
        """Freeze the supervisor, so that it starts nothing unseen; then kill it, and all that is left."""
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGSTOP)
        everything = self.everything()
        self.kill_supervisor()
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(*everything), what="the killed are dead")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._note(line)

    def _note(self, line: str) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            record = {"raw": line.rstrip()}
        self.records.append(record)
        if "store_pid" in record:
            self._store_pids.append(record["store_pid"])
        if record.get("message") == "serving":
            self.address, self.metrics_port = record["address"], record["metrics_port"]
            self.http_address, self.console_address = record["http_address"], record["console_address"]
            self._serving.set()


def compile_reports(text: str) -> list[int]:
    """Return how many functions were compiled, report by report."""
    lines = [line for line in text.splitlines() if _COMPILING in line]
    return [int(line.partition(f"{_COMPILING}: ")[2].split()[0]) for line in lines]


@contextlib.contextmanager
def serving(
    folder: Path,
    *flags: str,
    start: bool = True,
    excused: str = "no traceback",
    processor: Processor = THIS,
    variables: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    command: Sequence[str] = (COMMAND,),
) -> Iterator[Service]:
    """Run the service on an embedded store in `folder` (or elsewhere, if a flag says so) until the end of the block.

    It must not log a traceback, unless the record's message holds what is `excused`. `prefix` is a command that becomes
    the service by exec, once it has set up what the service inherits; `command` is
    `topk-bandit`, or what stands for it.
    """
    temporary = Path(tempfile.mkdtemp(prefix="tkb-"))
    flags = (*(f"--{name}=127.0.0.1:0" for name in LISTENERS), f"--data-dir={folder}", *flags)
    service = Service(
        flags,
        temporary=temporary,
        variables={
            **processor.variables,
            "TOPK_BANDIT_STORE_TIMEOUT_SECONDS": str(STORE_SECONDS),
            **(variables or {}),
        },
        command=(*prefix, *command),
    )
    try:
        if start:
            service.start()
        yield service
    finally:
        if service.process is not None:
            service.kill_everything()
            service.wait()
            print(service.log)
        shutil.rmtree(temporary)
    unexpected = [
        record
        for record in service.records
        if "exception" in record or "Traceback" in record.get("raw", "")
        if excused not in record.get("message", "")
    ]
    if unexpected:
        pytest.fail(f"the service logged a traceback:\n{service.log}")
