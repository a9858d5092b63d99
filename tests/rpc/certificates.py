"""Certificates that vouch for themselves, for this machine; and an authority that vouches for callers.

Tests use 127.0.0.1 alone: a name has two addresses, and at the other one the same port may be of another test.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.programs import find_program

from topk_bandit.rpc.tls import ServerCertificate

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Authority", "certify", "write_pair"]

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def write_pair(folder: Path, name: str = "localhost", *extensions: str) -> tuple[Path, Path]:
    """Write a certificate and its private key; return their paths."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = [find_program("openssl"), "req", "-x509", *_KEY]
    subject = ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    more = [word for extension in extensions for word in ("-addext", extension)]
    subprocess.run([*made, *subject, *more, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def certify(folder: Path) -> ServerCertificate:
    return ServerCertificate(*write_pair(folder))


class Authority:
    """One that issues certificates to callers; its own is in `certificate`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate, self._key = write_pair(folder, "authority", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name: str, *alternative: str, days: int = 2, file: str = "") -> tuple[Path, Path]:
        """Write a certificate with a common name and alternative names, such as DNS:shop; return it and its key.

        One of -1 days has expired.
        """
        stem = self._folder / (file or name)
        certificate, key, asked, more = (stem.with_suffix(end) for end in (".pem", ".key", ".csr", ".ext"))
        named = f"subjectAltName={','.join(alternative)}\n" if alternative else ""
        more.write_text(f"{named}authorityKeyIdentifier=keyid\n")
        self._run("req", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
        by = "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"
        self._run("x509", "-req", *by, "-days", str(days), "-extfile", more, "-in", asked, "-out", certificate)
        return certificate, key

    @staticmethod
    def _run(*words: str | Path) -> None:
        subprocess.run([find_program("openssl"), *words], check=True, capture_output=True)
