"""Connections that say nothing, more of them than a process may have open: they are closed, and clients get through."""

from __future__ import annotations

import selectors
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DESCRIPTORS = 1024
SILENT = 1100

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
            connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
            connections.append(connection)
            with suppress(OSError):  # closed already
                connection.sendall(WORDS[number % len(WORDS)])
        yield connections
    finally:
        for connection in connections:
            connection.close()


def until_closed(connections: list[socket.socket]) -> None:
    """Wait until the other side has closed all of them."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        until(lambda: are_closed(selector), what="all are closed")


def are_closed(selector: selectors.BaseSelector) -> bool:
    """Look after those that something has come of; tell whether none is left."""
    for key, _ in selector.select(timeout=0.1):
        if is_closed(key.fileobj):
            selector.unregister(key.fileobj)
    return not selector.get_map()


def is_closed(connection: object) -> bool:
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(65_536) == b""
    except OSError:
        return True


def test_silent_connections_keep_no_client_out(folder: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh")
    with serving(folder, prefix=few) as service, channel_to(service.address) as early:
        create(early)
        with silent_connections(service.address) as connections:
            assert not recommend(early).degraded
            with service.client(tenant="acme", timeout=PATIENCE) as late:
                assert late.recommend("home").id
            service.until_ready()
            until_closed(connections)
            assert not recommend(early).degraded
        assert [record["level"] for record in service.records if record.get("level") not in {"INFO", None}] == []
