"""Whether a service can be asked at an address, before it is.

A client tries an address again until its time is over. A look at the address finds at once what no trying mends:
nothing listens, or the listener speaks something else. All other problems are left to the client.
"""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from topk_bandit.client.http_calls import is_http
from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from topk_bandit.client import Tls

__all__ = ["check_address"]

_SECONDS_TO_CONNECT = 5.0
_SECONDS_TO_ANSWER = 2.0

# How HTTP/2 begins, with settings that are empty; the other side's settings come back in a frame of this kind.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS, _GO_AWAY = 4, 7
_ALERT = 0x15
"""What TLS may answer with, before it closes."""


def check_address(address: str, tls: Tls | None) -> None:
    """Refuse an address at which no service can be asked.

    Raises
    ------
    ConfigurationError
        Nothing listens there, it speaks no gRPC, it speaks TLS where we don't or the other way round, or its
        certificate is not one that the roots of `tls` vouch for.
    """
    place = re.sub(r"^https?://|/$", "", address)
    parts = re.fullmatch(r"(?:\[([^\[\]/]+)\]|([^\[\]/:,]+))(?::([0-9]{1,5}))?", place)
    if parts is None:  # gRPC has other forms, which it knows best
        return
    host, port = parts[1] or parts[2], int(parts[3] or (80 if address.startswith("http:") else 443))
    named = address if parts[3] else f"port {port} of {address}, which names none"
    with _connect(host, port, named=named) as connection, suppress(OSError):
        problem = "" if is_http(address) else _find_problem(connection, host, tls)
        if problem:
            raise ConfigurationError(f"{address} {problem}")


def _find_problem(connection: socket.socket, host: str, tls: Tls | None) -> str:
    """Return what keeps a call from being answered, whenever it is sent; "" for nothing that shows here."""
    if tls is None:
        return _greet(connection, host)
    try:
        _shake_hands(connection, host, tls.root_certificates)
    except ssl.SSLCertVerificationError as error:
        return f"shows a certificate that is not trusted: {error.verify_message}"
    except ssl.SSLError as error:
        return "speaks no TLS: leave out --tls and what goes with it" if error.reason == "WRONG_VERSION_NUMBER" else ""
    return ""


def _greet(connection: socket.socket, host: str) -> str:
    """Return what is wrong with a peer by its answer to gRPC's first words; "" for nothing."""
    connection.sendall(_GREETING)
    answer = connection.recv(9)
    if len(answer) > 3 and answer[0] != _ALERT:
        wrong = answer[3] not in {_SETTINGS, _GO_AWAY}
        return "speaks no gRPC: the address of the service's --listen is meant, or http://... of --http-listen" * wrong
    # Closed without a word of HTTP/2: TLS does that, and a worker with as many connections as it may have.
    with _connect(host, connection.getpeername()[1], named=host) as another:
        _shake_hands(another, host, None)
    return "speaks TLS: say --tls, or --tls-roots FILE with the certificates to trust"


def _shake_hands(connection: socket.socket, host: str, roots: bytes | None) -> None:
    """Begin to speak TLS, and hold the peer's certificate to the roots, if any; raise `OSError` if it fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if roots:
        try:
            context.load_verify_locations(cadata=roots.decode("ascii", "ignore"))
        except (OSError, ValueError):
            raise ConfigurationError("the file with the certificates to trust has none, or no whole ones") from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does
        context.verify_mode = ssl.CERT_REQUIRED
    context.wrap_socket(connection, server_hostname=host).close()


def _connect(host: str, port: int, *, named: str) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), timeout=_SECONDS_TO_CONNECT)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"no service answers at {named}: {problem}") from None
    connection.settimeout(_SECONDS_TO_ANSWER)
    return connection
