"""Functions that return what the JSON of a message holds, one for each type, made from its descriptor.

They return what `json_format` does, in its order: first the fields that are set, then those without a message of their
own that are not. Messages with fields of a kind that none of our own has are left to it.
"""

from __future__ import annotations

import time
from functools import cache, partial
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from topk_bandit.rpc.json_parsing import LIBRARYS_OWN, WRITTEN_AS_TEXT, map_entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

    Show = Callable[[Any], Any]

__all__ = ["printer_of", "text_of"]

_SECONDS_PRINTED = range(253_402_300_800)
"""From 1970 to the end of the year 9999."""

_AS_THEY_ARE = frozenset(
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32}
)
_AS_TEXT = frozenset({FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64})
_SHOWN_HERE = (
    _AS_THEY_ARE | _AS_TEXT | {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_MESSAGE}
)


def text_of(values: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    """Return the JSON of values."""
    return msgspec.json.encode(values)


@cache
def printer_of(descriptor: Descriptor) -> Show:
    """Return what makes of a message of this type what its JSON holds."""
    if descriptor.full_name == Timestamp.DESCRIPTOR.full_name:
        return _shown_time
    if descriptor.full_name in WRITTEN_AS_TEXT:
        return lambda message: message.ToJsonString()
    if descriptor.file.package == LIBRARYS_OWN or not all(_is_shown_here(field) for field in descriptor.fields):
        return _as_library
    shown = {field.number: (field.json_name, _shower_of(field)) for field in descriptor.fields}
    unset = [(field.json_name, _when_unset(field)) for field in descriptor.fields if not field.has_presence]

    def show(message: Any) -> dict[str, Any]:  # noqa: ANN401
        values = {}
        for field, value in message.ListFields():
            name, show_value = shown[field.number]
            values[name] = show_value(value)
        for name, default in unset:
            values.setdefault(name, default)
        return values

    return show


def _shown_time(moment: Any) -> str:  # noqa: ANN401
    """Return a time in whole milliseconds, which are all that the service gives out; others are left to the library."""
    milliseconds, rest = divmod(moment.nanos, 1_000_000)
    if rest or moment.seconds not in _SECONDS_PRINTED:
        text: str = moment.ToJsonString()
        return text
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment.seconds))
    return f"{whole}.{milliseconds:03}Z" if milliseconds else f"{whole}Z"


def _as_library(message: Message) -> Any:  # noqa: ANN401
    return json_format.MessageToDict(message, always_print_fields_with_no_presence=True)


def _is_shown_here(field: FieldDescriptor) -> bool:
    entry = map_entry_of(field)
    if entry is not None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return key.type == FieldDescriptor.TYPE_STRING and _is_shown_here(value)
    return field.type in _SHOWN_HERE


def _when_unset(field: FieldDescriptor) -> Any:  # noqa: ANN401
    if map_entry_of(field) is not None:
        return {}
    return [] if field.is_repeated else _shower_of(field)(field.default_value)


def _shower_of(field: FieldDescriptor) -> Show:
    entry = map_entry_of(field)
    if entry is not None:
        return partial(_shown_map, _single_shower_of(entry.fields_by_name["value"]))
    if not field.is_repeated:
        return _single_shower_of(field)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _shown_numbers
    return list if field.type in _AS_THEY_ARE else partial(_shown_list, _single_shower_of(field))


def _single_shower_of(field: FieldDescriptor) -> Show:
    if field.message_type is not None:
        return printer_of(field.message_type)
    if field.enum_type is not None:
        return _enum_shower_of(field.enum_type)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _shown_number
    return str if field.type in _AS_TEXT else _as_it_is


def _enum_shower_of(enum: EnumDescriptor) -> Show:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number, number)


def _as_it_is(value: Any) -> Any:  # noqa: ANN401
    return value


def _shown_list(show: Show, values: Any) -> list[Any]:  # noqa: ANN401
    return [show(value) for value in values]


def _shown_map(show: Show, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: show(values[key]) for key in values}


def _shown_numbers(values: Any) -> list[Any]:  # noqa: ANN401
    """Return numbers; only if their sum is not finite one of them may not be."""
    numbers = list(values)
    return numbers if isfinite(sum(numbers)) else [_shown_number(number) for number in numbers]


def _shown_number(number: float) -> float | str:
    if isfinite(number):
        return number
    return "NaN" if isnan(number) else "Infinity" if number > 0 else "-Infinity"
