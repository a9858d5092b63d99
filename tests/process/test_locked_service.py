"""The real service with keys and TLS: both are changed while it serves."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import Service, serving
from tests.rpc.certificates import write_pair
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, PermissionDenied, Tls, Unauthenticated
from topk_bandit.commands.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # it runs whole services

WORKERS = 2


class Locked:
    """A service, its files, and what its callers have."""

    def __init__(self, service: Service, folder: Path, key: str) -> None:
        self.service = service
        self.folder = folder
        self.key = key

    @property
    def keys_file(self) -> Path:
        return self.folder / "keys.json"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    def client(self, key: str | None, *, tenant: str = "shop") -> Client:
        tls = Tls(root_certificates=self.certificate.read_bytes())
        target = f"127.0.0.1:{self.service.address.rpartition(':')[2]}"
        return Client(target, tenant=tenant, key=key, tls=tls, timeout=PATIENCE)

    def shown_certificates(self) -> set[str]:
        """Return the certificates that new connections to both listeners get, often enough to see each worker's."""
        addresses = (self.service.address, self.service.http_address)
        ports = [int(address.rpartition(":")[2]) for address in addresses] * 8
        return {ssl.get_server_certificate(("127.0.0.1", port)).strip() for port in ports}

    def until_logged(self, words: str, count: int) -> None:
        until(
            lambda: sum(words in str(record.get("message")) for record in self.service.records) >= count,
            what=f"{words!r} is logged {count} times",
        )


def create_key(file: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["keys", "create", f"--keys-file={file}", *words]) == 0
    return capsys.readouterr().out.strip()


ALL = ("--scope=recommend", "--scope=reward", "--scope=manage", "--scope=operate")


@pytest.fixture
def locked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Locked]:
    certificate, private_key = write_pair(tmp_path)
    keys = tmp_path / "keys.json"
    key = create_key(keys, "--tenant=shop", *ALL, capsys=capsys)
    flags = (f"--keys-file={keys}", f"--tls-certificate={certificate}", f"--tls-private-key={private_key}")
    with serving(tmp_path / "data", *flags, f"--workers={WORKERS}", "--listen=0.0.0.0:0") as service:
        yield Locked(service, tmp_path, key)


def test_keys_and_certificates_are_changed_while_it_serves(locked: Locked, capsys: pytest.CaptureFixture[str]) -> None:
    old = locked.client(locked.key)
    old.create_bandit("home", slate_size=2, item_capacity=9)
    old.upsert_items("home", ["tea", "coffee", "milk"])
    old.reward("home", old.recommend("home").id, 1.0)
    with locked.client(None) as stranger, pytest.raises(Unauthenticated):
        stranger.recommend("home")
    with locked.client(locked.key, tenant="other") as other, pytest.raises(PermissionDenied) as denied:
        other.stats("home")
    assert denied.value.reason == "TENANT_NEEDED"

    # A second key comes, and the first one goes.
    second = create_key(locked.keys_file, "--tenant=shop", *ALL, capsys=capsys)
    locked.until_logged("keys_file was read again", WORKERS)
    with locked.client(second) as new:
        assert new.recommend("home").items
        assert old.recommend("home").items
        assert main(["keys", "revoke", locked.key.partition(".")[0], f"--keys-file={locked.keys_file}"]) == 0
        locked.until_logged("keys_file was read again", 2 * WORKERS)
        assert new.recommend("home").items
    with pytest.raises(Unauthenticated):
        old.recommend("home")
    old.close()

    # A broken file changes nothing.
    good = locked.keys_file.read_bytes()
    locked.keys_file.write_text("{")
    locked.until_logged("is not JSON; what was read before stays in use", WORKERS)
    kept = locked.client(second)
    assert kept.recommend("home").items
    locked.keys_file.write_bytes(good)

    # Another certificate: first its half, which is no pair.
    before = locked.certificate.read_text().strip()
    assert locked.shown_certificates() == {before}
    (locked.folder / "new").mkdir()
    certificate, private_key = write_pair(locked.folder / "new")
    certificate.replace(locked.certificate)
    locked.until_logged("can't be used", WORKERS)
    assert locked.shown_certificates() == {before}
    private_key.replace(locked.folder / "key.pem")
    locked.until_logged("tls_certificate was read again", WORKERS)
    assert locked.shown_certificates() == {locked.certificate.read_text().strip()} != {before}
    assert kept.recommend("home").items  # on the connection of before
    kept.close()
    with locked.client(second) as client:
        assert client.recommend("home").items
    assert curl(locked, second) == 200
    assert curl(locked, locked.key) == 401

    audited = [record for record in locked.service.records if record.get("logger") == "topk_bandit.audit"]
    methods = [(one["key"], one["method"].rpartition("/")[2], one["resource"], one["outcome"]) for one in audited]
    first = locked.key.partition(".")[0]
    home = "tenants/shop/bandits/home"
    assert methods == [(first, "CreateBandit", home, "OK"), (first, "UpsertItems", home, "OK")]
    assert not [key for key in (locked.key, second) if key.partition(".")[2] in locked.service.log]


def curl(locked: Locked, key: str) -> int:
    """Return the status of a call over HTTP."""
    trust = ssl.create_default_context(cafile=locked.certificate)
    port = int(locked.service.http_address.rpartition(":")[2])
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps({"bandit": "tenants/shop/bandits/home"})
    try:
        connection.request("POST", "/topk_bandit.v1.RecommenderService/Recommend", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
