"""TLS for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["tls_credentials"]


def tls_credentials(certificate: Path | None, private_key: Path | None) -> grpc.ServerCredentials | None:
    """Return credentials of two PEM files; None, for plain text, without them."""
    if certificate is None or private_key is None:
        return None
    return grpc.ssl_server_credentials([(private_key.read_bytes(), certificate.read_bytes())])
