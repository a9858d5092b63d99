"""The certificate of the listeners, which may be renewed while they serve: new connections get the newest.

Where an authority for callers is named, a connection needs a certificate of it. The files are tried out before they are
used, so that a half written one does no harm.
"""

from __future__ import annotations

import re
import ssl
from codecs import BOM_UTF8
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HandshakeCredentials", "Pair", "ServerCertificate"]


_FIRST = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----.*?-----END [A-Z0-9 ]+-----", re.DOTALL)

_OF_TIME = {9, 10}
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


class Pair(NamedTuple):
    """A private key and its certificate chain, PEM."""

    private_key: bytes
    certificate: bytes


class HandshakeCredentials(NamedTuple):
    """What a handshake goes by: our own certificate, and the authorities of callers' ones, PEM; None asks for none."""

    pair: Pair
    client_roots: bytes | None


class ServerCertificate:
    """What the files of a certificate and of its private key held when they were last good.

    Parameters
    ----------
    client_ca
        File with the authorities of callers' certificates; None asks for no certificate.

    Raises
    ------
    ConfigurationError
        They can't be read, or are no such files.

    Attributes
    ----------
    shown
        What gRPC is given.
    context
        What the HTTP server is given, once: it hands each new connection over to the newest certificate.
    problem
        That its time is over, or has not come, when it was read: callers refuse it then. Empty for a good one.
    """

    def __init__(self, certificate: Path, private_key: Path, client_ca: Path | None = None) -> None:
        self._files = certificate, private_key
        self._client_ca = client_ca
        self._newest: ssl.SSLContext | None = None
        self.reload()
        self.context = self._context()
        self.context.sni_callback = self._hand_over

    @property
    def pair(self) -> Pair:
        """The newest key and certificate."""
        return self.shown.pair

    def reload(self) -> None:
        """Take the files as they are now; what was is kept if they are no good, which is a `ConfigurationError`.

        A certificate whose time is not now takes the place of none whose time is.
        """
        certificate, private_key = self._files
        try:
            pair = Pair(_read_pem(private_key), _read_pem(certificate))
            newest = _context(certificate, private_key)
            problem = _try_out(newest, pair.certificate)
        except OSError as error:  # so are ssl's own
            raise ConfigurationError(
                f"tls_certificate: {certificate} and {private_key} can't be used: {error.strerror or error}"
            ) from None
        if problem and self._newest is not None and not _try_out(self._newest, self.pair.certificate):
            raise ConfigurationError(f"tls_certificate: callers refuse {certificate}: {problem}")
        self.shown, self._newest = HandshakeCredentials(pair, self._trust(newest)), newest
        self.problem = problem

    def _context(self) -> ssl.SSLContext:
        context = _context(*self._files)
        self._trust(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> bytes | None:
        """Make a context ask callers for a certificate; return whose are trusted."""
        if self._client_ca is None:
            return None
        try:
            roots = read_regular(self._client_ca)
            context.load_verify_locations(self._client_ca)
        except OSError as error:
            raise ConfigurationError(
                f"tls_client_ca: {self._client_ca} can't be used: {error.strerror or error}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session would be let in without a look at its certificate. Earlier versions resume others as well.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        return roots

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Be called for each connection, also for one whose client names no server."""
        if self._newest is not None:
            connection.context = self._newest


def _context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # An encrypted key must fail, not ask at a terminal.
    context.load_cert_chain(certificate, private_key, password=lambda: b"")
    return context


def _read_pem(path: Path) -> bytes:
    """Return what a file holds but for a byte order mark, which gRPC does not take."""
    return read_regular(path).removeprefix(BOM_UTF8)


def _try_out(served: ssl.SSLContext, chain: bytes) -> str:
    """Return that the time of a chain's first certificate is over, or has not come; empty for neither.

    A caller who trusts it connects. What else callers may refuse depends on them.
    """
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        caller.load_verify_locations(cadata=_FIRST.search(chain)[0].decode("ascii"))  # type: ignore[index]  # it is read
        ends = caller.wrap_bio(back, there), served.wrap_bio(there, back, server_side=True)
        for end in ends * 2:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message if error.verify_code in _OF_TIME else ""
    except ssl.SSLError:
        return ""
    return ""
