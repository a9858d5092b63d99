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


def check_body(told: Any, descriptor: Descriptor) -> None:  # noqa: ANN401, whatever JSON holds
    """Raise `InvalidArgumentError` for the first field that is of another kind, or that the message does not have."""
    _check_message("", told, descriptor)


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


def _check_message(path: str, told: Any, descriptor: Descriptor) -> None:  # noqa: ANN401
    if descriptor.file.package == LIBRARYS_OWN:
        return  # these have forms of their own
    if not isinstance(told, dict):
        names = ", ".join(list(descriptor.fields_by_name)[:3])
        raise _error(path, f"expected an object with fields such as {names}; got {_kind_of(told)}")
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    seen: dict[str, str] = {}
    for name, value in told.items():
        field = fields.get(name)
        if field is None:
            raise _error(f"{path}.{name}", f"is no field of this message{_nearest(name, descriptor.fields_by_name)}")
        if seen.setdefault(field.name, name) != name:
            raise _error(f"{path}.{field.name}", "is there by both its names")
        if value is not None:
            _check_field(f"{path}.{field.name}", value, field)


def _check_field(path: str, told: Any, field: FieldDescriptor) -> None:  # noqa: ANN401
    entry = map_entry_of(field)
    if entry is not None:
        if not isinstance(told, dict):
            raise _error(path, f'expected an object such as {{"name": value}}; got {_kind_of(told)}')
        value_field = entry.fields_by_name["value"]
        for key, value in told.items():
            if value is not None or not is_feature(value_field):
                _check_single(f"{path}[{key}]", value, value_field)
    elif field.is_repeated:
        if not isinstance(told, list):
            raise _error(path, f"expected a list such as [{_as_text(told)}]; got {_kind_of(told)}")
        for place, value in enumerate(told):
            _check_single(f"{path}[{place}]", value, field)
    else:
        _check_single(path, told, field)


def _check_single(path: str, told: Any, field: FieldDescriptor) -> None:  # noqa: ANN401
    if field.message_type is not None:
        typed = typed_value(told) if is_feature(field) else told
        if is_feature(field) and not isinstance(typed, dict):
            raise _error(path, f"expected {WRITTEN_PLAINLY}; got {_kind_of(told)}")
        _check_message(path, typed, field.message_type)
    elif field.enum_type is not None:
        _check_name(path, told, field.enum_type)
    elif (expected := _expected(told, field.cpp_type)) is not None:
        raise _error(path, f"expected {expected}; got {_kind_of(told)}")


def _expected(told: Any, kind: int) -> str | None:  # noqa: ANN401
    """Return what is expected in the place of a value; None if that may be what it is."""
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return None if isinstance(told, bool) else "true or false"
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return None if isinstance(told, str) else "a text"
    if kind in _WHOLE:
        is_whole = isinstance(told, str) and _WHOLE_NUMBER.fullmatch(told)
        is_number = type(told) is int or (type(told) is float and told.is_integer())
        return None if is_whole or is_number else "a whole number"
    if kind in _FRACTIONS:
        if type(told) is int and abs(told) > sys.float_info.max:
            return "a number of some 300 digits at most"
        return None if type(told) in {int, float} or (isinstance(told, str) and _NUMBER.fullmatch(told)) else "a number"
    return None


def _check_name(path: str, told: Any, enum: EnumDescriptor) -> None:  # noqa: ANN401
    if isinstance(told, str) and told not in enum.values_by_name and not _WHOLE_NUMBER.fullmatch(told):
        near = _nearest(told, enum.values_by_name)
        raise _error(path, f"expected one of {', '.join(enum.values_by_name)}{near}; got {told!r:.60}")
    if not isinstance(told, str) and type(told) is not int:
        raise _error(path, f"expected one of {', '.join(enum.values_by_name)}; got {_kind_of(told)}")


def _nearest(name: str, names: Collection[str]) -> str:
    near = find_nearest(name, names)
    return "" if near is None else f": is it {near}?"


def _as_text(told: Any) -> str:  # noqa: ANN401
    return f"{told:.20}" if isinstance(told, str) else _kind_of(told)


def _kind_of(told: Any) -> str:  # noqa: ANN401
    return _KINDS.get(type(told)) or f"{told!r:.60}"


def _wire_path(name: str) -> str:
    """Return a field's path as the protos have it; what is in brackets, such as the key of a map, stays as it is."""
    return re.sub(r"\[[^]]*\]|[A-Z]", lambda found: found[0] if found[0][0] == "[" else f"_{found[0].lower()}", name)
