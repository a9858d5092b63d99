"""Where the service is that a command asks, and whose key it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from topk_bandit.client import AsyncClient, Client, Tls
from topk_bandit.commands.numbers import real
from topk_bandit.commands.reaching import check_address
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.settings import CALLER_VARIABLES

if TYPE_CHECKING:
    import argparse

__all__ = ["ADDRESS", "KEY", "NOBODY", "add_connection", "connect", "connect_async", "key_of"]

T = TypeVar("T", Client, AsyncClient)

ADDRESS, KEY, ROOTS, CERTIFICATE, PRIVATE_KEY = CALLER_VARIABLES
NOBODY = "-"
"""A client is for a tenant; calls about every tenant do not name it."""

_MOST_SECONDS = 1e9
_LOCAL = "127.0.0.1:50051"
_SECONDS = 60.0


def add_connection(parser: argparse.ArgumentParser, *, seconds: float = _SECONDS) -> None:
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
    where.add_argument(
        "--client-certificate",
        type=Path,
        metavar="FILE",
        help=f"speak TLS, and show this certificate chain, PEM (environment: {CERTIFICATE})",
    )
    where.add_argument(
        "--client-private-key", type=Path, metavar="FILE", help=f"its private key, PEM (environment: {PRIVATE_KEY})"
    )
    help_text = f"for each call (default: {seconds:g})"
    where.add_argument("--timeout", type=real(0.0, _MOST_SECONDS), default=seconds, metavar="SECONDS", help=help_text)


def connect(given: argparse.Namespace, tenant: str) -> Client:
    """Return a client of the service that the flags name, for one tenant.

    Raises
    ------
    ConfigurationError
        A file can't be read, the key is none, or no service can be asked at the address.
    """
    return _make_client(Client, given, tenant)


def connect_async(given: argparse.Namespace, tenant: str) -> AsyncClient:
    """Return an asynchronous client, as `connect` does; to be called inside the event loop that uses it."""
    return _make_client(AsyncClient, given, tenant)


def key_of(given: argparse.Namespace) -> str | None:
    """Return the key to show, None for none; or raise `ConfigurationError` if its file can't be read."""
    if not given.key_file:
        return os.environ.get(KEY) or None
    return _read(given.key_file).decode("utf-8-sig", errors="replace").strip()


def _make_client(kind: type[T], given: argparse.Namespace, tenant: str) -> T:
    address = given.address or os.environ.get(ADDRESS) or _LOCAL
    key = key_of(given)
    tls = _tls(given)
    check_address(address, tls)
    options: dict[str, Any] = {"key": key, "timeout": given.timeout, "tls": tls}
    try:
        return kind(address, tenant=tenant, **options)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _tls(given: argparse.Namespace) -> Tls | None:
    roots = given.tls_roots or os.environ.get(ROOTS)
    certificate = given.client_certificate or os.environ.get(CERTIFICATE)
    private_key = given.client_private_key or os.environ.get(PRIVATE_KEY)
    if bool(certificate) != bool(private_key):
        raise ConfigurationError("--client-certificate and --client-private-key: one needs the other")
    files = roots, private_key, certificate
    if not (given.tls or any(files)):
        return None
    try:
        return Tls(*(_read(Path(file)) if file else None for file in files))
    except ValueError as error:
        raise ConfigurationError(f"{', '.join(str(one) for one in files if one)}: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
