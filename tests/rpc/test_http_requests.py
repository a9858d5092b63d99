"""Which requests are read without the library: whole ones of one meaning, and no others."""

from __future__ import annotations

import pytest

from topk_bandit.rpc.http_requests import MOST_BYTES, FastPathRequest, NotYet, read_fast_path_request

HEAD = b"POST /a.b.C/D HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
BODY = b'{"a": 1}'
WHOLE = HEAD + b"X-Request-Id:\tview-1 \r\nCONTENT-LENGTH: 8\r\n\r\n" + BODY


def test_a_request_on_the_fast_path_is_read() -> None:
    request = read_fast_path_request(WHOLE)
    assert isinstance(request, FastPathRequest)
    assert (request.path, request.body) == ("/a.b.C/D", BODY)
    assert request.headers == {
        "host": "here",
        "content-type": "application/json",
        "x-request-id": "view-1",
        "content-length": "8",
    }


def test_a_beginning_of_one_is_unfinished_wherever_it_ends() -> None:
    assert {read_fast_path_request(WHOLE[:end]) for end in range(len(WHOLE))} == {NotYet.UNFINISHED}


def with_headers(*lines: bytes, length: bytes = b"8", body: bytes = BODY) -> bytes:
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"Content-Length: " + length + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "sent",
    [
        WHOLE + b"P",
        WHOLE + WHOLE,
        WHOLE.replace(b"POST", b"GET", 1),
        WHOLE.replace(b"POST", b"post", 1),
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        WHOLE.replace(b"/a.b.C/D", b"/a.b.C/D?x=1", 1),
        WHOLE.replace(b"/a.b.C/D", b"http://here/a.b.C/D", 1),
        HEAD + b"\r\n",  # no length
        with_headers(b"Content-Length: 8"),
        with_headers(b"Content-Length: 7"),
        with_headers(b"content-length: 0"),
        with_headers(length=b"+8"),
        with_headers(length=b"8, 8"),
        with_headers(length=b"0x8"),
        with_headers(length=b"\xb2", body=b"aa"),
        with_headers(length=str(MOST_BYTES).encode()),
        with_headers(length=b"9" * 5),
        with_headers(b"Transfer-Encoding: chunked"),
        with_headers(b"transfer-encoding: identity"),
        with_headers(b"Transfer-Encoding : chunked"),
        with_headers(b"X: y\r\n Transfer-Encoding: chunked"),
        with_headers(b"X: y\nTransfer-Encoding: chunked"),
        with_headers(b"X: y\rTransfer-Encoding: chunked"),
        with_headers(b"X: y\x00"),
        with_headers(b": y"),
        with_headers(b"no colon"),
        with_headers(b"Content-Encoding: gzip"),
        with_headers(b"Expect: 100-continue"),
        with_headers(b"Upgrade: h2c"),
        with_headers(b"Connection: close"),
        with_headers(b"Connection: keep-alive, upgrade"),
        with_headers(b"Authorization: Bearer a.b", b"Authorization: Bearer c.d"),
        with_headers(*(f"X-{number}: {'y' * 90}".encode() for number in range(90))),
        with_headers(*(f"X-{number}: y".encode() for number in range(98))),
        WHOLE.replace(b"Host: here\r\n", b"", 1),
        HEAD + b"X: " + b"y" * 9000,
        b"\x16\x03\x01\x02\x00",
        b"hello",
    ],
    ids=range(38),
)
def test_whatever_has_rules_of_its_own_is_left_to_the_library(sent: bytes) -> None:
    assert read_fast_path_request(sent) is NotYet.OTHER
