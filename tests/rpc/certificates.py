"""Certificates that vouch for themselves, for localhost."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from topk_bandit.rpc.tls import ServerCertificate

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["certify", "write_pair"]


def write_pair(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Write a certificate and its private key; return their paths."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*made, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def certify(folder: Path) -> ServerCertificate:
    return ServerCertificate(*write_pair(folder))
