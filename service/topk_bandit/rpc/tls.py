"""The certificate of the doors, which may be renewed while they are open: new connections are given the newest.

The pair of files is tried out before it is used, so that a half written one does no harm.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Pair", "ServerCertificate"]


class Pair(NamedTuple):
    """A private key and its certificate chain, PEM."""

    private_key: bytes
    certificate: bytes


class ServerCertificate:
    """What the files of a certificate and of its private key held when they were last good.

    Raises
    ------
    ConfigurationError
        They can't be read, or are no such pair.

    Attributes
    ----------
    pair
        What gRPC is given.
    context
        What the HTTP server is given, once: it hands each new connection over to the newest certificate.
    """

    def __init__(self, certificate: Path, private_key: Path) -> None:
        self._files = certificate, private_key
        self.reload()
        self.context = _context(*self._files)
        self.context.sni_callback = self._hand_over

    def reload(self) -> None:
        """Take the files as they are now; what was is kept if they are no good, which is a `ConfigurationError`."""
        certificate, private_key = self._files
        try:
            pair = Pair(private_key.read_bytes(), certificate.read_bytes())
            newest = _context(certificate, private_key)
        except OSError as error:  # so are ssl's own
            raise ConfigurationError(
                f"tls_certificate: {certificate} and {private_key} can't be used: {error.strerror or error}"
            ) from None
        self.pair, self._newest = pair, newest

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Be called for each connection, also for one whose client names no server."""
        connection.context = self._newest


def _context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # An encrypted key must fail, not ask at a terminal.
    context.load_cert_chain(certificate, private_key, password=lambda: b"")
    return context
