"""The HTTP server, over a socket: calls as curl, a browser or a Connect client makes them, and what is no call."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import io
import json
import select
import socket
import ssl
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from google.rpc.error_details_pb2 import BadRequest
from tests.rpc.certificates import write_pair
from tests.rpc.harness import RunningServer, serving, standing_clock
from tests.waiting import PATIENCE, until

from topk_bandit.rpc import http_connections, http_server
from topk_bandit.rpc.http_answers import COMPRESSED_FROM_BYTES
from topk_bandit.rpc.http_server import HttpServer
from topk_bandit.rpc.tls import ServerCertificate
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.rpc.harness import StandingClock

BANDIT = "tenants/acme/bandits/home"
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
REWARD = "/topk_bandit.v1.RecommenderService/Reward"
CREATE = "/topk_bandit.v1.BanditService/CreateBandit"
UPDATE = "/topk_bandit.v1.BanditService/UpdateBandit"
UPSERT = "/topk_bandit.v1.BanditService/UpsertItems"
MAX_BYTES = 100_000


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        content = json.loads(self.body)
        assert isinstance(content, dict)
        return content


class HttpListener:
    """An HTTP server beside a gRPC one, with the same services."""

    def __init__(
        self,
        running: RunningServer,
        *,
        max_connections: int,
        origins: tuple[str, ...] = (),
        tls: ServerCertificate | None = None,
        only_loopback: bool = False,
    ) -> None:
        self.only_loopback = only_loopback
        self.running = running
        self.max_connections = max_connections
        self.origins = origins
        self.tls = tls

    async def open(self) -> None:
        self.server = HttpServer(
            "127.0.0.1:0",
            services=self.running.services,
            max_message_bytes=MAX_BYTES,
            max_connections=self.max_connections,
            origins=self.origins,
            only_loopback=self.only_loopback,
            tls=self.tls,
        )
        self.port = await self.server.start()

    def send(self, path: str, body: bytes | dict[str, Any] = b"", *, method: str = "POST", **headers: str) -> Answer:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, payload, named)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()


@contextmanager
def opened(
    *, max_in_flight: int = 64, max_connections: int = 100, origins: tuple[str, ...] = ()
) -> Iterator[HttpListener]:
    with serving(max_in_flight=max_in_flight) as running:
        listener = HttpListener(running, max_connections=max_connections, origins=origins)
        running.run(listener.open())
        bandit = {"name": BANDIT, "slateSize": 2, "itemCapacity": 500}
        assert listener.send(CREATE, {"bandit": bandit}).status == 200
        items = [{"itemId": f"item-{number}"} for number in range(100)]
        assert listener.send(UPSERT, {"bandit": BANDIT, "items": items}).content == {"itemCount": 100}
        running.ledger.handled.clear()
        running.ledger.started.clear()
        try:
            yield listener
        finally:
            running.run(listener.server.drain(0.0))


@pytest.fixture
def listener() -> Iterator[HttpListener]:
    with opened() as one:
        yield one


def test_a_slate_as_json(listener: HttpListener) -> None:
    answer = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.content["itemIds"]
    assert answer.content["degraded"] is False  # what is zero is there, too
    assert listener.running.ledger.handled[-1] == ("topk_bandit.v1.RecommenderService", "Recommend", "OK")


@pytest.mark.parametrize("name", ["item_values", "itemValues"])
def test_a_reward_says_what_each_item_did(listener: HttpListener, name: str) -> None:
    slate = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}).content
    posted = {"bandit": BANDIT, "recommendationId": slate["recommendationId"], "value": 1}
    assert listener.send(REWARD, {**posted, name: {"soup": 1, "pie": 0}}).status == 200
    assert listener.running.shop.item_values == [{"soup": 1.0, "pie": 0.0}]
    refused = listener.send(REWARD, {**posted, name: {"soup": 1e101}})
    assert (refused.status, refused.content["code"]) == (400, "invalid_argument")
    assert 'item_values["soup"]' in refused.content["message"]


def test_an_update_mask_has_its_paths_in_camel_case(listener: HttpListener) -> None:
    changed = {"bandit": {"name": BANDIT, "reward_wait": "60s", "halfLife": "7200s"}}
    answer = listener.send(UPDATE, {**changed, "update_mask": "rewardWait,halfLife"})
    assert (answer.content["bandit"]["rewardWait"], answer.content["bandit"]["halfLife"]) == ("60s", "7200s")
    refused = listener.send(UPDATE, {**changed, "updateMask": "reward_wait"})
    assert (refused.status, refused.content["code"]) == (400, "invalid_argument")


def test_a_slate_as_a_binary_message_is_the_one_that_grpc_gives(listener: HttpListener) -> None:
    request = pb.RecommendRequest(bandit=BANDIT, context=[1.0], request_id="once")
    binary = listener.send(RECOMMEND, request.SerializeToString(), Content_Type="application/proto")
    assert binary.headers["Content-Type"] == "application/proto"
    message = pb.RecommendResponse.FromString(binary.body)
    as_json = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1], "request_id": "once"}).content
    assert list(message.item_ids) == as_json["itemIds"]


def test_an_error_has_the_code_and_the_details_of_the_connect_protocol(listener: HttpListener) -> None:
    answer = listener.send(REWARD, {"bandit": BANDIT, "recommendation_id": "r", "value": "NaN"})
    assert (answer.status, answer.content["code"]) == (400, "invalid_argument")
    (detail,) = answer.content["details"]
    assert detail["type"] == "google.rpc.BadRequest"
    packed = BadRequest.FromString(b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4)))
    assert packed.field_violations[0].field == detail["debug"]["fieldViolations"][0]["field"] == "value"


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"bandit": 1}', b'{"unknown": 1}', b'{"context": {"a": 1}}',
        b'{"bandit": "a", "bandit": "b"}', b'{"context": [1e999]}', b"[" * 90_000, b'{"context":' * 9_000,
        b"1" * 90_000,
    ],
    ids=range(13),
)  # fmt: skip
def test_a_body_that_is_not_the_message_is_refused(listener: HttpListener, body: bytes) -> None:
    answer = listener.send(RECOMMEND, body)
    assert (answer.status, answer.content["code"]) == (400, "invalid_argument")
    assert len(answer.body) < 2_000
    assert listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}).status == 200


def test_what_is_no_call_is_refused(listener: HttpListener) -> None:
    assert listener.send("/nothing").status == 404
    assert listener.send("/topk_bandit.v1.RecommenderService/Nothing").content["code"] == "unimplemented"
    by_get = listener.send(RECOMMEND, method="GET")
    assert (by_get.status, by_get.headers["Allow"]) == (405, "POST, OPTIONS")
    assert by_get.content["message"] == "calls are made with POST, got GET"
    for path in ("/v1/recommend", "/shop:recommend", "/topk_bandit.v1.RecommenderService.Recommend/"):
        near = listener.send(path, b"{}")
        assert (near.status, near.content["message"]) == (404, f"there is no such method: {path!r}; is it {RECOMMEND}?")
    assert "there are Activate, " in listener.send("/v1/zzz", b"{}").content["message"]
    as_text = listener.send(RECOMMEND, b"hello", Content_Type="text/plain")
    assert (as_text.status, as_text.headers["Accept-Post"]) == (415, "application/json, application/proto")
    assert "expected the header Content-Type: application/json" in as_text.content["message"]
    assert "got 'text/plain'" in as_text.content["message"]
    assert listener.send(RECOMMEND, b"{}", Connect_Protocol_Version="2").content["code"] == "invalid_argument"
    for timeout in ("-1", "1.5", "soon", "12345678901"):
        assert listener.send(RECOMMEND, b"{}", Connect_Timeout_Ms=timeout).content["code"] == "invalid_argument"


def test_a_large_body_is_refused_compressed_or_not(listener: HttpListener) -> None:
    large = b" " * (MAX_BYTES + 1)
    for body, encoding in ((large, "identity"), (gzip.compress(large * 100), "gzip")):
        answer = listener.send(RECOMMEND, body, Content_Encoding=encoding)
        assert (answer.status, answer.content["code"]) == (429, "resource_exhausted")
    fits = gzip.compress(json.dumps({"bandit": BANDIT, "context": [1.0]}).encode())
    assert listener.send(RECOMMEND, fits, Content_Encoding="gzip").status == 200
    broken = listener.send(RECOMMEND, b"not gzip", Content_Encoding="gzip")
    assert broken.status == 400
    unknown = listener.send(RECOMMEND, fits, Content_Encoding="br")
    assert (unknown.status, unknown.content["code"]) == (415, "unimplemented")
    assert unknown.headers["Accept-Encoding"] == "gzip, deflate"


def test_a_broken_body_of_a_call_that_is_refused_anyway_leaves_no_line_in_the_log(
    listener: HttpListener, caplog: pytest.LogCaptureFixture
) -> None:
    refused = listener.send(RECOMMEND, b"not gzip", Content_Encoding="gzip", Content_Type="text/plain")
    assert refused.status == 415
    assert listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}).status == 200
    assert caplog.records == []


def test_a_long_answer_is_compressed_if_the_caller_can_read_it(listener: HttpListener) -> None:
    path = "/topk_bandit.v1.BanditService/ListItems"
    body = {"bandit": BANDIT, "page_size": 1000}
    plain = listener.send(path, body)
    small = listener.send(path, body, Accept_Encoding="gzip")
    assert len(plain.body) > COMPRESSED_FROM_BYTES
    assert small.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.body) == plain.body
    for unwelcome in ("gzip;q=0", "br, gzip ; q=0.000", "x-gzip", "identity"):
        assert "Content-Encoding" not in listener.send(path, body, Accept_Encoding=unwelcome).headers
    weighed = listener.send(path, body, Accept_Encoding="br;q=1, GZIP;q=0.5")
    assert weighed.headers["Content-Encoding"] == "gzip"


def test_a_slow_body_ends(listener: HttpListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SLOWEST_BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as slow:
        head = (
            f"POST {RECOMMEND} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        slow.sendall(head.encode() + b"{")
        answered = b""
        while chunk := slow.recv(4096):
            answered += chunk
    assert answered.startswith(b"HTTP/1.1 504")
    assert b"deadline_exceeded" in answered


def asks_for_pages(listener: HttpListener, *, count: int) -> socket.socket:
    """Ask for more than buffers take, and read nothing of it."""
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asking.settimeout(20.0)
    asking.connect(("127.0.0.1", listener.port))
    page = "GET /openapi.json HTTP/1.1\r\nHost: here\r\n"
    asking.sendall(f"{page}\r\n".encode() * (count - 1) + f"{page}Connection: close\r\n\r\n".encode())
    return asking


def untaken_answers(listener: HttpListener) -> list[http_connections.LibraryConnection]:
    """Return the connections with an answer that is not taken yet."""
    manager = listener.server._manager
    assert manager is not None
    return [one for one in manager.connections if one._look is not None]


@pytest.fixture
def clock(listener: HttpListener) -> Iterator[StandingClock]:
    with standing_clock(listener.running) as clock:
        yield clock


def test_a_caller_that_takes_no_answer_has_its_connection_for_a_while(
    listener: HttpListener, clock: StandingClock
) -> None:
    def has_ended() -> bool:
        clock.go_on(http_connections.UNREAD_SECONDS)
        return listener.server.open_connections() == 0

    with asks_for_pages(listener, count=60):
        until(lambda: untaken_answers(listener), what="an answer waits to be taken")
        clock.go_on(0.9 * http_connections.UNREAD_SECONDS)
        assert listener.server.open_connections() == 1
        until(has_ended, what="its connection has ended")


def test_a_caller_that_takes_an_answer_slowly_gets_all_of_it(listener: HttpListener, clock: StandingClock) -> None:
    one = len(listener.send("/openapi.json", method="GET").body)

    async def wait_if_some_was_taken() -> bool:
        """Let the time for an answer pass if some of it was taken; in the loop, where none is taken meanwhile."""
        for answering in untaken_answers(listener):
            if http_connections._untaken_bytes(answering._outlet) < answering._untaken:
                clock.now += http_connections.UNREAD_SECONDS
                return True
        return False

    taken = waited = 0
    with asks_for_pages(listener, count=20) as asking:
        until(lambda: untaken_answers(listener), what="an answer waits to be taken")
        while piece := asking.recv(1 << 20):
            taken += len(piece)
            waited += waited < 5 and listener.running.run(wait_if_some_was_taken())
    assert (waited, taken > 20 * one) == (5, True)


def closed_at_once(port: int) -> bool:
    """Return whether a new connection ends by itself; those that come in the same moment may all be let in."""
    with socket.create_connection(("127.0.0.1", port), timeout=1) as one:
        return one.recv(1) == b""


def test_connections_beyond_the_limit_are_closed_and_others_served_later() -> None:
    with opened(max_connections=2) as listener:
        silent = [socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) for _ in range(2)]
        until(lambda: closed_at_once(listener.port), what="a third connection is closed")
        for one in silent:
            one.close()
        until(
            lambda: listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}).status == 200, what="a place is free"
        )


def test_a_connection_that_says_nothing_ends(listener: HttpListener, clock: StandingClock) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as silent:
        until(lambda: is_over(silent, clock), what="the connection has ended")
        assert silent.recv(1) == b""


def is_over(one: socket.socket, clock: StandingClock) -> bool:
    """Let a connection be idle for long enough, and tell whether it says something, as one that ends does."""
    clock.go_on(http_connections.IDLE_SECONDS)
    return bool(select.select([one], [], [], 0.0)[0])


def test_a_call_ends_at_its_deadline(listener: HttpListener, clock: StandingClock) -> None:
    listener.server._clock = clock
    listener.running.close_gate()
    with ThreadPoolExecutor(1) as caller:
        calling = caller.submit(
            listener.send, RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Connect_Timeout_Ms="100"
        )
        until(lambda: "recommend" in listener.running.shop.calls, what="the call is under way")
        clock.go_on(0.1)
        answer = calling.result(PATIENCE)
    assert (answer.status, answer.content["code"]) == (504, "deadline_exceeded")
    listener.running.open_gate()
    listener.running.ledger.wait_handled(1)
    assert listener.running.ledger.codes == ["DEADLINE_EXCEEDED"]


def test_both_doors_share_the_limit_of_calls_in_flight() -> None:
    with opened(max_in_flight=1) as listener:
        listener.running.close_gate()
        waiting = asyncio.run_coroutine_threadsafe(
            asyncio.to_thread(listener.send, RECOMMEND, {"bandit": BANDIT, "context": [1.0]}), listener.running.loop
        )
        listener.running.ledger.wait_started(1)
        refused = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]})
        assert (refused.status, refused.content["code"]) == (429, "resource_exhausted")
        assert refused.headers["Retry-After"] == "1"
        assert "google.rpc.RetryInfo" in {detail["type"] for detail in refused.content["details"]}
        listener.running.open_gate()
        assert waiting.result(timeout=PATIENCE).status == 200


def test_rules_of_http_that_are_not_kept_are_refused(listener: HttpListener) -> None:
    refused = listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Expect="200-ok")
    assert (refused.status, refused.content["message"]) == (417, "Expect can't be '200-ok'")
    assert listener.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Expect="100-continue").status == 200
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as connection:
        connection.sendall(f"POST {RECOMMEND} HTTP/2.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/2.0 505 ")


def test_pages_of_named_origins_may_call(listener: HttpListener) -> None:
    assert listener.send(RECOMMEND, method="OPTIONS", Origin="https://shop.example").status == 403
    with opened(origins=("https://shop.example",)) as shop:
        asked = shop.send(RECOMMEND, method="OPTIONS", Origin="https://shop.example")
        assert asked.status == 204
        assert asked.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        allowed = set(asked.headers["Access-Control-Allow-Headers"].split(", "))
        assert {"Content-Type", "Content-Encoding", "Tracestate"} <= allowed
        called = shop.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Origin="https://shop.example")
        assert (called.status, called.headers["Vary"]) == (200, "Origin")
        assert called.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        other = shop.send(RECOMMEND, {"bandit": BANDIT, "context": [1.0]}, Origin="https://other.example")
        assert "Access-Control-Allow-Origin" not in other.headers


def test_every_method_of_every_service_is_there(listener: HttpListener) -> None:
    for service in http_server.DESCRIPTORS:
        for method in service.methods:
            assert listener.send(f"/{service.full_name}/{method.name}", b"{}").status != 404


@pytest.mark.parametrize(("path", "kind"), [("/", "text/html"), ("/openapi.json", "application/json")])
def test_documents_are_kept_by_browsers_and_asked_for_again(listener: HttpListener, path: str, kind: str) -> None:
    plain = listener.send(path, method="GET")
    assert (plain.status, plain.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
    assert plain.headers["Cache-Control"] == "no-cache"
    small = listener.send(path, method="GET", Accept_Encoding="gzip")
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < len(plain.body) / 2
    assert small.headers["ETag"] == plain.headers["ETag"]
    same = listener.send(path, method="GET", If_None_Match=plain.headers["ETag"])
    assert (same.status, same.body, same.headers["ETag"]) == (304, b"", plain.headers["ETag"])
    assert listener.send(path, method="GET", If_None_Match='"another"').status == 200
    head = listener.send(path, method="HEAD")
    assert (head.status, head.body, int(head.headers["Content-Length"])) == (200, b"", len(plain.body))
    posted = listener.send(path, {})
    assert (posted.status, posted.headers["Allow"]) == (405, "GET, HEAD")
    assert listener.running.ledger.started == []


def test_the_openapi_document_has_every_path_that_is_served(listener: HttpListener) -> None:
    paths = listener.send("/openapi.json", method="GET").content["paths"]
    served = {
        f"/{service.full_name}/{method.name}" for service in http_server.DESCRIPTORS for method in service.methods
    }
    assert served - set(paths) == {"/google.longrunning.Operations/DeleteOperation"}
    assert set(paths) <= served


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused_without_a_line_in_the_log(
    listener: HttpListener, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.sendall(sent)
        answered = b"".join(iter(lambda: one.recv(4096), b""))
    head, _, body = answered.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert json.loads(body)["code"] == "invalid_argument"
    assert len(body) < 400
    assert caplog.records == []


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("Host: here\r\nContent-Type: a/b\r\nContent-Type: a/b\r\nContent-Length: 0", "Content-Type"),
        ("Content-Type: a/b\r\nContent-Length: 0", "Host"),
        ("Host: here\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding"),
    ],
)
def test_a_header_that_is_wrong_is_named(listener: HttpListener, lines: str, named: str) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.sendall(f"POST / HTTP/1.1\r\n{lines}\r\n\r\n".encode())
        answered = b"".join(iter(lambda: one.recv(4096), b""))
    assert named in json.loads(answered.partition(b"\r\n\r\n")[2])["message"]


def asked(path: str, body: bytes = b"{}", *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: here", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *lines, "", ""]).encode() + body


def answers_in(one: socket.socket, count: int) -> list[Answer]:
    """Read so many answers from a connection."""
    return [answer_in(one) for _ in range(count)]


def answer_in(one: socket.socket) -> Answer:
    sent = b""
    while not sent.endswith(b"\r\n\r\n"):
        part = one.recv(1)
        assert part, "the connection ended"
        sent += part
    first, _, lines = sent.partition(b"\r\n")
    headers = http.client.parse_headers(io.BytesIO(lines))
    body = b""
    while part := one.recv(int(headers["Content-Length"]) - len(body)):
        body += part
    return Answer(int(first.split()[1]), headers, body)


GET, LIST = "/topk_bandit.v1.BanditService/GetBandit", "/topk_bandit.v1.BanditService/ListItems"
OF_BANDIT = json.dumps({"name": BANDIT}).encode()
LONG = json.dumps({"bandit": BANDIT, "pageSize": 100}).encode()
NOT_ON_FAST_PATH = "TE: trailers"  # which changes nothing but who reads the request


@pytest.mark.parametrize(
    ("path", "body", "lines"),
    [
        (GET, OF_BANDIT, ()),
        (GET, OF_BANDIT, ("X-Request-Id: view-1", "Traceparent: 00-" + "a" * 32 + "-" + "b" * 16 + "-01")),
        (GET, OF_BANDIT, ("Origin: https://shop.example",)),
        (GET, OF_BANDIT, ("Origin: https://other.example",)),
        (GET, OF_BANDIT, ("Connect-Timeout-Ms: 5000", "Connect-Protocol-Version: 1")),
        (GET, b"{", ()),
        (GET, b'{"name": "none"}', ()),
        (GET, b'{"name": "tenants/acme/bandits/none"}', ("Origin: https://shop.example",)),
        (GET, OF_BANDIT, ("Connect-Timeout-Ms: soon",)),
        (GET, OF_BANDIT, ("Connect-Timeout-Ms: 0",)),
        (GET, OF_BANDIT, ("Connect-Protocol-Version: 2",)),
        (GET, b" " * (MAX_BYTES // 2) + OF_BANDIT, ()),
        (LIST, LONG, ()),
        (LIST, LONG, ("Accept-Encoding: br, gzip",)),
        ("/nothing", b"{}", ()),
    ],
    ids=range(15),
)
def test_requests_on_the_fast_path_are_answered_as_by_the_library(
    path: str, body: bytes, lines: tuple[str, ...]
) -> None:
    with (
        opened(origins=("https://shop.example",)) as listener,
        socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one,
    ):
        one.sendall(asked(path, body, *lines))
        fast = answer_in(one)
        one.sendall(asked(path, body, *lines, NOT_ON_FAST_PATH))
        library = answer_in(one)
    assert fast.status == library.status
    packed = fast.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(fast.body) == gzip.decompress(library.body) if packed else fast.body == library.body
    assert headers_beside(fast) == headers_beside(library)
    if "X-Request-Id: view-1" in lines:
        assert fast.headers["X-Request-Id"] == "view-1"
        assert fast.headers["Traceparent"].startswith("00-" + "a" * 32)


def headers_beside(answer: Answer) -> dict[str, str]:
    """Return the headers, without those that depend on the packing; of ids only that they are there."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    for name in {"x-request-id", "traceparent"} & set(headers):
        headers[name] = "is there"
    for name in ("date", "server", *(["content-length"] if "content-encoding" in headers else [])):
        headers.pop(name, None)
    return headers


