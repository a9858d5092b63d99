"""Answers of the HTTP server: a message, or an error of the Connect protocol."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
from aiohttp import web
from google.rpc.status_pb2 import Status

from topk_bandit.rpc.json_messages import error_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COMPRESSED_FROM_BYTES",
    "JSON",
    "PROTO",
    "problem",
    "refusal",
    "success",
    "unknown_packing",
    "wrong_kind",
    "wrong_method",
]

JSON, PROTO = "application/json", "application/proto"
COMPRESSED_FROM_BYTES = 1024
_NO_WEIGHT = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


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
    """Return an error without details; `http_status` is the code's unless told otherwise."""
    return refusal(Status(code=code.value[0], message=message), http_status=http_status)


def wrong_kind() -> web.Response:
    """Return what is told to a request whose body is of a kind that no call takes."""
    refused = problem(grpc.StatusCode.UNIMPLEMENTED, f"bodies are {JSON} or {PROTO}", http_status=415)
    refused.headers["Accept-Post"] = f"{JSON}, {PROTO}"
    return refused


def unknown_packing(known: Sequence[str]) -> web.Response:
    """Return what is told to a request whose body is packed in a way that is not known here."""
    refused = problem(
        grpc.StatusCode.UNIMPLEMENTED, f"bodies are plain, or packed with {' or '.join(known)}", http_status=415
    )
    refused.headers["Accept-Encoding"] = ", ".join(known)
    return refused


def wrong_method(told: str, *, allowed: str) -> web.Response:
    """Return what is told to a request by another method than the `allowed` ones."""
    refused = problem(grpc.StatusCode.UNIMPLEMENTED, told, http_status=405)
    refused.headers["Allow"] = allowed
    return refused


def refusal(status: Status, *, http_status: int | None = None) -> web.Response:
    """Return an error; `http_status` is the code's unless told otherwise."""
    own_status, body = error_to_json(status)
    response = web.Response(status=http_status or own_status, body=body, content_type=JSON)
    if own_status in {429, 503}:
        response.headers["Retry-After"] = "1"
    if own_status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
        response.force_close()  # its body was not read
    return response
