"""Answers of the HTTP server: a message, or an error of the Connect protocol."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import grpc
from aiohttp import web
from google.rpc.status_pb2 import Status

from topk_bandit.domain.nearest import find_nearest
from topk_bandit.rpc.json_messages import error_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Header = tuple[str, str]

__all__ = [
    "COMPRESSED_FROM_BYTES",
    "JSON",
    "PROTO",
    "Written",
    "problem",
    "refusal",
    "success",
    "unknown_packing",
    "unknown_path",
    "written_refusal",
    "written_success",
    "wrong_kind",
    "wrong_method",
]

JSON, PROTO = "application/json", "application/proto"
COMPRESSED_FROM_BYTES = 1024
_LONGEST_PATH = 60
_PARTS = re.compile("[/.:]")
_GZIP_BITS = 16 + zlib.MAX_WBITS
_NO_WEIGHT = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


class Written(NamedTuple):
    """An answer as it is sent, and whether the connection ends with it."""

    sent: bytes
    ends: bool = False


async def written_success(headers: Mapping[str, str], body: bytes, more_headers: Iterable[Header]) -> Written:
    """Return the answer to a request on the fast path, as `success` would be sent, with `more_headers`."""
    packed = ""
    if len(body) >= COMPRESSED_FROM_BYTES and _reads_gzip(headers.get("accept-encoding", "")):
        body = await asyncio.to_thread(zlib.compress, body, wbits=_GZIP_BITS)
        packed = "Content-Encoding: gzip\r\n"
    first = f"HTTP/1.1 200 OK\r\nContent-Type: {headers['content-type']}\r\n{packed}"
    return Written(_head(first, more_headers, len(body)) + body)


def written_refusal(response: web.Response, more_headers: Iterable[Header]) -> Written:
    """Return an error as it is sent, with `more_headers`."""
    first = f"HTTP/1.1 {response.status} {response.reason}\r\n"
    ends = response.keep_alive is False
    if ends:
        more_headers = (("Connection", "close"), *more_headers)
    body = cast("bytes", response.body)
    return Written(_head(first, (*response.headers.items(), *more_headers), len(body)) + body, ends)


def _head(first: str, headers: Iterable[Header], length: int) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"{first}{lines}Content-Length: {length}\r\nDate: {_date(int(time.time()))}\r\n\r\n".encode("latin-1")


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def success(request: web.BaseRequest, body: bytes) -> web.Response:
    """Return an answer, of the request's kind, compressed if it is long and the caller can read that."""
    response = web.Response(body=body, content_type=request.content_type)
    if len(body) >= COMPRESSED_FROM_BYTES and _reads_gzip(request.headers.get("Accept-Encoding", "")):
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _reads_gzip(accepted: str) -> bool:
    """Return whether an `Accept-Encoding` names gzip, and not to say that it is unwelcome."""
    for one in accepted.lower().split(","):
        packing, _, weight = one.partition(";")
        if packing.strip() == "gzip":
            return not _NO_WEIGHT.fullmatch(weight)
    return False


def problem(code: grpc.StatusCode, message: str, *, http_status: int | None = None) -> web.Response:
    """Return an error without details; `http_status` is the code's unless it is given."""
    return refusal(Status(code=code.value[0], message=message), http_status=http_status)


def unknown_path(path: str, known: Iterable[str]) -> web.Response:
    """Return the refusal of a request whose path is none of a method, with the nearest one that is known."""
    by_method = {one.rpartition("/")[2]: one for one in known}
    near = find_nearest(_PARTS.split(path.rstrip("/"))[-1], by_method)
    hint = (
        f"there are {', '.join(sorted(by_method))[:_LONGEST_PATH]}..." if near is None else f"is it {by_method[near]}?"
    )
    message = f"there is no such method: {path[:_LONGEST_PATH]!r}; {hint}"
    return problem(grpc.StatusCode.UNIMPLEMENTED, message, http_status=404)


def wrong_kind(got: str) -> web.Response:
    """Return the refusal of a request whose body is of a kind that no call takes, by its header."""
    expected = f"expected the header Content-Type: {JSON}, or {PROTO}"
    refused = problem(grpc.StatusCode.UNIMPLEMENTED, f"{expected}, got {got[:_LONGEST_PATH]!r}", http_status=415)
    refused.headers["Accept-Post"] = f"{JSON}, {PROTO}"
    return refused


def unknown_packing(known: Sequence[str]) -> web.Response:
    """Return the refusal of a request whose body is packed in a way that is not known here."""
    refused = problem(
        grpc.StatusCode.UNIMPLEMENTED, f"bodies are plain, or packed with {' or '.join(known)}", http_status=415
    )
    refused.headers["Accept-Encoding"] = ", ".join(known)
    return refused


def wrong_method(message: str, *, allowed: str) -> web.Response:
    """Return the refusal of a request by another method than the `allowed` ones."""
    refused = problem(grpc.StatusCode.UNIMPLEMENTED, message, http_status=405)
    refused.headers["Allow"] = allowed
    return refused


def refusal(status: Status, *, http_status: int | None = None) -> web.Response:
    """Return an error; `http_status` is the code's unless it is given."""
    own_status, body = error_to_json(status)
    response = web.Response(status=http_status or own_status, body=body, content_type=JSON)
    if own_status in {429, 503}:
        response.headers["Retry-After"] = "1"
    if own_status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
        response.force_close()  # its body was not read
    return response
