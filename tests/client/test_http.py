"""What is particular to calls over HTTP; whatever else clients do is tested over both ways to call."""

from __future__ import annotations

import gc
import http.server
import socket
import socketserver
import ssl
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.conftest import ONCE
from tests.rpc.certificates import certify, write_pair
from tests.rpc.harness import serving
from tests.servers import free_port
from tests.waiting import PATIENCE

from topk_bandit.client import (
    AsyncClient,
    Client,
    ClientError,
    DeadlineExceeded,
    Internal,
    PermissionDenied,
    Source,
    Tls,
    Unauthenticated,
    Unavailable,
    Unexpected,
)
from topk_bandit.client.timely_connections import connect_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.client.conftest import EitherClient

    Make = Callable[..., EitherClient]

OWN = ["a", "b"]


class Somebody(http.server.BaseHTTPRequestHandler):
    """Answers each call alike, as what is between a client and the service might."""

    protocol_version = "HTTP/1.1"
    status = 200
    body = b""
    answer_headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/proto"),)
    pause = 0.0
    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append({name.lower(): text for name, text in self.headers.items()})
        self.send_response(self.status)
        for name, text in self.answer_headers:
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        for byte in self.body if self.pause else ():
            self.wfile.write(bytes([byte]))
            time.sleep(self.pause)
        if not self.pause:
            self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def somebody(context: ssl.SSLContext | None = None, **answer: object) -> Iterator[tuple[str, list[Any]]]:
    seen: list[Any] = []
    handler = type("Handler", (Somebody,), {**answer, "seen": seen})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hangs up is no error here
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield f"http{'' if context is None else 's'}://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "target", ["http://", "https://:8080", "http://host?x=1", "http://host#x", "http://me@host", "http://me:x@host"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_address_is_refused(kind: type[Client | AsyncClient], target: str) -> None:
    with pytest.raises(ValueError, match="target must be http://host:port or https://host:port"):
        kind(target, tenant="acme")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_plain_text_has_no_tls(kind: type[Client | AsyncClient]) -> None:
    with pytest.raises(ValueError, match="use https://"):
        kind("http://127.0.0.1:1", tenant="acme", tls=Tls())


def test_where_nothing_listens_is_said(make: Make) -> None:
    target = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"nothing listens at {target}: start the service"):
        make(target, retry=ONCE).get_bandit("home")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_tls(make: Make, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    certificate = certify(own)
    strange = write_pair(other)[0].read_bytes()
    with serving() as server:
        target = server.open_http(tls=certificate)
        mine = Tls(root_certificates=certificate.pair.certificate)
        assert list(make(target, tls=mine).list_bandits()) == []
        for tls in (None, Tls(root_certificates=strange)):
            with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
                make(target, tls=tls, retry=ONCE).get_bandit("home")
    gc.collect()  # asyncio leaves it to the collector to close what refused a server's certificate


def test_a_certificate_of_the_client_s_own_is_shown(make: Make, tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    roots = certificate.read_bytes()
    with somebody(context) as (target, _):
        mine = Tls(root_certificates=roots, private_key=key.read_bytes(), certificate_chain=roots)
        assert list(make(target, tls=mine).list_bandits()) == []
        with pytest.raises(Unavailable):
            make(target, tls=Tls(root_certificates=roots), retry=ONCE).get_bandit("home")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (204, Unexpected),
        (302, Unexpected),
        (400, Internal),
        (401, Unauthenticated),
        (403, PermissionDenied),
        (404, Unexpected),
        (500, Unexpected),
        (502, Unavailable),
    ],
)
@pytest.mark.parametrize(
    "body", [b"<h1>Gone\n fishing</h1>", b"", b"\xff\xfe", b'{"code": "odd"}', b"[]", b'{"code":7}']
)
def test_answers_that_are_not_the_service_s(make: Make, status: int, kind: type[ClientError], body: bytes) -> None:
    more_headers = () if status != 302 else (("Location", "http://127.0.0.1:1/"),)
    if status == 204:
        body = b""
    with somebody(status=status, body=body, answer_headers=more_headers) as (target, seen):
        client = make(target, retry=ONCE)
        with pytest.raises(kind, match=f"HTTP status {status}") as raised:
            client.get_bandit("home")
        assert len(str(raised.value)) < 300
    assert seen


def test_details_that_can_not_be_read_leave_the_code(make: Make) -> None:
    body = b'{"code": "not_found", "message": "no", "details": [{"type": "a.B", "value": "!"}]}'
    with somebody(status=404, body=body) as (target, _), pytest.raises(Unexpected, match="HTTP status 404"):
        make(target).get_bandit("home")