def test_a_request_as_dotnet_sends_it(listener: HttpListener) -> None:
    """`PostAsJsonAsync` sends no length, and names the characters of its JSON."""
    body = json.dumps({"bandit": BANDIT, "context": [1.0]}).encode()
    head = asked(RECOMMEND, b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    chunked = head.replace(b"/json", b"/json; charset=utf-8") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.sendall(chunked)
        answer = answer_in(one)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert len(answer.content["itemIds"]) == 2


@pytest.mark.parametrize("seconds", [0.0, 0.04, 0.2], ids=["at once", "in time", "slowly"])
def test_a_request_may_come_in_pieces(listener: HttpListener, seconds: float) -> None:
    whole = asked(GET, OF_BANDIT)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, end in ((0, 3), (3, 60), (60, len(whole) - 5), (len(whole) - 5, len(whole))):
            one.sendall(whole[begin:end])
            time.sleep(seconds)
        assert answer_in(one).status == 200


def test_requests_one_behind_the_other_are_answered_in_order(listener: HttpListener) -> None:
    names = [f"view-{number}" for number in range(40)]
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        listener.running.close_gate()
        one.sendall(asked(RECOMMEND, json.dumps({"bandit": BANDIT, "context": [1.0]}).encode()))
        listener.running.ledger.wait_started(1)
        for name in names:
            one.sendall(asked(GET, OF_BANDIT, f"X-Request-Id: {name}"))
        listener.running.open_gate()
        first, *others = answers_in(one, 1 + len(names))
    assert first.status == 200
    assert [answer.headers["X-Request-Id"] for answer in others] == names


def test_a_flood_of_requests_that_wait_is_not_read_before_they_are_due(listener: HttpListener) -> None:
    request = asked(GET, b" " * 30_000 + OF_BANDIT)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        listener.running.close_gate()
        one.sendall(asked(RECOMMEND, json.dumps({"bandit": BANDIT, "context": [1.0]}).encode()))
        listener.running.ledger.wait_started(1)
        one.settimeout(1.0)
        with pytest.raises(TimeoutError):
            one.sendall(request * 1000)
        one.settimeout(PATIENCE)
        listener.running.open_gate()
        assert [answer.status for answer in answers_in(one, 20)] == [200] * 20


def test_a_caller_that_leaves_has_its_call_cancelled(listener: HttpListener) -> None:
    listener.running.close_gate()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.sendall(asked(RECOMMEND, json.dumps({"bandit": BANDIT, "context": [1.0]}).encode()))
        listener.running.ledger.wait_started(1)
        one.shutdown(socket.SHUT_WR)
        listener.running.ledger.wait_handled(1)
    assert listener.running.ledger.codes == ["CANCELLED"]


def test_a_call_under_way_is_answered_while_the_server_ends(listener: HttpListener) -> None:
    listener.running.close_gate()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        one.sendall(asked(RECOMMEND, json.dumps({"bandit": BANDIT, "context": [1.0]}).encode()))
        listener.running.ledger.wait_started(1)
        draining = asyncio.run_coroutine_threadsafe(listener.server.drain(PATIENCE), listener.running.loop)
        until(lambda: not listener.server._listener.is_serving(), what="it is ending")  # type: ignore[union-attr]
        assert not draining.done()
        listener.running.open_gate()
        assert answer_in(one).status == 200
        assert one.recv(1) == b""
        draining.result(timeout=PATIENCE)
    assert listener.server.open_connections() == 0


def test_a_connection_that_is_used_stays_and_one_that_is_not_ends(listener: HttpListener, clock: StandingClock) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE) as one:
        for _ in range(6):
            one.sendall(asked(GET, OF_BANDIT))
            assert answer_in(one).status == 200
            clock.go_on(0.4 * http_connections.IDLE_SECONDS)
        until(lambda: is_over(one, clock), what="the connection has ended")
        assert one.recv(1) == b""


