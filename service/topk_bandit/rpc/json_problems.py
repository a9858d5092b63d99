"""What is wrong with a JSON body, and in which field: the body is walked beside the description of its message.

What is refused here, the library refuses too, and its words name neither the field nor what was expected. Numbers are
refused that only Python reads as such: ``"1_000"``, digits of other scripts, and ``true``.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseError

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.rpc.json_features import WRITTEN_PLAINLY, typed_value
from topk_bandit.rpc.json_parsing import LIBRARYS_OWN, is_feature, map_entry_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from google.protobuf.descriptor import Descriptor, EnumDescriptor

__all__ = ["check_body", "json_problem"]

_BODY = "request"
_LONGEST_FIELD = 128
"""Names of fields, and keys in them, are the caller's."""

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_KINDS = {str: "a text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}
_FRACTIONS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


def check_body(content: Any, descriptor: Descriptor) -> None:  # noqa: ANN401, whatever JSON holds
    """Raise `InvalidArgumentError` for the first field that is of another kind, or that the message does not have."""
    _check_message("", content, descriptor)


def json_problem(error: Exception) -> InvalidArgumentError:
    """Return the refusal of a body whose values the library could not take."""
    text = str(error)
    place = re.search(r' at "?[A-Z]\w*(?:\.([^\s"]+?))?"?\.*$', text)
    names = re.findall(r"Failed to parse (\w+) field: ", text)
    field = (place[1] if place else None) or ".".join(names) or _BODY
    said = re.sub(r'Failed to parse \w+ field: | at "?[A-Z]\w*(?:\.\S+?)?"?\.*$', "", text).rstrip(".")
    said = re.sub(r"(?: : )?invalid literal for int\(\).*", "", said)
    return _error(_wire_path(field), said if isinstance(error, ParseError) and said else "is not of its kind")


def _error(path: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(path.lstrip(".")[:_LONGEST_FIELD] or _BODY, problem)


def _check_message(path: str, content: Any, descriptor: Descriptor) -> None:  # noqa: ANN401
    if descriptor.file.package == LIBRARYS_OWN:
        return  # these have forms of their own
    if not isinstance(content, dict):
        names = ", ".join(list(descriptor.fields_by_name)[:3])
        raise _error(path, f"expected an object with fields such as {names}; got {_kind_of(content)}")
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    seen: dict[str, str] = {}
    for name, value in content.items():
        field = fields.get(name)
        if field is None:
            raise _error(f"{path}.{name}", f"is no field of this message{_nearest(name, descriptor.fields_by_name)}")
        if seen.setdefault(field.name, name) != name:
            raise _error(f"{path}.{field.name}", "is there by both its names")
        if value is not None:
            _check_field(f"{path}.{field.name}", value, field)


def _check_field(path: str, value: Any, field: FieldDescriptor) -> None:  # noqa: ANN401
    entry = map_entry_of(field)
    if entry is not None:
        if not isinstance(value, dict):
            raise _error(path, f'expected an object such as {{"name": value}}; got {_kind_of(value)}')
        value_field = entry.fields_by_name["value"]
        for key, one in value.items():
            if one is not None or not is_feature(value_field):
                _check_single(f"{path}[{key}]", one, value_field)
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _error(path, f"expected a list such as [{_as_text(value)}]; got {_kind_of(value)}")
        for place, one in enumerate(value):
            _check_single(f"{path}[{place}]", one, field)
    else:
        _check_single(path, value, field)


def _check_single(path: str, value: Any, field: FieldDescriptor) -> None:  # noqa: ANN401
    if field.message_type is not None:
        typed = typed_value(value) if is_feature(field) else value
        if is_feature(field) and not isinstance(typed, dict):
            raise _error(path, f"expected {WRITTEN_PLAINLY}; got {_kind_of(value)}")
        _check_message(path, typed, field.message_type)
    elif field.enum_type is not None:
        _check_name(path, value, field.enum_type)
    elif (expected := _expected(value, field.cpp_type)) is not None:
        raise _error(path, f"expected {expected}; got {_kind_of(value)}")


def _expected(value: Any, kind: int) -> str | None:  # noqa: ANN401
    """Return what is expected in the place of a value; None if that may be what it is."""
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return None if isinstance(value, bool) else "true or false"
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return None if isinstance(value, str) else "a text"
    if kind in _WHOLE:
        is_whole = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)
        is_number = type(value) is int or (type(value) is float and value.is_integer())
        return None if is_whole or is_number else "a whole number"
    if kind in _FRACTIONS:
        if type(value) is int and abs(value) > sys.float_info.max:
            return "a number of some 300 digits at most"
        return (
            None if type(value) in {int, float} or (isinstance(value, str) and _NUMBER.fullmatch(value)) else "a number"
        )
    return None


def _check_name(path: str, value: Any, enum: EnumDescriptor) -> None:  # noqa: ANN401
    if isinstance(value, str) and value not in enum.values_by_name and not _WHOLE_NUMBER.fullmatch(value):
        near = _nearest(value, enum.values_by_name)
        raise _error(path, f"expected one of {', '.join(enum.values_by_name)}{near}; got {value!r:.60}")
    if not isinstance(value, str) and type(value) is not int:
        raise _error(path, f"expected one of {', '.join(enum.values_by_name)}; got {_kind_of(value)}")


def _nearest(name: str, names: Collection[str]) -> str:
    near = find_nearest(name, names)
    return "" if near is None else f": is it {near}?"


def _as_text(value: Any) -> str:  # noqa: ANN401
    return f"{value:.20}" if isinstance(value, str) else _kind_of(value)


def _kind_of(value: Any) -> str:  # noqa: ANN401
    return _KINDS.get(type(value)) or f"{value!r:.60}"


def _wire_path(name: str) -> str:
    """Return a field's path as the protos have it; what is in brackets, such as the key of a map, stays as it is."""
    return re.sub(r"\[[^]]*\]|[A-Z]", lambda found: found[0] if found[0][0] == "[" else f"_{found[0].lower()}", name)
