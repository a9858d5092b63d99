"""The real service with identities of callers: its file is changed while it serves; commands show certificates."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import COMMAND, Service, clean_environment, serving
from tests.rpc.certificates import Authority, write_pair
from tests.waiting import PATIENCE, until

from topk_bandit.client import AsyncClient, Client, PermissionDenied, Tls, Unauthenticated, Unavailable
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.listeners import check_listeners, find_exposed_listeners
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # it runs whole services

WORKERS = 2
TEXT = """
["URI:spiffe://shop.example/checkout"]
tenant = "shop"
scopes = ["recommend", "reward", "manage"]

["DNS:operator.example"]
tenant = "*"
scopes = ["operate"]
"""


class Files:
    """What the service is started with."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.certificate, self.private_key = write_pair(folder)
        self.identities = folder / "identities.toml"
        self.identities.write_text(TEXT)

    @property
    def settings(self) -> dict[str, Path]:
        return {
            "tls_certificate": self.certificate,
            "tls_private_key": self.private_key,
            "tls_client_ca": self.authority.certificate,
            "client_identities": self.identities,
        }

    @property
    def flags(self) -> list[str]:
        return [f"--{name.replace('_', '-')}={file}" for name, file in self.settings.items()]

    def tls(self, shown: tuple[Path, Path]) -> Tls:
        certificate, private_key = (file.read_bytes() for file in shown)
        return Tls(self.certificate.read_bytes(), private_key=private_key, certificate_chain=certificate)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def service(files: Files, tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "data", *files.flags, f"--workers={WORKERS}", "--listen=0.0.0.0:0") as service:
        yield service


def run(command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables)


def target(service: Service) -> str:
    return f"127.0.0.1:{service.address.rpartition(':')[2]}"


def until_logged(service: Service, words: str, count: int = WORKERS) -> None:
    until(
        lambda: sum(words in str(record.get("message")) for record in service.records) >= count,
        what=f"{words!r} is logged {count} times",
    )


def test_identities_are_changed_while_it_serves(service: Service, files: Files, tmp_path: Path) -> None:
    tls = files.tls(files.authority.issue("checkout", "URI:spiffe://shop.example/checkout"))
    shop = Client(target(service), tenant="shop", tls=tls, timeout=PATIENCE)
    shop.create_bandit("home", slate_size=2, item_capacity=9)
    shop.upsert_items("home", ["tea", "coffee", "milk"])
    shop.reward("home", shop.recommend("home").id, 1.0)
    with pytest.raises(PermissionDenied) as denied:
        shop.stats("home")
    assert denied.value.reason == "SCOPE_NEEDED"
    with (
        Client(target(service), tenant="other", tls=tls, timeout=PATIENCE) as other,
        pytest.raises(PermissionDenied) as denied,
    ):
        other.recommend("home")
    assert denied.value.reason == "TENANT_NEEDED"
    strangers = files.tls(Authority(tmp_path / "other").issue("checkout", "URI:spiffe://shop.example/checkout"))
    with Client(target(service), tenant="shop", tls=strangers, timeout=2.0) as stranger, pytest.raises(Unavailable):
        stranger.recommend("home")

    # A broken file changes nothing.
    files.identities.write_text('["DNS:a"]\ntenant = "shop"\n')
    until_logged(service, "DNS:a must have scopes and tenant, and nothing else; what was read before stays in use")
    assert shop.recommend("home").items

    # Another scope, and then none, on the connection of before.
    files.identities.write_text(TEXT.replace('"manage"]', '"operate"]'))
    until_logged(service, "client_identities was read again")
    shop.stats("home")
    files.identities.write_text(TEXT.replace("checkout", "till"))
    until_logged(service, "client_identities was read again", 2 * WORKERS)
    with pytest.raises(Unauthenticated, match=r"not URI:spiffe://shop\.example/checkout$"):
        shop.recommend("home")
    shop.close()
    audited = [record for record in service.records if record.get("logger") == "topk_bandit.audit"]
    assert {record["key"] for record in audited} == {"URI:spiffe://shop.example/checkout"}
    assert [record["method"].rpartition("/")[2] for record in audited] == ["CreateBandit", "UpsertItems"]


