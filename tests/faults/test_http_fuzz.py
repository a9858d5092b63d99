"""Requests that nobody should send, over a socket: the documented errors, and a service that is as it was before."""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.faults.service import Service, page, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until

from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATHS = [f"/{service.full_name}/{method.name}" for service in DESCRIPTORS for method in service.methods]
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
HEAD = f"POST {RECOMMEND} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NO_HTTP = (
    b"POST",
    b"POST / HTTP/7",
    b"POST / HTTP/1.1\r\n: x",
    b"POST / HTTP/1.1\r\nA b: x",
    b"POST / HTTP/1.1\r\nContent-Length: +1",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked, x",
    b"GET / HTTP/1.1\r\nA: \x00",
    b"GET / HTTP/1.1\r\nA: " + b"a" * 9000,
    b"GET / HTTP/1.1" + b"\r\nA: b" * 500,
    b"GET /" + b"a" * 9000 + b" HTTP/1.1",
    b"GET http://[ HTTP/1.1",
    b"GET // HTTP/1.1",
    b"CONNECT a:1 HTTP/1.1",
    b"* * HTTP/1.1",
)
DEPTH = 10_000
CALLERS = 4
SLOW = 30
MIB = 1 << 20
ROOM = 48 * MIB
"""What allocators may keep; the requests of the shortest run have some hundred."""


class Answer(NamedTuple):
    status: int
    code: str
    body: bytes


class Request(NamedTuple):
    """What is sent, how many answers there must be at least, and whether answers are to HEAD, without their body."""

    sent: bytes
    answers: int
    head: bool = False