@contextmanager
def encrypted(listener: HttpListener, folder: Path) -> Iterator[tuple[int, Callable[[], ssl.SSLSocket]]]:
    """Open a second listener to the same services; gives its port, and what connects to it."""
    certificate, key = write_pair(folder)
    second = HttpListener(listener.running, max_connections=100, tls=ServerCertificate(certificate, key))
    listener.running.run(second.open())
    context = ssl.create_default_context(cafile=str(certificate))
    try:
        yield (
            second.port,
            lambda: context.wrap_socket(
                socket.create_connection(("127.0.0.1", second.port), timeout=PATIENCE), server_hostname="localhost"
            ),
        )
    finally:
        listener.running.run(second.server.drain(0.0))


@pytest.mark.parametrize("first", [(), (NOT_ON_FAST_PATH,)], ids=["fast", "library"])
def test_requests_one_behind_the_other_are_answered_over_tls_too(
    listener: HttpListener, tmp_path: Path, first: tuple[str, ...]
) -> None:
    with encrypted(listener, tmp_path) as (_, connect), connect() as one:
        one.sendall(asked(GET, OF_BANDIT, *first) + asked(GET, OF_BANDIT) * 9)
        assert [answer.status for answer in answers_in(one, 10)] == [200] * 10


def test_a_call_over_tls_takes_longer_than_its_answer_may_wait(
    listener: HttpListener, tmp_path: Path, clock: StandingClock
) -> None:
    """Nothing of an answer is untaken while there is none."""
    whole = asked(RECOMMEND, json.dumps({"bandit": BANDIT, "context": [1.0]}).encode())
    for pieces in (1, 2):
        with encrypted(listener, tmp_path) as (_, connect), connect() as one:
            listener.running.close_gate()
            one.sendall(whole[: len(whole) // pieces])
            time.sleep(0.02)
            one.sendall(whole[len(whole) // pieces :])
            listener.running.ledger.wait_started(pieces)
            clock.go_on(3 * http_connections.UNREAD_SECONDS)
            listener.running.open_gate()
            assert answer_in(one).status == 200


def test_who_does_not_begin_to_speak_tls_is_let_go(
    listener: HttpListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_SECONDS", 0.3)
    with (
        encrypted(listener, tmp_path) as (port, _),
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as silent,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as half,
    ):
        half.sendall(b"\x16\x03\x01")
        assert (silent.recv(1), half.recv(1)) == (b"", b"")


def test_a_page_whose_name_resolves_to_loopback_can_not_call_a_service_without_keys(listener: HttpListener) -> None:
    guarded = HttpListener(listener.running, max_connections=9, only_loopback=True)
    listener.running.run(guarded.open())
    try:
        for host in ("localhost", "LOCALHOST:50080", "127.0.0.1", "127.9.9.9:1", "[::1]:50080"):
            assert guarded.send(RECOMMEND, {"bandit": BANDIT}, Host=host).status == 200
            assert guarded.send("/", method="GET", Host=host).status == 200
        for host in (
            "evil.example",
            "evil.example:50080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
        ):
            for method, path in (("POST", RECOMMEND), ("POST", UPDATE), ("GET", "/"), ("OPTIONS", RECOMMEND)):
                refused = guarded.send(path, {"bandit": BANDIT}, method=method, Host=host)
                assert refused.status == 403
                assert "loopback names alone" in refused.content["message"]
        assert listener.send(RECOMMEND, {"bandit": BANDIT}, Host="shop.example").status == 200
    finally:
        listener.running.run(guarded.server.drain(0.0))
