"""Who may call what, over sockets: each method of each service, through both servers."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.rpc.frames import call_raw
from tests.rpc.harness import channel_to, serving
from tests.rpc.keys import SECRETS, bearer, key, ring, shown
from tests.rpc.studies import study_server
from tests.rpc.wire import HOME, Refusal, refusal_of
from tests.waiting import PATIENCE, until

from topk_bandit.domain.access import Scope
from topk_bandit.process import logs
from topk_bandit.rpc.access import AUDIT_LOGGER, RULES
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.services import DESCRIPTORS
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message
    from tests.rpc.harness import RunningServer

CHANGING = (
    "Create",
    "Update",
    "Upsert",
    "Retire",
    "Cancel",
    "Revoke",
    "ImportObservations",
    "ImportAnswers",
    "ImportEvents",
    "ImportStudy",
)
METHODS = {f"/{service.full_name}/{method.name}": method for service in DESCRIPTORS for method in service.methods}
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
UPSERT = "/topk_bandit.v1.BanditService/UpsertItems"
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
KEYED = [path for path in METHODS if RULES[path].scope is not None]
"""All but the calls of people with links, who have no keys: see `tests/rpc/test_links.py`."""

OF_EVERY_TENANT = {f"/topk_bandit.v1.OperatorService/{name}" for name in ("ListTenants", "GetServiceStatus")}
NAMING = sorted(set(KEYED) - OF_EVERY_TENANT)
OVERVIEWS = "/topk_bandit.v1.OperatorService/ListBanditOverviews"
UNPARSABLE = b"\xff\xff\xff"
MAX_BYTES = 1_000_000
GLOBEX = "tenants/globex/bandits/home"


class Answer(NamedTuple):
    code: str
    message: str
    reason: str = ""
    headers: Any = None


class KeyedService:
    """A service with keys, and both ways to call it."""

    def __init__(self, running: RunningServer, channel: grpc.Channel) -> None:
        self.running = running
        self.channel = channel

    async def open_http(self) -> None:
        self.http = HttpServer(
            "127.0.0.1:0", services=self.running.services, max_message_bytes=MAX_BYTES, max_connections=100
        )
        self.http_port = await self.http.start()

    def call(self, transport: str, path: str, payload: bytes, *authorization: str) -> Answer:
        return (self.by_grpc if transport == "grpc" else self.by_http)(path, payload, *authorization)

    def by_grpc(self, path: str, payload: bytes, *authorization: str) -> Answer:
        shown_ones = tuple(("authorization", one) for one in authorization)
        try:
            self.channel.unary_unary(path)(payload, timeout=PATIENCE, metadata=shown_ones)
        except grpc.RpcError as error:
            refusal: Refusal = refusal_of(error)
            return Answer(refusal.code, refusal.message, refusal.reason)
        return Answer("OK", "")

    def by_http(self, path: str, payload: bytes, *authorization: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE)
        try:
            connection.putrequest("POST", path)
            connection.putheader("Content-Type", "application/proto")
            connection.putheader("Content-Length", str(len(payload)))
            for one in authorization:
                connection.putheader("Authorization", one)
            connection.endheaders(payload)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status == 200:
            return Answer("OK", "", headers=response.headers)
        error = json.loads(body)
        reasons = [detail["debug"].get("reason", "") for detail in error.get("details", ())]
        assert (response.status == 401) == (error["code"] == "unauthenticated")
        assert (response.status == 403) == (error["code"] == "permission_denied")
        return Answer(error["code"].upper(), error["message"], "".join(reasons), response.headers)


@pytest.fixture(scope="module")
def service() -> Iterator[KeyedService]:
    few = [key("scope", scopes=[Scope.RECOMMEND])]
    with study_server(keys=ring(*few)) as running, channel_to(running.target) as channel:
        opened = KeyedService(running, channel)
        running.run(opened.open_http())
        for name, owner in ((HOME, "acme"), (GLOBEX, "globex")):
            bandit = bandit_pb.Bandit(name=name, slate_size=2, item_capacity=20)
            created = bandit_pb.CreateBanditRequest(bandit=bandit).SerializeToString()
            assert opened.by_grpc("/topk_bandit.v1.BanditService/CreateBandit", created, bearer(owner)).code == "OK"
        yield opened
        running.run(opened.http.drain(0.0))


TRANSPORTS = ("grpc", "http")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def about(path: str, name: str) -> bytes:
    """Return a request of a method that is about what has this name, or what is below it."""
    rule = RULES[path]
    request: Message = GetMessageClass(METHODS[path].input_type)()
    if not rule.field:
        return request.SerializeToString()
    *parents, last = rule.field.split(".")
    part: Any = request
    for parent in parents:
        part = getattr(part, parent)
    setattr(part, last, name)
    return request.SerializeToString()


def named_below(path: str, tenant: str) -> str:
    """Return a well-formed name of what a method is about."""
    method = path.rpartition("/")[2]
    if method in {"ListBandits", "ListStudies", "ListOperations", "GetTenantStats", "ListBanditOverviews"}:
        return f"tenants/{tenant}"
    if "longrunning" in path:
        return f"tenants/{tenant}/studies/none/operations/design"
    return f"tenants/{tenant}/{'studies' if 'Preference' in path else 'bandits'}/none"


def test_every_method_has_a_rule_and_none_streams() -> None:
    assert set(RULES) == set(METHODS)
    assert not [path for path, one in METHODS.items() if one.client_streaming or one.server_streaming]
    assert {rule.scope for rule in RULES.values()} == {*Scope, None}
    for path, rule in RULES.items():
        changes = any(word in path.rpartition("/")[2] for word in CHANGING)
        deletes = path.rpartition("/")[2] in {"DeleteBandit", "DeleteStudy", "ResetBandit", "SkipEvent"}
        assert rule.audited == (changes or deletes), path


def test_the_document_has_every_method_in_its_scope() -> None:
    table = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", SECURITY.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {scope: sorted(re.findall(r"`(\w+)`", methods)) for scope, methods in table}
    held = {scope: sorted(path.rpartition("/")[2] for path in RULES if RULES[path].admits({scope})) for scope in Scope}
    assert documented == held


@pytest.mark.parametrize("path", KEYED)
def test_strangers_are_refused_before_they_are_understood(service: KeyedService, path: str) -> None:
    service.running.shop.calls.clear()
    answers = [
        service.call(transport, path, payload, *authorization)
        for transport in TRANSPORTS
        for payload in (UNPARSABLE, about(path, named_below(path, "acme")))
        for authorization in ((), (f"Bearer acme.{SECRETS['globex']}",), (f"Bearer nobody.{SECRETS['acme']}",))
    ]
    assert {(answer.code, answer.message, answer.reason) for answer in answers} == {
        ("UNAUTHENTICATED", "a key that the service knows is needed, as authorization: Bearer KEY", "KEY_NEEDED")
    }
    assert service.running.shop.calls == []


@pytest.mark.parametrize("path", KEYED)
def test_a_key_without_the_scope_is_refused_before_it_is_understood(service: KeyedService, path: str) -> None:
    scope = RULES[path].scope
    others = service.running.access.keys
    service.running.access.keys = ring(key("scope", scopes={one for one in Scope if not RULES[path].admits({one})}))
    try:
        answers = [service.call(transport, path, UNPARSABLE, bearer("scope")) for transport in TRANSPORTS]
    finally:
        service.running.access.keys = others
    refusal = "PERMISSION_DENIED", f"a key with the scope {scope} is needed", "SCOPE_NEEDED"
    assert [answer[:3] for answer in answers] == [refusal] * 2


@pytest.mark.parametrize("path", NAMING)
def test_another_tenant_s_names_are_refused_before_anything_is_returned(service: KeyedService, path: str) -> None:
    service.running.shop.calls.clear()
    theirs = (named_below(path, "globex"), GLOBEX, "tenants/globex/\n", "tenants/globex")
    none = ("", "tenants/", "tenants/acme\0", "tenants/acme globex", "Tenants/acme", "/tenants/acme", " ")
    for transport, name in product(TRANSPORTS, theirs):
        answer = service.call(transport, path, about(path, name), bearer("acme"))
        assert (answer.code, answer.reason) == ("PERMISSION_DENIED", "TENANT_NEEDED")
        assert answer.message == f"{RULES[path].field}: a key for tenants/globex is needed"
    for transport, name in product(TRANSPORTS, none):
        answer = service.call(transport, path, about(path, name), bearer("acme"))
        assert (answer.code, answer.message.partition(":")[0]) == ("INVALID_ARGUMENT", RULES[path].field)
    assert service.running.shop.calls == []


@pytest.mark.parametrize("path", NAMING)
def test_a_key_opens_its_own_tenant_and_an_operator_s_all(service: KeyedService, path: str) -> None:
    for transport, (owner, tenant) in product(TRANSPORTS, (("acme", "acme"), ("root", "acme"), ("root", "globex"))):
        answer = service.call(transport, path, about(path, named_below(path, tenant)), bearer(owner))
        assert answer.code not in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
        assert "a key" not in answer.message


@pytest.mark.parametrize("path", KEYED)
def test_every_tenant_is_for_keys_of_every_tenant(service: KeyedService, path: str) -> None:
    for transport in TRANSPORTS:
        service.running.shop.calls.clear()
        answer = service.call(transport, path, about(path, "tenants/*"), bearer("acme"))
        assert answer[:3] == ("PERMISSION_DENIED", "a key for every tenant is needed", "TENANT_NEEDED")
        assert service.running.shop.calls == []
        answer = service.call(transport, path, about(path, "tenants/*"), bearer("root"))
        assert (answer.code == "OK") == (path in OF_EVERY_TENANT | {OVERVIEWS})


def test_a_tenant_that_begins_like_another_is_another(service: KeyedService, transport: str) -> None:
    answer = service.call(transport, RECOMMEND, about(RECOMMEND, "tenants/acme2/bandits/home"), bearer("acme"))
    assert answer.message == "bandit: a key for tenants/acme2 is needed"


def test_a_study_of_another_tenant_is_no_prior(service: KeyedService) -> None:
    bandit = bandit_pb.Bandit(name=HOME, slate_size=2, item_capacity=9, prior_study="tenants/globex/studies/taste")
    request = bandit_pb.CreateBanditRequest(bandit=bandit).SerializeToString()
    answer = service.by_grpc("/topk_bandit.v1.BanditService/CreateBandit", request, bearer("acme"))
    assert answer.code == "INVALID_ARGUMENT"


# Odd headers


ODD = ["", " ", "Bearer", "Bearer ", "Bearer .", "Basic YTpi", "Bearer a.b, Bearer c.d", "x" * 4000]


def test_odd_headers_are_no_key(service: KeyedService, transport: str) -> None:
    for odd in ODD:
        assert service.call(transport, RECOMMEND, UNPARSABLE, odd).code == "UNAUTHENTICATED", odd


def test_two_headers_are_no_key_even_if_one_is(service: KeyedService, transport: str) -> None:
    request = about(RECOMMEND, HOME)
    for two in ((bearer("acme"), bearer("root")), (bearer("acme"), bearer("acme")), ("", bearer("acme"))):
        assert service.call(transport, RECOMMEND, request, *two).code == "UNAUTHENTICATED"


def test_a_header_of_a_megabyte_is_refused_and_the_next_call_served(service: KeyedService) -> None:
    service.running.shop.calls.clear()
    assert service.by_grpc(RECOMMEND, about(RECOMMEND, HOME), "Bearer " + "a" * 2**20).code != "OK"
    with socket.create_connection(("127.0.0.1", service.http_port), timeout=PATIENCE) as connection:
        head = f"POST {RECOMMEND} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ".encode()
        try:
            connection.sendall(head + b"a" * 2**20 + b"\r\nContent-Length: 0\r\n\r\n")
            answered = connection.recv(1000)
        except ConnectionError:
            answered = b""
    assert b" 200 " not in answered
    assert service.running.shop.calls == []
    for transport in ("grpc", "http"):
        assert service.call(transport, RECOMMEND, UNPARSABLE, bearer("acme")).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("odd", [b"\xff\xfe", b"\xe9", "é".encode(), b"\0", b"\x7f", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text_are_no_key_and_are_not_logged(
    service: KeyedService, odd: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure("json", level="DEBUG")
    service.running.shop.calls.clear()
    try:
        for header in (odd, b"Bearer " + odd, bearer("acme").encode() + odd, odd + bearer("acme").encode()):
            call_raw(service.running.port, RECOMMEND, [(b"authorization", header)], about(RECOMMEND, HOME))
            with socket.create_connection(("127.0.0.1", service.http_port), timeout=PATIENCE) as connection:
                head = f"POST {RECOMMEND} HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n".encode()
                connection.sendall(head + b"Authorization: " + header + b"\r\nContent-Length: 0\r\n\r\n")
                assert b" 200 " not in connection.recv(1000)
        (written,) = root.handlers
        written.flush()
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = before[0]
        root.setLevel(before[1])
    assert service.running.shop.calls == []
    assert SECRETS["acme"] not in capfd.readouterr().err


# HTTP


def test_a_stranger_s_body_is_not_waited_for(service: KeyedService) -> None:
    with socket.create_connection(("127.0.0.1", service.http_port), timeout=PATIENCE) as connection:
        head = f"POST {RECOMMEND} HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n"
        connection.sendall(f"{head}Content-Length: 900000\r\n\r\n".encode())  # and nothing of it
        with connection.makefile("rb") as answer:
            answered = answer.read()
    assert answered.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Bearer\r\n" in answered


# What is for everybody


def test_health_and_reflection_are_for_everybody(service: KeyedService) -> None:
    health = health_pb2_grpc.HealthStub(service.channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert "topk_bandit.v1.BanditService" in ProtoReflectionDescriptorDatabase(service.channel).get_services()


# Other keys while calls come


def test_keys_are_changed_one_for_another_while_calls_come(service: KeyedService, transport: str) -> None:
    access, before = service.running.access, service.running.access.keys
    request = about("/topk_bandit.v1.BanditService/GetBandit", HOME)

    def answer(owner: str) -> str:
        return service.call(transport, "/topk_bandit.v1.BanditService/GetBandit", request, bearer(owner)).code

    try:
        assert (answer("acme"), answer("second")) == ("OK", "UNAUTHENTICATED")
        access.keys = ring(key("second"))
        assert (answer("acme"), answer("second")) == ("OK", "OK")
        access.keys = access.keys.without("acme")
        assert (answer("acme"), answer("second")) == ("UNAUTHENTICATED", "OK")
    finally:
        access.keys = before


# The audit log


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    records = [one for one in caplog.records if one.name == AUDIT_LOGGER]
    names = ("key", "tenant", "method", "resource", "outcome")
    return [{name: getattr(one, name) for name in names} for one in records]


def upsert(name: str = HOME, item: str = "tea") -> bytes:
    return bandit_pb.UpsertItemsRequest(bandit=name, items=[bandit_pb.Item(item_id=item)]).SerializeToString()


def test_management_is_written_down_once_a_call(
    service: KeyedService, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    method = UPSERT.removeprefix("/")
    record = {"tenant": "acme", "method": method, "resource": HOME}
    cases = [
        (upsert(), "acme", record | {"key": "acme", "outcome": "OK"}),
        (upsert(), "root", record | {"key": "root", "outcome": "OK"}),
        (upsert(item=""), "acme", record | {"key": "acme", "outcome": "INVALID_ARGUMENT"}),
        (upsert(), "globex", record | {"key": "globex", "outcome": "PERMISSION_DENIED"}),
        (upsert(f"{HOME}x"), "acme", record | {"key": "acme", "resource": f"{HOME}x", "outcome": "NOT_FOUND"}),
        (upsert("?" * 999), "root", record | {"key": "root", "tenant": "", "resource": "?" * 200})
    ]  # fmt: skip
    for payload, owner, expected in cases:
        caplog.clear()
        service.call(transport, UPSERT, payload, bearer(owner))
        (record,) = audited(caplog)
        assert record == {"outcome": "INVALID_ARGUMENT"} | expected
    assert SECRETS["acme"] not in caplog.text


def test_what_changes_nothing_is_not_written_down(
    service: KeyedService, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    service.call(transport, RECOMMEND, about(RECOMMEND, HOME), bearer("acme"))
    service.call(transport, UPSERT, upsert())
    service.call(transport, UPSERT, upsert(), bearer("scope"))
    assert audited(caplog) == []
    assert pb.RecommendRequest.FromString(about(RECOMMEND, HOME)).bandit == HOME
    assert shown("acme") not in caplog.text


def test_what_was_done_is_written_down_although_nobody_waited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    with serving(keys=ring()) as server, channel_to(server.target) as channel:
        server.close_gate()
        call = channel.unary_unary(UPSERT).future(
            upsert(), timeout=PATIENCE, metadata=(("authorization", bearer("acme")),)
        )
        until(lambda: "upsert_items" in server.shop.calls, what="the call is under way")
        call.cancel()
        server.ledger.wait_handled(1)
        assert audited(caplog) == []
        server.open_gate()
        until(lambda: audited(caplog), what="the call is written down")
        (record,) = audited(caplog)
    assert server.ledger.codes == ["CANCELLED"]
    assert record["outcome"] == "NOT_FOUND"  # what was done: there is no such bandit
