"""Connections that say nothing, more of them than a process may have open: they are closed, and clients get through."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend

from topk_bandit.rpc.server import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DESCRIPTORS = 1024
SILENT = 1100
CLOSED_WITHIN_SECONDS = 2 * HANDSHAKE_SECONDS + 5

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
WORDS = [b"", PREFACE[:8], PREFACE, PREFACE + EMPTY_SETTINGS]
"""What they say before they fall silent."""


@contextmanager
def silent_connections(address: str) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    connections = []
    try:
        for number in range(SILENT):
            connection = socket.create_connection((host, int(port)), timeout=10)
            connections.append(connection)
            with suppress(OSError):  # closed already
                connection.sendall(WORDS[number % len(WORDS)])
        yield connections
    finally:
        for connection in connections:
            connection.close()


def still_open(connections: list[socket.socket], *, seconds: float) -> int:
    """Wait until the other side has closed all of them; return how many it has not."""
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(timeout=0.5):
                if is_closed(key.fileobj):
                    selector.unregister(key.fileobj)
        return len(selector.get_map())


def is_closed(connection: object) -> bool:
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(65_536) == b""
    except OSError:
        return True


def test_silent_connections_keep_no_client_out(folder: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh")
    patient = "--store-timeout-seconds=30"
    with serving(folder, patient, prefix=few) as service, channel_to(service.address) as early:
        create(early)
        with silent_connections(service.address) as connections:
            assert not recommend(early).degraded
            began = time.monotonic()
            with service.client(tenant="acme", timeout=60.0) as late:
                assert late.recommend("home").id
            assert time.monotonic() - began < CLOSED_WITHIN_SECONDS
            assert service.page("/readyz")[0] == 200
            assert still_open(connections, seconds=CLOSED_WITHIN_SECONDS) == 0
            assert not recommend(early).degraded
        assert [record["level"] for record in service.records if record.get("level") not in {"INFO", None}] == []
