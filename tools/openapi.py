"""Write ``service/topk_bandit/rpc/pages/openapi.json`` from the compiled protos: ``make protos``.

Each method is the POST that the HTTP server answers, and each comment of the protos a description. Nothing is described
that the protos do not have, but for a first request of each method, which ``first_requests.json`` has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from proto_comments import ENUMS, FIELDS, MESSAGES, METHODS, SERVICES, VALUES, Comments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FileDescriptorProto,
        MethodDescriptorProto,
        ServiceDescriptorProto,
    )

    Schema = dict[str, Any]

__all__ = ["describe", "main"]

ROOT = Path(__file__).resolve().parents[1]
FIRST_REQUESTS = Path(__file__).with_name("first_requests.json")
TARGET = ROOT / "service" / "topk_bandit" / "rpc" / "pages" / "openapi.json"
_SERVED = ("topk_bandit/", "google/longrunning/")
_UNSERVED_METHODS = ("DeleteOperation",)

_NUMBER: Schema = {"type": "number", "format": "double"}
_LONG: Schema = {"type": "string", "format": "int64"}
_SCALARS: Mapping[int, Schema] = {
    FieldDescriptorProto.TYPE_DOUBLE: _NUMBER,
    FieldDescriptorProto.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptorProto.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptorProto.TYPE_UINT32: {"type": "integer", "format": "uint32"},
    FieldDescriptorProto.TYPE_INT64: _LONG,
    FieldDescriptorProto.TYPE_UINT64: _LONG,
    FieldDescriptorProto.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptorProto.TYPE_STRING: {"type": "string"},
    FieldDescriptorProto.TYPE_BYTES: {"type": "string", "format": "byte"},
}
_WELL_KNOWN: Mapping[str, Schema] = {
    ".google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    ".google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d{1,9})?s$"},
    ".google.protobuf.FieldMask": {"type": "string", "description": "Names of fields, separated by commas."},
    ".google.protobuf.Empty": {"type": "object"},
    ".google.protobuf.Any": {
        "type": "object",
        "properties": {"@type": {"type": "string"}},
        "additionalProperties": True,
    },
}
_PLAIN = {"topk_bandit.v1.FeatureValue": ["object", "number", "string", "boolean", "array", "null"]}
"""What a request may have plain JSON for, beside an object of its fields: docs/http.md."""

_KEY = "A key, id.secret, where operators ask for keys."
_ERROR: Schema = {
    "type": "object",
    "description": "An error of the Connect protocol.",
    "required": ["code"],
    "properties": {
        "code": {"type": "string", "description": "gRPC's code in lower case, such as invalid_argument."},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "description": "Name of the message, such as google.rpc.BadRequest."},
                    "value": {"type": "string", "format": "byte", "description": "The message, without padding."},
                    "debug": {"type": "object", "description": "The message as JSON.", "additionalProperties": True},
                },
            },
        },
    },
}


def describe(files: FileDescriptorSet, first_requests: Mapping[str, Schema], *, version: str) -> Schema:
    """Return the OpenAPI document of all services in `files`, which have their comments.

    Each method has one of the `first_requests`, by its ``Service_Method``.
    """
    paths: Schema = {}
    schemas: Schema = {"Error": _ERROR}
    for file in files.file:
        if not file.name.startswith(_SERVED):
            continue
        comments = Comments(file)
        for number, message in enumerate(file.message_type):
            schemas[f"{file.package}.{message.name}"] = _message(message, comments, (MESSAGES, number))
        for number, enum in enumerate(file.enum_type):
            schemas[f"{file.package}.{enum.name}"] = _enum(enum, comments, (ENUMS, number))
        for number, service in enumerate(file.service):
            paths |= _service(file, service, comments, (SERVICES, number), first_requests)
    for name, kinds in _PLAIN.items():
        schemas[name]["type"] = kinds
    told = "Every call is a POST of JSON by the Connect protocol; the same calls are served over gRPC."
    return {
        "openapi": "3.1.0",
        "info": {"title": "topk-bandit", "version": version, "description": told},
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": _KEY}},
        },
    }


def _service(
    file: FileDescriptorProto,
    service: ServiceDescriptorProto,
    comments: Comments,
    path: tuple[int, ...],
    first_requests: Mapping[str, Schema],
) -> Schema:
    return {
        f"/{file.package}.{service.name}/{method.name}": {
            "post": _method(service, method, comments.about(*path, METHODS, number), first_requests)
        }
        for number, method in enumerate(service.method)
        if method.name not in _UNSERVED_METHODS
    }


def _method(
    service: ServiceDescriptorProto,
    method: MethodDescriptorProto,
    comment: str,
    first_requests: Mapping[str, Schema],
) -> Schema:
    name = f"{service.name}_{method.name}"
    return {
        "operationId": name,
        "tags": [service.name],
        "summary": comment.partition(". ")[0].rstrip("."),
        "description": comment,
        "requestBody": {
            "required": True,
            "content": _content(_reference(method.input_type), example=first_requests[name]),
        },
        "responses": {
            "200": {"description": "The answer.", "content": _content(_reference(method.output_type))},
            "default": {"description": "An error.", "content": _content({"$ref": "#/components/schemas/Error"})},
        },
    }


def _content(schema: Schema, **more: Schema) -> Schema:
    return {"application/json": {"schema": schema, **more}}


def _reference(type_name: str) -> Schema:
    if type_name in _WELL_KNOWN:
        return dict(_WELL_KNOWN[type_name])
    if type_name == ".google.rpc.Status":
        return {"type": "object", "properties": {"code": {"type": "integer"}, "message": {"type": "string"}}}
    return {"$ref": f"#/components/schemas/{type_name.lstrip('.')}"}


def _message(message: DescriptorProto, comments: Comments, path: tuple[int, ...]) -> Schema:
    entries = {f".{one.name}": one for one in message.nested_type if one.options.map_entry}
    properties = {
        field.json_name: _field(field, entries, comments.about(*path, FIELDS, number))
        for number, field in enumerate(message.field)
    }
    return {"type": "object", "description": comments.about(*path), "properties": properties}


def _field(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto], comment: str) -> Schema:
    schema = _kind(field)
    entry = next((one for name, one in entries.items() if field.type_name.endswith(name)), None)
    if entry is not None:
        schema = {"type": "object", "additionalProperties": _kind(entry.field[1])}
    elif field.label == FieldDescriptorProto.LABEL_REPEATED:
        schema = {"type": "array", "items": schema}
    return {**schema, "description": comment} if comment else schema


def _kind(field: FieldDescriptorProto) -> Schema:
    return dict(_SCALARS[field.type]) if field.type in _SCALARS else _reference(field.type_name)


def _enum(enum: EnumDescriptorProto, comments: Comments, path: tuple[int, ...]) -> Schema:
    values = [comments.about(*path, VALUES, number) for number in range(len(enum.value))]
    told = "\n\n".join([comments.about(*path), *filter(None, values)])
    return {"type": "string", "enum": [value.name for value in enum.value], "description": told}


def main(arguments: Sequence[str]) -> int:
    """Write the document of the compiled protos that are named first, or with ``--check`` compare it."""
    files = FileDescriptorSet.FromString(Path(arguments[0]).read_bytes())
    first_requests = json.loads(FIRST_REQUESTS.read_text(encoding="utf-8"))
    document = json.dumps(describe(files, first_requests, version="v1"), indent=1, ensure_ascii=False) + "\n"
    if "--check" not in arguments:
        TARGET.write_text(document, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == document:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is out of date: run make protos")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
