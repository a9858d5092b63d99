"""Calls over HTTP, as the Connect protocol has them: what both clients send, and what they take from an answer.

A call is one POST with a binary message. Errors are reported as gRPC reports them, so that the clients read one kind of
error. https://connectrpc.com/docs/protocol
"""

from __future__ import annotations

import json
import ssl
import tempfile
from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topk_bandit.client.values import Tls

__all__ = ["CLOSED_HERE", "HttpError", "HttpTarget", "headers_of", "is_http", "message_in", "tls_context"]

CLOSED_HERE = "Channel closed!"
"""What is said of a call whose channel was closed on this side: gRPC's own words."""

_PROTO = "application/proto"
_HEADERS = {
    "Content-Type": _PROTO,
    "Connect-Protocol-Version": "1",
    # What is small is not worth the time that compressing it takes.
    "Accept-Encoding": "identity",
    "User-Agent": "topk-bandit",
}

_CODES = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
"""Codes for answers that do not come from the service but, for example, from a proxy: the protocol's own table."""

_NAMES = {name.lower(): number for name, number in code_pb2.Code.items() if number} | {"canceled": code_pb2.CANCELLED}
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
_TYPES = "type.googleapis.com/"
_LONGEST_QUOTE = 200


def is_http(target: str) -> bool:
    """Return whether a target is an address that is called over HTTP."""
    return target.startswith(("http://", "https://"))


class HttpTarget(NamedTuple):
    """Where the service is.

    Attributes
    ----------
    base
        What the paths of methods are appended to.
    is_encrypted
        Whether it is talked to by TLS.
    """

    base: str
    is_encrypted: bool

    @classmethod
    def parse(cls, target: str, tls: Tls | None) -> HttpTarget:
        """Return the target of an address, or raise ValueError for one that can't be called."""
        parts = urlsplit(target)
        if not parts.hostname or parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"target must be http://host:port or https://host:port, not {target!r}")
        if parts.scheme == "http" and tls is not None:
            raise ValueError("target begins with http://, and tls is given: use https://")
        return cls(target.rstrip("/"), parts.scheme == "https")


def tls_context(tls: Tls | None) -> ssl.SSLContext:
    """Return how to talk TLS; None, and a `Tls` without roots, trust what the machine trusts."""
    roots = None if tls is None or tls.root_certificates is None else tls.root_certificates.decode()
    context = ssl.create_default_context(cadata=roots)
    if tls is not None and tls.certificate_chain is not None and tls.private_key is not None:
        # The library reads files alone; this one is its owner's, and gone at once.
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(tls.private_key + b"\n" + tls.certificate_chain)
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def headers_of(metadata: Iterable[tuple[str, str]], *, timeout: float) -> dict[str, str]:
    """Return the headers of a call that may take so many seconds."""
    return {**_HEADERS, **dict(metadata), "Connect-Timeout-Ms": str(max(1, round(1000 * timeout)))}


class HttpError(grpc.RpcError):
    """A call that failed, with the values of gRPC's own errors."""

    def __init__(self, code: grpc.StatusCode, message: str, status: Status | None = None) -> None:
        super().__init__(message)
        self._code = code
        self._message = message
        self._status = status

    def code(self) -> grpc.StatusCode:
        """Return the status code."""
        return self._code

    def details(self) -> str:
        """Return the message."""
        return self._message

    def trailing_metadata(self) -> Any:  # noqa: ANN401 - the stubs' own pair is of no other type
        """Return the status with its details, if the service sent any."""
        if self._status is None:
            return ()
        return (("grpc-status-details-bin", self._status.SerializeToString()),)


def message_in(http_status: int, kind: str, body: bytes, read: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - any message
    """Return the message that an answer is, or raise the error that it is.

    Whatever is between a client and the service may answer 200: an empty body would be a message with nothing in it.
    """
    if http_status != 200:
        raise _failure_of(http_status, body)
    if kind.partition(";")[0].strip().lower() != _PROTO:
        problem = f"the answer is no {_PROTO} but {kind[:_LONGEST_QUOTE] or 'of no kind'}: {_shorten_body(body)}"
        raise HttpError(grpc.StatusCode.UNKNOWN, problem)
    try:
        return read(body)
    except DecodeError:
        raise HttpError(grpc.StatusCode.INTERNAL, "the answer is not the message that was asked for") from None


def _failure_of(http_status: int, body: bytes) -> HttpError:
    """Return the error that an answer other than 200 is."""
    try:
        error = json.loads(body)
        status = Status(code=_NAMES[error["code"]], message=error.get("message", ""))
        for detail in error.get("details", ()):
            status.details.add(type_url=_TYPES + detail["type"], value=_decode_base64(detail["value"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        code = _CODES.get(http_status, grpc.StatusCode.UNKNOWN)
        return HttpError(code, f"HTTP status {http_status}: {_shorten_body(body)}")
    return HttpError(_STATUS_CODES[status.code], status.message, status)


def _decode_base64(text: Any) -> bytes:  # noqa: ANN401 - whatever JSON has
    return b64decode(text + "=" * (-len(text) % 4), validate=True)


def _shorten_body(body: bytes) -> str:
    """Return the beginning of what somebody else answered."""
    return " ".join(body[:_LONGEST_QUOTE].decode(errors="replace").split()) or "no message"
