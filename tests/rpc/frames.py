"""A gRPC call in frames of its own making: what no client would send."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["call_raw"]

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4


def _length(size: int) -> bytes:
    """Return a length as RFC 7541, section 5.1, has it with a prefix of seven bits."""
    if size < 127:
        return bytes([size])
    rest, octets = size - 127, [127]
    while rest >= 128:
        octets.append(rest % 128 + 128)
        rest //= 128
    return bytes([*octets, rest])


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def call_raw(port: int, path: str, headers: Sequence[tuple[bytes, bytes]], payload: bytes) -> None:
    """Make a call, and return once the server has ended it."""
    request = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"localhost")]
    grpc = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    block = b"".join(_literal(*header) for header in (*request, *grpc, *headers))
    message = b"\0" + struct.pack(">I", len(payload)) + payload
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        connection.sendall(_frame(_HEADERS, _END_HEADERS, 1, block) + _frame(_DATA, _END_STREAM, 1, message))
        with connection.makefile("rb") as answers:
            while head := answers.read(9):
                answers.read(int.from_bytes(head[:3]))
                ended = head[3] == _HEADERS and head[4] & _END_STREAM
                if ended or head[3] in {_RST_STREAM, _GOAWAY}:
                    return