def documented() -> set[tuple[int, str]]:
    """Return each status with each of its codes, as the page says."""
    rows = re.findall(
        r"^\| ([\d, ]+) \| (.+) \|$", (ROOT / "docs" / "http.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    codes = {(int(status), code) for statuses, told in rows for status in statuses.split(",") for code in names(told)}
    assert {(400, "invalid_argument"), (404, "unimplemented"), (429, "resource_exhausted")} <= codes
    return codes - {(500, "internal")} | {(200, ""), (204, ""), (304, ""), (403, "")}


def names(told: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", told)


class Sender:
    """Makes up requests: each seed has its own."""

    def __init__(self, examples: dict[str, bytes], seed: int) -> None:
        self.examples = examples
        self.random = random.Random(seed)

    def request(self) -> Request:
        makers = (self.call, self.call, self.call, self.pipelined, self.no_http, self.lying, self.chunked)
        return self.random.choice(makers)()

    def call(self) -> Request:
        method = self.random.choice(["POST"] * 12 + ["GET", "PUT", "HEAD", "OPTIONS", "TRACE", "PATCH", "BREW"])
        body, encoding = self.encoded(self.body())
        lines = [f"{method} {self.path()} HTTP/1.1".encode("latin-1"), *self.headers(), *encoding]
        return Request(self.joined(lines, body), 1, head=method == "HEAD")

    def pipelined(self) -> Request:
        count = self.random.randint(2, 20)
        one = self.examples[RECOMMEND]
        head = f"{HEAD}Content-Length: {len(one)}\r\n\r\n"
        last = self.joined([b"GET /none HTTP/1.1", b"Host: localhost"], b"")
        return Request((head.encode() + one) * count + last, count + 1)

    def no_http(self) -> Request:
        noise = self.random.randbytes(self.random.randint(1, 3000))
        line = self.random.choice([*NO_HTTP, noise])
        return Request(line + b"\r\n\r\n" + noise, 0)

    def lying(self) -> Request:
        body = self.body()
        length = self.random.choice([len(body) // 2, len(body) + 1000, 10**12, 10**30])
        lines = [
            f"POST {self.path()} HTTP/1.1".encode("latin-1"),
            *self.headers(),
            f"Content-Length: {length}".encode(),
        ]
        return Request(b"\r\n".join([*lines, b"", body]), 0)

    def chunked(self) -> Request:
        body = self.body()
        size = self.random.choice([f"{len(body):x}", "-1", "zz", "f" * 40, f"{len(body) + 5:x}", "0", ""])
        lines = [f"POST {self.path()} HTTP/1.1".encode("latin-1"), *self.headers(), b"Transfer-Encoding: chunked"]
        return Request(b"\r\n".join([*lines, b"", size.encode(), body, b"0", b"", b""]), 0)

    def joined(self, lines: list[bytes], body: bytes) -> bytes:
        return b"\r\n".join([*lines, b"Connection: close", f"Content-Length: {len(body)}".encode(), b"", body])

    def path(self) -> str:
        known = self.random.choice([path for path in PATHS if not path.endswith("/CreateStudy")])
        odd = [
            "/",
            "/openapi.json",
            "/%00",
            "/%ff%fe",
            "/../../etc/passwd",
            "//",
            f"/{known}",
            f"{known}/",
            known[:-1],
            "*",
        ]
        odd += [f"{known}?a=b#c", known.lower(), "/" + "%2f" * 500, "http://other/" + known, "/\xe9", known + "%0a"]
        return self.random.choice([known] * 30 + odd)

    def headers(self) -> list[bytes]:
        kinds = [b"application/json"] * 12 + [b"application/proto"] * 4
        kinds += [b"text/plain", b"", b"application/json; charset=utf-16", b"application/json;;;=", b"\xff", b"a/b/c"]
        lines = [b"Host: localhost", b"Content-Type: " + self.random.choice(kinds)]
        more = [b"Connect-Timeout-Ms: ", b"Connect-Protocol-Version: ", b"Accept-Encoding: ", b"Origin: ", b"Cookie: "]
        more += [b"If-None-Match: ", b"Accept: ", b"Range: bytes=", b"Expect: ", b"Upgrade: ", b"Connection: Upgrade, "]
        values = [
            b"0",
            b"1",
            b"-1",
            b"1e9",
            b"gzip",
            b"100-continue",
            b"websocket",
            b"\xff\xfe",
            b'"',
            b"*",
            b"a" * 4000,
        ]
        if self.random.random() < 0.4:
            lines += [self.random.choice(more) + self.random.choice(values) for _ in range(3)]
        return lines

    def encoded(self, body: bytes) -> tuple[bytes, list[bytes]]:
        name = self.random.choice(
            [b""] * 8 + [b"gzip", b"gzip", b"deflate", b"br", b"zstd", b"identity", b"other", b"gzip, gzip"]
        )
        if not name:
            return body, []
        packed = self.random.choice([body, gzip.compress(body), zlib.compress(body), gzip.compress(bytes(20 * MIB), 1)])
        return packed, [b"Content-Encoding: " + name]

    def body(self) -> bytes:
        example = self.random.choice(list(self.examples.values()))
        at = self.random.randrange(len(example))
        whole = [
            example,
            example[:at],
            example[:at] + self.random.randbytes(3) + example[at:],
            self.random.randbytes(at + 1),
        ]
        opening = self.random.choice(["[", '{"a":', '{"bandit":', '{"features":{"a":{"labels":'])
        deep = [(opening * DEPTH).encode(), ("[" * DEPTH + "]" * DEPTH).encode(), (opening * 40).encode()]
        odd = [
            b"",
            b"null",
            b"1",
            b'"a"',
            b"[]",
            b"\xef\xbb\xbf{}",
            b'{"bandit":"\\ud800"}',
            b'{"bandit":NaN}',
            b'{"":{}}',
        ]
        odd += [
            b'{"bandit":' + b"9" * 5000 + b"}",
            b'{"bandit":1e400}',
            b'{"context":[1e400]}',
            b'{"' + b"x" * 100_000 + b'":1}',
        ]
        odd += ['{"bandit":"a"}'.encode("utf-16"), b'{"@type":"a","@type":"b"}', b" " * 9 * MIB]
        return self.random.choice([*whole, *whole, *whole, *deep, *odd])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        yield running


def port_of(service: Service) -> int:
    return int(service.http_address.rpartition(":")[2])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        yield one


def sent(port: int, request: Request) -> list[Answer]:
    """Send a request; return the answers, or those that came before the caller, whose request has no end, gave up."""
    with connected(port) as one:
        with suppress(OSError):  # it may be refused before all of it was sent
            one.sendall(request.sent)
        if not request.answers:
            one.settimeout(0.02)
        return list(answers_in(received(one), head=request.head, whole=request.answers > 0))


def received(one: socket.socket) -> bytes:
    taken = b""
    with suppress(OSError):
        while chunk := one.recv(1 << 16):
            taken += chunk
    return taken


class _Stream:
    """What was received, as a socket that responses are read from."""

    def __init__(self, taken: bytes) -> None:
        self.file = BytesIO(taken)
        self.file.close = lambda: None  # type: ignore[method-assign]  # the next response is behind this one

    def makefile(self, _mode: str) -> BytesIO:
        return self.file


def answers_in(taken: bytes, *, head: bool = False, whole: bool = True) -> Iterator[Answer]:
    stream = _Stream(taken)
    head = head and not taken.startswith(b"HTTP/1.0")  # what can't be read has no method
    while stream.file.tell() < len(taken):
        response = HTTPResponse(stream, method="HEAD" if head else "POST")  # type: ignore[arg-type]
        try:
            response.begin()
            body = response.read()
        except (HTTPException, ValueError) as error:
            if not whole:
                return
            pytest.fail(f"{error!r}: {taken[:500]!r}")
        if response.status >= 400 and body:
            yield Answer(response.status, json.loads(body)["code"], body)
        else:
            yield Answer(response.status, "", body)


def examples_of(port: int) -> dict[str, bytes]:
    """Return a first request of each method, as the document has it."""
    paths = json.loads(page(port, "/openapi.json")[1])["paths"]
    kinds = {path: one["post"]["requestBody"]["content"]["application/json"] for path, one in paths.items()}
    return {path: json.dumps(kind["example"]).encode() for path, kind in kinds.items()}


def fuzz(port: int, *, count: int, seed: int) -> int:
    """Send so many requests; return how many answers there were."""
    allowed, examples = documented(), examples_of(port)

    def one(number: int) -> int:
        request = Sender(examples, seed * 1_000_000 + number).request()
        answers = sent(port, request)
        known = allowed | {(status, "") for status, _ in allowed if request.head}
        wrong = [answer for answer in answers if (answer.status, answer.code) not in known]
        assert not wrong, (wrong, request.sent[:1000])
        assert len(answers) >= request.answers, (answers, request.sent[:1000])
        assert all(len(answer.body) < 20_000 for answer in answers if answer.status >= 400), request.sent[:1000]
        return len(answers)

    with ThreadPoolExecutor(CALLERS) as pool:
        return sum(pool.map(one, range(count)))


def memory_of(pid: int) -> int:
    told = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", told)[0]) * 1024


def open_files_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def slow_bodies(port: int) -> Iterator[list[socket.socket]]:
    """Open connections whose requests have begun and do not go on."""
    head = f"{HEAD}Content-Length: 100\r\n\r\n"
    begun = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(SLOW)]
    try:
        for one in begun:
            one.sendall(head.encode() + b'{"bandit":')
        yield begun
    finally:
        for one in begun:
            one.close()


@pytest.mark.long_form
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_requests_that_nobody_should_send(service: Service) -> None:
    port, (worker,) = port_of(service), service.worker_pids
    fuzz(port, count=usual_or_long(300, long=2000), seed=1)
    memory, files = memory_of(worker), open_files_of(worker)
    with slow_bodies(port) as begun:
        assert fuzz(port, count=usual_or_long(700, long=20_000), seed=2) > 500
        for one in begun:
            assert [(answer.status, answer.code) for answer in answers_in(received(one))] == [
                (504, "deadline_exceeded")
            ]
    until(lambda: open_files_of(worker) <= files + 2, what="its connections are gone")
    until(lambda: memory_of(worker) <= memory + ROOM, what=f"its memory is back from {memory / MIB:.0f} MiB")
    assert service.worker_pids == [worker]
    sender = Sender({}, 0)
    (told,) = sent(port, Request(sender.joined([HEAD.strip().encode()], b'{"bandit": "tenants/acme/bandits/none"}'), 1))
    assert (told.status, told.code) == (404, "not_found")
