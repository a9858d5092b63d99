"""Where the service is that a command asks, and whose key it shows."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.client import Client, Tls
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.settings import CALLER_VARIABLES

if TYPE_CHECKING:
    import argparse

__all__ = ["ADDRESS", "KEY", "add_connection", "connect"]

ADDRESS, KEY, ROOTS = CALLER_VARIABLES
_LOCAL = "127.0.0.1:50051"
_SECONDS = 60.0
_SECONDS_TO_CONNECT = 5.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the service is."""
    where = parser.add_argument_group("the service")
    where.add_argument(
        "--address", metavar="HOST:PORT", help=f"its gRPC address (environment: {ADDRESS}; default: {_LOCAL})"
    )
    where.add_argument(
        "--key-file", type=Path, metavar="FILE", help=f"the key to show, id.secret (environment: {KEY}, the key itself)"
    )
    where.add_argument("--tls", action="store_true", help="speak TLS")
    where.add_argument(
        "--tls-roots",
        type=Path,
        metavar="FILE",
        help=f"speak TLS, and trust the certificates in this PEM file (environment: {ROOTS})",
    )
    where.add_argument("--timeout", type=float, default=_SECONDS, metavar="SECONDS", help="for each call (default: 60)")


def connect(given: argparse.Namespace, tenant: str) -> Client:
    """Return a client of the service that the flags name, for one tenant.

    Raises
    ------
    ConfigurationError
        A file can't be read, the key is none, or nothing listens at the address.
    """
    address = given.address or os.environ.get(ADDRESS) or _LOCAL
    key = _read(given.key_file).decode().strip() if given.key_file else os.environ.get(KEY) or None
    _check_listens(address)
    try:
        return Client(address, tenant=tenant, key=key, timeout=given.timeout, tls=_tls(given))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _tls(given: argparse.Namespace) -> Tls | None:
    roots = given.tls_roots or os.environ.get(ROOTS)
    if roots:
        return Tls(root_certificates=_read(Path(roots)))
    return Tls() if given.tls else None


def _check_listens(address: str) -> None:
    """Refuse an address at which nothing listens: the client would try it again until its time is over."""
    parts = re.fullmatch(r"\[?([^\[\]/]+?)\]?:([0-9]{1,5})", address)
    if parts is None:  # gRPC has other forms, which it knows best
        return
    try:
        with socket.create_connection((parts[1], int(parts[2])), timeout=_SECONDS_TO_CONNECT):
            pass
    except (OSError, OverflowError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"no service answers at {address}: {problem}") from None


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
