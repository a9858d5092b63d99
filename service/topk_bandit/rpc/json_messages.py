"""Messages and errors as JSON: protobuf's mapping, and the errors of the Connect protocol.

Answers have every field, also those that are zero, so that a reader without the protos finds what the documents name.
What `json_format` does not take, `json_reading` reads or refuses before it.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

# What a status may have as details has to be known, to be printed.
from google.rpc import error_details_pb2  # noqa: F401

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.rpc.json_parsing import FAST_PATH_ERRORS, parser_of, values_in
from topk_bandit.rpc.json_printing import printer_of, text_of
from topk_bandit.rpc.json_reading import fill, read_body
from topk_bandit.rpc.json_sizes import check_size

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, MethodDescriptor
    from google.protobuf.message import Message
    from google.rpc.status_pb2 import Status

    from topk_bandit.rpc.interceptors import Handler

__all__ = ["HTTP_STATUS", "error_to_json", "with_json"]

_LARGEST_SLOW_PATH = 1 << 20
"""The library takes a microsecond or more for each value, ten times what the fast path takes."""

HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
}
"""The Connect protocol's table: https://connectrpc.com/docs/protocol#error-codes."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def with_json(handler: Handler, method: MethodDescriptor) -> Handler:
    """Return a method's handler with JSON instead of binary messages."""
    request_class = GetMessageClass(method.input_type)
    parse_fast, show = parser_of(method.input_type), printer_of(method.output_type)

    def parse(payload: bytes) -> Message:
        check_size(payload, method.input_type)
        try:
            return parse_fast(values_in(payload or b"{}"))
        except FAST_PATH_ERRORS:
            return _parse(payload or b"{}", method.input_type, request_class())

    return grpc.unary_unary_rpc_method_handler(
        handler.unary_unary,
        request_deserializer=parse,
        response_serializer=lambda message: text_of(show(message)),
    )


def _parse(payload: bytes, descriptor: Descriptor, message: Message) -> Message:
    try:
        content = parse_json(payload, takes_nan=True)
    except JsonError as error:
        raise InvalidArgumentError("request", str(error)) from None
    read = read_body(content, descriptor)
    if len(payload) > _LARGEST_SLOW_PATH:
        most = _LARGEST_SLOW_PATH
        problem = f"is larger than {most} bytes, and has numbers as texts or other forms that are not usual"
        raise InvalidArgumentError("request", problem)
    return fill(message, read)


def error_to_json(status: Status) -> tuple[int, bytes]:
    """Return the HTTP status and the body of an error, as the Connect protocol has them."""
    code = _CODES[status.code]
    body: dict[str, Any] = {"code": _name_of(code), "message": status.message}
    if status.details:
        body["details"] = [
            {
                "type": detail.type_url.rpartition("/")[2],
                "value": b64encode(detail.value).decode().rstrip("="),
                "debug": _read_detail(detail),
            }
            for detail in status.details
        ]
    return HTTP_STATUS[code], text_of(body)


def _read_detail(detail: Message) -> dict[str, Any]:
    """Return a detail as a person reads it."""
    return {name: value for name, value in json_format.MessageToDict(detail).items() if name != "@type"}


def _name_of(code: grpc.StatusCode) -> str:
    # Connect spells this one with one l.
    return "canceled" if code is grpc.StatusCode.CANCELLED else code.name.lower()
