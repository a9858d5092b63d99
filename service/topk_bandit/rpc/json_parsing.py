"""Functions that make a message of what its JSON holds, one for each type, made from its descriptor.

They are the fast path: they take the common form of each field, and leave every other one to `json_format`. Whatever
they take, they take as `json_format` does, in a fraction of its time. Values of features may be plain, too.
"""

from __future__ import annotations

import json
import re
from functools import cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from topk_bandit.domain.json_text import may_vanish, parse_float
from topk_bandit.rpc.json_features import FEATURE_VALUE, typed_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

    Read = Callable[[Any], Any]

__all__ = [
    "EMPTY_MEANS",
    "FAST_PATH_ERRORS",
    "LIBRARYS_OWN",
    "WRITTEN_AS_TEXT",
    "is_duration",
    "is_feature",
    "map_entry_of",
    "parser_of",
    "values_in",
]

EMPTY_MEANS = {
    "topk_bandit.v1.RecommendRequest.candidate_item_ids": "every available item: leave it out if these are meant",
    "topk_bandit.v1.ActivateRequest.shown_item_ids": "the recommended slate: leave it out if that was shown",
}
"""What lists mean that are left out, where an empty one would mean the opposite; so an empty one is refused.

Binary messages can't tell the two apart.
"""

FAST_PATH_ERRORS = (KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What is raised for JSON that only `json_format` can take or refuse."""

WRITTEN_AS_TEXT = frozenset(f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask"))
"""Messages that are a text in JSON, by a method of their own."""

LIBRARYS_OWN = "google.protobuf"
"""The package of messages whose JSON is unlike that of others."""

_WHOLE_NUMBERS = frozenset(
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}
)
_DURATION = re.compile(r"-?[0-9]+(?:\.[0-9]{1,9})?s")
_LONGEST_NUMBER = 20
"""Digits of the largest whole number of 64 bits."""


def values_in(payload: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return what a text holds; one of `FAST_PATH_ERRORS` is raised for a key twice, or a number that vanishes."""
    text = payload.decode()
    return (_CAREFUL if may_vanish(text) else _DECODER).decode(text)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_without_repetition, parse_float=parse_float)


@cache
def parser_of(descriptor: Descriptor) -> Callable[[Any], Message]:
    """Return what makes a message of this type of a parsed object, or raises one of `FAST_PATH_ERRORS`."""
    message_class = GetMessageClass(descriptor)
    if descriptor.full_name in WRITTEN_AS_TEXT:
        return partial(_read_text_of, message_class)
    if descriptor.file.package == LIBRARYS_OWN:
        return _leave
    readers = {field.name: (field.name, _reader_of(field)) for field in descriptor.fields}
    readers |= {field.json_name: readers[field.name] for field in descriptor.fields}
    choices = [[field.name for field in oneof.fields] for oneof in descriptor.oneofs if len(oneof.fields) > 1]

    def parse(content: Any) -> Message:  # noqa: ANN401 - whatever JSON holds
        values: dict[str, Any] = {}
        for key, value in _check_kind(content, dict).items():
            name, read = readers[key]
            if name in values:
                raise ValueError("a field is there by both its names")
            values[name] = None if value is None else read(value)
        if choices:
            _check(choices, values)
        return message_class(**values)

    return parse


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
    if field.full_name in EMPTY_MEANS:
        return partial(_read_filled, _single_reader_of(field))
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
        return (lambda value: parse(typed_value(value))) if is_feature(field) else parse
    if field.enum_type is not None:
        return _enum_reader_of(field.enum_type)
    if field.type in _WHOLE_NUMBERS:
        return _read_whole_number
    return _READERS.get(field.type, _leave)


def _enum_reader_of(enum: EnumDescriptor) -> Read:
    if enum.is_closed:
        return _leave
    numbers = {name: described.number for name, described in enum.values_by_name.items()}
    return lambda value: value if type(value) is int else numbers[value]


def _leave(_value: Any) -> Any:  # noqa: ANN401
    raise ValueError("a field of this kind is not read here")


def _check_kind(value: Any, kind: type) -> Any:  # noqa: ANN401
    """Return what is of exactly this kind: to the message's own checks a boolean is a number, and a text a list."""
    if type(value) is not kind:
        raise TypeError("not of the expected kind")
    return value


def _read_list(read: Read, value: Any) -> list[Any]:  # noqa: ANN401
    return [read(one) for one in _check_kind(value, list)]


def _read_filled(read: Read, value: Any) -> list[Any]:  # noqa: ANN401
    return _read_list(read, value) or _leave(value)


def _read_numbers(value: Any) -> Any:  # noqa: ANN401
    """Return a list of numbers; what is no number can't be added, nor is a sum with one that is not finite."""
    numbers = _finite(value, sum(_check_kind(value, list)))
    if bool in map(type, numbers):
        raise TypeError("a boolean is no number")
    return numbers


def _read_map(read: Read, value: Any) -> dict[str, Any]:  # noqa: ANN401
    return {key: read(one) for key, one in _check_kind(value, dict).items()}


def _read_present(read: Read, value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a map without what is null: such a feature is missing."""
    return {key: read(one) for key, one in _check_kind(value, dict).items() if one is not None}


def _read_text_of(message_class: type[Any], value: Any) -> Message:  # noqa: ANN401
    message: Message = message_class()
    if message_class.DESCRIPTOR.full_name == "google.protobuf.Duration" and not is_duration(value):
        raise ValueError("no seconds")
    message.FromJsonString(_check_kind(value, str))  # type: ignore[attr-defined]
    return message


def is_duration(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is a duration to the nanosecond: the library takes finer ones for others, or for none."""
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def _read_whole_number(value: Any) -> int:  # noqa: ANN401
    if type(value) is str and len(value) <= _LONGEST_NUMBER and value.isascii() and value.isdigit():
        return int(value)
    number: int = _check_kind(value, int)
    return number


def _finite(value: Any, number: float) -> Any:  # noqa: ANN401
    if not isfinite(number):
        raise ValueError("not finite")
    return value


_READERS: dict[int, Read] = {
    FieldDescriptor.TYPE_STRING: lambda value: _check_kind(value, str),
    FieldDescriptor.TYPE_BOOL: lambda value: _check_kind(value, bool),
    FieldDescriptor.TYPE_DOUBLE: lambda value: _leave(value) if type(value) is bool else _finite(value, value),
}
