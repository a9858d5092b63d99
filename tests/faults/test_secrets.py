"""Secrets in places where no caller should put them: no log, metric or trace of a real service has one.

No answer has one either, but to a body in which it is the name of a field: errors name fields.
"""

from __future__ import annotations

import base64
import json
import socket
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.collectors import collecting
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.keys import SECRETS, bearer, ring, shown
from tests.rpc.wire import HOME
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client
from topk_bandit.rpc.keys import print_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.collectors import Collector, Span
    from tests.faults.service import Service

pytestmark = pytest.mark.slow

KEY, SECRET, GOOD = shown("acme"), SECRETS["acme"], f"Authorization: {bearer('acme')}"
BASIC = base64.b64encode(KEY.encode()).decode()
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
JSON = "Content-Type: application/json"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BODY = json.dumps({"bandit": HOME})


def request(
    *headers: str, target: str = RECOMMEND, body: str = BODY, method: str = "POST", host: str = "localhost"
) -> str:
    about = (f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}")
    return "\r\n".join((f"{method} {target} HTTP/1.1", *about, *headers)) + f"\r\n\r\n{body}"


HEADERS = {
    "no scheme": f"Authorization: {KEY}",
    "another scheme": f"Authorization: Basic {BASIC}",
    "a token": f"Authorization: Token {KEY}",
    "a colon": f"Authorization: Bearer: {KEY}",
    "blanks behind it": f"Authorization: Bearer {KEY} x",
    "a secret alone": f"Authorization: Bearer {SECRET}",
    "an unknown id": f"Authorization: Bearer nobody.{SECRET}",
    "no text": f"Authorization: Bearer \x00{KEY}",
    "not ASCII": f"Authorization: Bearer é{KEY}",
    "two": f"{GOOD}\r\n{GOOD}",
    "no colon": f"Authorization {KEY}",
    "a blank before the colon": f"Authorization : Bearer {KEY}",
    "a folded line": f"Authorization: Bearer\r\n {KEY}",
    "an API key": f"X-Api-Key: {KEY}",
    "a cookie": f"Cookie: key={KEY}",
    "a proxy's": f"Proxy-Authorization: Bearer {KEY}",
    "a name": f"{KEY}: 1",
    "an agent": f"User-Agent: {KEY}",
    "a trace": f"{GOOD}\r\nTraceparent: {KEY}",
    "a request id": f"{GOOD}\r\nX-Request-Id: {KEY}",
    "a request id with more": f"{GOOD}\r\nX-Request-Id: Bearer={KEY}/1",
    "a kind of content": f"{GOOD}\r\nContent-Type: {KEY}",
    "an encoding": f"{GOOD}\r\nContent-Encoding: {KEY}",
    "a deadline": f"{GOOD}\r\nConnect-Timeout-Ms: {KEY}",
}
REQUESTS = {
    **{f"header: {name}": request(JSON, header) for name, header in HEADERS.items()},
    "query": request(JSON, target=f"{RECOMMEND}?key={KEY}"),
    "query of a known caller": request(JSON, GOOD, target=f"{RECOMMEND}?authorization=Bearer%20{KEY}"),
    "path": request(JSON, target=f"/{KEY}"),
    "path behind the method": request(JSON, GOOD, target=f"{RECOMMEND}/{KEY}"),
    "user of a URL": request(JSON, target=f"http://acme:{KEY}@localhost{RECOMMEND}"),
    "a URL that is none": request(JSON, target=f"http://acme:{KEY}@[localhost{RECOMMEND}"),
    "no URL": request(JSON, target=KEY),
    "a network": request(JSON, target=f"//{KEY}@[localhost{RECOMMEND}"),
    "no authority": request(JSON, target=f"{KEY}:x:y", method="CONNECT"),
    "host": request(JSON, GOOD, host=KEY),
    "verb": request(JSON, method=KEY),
    "no request": f"{KEY}\r\n\r\n",
    "no JSON": request(JSON, GOOD, body=KEY),
    "a name of a field": request(JSON, GOOD, body=json.dumps({KEY: 1})),
    "a field that is none": request(JSON, GOOD, body=json.dumps({"bandit": HOME, "key": KEY})),
    "a number": request(JSON, GOOD, body=json.dumps({"bandit": HOME, "minModelVersion": KEY})),
    "a form": request("Content-Type: application/x-www-form-urlencoded", body=f"key={KEY}"),
}
SAID_TO_THE_SENDER = {"path", "a network", "a name of a field", "a number"}
"""Where a refusal says what it got; nobody else hears of it."""

METADATA = {
    "no scheme": [("authorization", KEY)],
    "two": [("authorization", bearer("acme"))] * 2,
    "bytes": [("authorization-bin", KEY.encode())],
    "an API key": [("x-api-key", KEY)],
    "a request id": [("authorization", bearer("acme")), ("x-request-id", KEY)],
    "a trace": [("authorization", bearer("acme")), ("traceparent", KEY)],
    "a name": [(KEY.lower(), "1")],
}


def say(address: str, text: str) -> str:
    """Send text to an address, and return what comes until the other side closes."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
        line.sendall(text.encode("latin-1"))
        parts = []
        while part := line.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode("latin-1")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("secrets")
    (file := folder / "keys.json").write_text(print_keys(ring()))
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    flags = (f"--keys-file={file}", "--log-level=DEBUG", "--traces")
    with serving(folder, *flags, variables=variables) as running:
        with Client(running.address, tenant="acme", key=KEY, timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=2, item_capacity=9)
            client.upsert_items("home", ["a", "b", "c"])
        yield running


def is_last(span: Span) -> bool:
    return span.attributes.get("topk_bandit.request_id") == "last"


def outputs(service: Service, collector: Collector) -> dict[str, str]:
    """Return all that the service gives out, once it has what comes of the calls that have ended."""
    asked = request(JSON, GOOD, "X-Request-Id: last", f"Traceparent: {TRACE}")
    assert " 200 " in say(service.http_address, asked)
    until(lambda: any(is_last(span) for span in collector.spans), what="the spans arrive")
    pages = {path: service.page(path)[1] for path in ("/metrics", f"/metrics?key={KEY}", f"/{KEY}")}
    return {"log": service.log, "spans": repr(collector.spans) + repr(collector.requests), **pages}


def test_no_output_and_no_answer_has_a_secret_of_a_request(service: Service, collector: Collector) -> None:
    answers = {name: say(service.http_address, text) for name, text in REQUESTS.items()}
    assert [name for name, answer in answers.items() if not answer.startswith("HTTP/1.")] == []
    assert {name for name, answer in answers.items() if SECRET in answer or BASIC in answer} == SAID_TO_THE_SENDER
    given = outputs(service, collector)
    assert [name for name, text in given.items() if SECRET in text or BASIC in text] == []


def test_no_output_and_no_answer_has_a_secret_of_metadata(service: Service, collector: Collector) -> None:
    said = []
    with channel_to(service.address) as channel:
        call = channel.unary_unary(RECOMMEND)
        for name, metadata in METADATA.items():
            try:
                _, ended = call.with_call(b"", metadata=metadata, timeout=PATIENCE)
            except grpc.RpcError as error:
                ended = error
            said.append((name, ended.code(), ended.details(), ended.initial_metadata(), ended.trailing_metadata()))
    for garbage in (KEY, f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{KEY}"):
        say(service.address, garbage)
    assert [answer for answer in said if SECRET in repr(answer)] == []
    given = outputs(service, collector)
    assert [name for name, text in given.items() if SECRET in text] == []
