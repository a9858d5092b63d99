"""Connections of urllib3 that are made, and whose answers are read, within their call's time.

The library gives each address of a name, and each part of an answer, the time that all of them may take. None of many
addresses may answer, and a head comes in as many parts as whoever answers likes: a page would wait.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["connect_in_time", "pool_manager"]

_LEAST_SECONDS = 1e-3


def pool_manager(**settings: Any) -> urllib3.PoolManager:  # noqa: ANN401 - the library's own
    """Return a pool of connections whose answers end, or fail, when the time that is left of a call is over."""
    manager = urllib3.PoolManager(**settings)
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _EncryptedPool}
    return manager


def connect_in_time(
    addresses: Sequence[tuple[Any, ...]], seconds: float, options: Iterable[tuple[int, int, Any]] = ()
) -> socket.socket:
    """Return a connection to the first of some addresses that takes one; it has the time that is left then.

    Each has its share of the time that those before it have left.

    Parameters
    ----------
    addresses
        What `socket.getaddrinfo` returned.
    options
        What `socket.socket.setsockopt` is given.

    Raises
    ------
    OSError
        The last one's, if none takes a connection.
    """
    end = time.monotonic() + seconds
    error = OSError("the name has no address")
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            for option in options:
                connection.setsockopt(*option)
            connection.settimeout(max(_LEAST_SECONDS, (end - time.monotonic()) / (len(addresses) - place)))
            connection.connect(address)
        except OSError as failure:
            connection.close()
            error = failure
        else:
            connection.settimeout(max(_LEAST_SECONDS, end - time.monotonic()))
            return connection
    raise error


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


class _Timely(HTTPConnection):
    response_class = _Answer

    def _new_conn(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
            return connect_in_time(found, float(self.timeout or 0.0), self.socket_options or ())
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"{self.host} takes no connection in time") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error


class _TimelyEncrypted(_Timely, HTTPSConnection):
    """The same by TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Timely


class _EncryptedPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TimelyEncrypted
