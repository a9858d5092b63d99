"""Where the service is that a command asks, and whose key it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.client import Client, Tls
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.process.settings import CALLER_VARIABLES

if TYPE_CHECKING:
    import argparse

__all__ = ["ADDRESS", "KEY", "add_connection", "connect", "part_name"]

ADDRESS, KEY, ROOTS = CALLER_VARIABLES
_LOCAL = "127.0.0.1:50051"
_SECONDS = 60.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the service is."""
    where = parser.add_argument_group("the service")
    where.add_argument(
        "--address", metavar="HOST:PORT", help=f"its gRPC address (environment: {ADDRESS}; default: {_LOCAL})"
    )
    where.add_argument(
        "--key-file", type=Path, metavar="FILE", help=f"the key to show, id.secret (environment: {KEY}, the key itself)"
    )
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
        A file can't be read, or the key is none.
    """
    roots = given.tls_roots or (Path(os.environ[ROOTS]) if os.environ.get(ROOTS) else None)
    key = _read(given.key_file).decode().strip() if given.key_file else os.environ.get(KEY) or None
    try:
        return Client(
            given.address or os.environ.get(ADDRESS) or _LOCAL,
            tenant=tenant,
            key=key,
            timeout=given.timeout,
            tls=None if roots is None else Tls(root_certificates=_read(roots)),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error


def part_name(text: str) -> tuple[str, str]:
    """Return the tenant and the bandit in TENANT/BANDIT, or in the name on the wire."""
    parts = text.removeprefix("tenants/").replace("/bandits/", "/").split("/")
    if len(parts) != 2 or not all(parts):
        raise InvalidArgumentError("bandit", f"must be TENANT/BANDIT, not {text!r}")
    return parts[0], parts[1]
