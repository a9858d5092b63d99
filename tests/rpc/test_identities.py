"""Names in callers' certificates, as credentials: read from their file, and over real TLS through both servers."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple

import grpc
import pytest
from tests.rpc.certificates import Authority, write_pair
from tests.rpc.harness import serving
from tests.rpc.keys import bearer, ring
from tests.rpc.wire import HOME, refusal_of
from tests.waiting import PATIENCE

from topk_bandit.domain.access import Scope
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.rpc.access import AUDIT_LOGGER
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.identities import auth_context, names_in, parse_identities
from topk_bandit.rpc.tls import ServerCertificate
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rpc.harness import RunningServer

    Shown = tuple[Path, Path] | None

CHECKOUT = "URI:spiffe://shop.example/checkout"
GET = "/topk_bandit.v1.BanditService/GetBandit"
CREATE = "/topk_bandit.v1.BanditService/CreateBandit"
UPSERT = "/topk_bandit.v1.BanditService/UpsertItems"
STATS = "/topk_bandit.v1.BanditService/GetBanditStats"
MINE = bandit_pb.GetBanditRequest(name=HOME).SerializeToString()
THEIRS = bandit_pb.GetBanditRequest(name="tenants/globex/bandits/home").SerializeToString()
UNPARSABLE = b"\xff\xff\xff"
KNOWN = f"""
["{CHECKOUT}"]
tenant = "acme"
scopes = ["recommend", "manage"]

["DNS:Globex.example"]
tenant = "globex"
scopes = ["manage"]

["DNS:second.example"]
tenant = "acme"
scopes = ["manage"]