def test_a_body_that_comes_in_drops_is_not_waited_for(make: Make) -> None:
    with somebody(body=b"x" * 10**5, pause=0.1) as (target, _):
        client = make(target, timeout=0.4)
        with pytest.raises(DeadlineExceeded):
            client.get_bandit("home")
        assert client.recommend("home", fallback=OWN, timeout=0.4).source is Source.FALLBACK


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\n"


@contextmanager
def dripping(begun: bytes, drop: bytes) -> Iterator[str]:
    """Answer each call with the beginning of an answer, and then a drop of it each 20 ms, for ever."""
    ended = threading.Event()

    class Dripping(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(begun)
                while not ended.wait(0.02):
                    self.request.sendall(drop)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("begun", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b"a"),
    ],
    ids=["a head", "one head after the other", "the size of a part", "what follows a body", "a body"],
)
def test_an_answer_that_comes_in_drops_is_not_waited_for(make: Make, begun: bytes, drop: bytes) -> None:
    with dripping(begun, drop) as target:
        client = make(target, timeout=0.4, retry=ONCE)
        assert client.recommend("home", fallback=OWN, timeout=0.2).source is Source.FALLBACK
        with pytest.raises(DeadlineExceeded):
            client.get_bandit("home")
        assert client.fallbacks == {"DEADLINE_EXCEEDED": 1}


@contextmanager
def deaf() -> Iterator[socket.socket]:
    """Listen, and take no connection: as many wait as may."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.settimeout(0.0)
            one.connect_ex(listener.getsockname())
        yield listener


def addresses_of(*listeners: socket.socket) -> list[tuple[object, ...]]:
    found = []
    for listener in listeners:
        found += socket.getaddrinfo(*listener.getsockname(), type=socket.SOCK_STREAM)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses")
def test_all_addresses_of_a_name_share_the_time_of_one_call() -> None:
    with deaf() as first, deaf() as second, socket.create_server(("127.0.0.1", 0)) as alive:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            connect_in_time(addresses_of(first, second, first), 0.6)
        assert time.monotonic() - begun > 0.5
        with connect_in_time(addresses_of(first, second, alive), 0.6) as connection:
            assert connection.getpeername() == alive.getsockname()
            assert 0.0 < (connection.gettimeout() or 0.0) < 0.4


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("text/html", b"<html></html>", Unexpected),
        ("text/html", b"", Unexpected),
        ("", b"", Unexpected),
        ("application/json", b"{}", Unexpected),
        ("application/proto", b"\xff\xff", Internal),
        ("Application/Proto; x=y", b"", Unexpected),
    ],
)
def test_what_answers_200_and_is_not_the_service_gives_no_slate(
    make: Make, kind: str, body: bytes, wanted: type[ClientError]
) -> None:
    with somebody(body=body, answer_headers=(("Content-Type", kind),) if kind else ()) as (target, _):
        client = make(target, retry=ONCE)
        assert client.recommend("home", fallback=OWN).source is Source.FALLBACK
        for call in (lambda: client.recommend("home"), lambda: client.reward("home", "a", 1.0)):
            with pytest.raises(wanted, match="the answer "):
                call()
        assert client.slates == {Source.FALLBACK: 1}


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"code": "ok", "message": "well"}'])
def test_errors_that_are_none_are_errors_all_the_same(make: Make, body: bytes) -> None:
    with somebody(status=400, body=body) as (target, _), pytest.raises(Internal, match="HTTP status 400"):
        make(target, retry=ONCE).get_bandit("home")


def test_what_is_sent_is_the_protocol(make: Make) -> None:
    with somebody() as (target, seen):
        assert list(make(f"{target}/behind/a/proxy/", key="acme.secret").list_bandits()) == []
    [headers] = seen
    assert headers["content-type"] == "application/proto"
    assert headers["connect-protocol-version"] == "1"
    assert headers["authorization"] == "Bearer acme.secret"
    assert 0 < int(headers["connect-timeout-ms"]) <= 1000 * PATIENCE


def test_a_connection_is_used_again(make: Make) -> None:
    with serving() as server:
        client = make(server.open_http())
        for _ in range(20):
            assert list(client.list_bandits()) == []
        assert server.http is not None
        assert server.http.open_connections() == 1


def test_threads_share_a_client() -> None:
    with serving() as server, Client(server.open_http(), tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("home", slate_size=1, item_capacity=4)
        client.upsert_items("home", ["a", "b"])
        found: list[str] = []

        def shop() -> None:
            found.extend(client.recommend("home").id for _ in range(20))

        threads = [threading.Thread(target=shop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 160