def test_a_name_that_is_taken_out_is_refused_on_the_connection_that_it_has(service: Service, files: Files) -> None:
    """Over HTTP as well as over gRPC, and at every call; a certificate of another name goes on."""
    shown = {name: files.authority.issue(name, f"URI:spiffe://shop.example/{name}") for name in ("checkout", "till")}
    text = TEXT + TEXT.partition('["DNS')[0].replace("checkout", "till")
    files.identities.write_text(text)
    until_logged(service, "client_identities was read again")
    with Client(target(service), tenant="shop", tls=files.tls(shown["checkout"]), timeout=PATIENCE) as shop:
        shop.create_bandit("home", slate_size=2, item_capacity=9)
        shop.upsert_items("home", ["tea", "coffee", "milk"])
        webs = {name: connect(service, files, pair) for name, pair in shown.items()}
        sockets = {name: web.sock for name, web in webs.items()}
        assert [recommend(web) for web in webs.values()] == [200, 200]
        files.identities.write_text(text.replace("checkout", "nobody"))
        until_logged(service, "client_identities was read again", 2 * WORKERS)
        assert {name: web.sock for name, web in webs.items()} == sockets
        for _ in range(3):  # the first of these is on the connection of before, which the service closes then
            assert [recommend(web) for web in webs.values()] == [401, 200]
            with pytest.raises(Unauthenticated, match=r"not URI:spiffe://shop\.example/checkout$"):
                shop.recommend("home")
        assert webs["till"].sock is sockets["till"]
    for web in webs.values():
        web.close()


def connect(service: Service, files: Files, shown: tuple[Path, Path]) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=files.certificate)
    context.load_cert_chain(*shown)
    port = int(service.http_address.rpartition(":")[2])
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE)
    connection.connect()
    return connection


def recommend(web: http.client.HTTPSConnection) -> int:
    """Return the status of a call on a connection, which stays open."""
    body = json.dumps({"bandit": "tenants/shop/bandits/home"})
    web.request("POST", "/topk_bandit.v1.RecommenderService/Recommend", body, {"Content-Type": "application/json"})
    response = web.getresponse()
    response.read()
    return response.status


def test_the_asynchronous_client_shows_its_certificate(service: Service, files: Files) -> None:
    tls = files.tls(files.authority.issue("checkout", "URI:spiffe://shop.example/checkout"))

    async def create() -> str:
        async with AsyncClient(target(service), tenant="shop", tls=tls, timeout=PATIENCE) as shop:
            return (await shop.create_bandit("home", slate_size=2, item_capacity=9)).name

    assert asyncio.run(create()) == "home"


def test_commands_show_a_certificate(service: Service, files: Files) -> None:
    certificate, private_key = files.authority.issue("operator", "DNS:operator.example")
    asked = [COMMAND, "tenants", "list", "--address", target(service), "--tls-roots", str(files.certificate)]
    shown = ["--client-certificate", str(certificate), "--client-private-key", str(private_key)]
    variables = {
        "TOPK_BANDIT_CLIENT_CERTIFICATE": str(certificate),
        "TOPK_BANDIT_CLIENT_PRIVATE_KEY": str(private_key),
    }
    for command, more in (([*asked, *shown], {}), (asked, variables)):
        done = run(command, clean_environment(**more))
        assert (done.returncode, done.stderr) == (0, "")
    half = run([*asked, *shown[:2]], clean_environment())
    assert half.returncode == 1
    assert "--client-certificate and --client-private-key: one needs the other" in half.stderr


@pytest.mark.parametrize(
    ("spoiled", "content", "problem"),
    [
        ("client_identities", b"[", "client_identities: .*: is not TOML"),
        ("client_identities", b"\xff", "client_identities: .*: is not UTF-8"),
        ("client_identities", b'["CN:a"]\n', "client_identities: .*: CN:a must have scopes and tenant"),
        ("tls_client_ca", b"", "tls_client_ca: .* can't be used: "),
    ],
)
def test_what_is_bad_at_the_start_is_one_line(files: Files, spoiled: str, content: bytes, problem: str) -> None:
    files.settings[spoiled].write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"^{problem}"):
        check_listeners(Settings(**files.settings))  # type: ignore[arg-type]
    done = run([COMMAND, "serve", *files.flags], clean_environment())
    assert done.returncode == 1
    assert re.search(problem, done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_gone_is_named(files: Files) -> None:
    settings = Settings(**files.settings)  # type: ignore[arg-type]
    files.identities.unlink()
    with pytest.raises(ConfigurationError, match=r"^client_identities: .* can't be read: No such file"):
        check_listeners(settings)


def test_identities_secure_a_listener_and_own_quotas_go_by_them(files: Files, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("[shop]\ncalls_per_second = 9\n")
    settings = Settings(  # type: ignore[arg-type]
        **files.settings, listen="0.0.0.0:1", quotas_file=quotas, max_calls_per_second_per_tenant=9
    )
    check_listeners(settings)
    assert find_exposed_listeners(settings) == []


def test_the_doctor_and_the_settings_tell(files: Files, tmp_path: Path) -> None:
    variables = clean_environment(TMPDIR=str(tmp_path))
    printed = run([COMMAND, "doctor", *files.flags], variables)
    assert "access: known certificates are asked for, TLS for holders of certificates, no stranger" in printed.stdout
    printed = run([COMMAND, "config", "print", *files.flags], variables)
    row = rf"client_identities +{re.escape(str(files.identities))} +flag --client-identities"
    assert re.search(row, printed.stdout)