["CN:old-client"]
tenant = "acme"
scopes = ["manage"]
"""


# The file and the names.


def test_a_name_that_is_known_is_as_a_key() -> None:
    identities = parse_identities(KNOWN)
    found = identities.find([CHECKOUT])
    assert found is not None
    assert (found.id, found.tenant, found.scopes) == (CHECKOUT, "acme", {Scope.RECOMMEND, Scope.MANAGE})
    assert identities.find(["DNS:other", "DNS:globex.example", "DNS:globex.example"]) is not None
    assert identities.find([]) is None
    assert identities.find(["DNS:other", CHECKOUT.lower().replace("uri", "URI") + "/"]) is None


def test_two_names_that_are_known_are_none() -> None:
    assert parse_identities(KNOWN).find([CHECKOUT, "DNS:globex.example"]) is None
    assert parse_identities(KNOWN).find([CHECKOUT, "DNS:second.example"]) is None  # of the same tenant, too


ENTRY = '["DNS:a"]\ntenant = "t"\nscopes = ["reward"]\n'

BAD = {
    "[": "is not TOML",
    ENTRY + ENTRY: "is not TOML",
    ENTRY + ENTRY.replace("DNS:a", "DNS:A"): "two entries are for DNS:a",
    ENTRY.replace("DNS:", ""): "'a' is no identity: write",
    ENTRY.replace('"DNS:a"', "DNS"): "'DNS' is no identity",
    ENTRY.replace("DNS:", "dns:"): "'dns:a' is no identity",
    ENTRY.replace("DNS:a", "DNS:"): "'DNS:' is no identity",
    ENTRY.replace("DNS:a", "DNS: a"): "'DNS: a' is no identity",
    ENTRY.replace("DNS:a", "DNS:a\\u0000"): "is no identity",
    ENTRY.replace("DNS:a", "DNS:" + "a" * 501): "is no identity",
    '"DNS:a" = "t"': "DNS:a must have scopes and tenant, and nothing else",
    ENTRY + 'more = ""\n': "DNS:a must have scopes and tenant",
    '["DNS:a"]\ntenant = "t"\n': "DNS:a must have scopes and tenant",
    ENTRY.replace('"t"', "1"): "DNS:a: tenant is not ",
    ENTRY.replace('"t"', '"a b"'): "DNS:a: tenant is not ",
    ENTRY.replace('["reward"]', "[]"): "DNS:a: scopes must be some of recommend, reward, manage, operate",
    ENTRY.replace('["reward"]', '"reward"'): "DNS:a: scopes must be",
    ENTRY.replace('["reward"]', '["all"]'): "DNS:a: scopes must be",
    ENTRY.replace('["reward"]', '[["reward"]]'): "DNS:a: scopes must be",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_entry_is_named(text: str) -> None:
    parse_identities(ENTRY)
    with pytest.raises(ConfigurationError, match=BAD[text]) as refused:
        parse_identities(text)
    assert "\n" not in str(refused.value)


def test_alternative_names_come_before_the_common_one() -> None:
    def names(**parts: list[bytes]) -> tuple[str, ...]:
        return names_in(parts)

    every = names(x509_common_name=[b"c"], peer_dns=[b"D.x", b"e"], peer_uri=[b"u:X"], peer_ip=[b"1.2.3.4"])
    assert every == ("URI:u:X", "DNS:d.x", "DNS:e")
    assert names(x509_common_name=[b"c"], peer_email=[b"e@x"]) == ("CN:c",)
    assert names(x509_common_name=[b"c", b"d"]) == ("CN:c",)
    assert names(x509_common_name=[b"DNS:e"]) == ("CN:DNS:e",)
    assert names() == names_in(auth_context(None)) == ()


# Through both servers.


class Answer(NamedTuple):
    code: str
    message: str = ""
    reason: str = ""


OK = Answer("OK")
NOT_CONNECTED = Answer("not connected")


class KeyedService:
    """A service that asks callers for certificates of an authority, and both ways to call it."""

    def __init__(self, running: RunningServer, folder: Path, tls: ServerCertificate, authority: Authority) -> None:
        self.running = running
        self.folder = folder
        self.tls = tls
        self.authority = authority
        self.checkout = authority.issue("checkout", CHECKOUT)

    async def open_http(self) -> None:
        limits = {"max_message_bytes": 1_000_000, "max_connections": 100}
        self.http = HttpServer("127.0.0.1:0", services=self.running.services, tls=self.tls, **limits)
        self.http_port = await self.http.start()

    @property
    def client_roots(self) -> Path:
        return self.folder / "client-roots.pem"

    def call(self, transport: str, shown: Shown, path: str, payload: bytes, key: str | None = None) -> Answer:
        """Call on a connection of its own."""
        return (self.by_grpc if transport == "grpc" else self.by_http)(shown, path, payload, key)

    def by_grpc(self, shown: Shown, path: str, payload: bytes, key: str | None = None) -> Answer:
        certificate, private_key = (file.read_bytes() for file in shown) if shown else (None, None)
        trusting = grpc.ssl_channel_credentials(self.tls.pair.certificate, private_key, certificate)
        options = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
        metadata = (("authorization", key),) if key else ()
        with grpc.secure_channel(f"127.0.0.1:{self.running.port}", trusting, options=options) as channel:
            try:
                channel.unary_unary(path)(payload, timeout=PATIENCE, metadata=metadata)
            except grpc.RpcError as error:
                refusal = refusal_of(error)
                return (
                    NOT_CONNECTED
                    if refusal.code == "UNAVAILABLE"
                    else Answer(refusal.code, refusal.message, refusal.reason)
                )
        return OK

    def connection(self, shown: Shown) -> http.client.HTTPSConnection:
        trusting = ssl.create_default_context(cadata=self.tls.pair.certificate.decode())
        if shown:
            trusting.load_cert_chain(*shown)
        return http.client.HTTPSConnection("127.0.0.1", self.http_port, context=trusting, timeout=PATIENCE)

    def by_http(self, shown: Shown, path: str, payload: bytes, key: str | None = None) -> Answer:
        headers = {"Content-Type": "application/proto"} | ({"Authorization": key} if key else {})
        with contextlib.closing(self.connection(shown)) as connection:
            try:
                connection.request("POST", path, payload, headers)
                response = connection.getresponse()
            except OSError:  # so is what ssl raises
                return NOT_CONNECTED
            body = response.read()
        if response.status == 200:
            return OK
        refusal = json.loads(body)
        reasons = [detail["debug"].get("reason", "") for detail in refusal.get("details", ())]
        return Answer(refusal["code"].upper(), refusal["message"], "".join(reasons))


@contextlib.contextmanager
def opened(folder: Path, **options: object) -> Iterator[KeyedService]:
    """Open both servers of a service with keys and identities, and create a bandit."""
    authority = Authority(folder / "authority")
    roots = folder / "client-roots.pem"
    roots.write_bytes(authority.certificate.read_bytes())
    tls = ServerCertificate(*write_pair(folder), roots)
    known = parse_identities(KNOWN)
    with serving(keys=ring(), identities=known, tls=tls, address="127.0.0.1:0", **options) as running:
        service = KeyedService(running, folder, tls, authority)
        running.run(service.open_http())
        made = bandit_pb.CreateBanditRequest(bandit=bandit_pb.Bandit(name=HOME, slate_size=2, item_capacity=9))
        assert service.by_grpc(service.checkout, CREATE, made.SerializeToString()) == OK
        yield service
        running.run(service.http.drain(0.0))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with opened(tmp_path_factory.mktemp("service")) as service:
        yield service


TRANSPORTS = ("grpc", "http")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("common_name", "alternative"),
    [
        ("checkout", [CHECKOUT]),
        ("checkout", ["DNS:other.example", CHECKOUT, "email:a@shop.example"]),
        ("any", ["DNS:Second.Example"]),
        ("old-client", []),
        ("old-client", ["email:a@shop.example"]),
    ],
)
def test_a_known_name_calls_for_its_tenant(service: KeyedService, common_name: str, alternative: list[str]) -> None:
    shown = service.authority.issue(common_name, *alternative)
    for transport in TRANSPORTS:
        assert service.call(transport, shown, GET, MINE) == OK
        denied = Answer("PERMISSION_DENIED", "name: a key for tenants/globex is needed", "TENANT_NEEDED")
        assert service.call(transport, shown, GET, THEIRS) == denied
        denied = Answer("PERMISSION_DENIED", "a key with the scope operate is needed", "SCOPE_NEEDED")
        assert service.call(transport, shown, STATS, UNPARSABLE) == denied


@pytest.mark.parametrize(
    ("common_name", "alternative", "named"),
    [
        ("nobody", [], "CN:nobody"),
        ("checkout", ["URI:spiffe://shop.example/checkout/"], "URI:spiffe://shop.example/checkout/"),
        ("old-client", ["DNS:new-client"], "DNS:new-client"),  # the common name does not count beside it
        (CHECKOUT.replace("/", "\\/"), [], f"CN:{CHECKOUT}"),  # nor is it what it says it is
        ("any", [CHECKOUT, "DNS:globex.example"], f"{CHECKOUT}, DNS:globex.example"),
    ],
)
def test_an_unknown_name_is_refused_before_it_is_understood_unless_it_shows_a_key(
    service: KeyedService, common_name: str, alternative: list[str], named: str
) -> None:
    shown = service.authority.issue(common_name, *alternative, file="unknown")
    for transport in TRANSPORTS:
        refused = service.call(transport, shown, GET, UNPARSABLE)
        assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "IDENTITY_NEEDED")
        assert refused.message == f"show a key, or a certificate with just one name that the service knows, not {named}"
        assert service.call(transport, shown, GET, MINE, bearer("acme")) == OK


def test_a_key_decides_where_there_is_one(service: KeyedService, transport: str) -> None:
    assert service.call(transport, service.checkout, GET, MINE, bearer("globex")).reason == "TENANT_NEEDED"
    assert service.call(transport, service.checkout, GET, THEIRS, bearer("globex")).code == "NOT_FOUND"
    for wrong in ("Bearer nobody.secret", bearer("acme")[:-1], "Basic x"):
        assert service.call(transport, service.checkout, GET, MINE, wrong).reason == "KEY_NEEDED"


def test_who_has_no_certificate_of_the_authority_does_not_connect(
    service: KeyedService, transport: str, tmp_path: Path
) -> None:
    assert service.call(transport, service.checkout, GET, MINE) == OK
    others = Authority(tmp_path / "other").issue("checkout", CHECKOUT)
    expired = service.authority.issue("checkout", CHECKOUT, days=-1, file="expired")
    for shown in (None, others, expired):
        assert service.call(transport, shown, GET, MINE, bearer("acme")) == NOT_CONNECTED


def test_what_is_known_changes_while_it_serves(service: KeyedService, transport: str) -> None:
    access = service.running.access
    before = access.identities
    try:
        access.identities = parse_identities(KNOWN.replace('"acme"', '"globex"'))
        assert service.call(transport, service.checkout, GET, MINE).reason == "TENANT_NEEDED"
        assert service.call(transport, service.checkout, GET, THEIRS).code == "NOT_FOUND"
        access.identities = parse_identities("")
        assert service.call(transport, service.checkout, GET, MINE).reason == "IDENTITY_NEEDED"
    finally:
        access.identities = before
    assert service.call(transport, service.checkout, GET, MINE) == OK


def test_the_authority_changes_while_it_serves(service: KeyedService, transport: str, tmp_path: Path) -> None:
    before = service.client_roots.read_bytes()
    other = Authority(tmp_path / "other")
    others = other.issue("checkout", CHECKOUT)
    try:
        service.client_roots.write_bytes(b"-----BEGIN")
        with pytest.raises(ConfigurationError, match=r"^tls_client_ca: .*client-roots.pem can't be used: "):
            service.tls.reload()
        assert service.call(transport, service.checkout, GET, MINE) == OK
        service.client_roots.write_bytes(other.certificate.read_bytes())
        service.tls.reload()
        assert service.call(transport, others, GET, MINE) == OK
        assert service.call(transport, service.checkout, GET, MINE) == NOT_CONNECTED
    finally:
        service.client_roots.write_bytes(before)
        service.tls.reload()
    assert service.call(transport, service.checkout, GET, MINE) == OK


SAID = {
    "grpc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)),  # and no settings
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize(
    ("transport", "newest"),
    [("grpc", ssl.TLSVersion.TLSv1_2), ("grpc", ssl.TLSVersion.TLSv1_3), ("http", ssl.TLSVersion.TLSv1_3)],
)
def test_no_session_is_resumed(service: KeyedService, transport: str, newest: ssl.TLSVersion) -> None:
    """One that began before its certificate expired would go on after that."""
    context = caller(service, transport, newest)
    _, session = connected(service, transport, context, None)
    resumed, _ = connected(service, transport, context, session)
    assert resumed is False


def test_versions_that_would_resume_sessions_are_refused_over_http(service: KeyedService) -> None:
    with pytest.raises(ssl.SSLError):
        connected(service, "http", caller(service, "http", ssl.TLSVersion.TLSv1_2), None)


def caller(service: KeyedService, transport: str, newest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=service.tls.pair.certificate.decode())
    context.load_cert_chain(*service.checkout)
    context.maximum_version = newest
    if transport == "grpc":
        context.set_alpn_protocols(["h2"])
    return context


def connected(
    service: KeyedService, transport: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bool | None, ssl.SSLSession | None]:
    """Return whether a new connection went on with a session, and the session that it has in the end."""
    port = service.running.port if transport == "grpc" else service.http_port
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        connection.sendall(SAID[transport])
        assert connection.recv(1)  # what comes before this are the tickets
        return connection.session_reused, connection.session


def test_the_audit_log_has_the_name(service: KeyedService, transport: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        service.call(transport, service.checkout, UPSERT, bandit_pb.UpsertItemsRequest(bandit=HOME).SerializeToString())
    (record,) = [record.__dict__ for record in caplog.records if record.name == AUDIT_LOGGER]
    assert (record["key"], record["tenant"], record["resource"]) == (CHECKOUT, "acme", HOME)


def test_quotas_are_of_its_tenant(tmp_path: Path, transport: str) -> None:
    quotas = Quotas({}, {"acme": {Quota.CALLS_PER_SECOND: 2}})
    with opened(tmp_path, quotas=quotas, clock=lambda: 0.0) as service:  # no second ever passes
        shown = service.authority.issue("globex", "DNS:globex.example")
        assert [service.call(transport, service.checkout, GET, MINE).code for _ in range(2)] == [
            "OK",
            "RESOURCE_EXHAUSTED",
        ]
        assert [service.call(transport, shown, GET, THEIRS).code for _ in range(3)] == ["NOT_FOUND"] * 3
