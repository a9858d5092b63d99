"""Certificates that are taken, and those that callers would refuse."""

from __future__ import annotations

import subprocess
from codecs import BOM_UTF8
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.programs import find_program
from tests.rpc.certificates import Authority

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc import tls
from topk_bandit.rpc.tls import ServerCertificate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def test_what_callers_refuse_is_said_and_takes_the_place_of_nothing_good(authority: Authority) -> None:
    expired = [path.read_bytes() for path in authority.issue("expired", "IP:127.0.0.1", days=-1)]
    files = authority.issue("shop", "IP:127.0.0.1")
    good = [path.read_bytes() for path in files]
    certificate = ServerCertificate(*files)
    assert certificate.problem == ""
    write(files, expired)
    with pytest.raises(ConfigurationError, match=r"callers refuse .*/shop\.pem: certificate has expired"):
        certificate.reload()
    assert certificate.pair.certificate == good[0]
    late = ServerCertificate(*files)  # there is nothing better
    assert late.problem == "certificate has expired"
    late.reload()
    write(files, good)
    late.reload()
    assert (late.problem, late.pair.certificate) == ("", good[0])


def test_what_is_held_is_looked_at_again_when_another_one_comes(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.issue("shop", "IP:127.0.0.1")
    certificate = ServerCertificate(*files)
    write(files, [path.read_bytes() for path in authority.issue("other", "IP:127.0.0.1")])
    monkeypatch.setattr(tls, "_try_out", lambda *_: "certificate has expired")  # by now, both have
    certificate.reload()
    assert certificate.pair.certificate == files[0].read_bytes()


@pytest.mark.parametrize("usage", ["clientAuth", "serverAuth"])
def test_only_the_time_of_a_certificate_is_judged(tmp_path: Path, usage: str) -> None:
    for key in ("prime256v1", "brainpoolP256r1"):  # what callers take is theirs to say
        words = [find_program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{key}"]
        files = tmp_path / f"{key}.pem", tmp_path / f"{key}.key"
        words += ["-nodes", "-subj", "/CN=shop", "-addext", f"extendedKeyUsage={usage}", "-days", "2"]
        subprocess.run([*words, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
        assert ServerCertificate(*files).problem == ""


def test_a_byte_order_mark_is_no_part_of_a_certificate(authority: Authority) -> None:
    files = authority.issue("shop", "IP:127.0.0.1")
    write(files, [BOM_UTF8 + path.read_bytes() for path in files])
    certificate = ServerCertificate(*files)
    server = grpc.server(None)  # type: ignore[arg-type]  # it runs nothing
    assert server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate.pair]))


def write(files: tuple[Path, Path], contents: list[bytes]) -> None:
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
