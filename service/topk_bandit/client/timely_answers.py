"""Answers of urllib3 that are read within their call's time, in whatever drops they come.

The library gives each part of an answer the time that all of it may take, and a head comes in as many parts as whoever
answers likes: a page would wait for as long as there is one more byte now and then.
"""

from __future__ import annotations

import http.client
import io
import time
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    import socket

__all__ = ["pool_manager"]


def pool_manager(**settings: Any) -> urllib3.PoolManager:  # noqa: ANN401 - the library's own
    """Return a pool of connections whose answers end, or fail, when the time that is left of a call is over."""
    manager = urllib3.PoolManager(**settings)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _EncryptedPool}
    return manager


class _TimelyReader(io.RawIOBase):
    """Reads from a socket until the time that it has now is over, however many reads that takes."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        super().__init__()
        self._raw = raw
        self._connection = connection
        self._end = time.monotonic() + (connection.gettimeout() or 0.0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:  # noqa: ANN401 - a buffer, which has no name before Python 3.12
        """Read what is there, or raise TimeoutError."""
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close what is read from."""
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer; its connection has the time that is left of the call when the answer begins to be read."""

    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_TimelyReader(self.fp.detach(), sock))


class _Connection(HTTPConnection):
    response_class = _Answer


class _EncryptedConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _EncryptedPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _EncryptedConnection
