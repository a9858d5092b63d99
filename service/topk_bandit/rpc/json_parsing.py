"""Functions that make a message of what its JSON holds, one for each type, made from its descriptor.

They take the usual form of each field, and leave every other one to `json_format`, which takes or refuses it. Whatever
they take, they take as `json_format` does, in a fraction of its time. Values of features may be plain, too.
"""

from __future__ import annotations

import json
from functools import cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from topk_bandit.rpc.json_features import FEATURE_VALUE, typed_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

    Read = Callable[[Any], Any]

__all__ = [
    "LIBRARYS_OWN",
    "UNUSUAL",
    "WRITTEN_AS_TEXT",
    "is_feature",
    "map_entry_of",
    "parser_of",
    "values_in",
    "with_typed_values",
]

UNUSUAL = (KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What is raised for JSON that only `json_format` can take or refuse."""

WRITTEN_AS_TEXT = frozenset(f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask"))
"""Messages that are a text in JSON, by a method of their own."""

LIBRARYS_OWN = "google.protobuf"
"""The package of messages whose JSON is unlike that of others."""

_WHOLE_NUMBERS = frozenset(
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}
)
_LONGEST_NUMBER = 20
"""Digits of the largest whole number of 64 bits."""


def values_in(payload: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return what a text holds; one of `UNUSUAL` is raised where an object has a key twice."""
    return _DECODER.decode(payload.decode())


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = dict(pairs)
    if len(told) != len(pairs):
        raise ValueError("a key is there twice")
    return told


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition)


@cache
def parser_of(descriptor: Descriptor) -> Callable[[Any], Message]:
    """Return what makes a message of this type of a parsed object, or raises one of `UNUSUAL`."""
    message_class = GetMessageClass(descriptor)
    if descriptor.full_name in WRITTEN_AS_TEXT:
        return partial(_read_text_of, message_class)
    if descriptor.file.package == LIBRARYS_OWN:
        return _leave
    readers = {field.name: (field.name, _reader_of(field)) for field in descriptor.fields}
    readers |= {field.json_name: readers[field.name] for field in descriptor.fields}
    choices = [[field.name for field in oneof.fields] for oneof in descriptor.oneofs if len(oneof.fields) > 1]

    def parse(told: Any) -> Message:  # noqa: ANN401 - whatever JSON holds
        values: dict[str, Any] = {}
        for key, value in _check_kind(told, dict).items():
            name, read = readers[key]
            if name in values:
                raise ValueError("a field is there by both its names")
            values[name] = None if value is None else read(value)
        if choices:
            _check(choices, values)
        return message_class(**values)

    return parse


def with_typed_values(told: Any, descriptor: Descriptor) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the JSON of a message with the values of features in their typed form, and without those that are null."""
    if not isinstance(told, dict) or descriptor.file.package == LIBRARYS_OWN:
        return told
    fields = {name: field for field in descriptor.fields for name in (field.name, field.json_name)}
    return {name: _typed_field(value, fields[name]) if name in fields else value for name, value in told.items()}


def _typed_field(told: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    entry = map_entry_of(field)
    if entry is not None and isinstance(told, dict):
        value = entry.fields_by_name["value"]
        if is_feature(value):
            return {key: typed_value(one) for key, one in told.items() if one is not None}
        return {key: _typed_field(one, value) for key, one in told.items()}
    if field.message_type is None or entry is not None:
        return told
    if isinstance(told, list):
        return [with_typed_values(one, field.message_type) for one in told]
    return with_typed_values(told, field.message_type)


def _check(choices: Sequence[Sequence[str]], values: dict[str, Any]) -> None:
    for names in choices:
        if sum(values.get(name) is not None for name in names) > 1:
            raise ValueError("one of several fields is wanted")


def _reader_of(field: FieldDescriptor) -> Read:
    """Return what reads a field; null was looked at before."""
    entry = map_entry_of(field)
    if entry is not None:
        return _map_reader_of(entry)
    if not field.is_repeated:
        return _single_reader_of(field)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _read_numbers
    return partial(_read_list, _single_reader_of(field))


def map_entry_of(field: FieldDescriptor) -> Descriptor | None:
    """Return what describes the entries of a map, None for a field that is none."""
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def _map_reader_of(entry: Descriptor) -> Read:
    if entry.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
        return _leave
    value = entry.fields_by_name["value"]
    reads = _read_present if is_feature(value) else _read_map
    return partial(reads, _single_reader_of(value))


def is_feature(field: FieldDescriptor) -> bool:
    """Return whether a field is a feature's value."""
    return field.message_type is not None and field.message_type.full_name == FEATURE_VALUE


def _single_reader_of(field: FieldDescriptor) -> Read:
    if field.message_type is not None:
        parse = parser_of(field.message_type)
        return (lambda told: parse(typed_value(told))) if is_feature(field) else parse
    if field.enum_type is not None:
        return _enum_reader_of(field.enum_type)
    if field.type in _WHOLE_NUMBERS:
        return _read_whole_number
    return _READERS.get(field.type, _leave)


def _enum_reader_of(enum: EnumDescriptor) -> Read:
    if enum.is_closed:
        return _leave
    numbers = {name: value.number for name, value in enum.values_by_name.items()}
    return lambda told: told if type(told) is int else numbers[told]


def _leave(_told: Any) -> Any:  # noqa: ANN401
    raise ValueError("a field of this kind is not read here")


def _check_kind(told: Any, kind: type) -> Any:  # noqa: ANN401
    """Return what is of exactly this kind: to the message's own checks a boolean is a number, and a text a list."""
    if type(told) is not kind:
        raise TypeError("not of the kind that is usual")
    return told


def _read_list(read: Read, told: Any) -> list[Any]:  # noqa: ANN401
    return [read(value) for value in _check_kind(told, list)]


def _read_numbers(told: Any) -> Any:  # noqa: ANN401
    """Return a list of numbers; what is no number can't be added, nor is a sum with one that is not finite."""
    numbers = _finite(told, sum(_check_kind(told, list)))
    if bool in map(type, numbers):
        raise TypeError("a boolean is no number")
    return numbers


def _read_map(read: Read, told: Any) -> dict[str, Any]:  # noqa: ANN401
    return {key: read(value) for key, value in _check_kind(told, dict).items()}


def _read_present(read: Read, told: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a map without what is null: such a feature is missing."""
    return {key: read(value) for key, value in _check_kind(told, dict).items() if value is not None}


def _read_text_of(message_class: type[Any], told: Any) -> Message:  # noqa: ANN401
    message: Message = message_class()
    message.FromJsonString(_check_kind(told, str))  # type: ignore[attr-defined]
    return message


def _read_whole_number(told: Any) -> int:  # noqa: ANN401
    if type(told) is str and len(told) <= _LONGEST_NUMBER and told.isascii() and told.isdigit():
        return int(told)
    number: int = _check_kind(told, int)
    return number


def _finite(told: Any, number: float) -> Any:  # noqa: ANN401
    if not isfinite(number):
        raise ValueError("not finite")
    return told


_READERS: dict[int, Read] = {
    FieldDescriptor.TYPE_STRING: lambda told: _check_kind(told, str),
    FieldDescriptor.TYPE_BOOL: lambda told: _check_kind(told, bool),
    FieldDescriptor.TYPE_DOUBLE: lambda told: _leave(told) if type(told) is bool else _finite(told, told),
}
