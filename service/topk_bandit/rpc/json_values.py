"""Single values of a JSON body: each is read as of its field's kind, in the form that `json_format` takes.

Numbers and times are read by `topk_bandit.domain.values`, as in files. Each function raises ``ValueError`` with what
was expected, what was got, and how to write it.
"""

from __future__ import annotations

import json
import re
import sys
from math import isfinite
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.values import read_number, read_time, shorten
from topk_bandit.rpc.json_parsing import is_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.descriptor import EnumDescriptor

__all__ = ["READERS_OF_TEXTS", "find_meant", "read_double", "read_name", "read_scalar", "show"]

_LONGEST_SHOWN = 60
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})
"""What stands for numbers that are not finite in protobuf's JSON; the fields' own checks refuse these."""

_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
"""The ends of whole numbers."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(|ms|m|min|h|d)", re.ASCII)
_SECONDS_OF = {"": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_CLIENTS_ERRORS = (TypeError, ValueError, OverflowError, AttributeError)


def show(value: Any) -> str:  # noqa: ANN401, whatever JSON holds
    """Return a value as messages show it: texts as everywhere, and all else as JSON has it."""
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return "a number of more digits"
    return json.dumps(value, ensure_ascii=False)[:_LONGEST_SHOWN]


_OTHER_NAMES = {"reward": "value", "rating": "value", "score": "value"}
"""What people call fields whose names are not like that."""


def find_meant(name: str, names: Iterable[str]) -> str | None:
    """Return which of some names is meant: one that begins or ends with a name, or the nearest one."""
    names, stem = list(names), name.lower().rstrip("s")
    if (other := _OTHER_NAMES.get(stem)) in names:
        return other
    part = (one for one in names if f"_{stem}_" in f"_{one.lower()}_")
    return next(part, None) or find_nearest(name, names)


def read_scalar(value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    """Return a number, a text or a boolean; None if a number is missing."""
    kind = field.cpp_type
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return read_double(value)
    if kind in _WHOLE:
        return _read_whole(value, *_WHOLE[kind])
    expected, wanted = ("true or false", bool) if kind == FieldDescriptor.CPPTYPE_BOOL else ("a text", str)
    if isinstance(value, wanted):
        return value
    is_bare = wanted is str and isinstance(value, int | float) and not isinstance(value, bool)
    hint = f': write it in quotation marks, "{show(value)}"' if is_bare else ""
    if wanted is bool and isinstance(value, str) and value in {"true", "false"}:
        hint = ": write it without quotation marks"
    raise ValueError(f"expected {expected}, got {show(value)}{hint}")


def read_double(value: Any) -> Any:  # noqa: ANN401
    """Return a finite number, or a word of protobuf's for one that is not; None if it is missing."""
    if isinstance(value, str):
        return value if value in _WORDS else read_number(value)
    if type(value) is int and abs(value) > sys.float_info.max:
        raise ValueError(f"expected a number of some 300 digits at most, got {str(value)[:20]}...")
    if type(value) not in {int, float}:
        raise ValueError(f"expected a number, got {show(value)}")
    if not isfinite(value):
        raise ValueError(f"expected a finite number, got {show(value)}")
    return value


def _read_whole(value: Any, low: int, high: int) -> Any:  # noqa: ANN401
    is_text = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)
    is_number = type(value) is int or (type(value) is float and value.is_integer())
    if not (is_text or is_number):
        raise ValueError(f"expected a whole number, got {show(value)}")
    if not low <= int(value) <= high:
        raise ValueError(f"expected a whole number from {low} to {high}, got {show(value)}")
    return value


def read_name(value: Any, enum: EnumDescriptor) -> Any:  # noqa: ANN401
    """Return one of an enumeration's names, or the number of one."""
    if type(value) is int or (isinstance(value, str) and (value in enum.values_by_name or _is_whole(value))):
        return value
    near = find_meant(value, enum.values_by_name) if isinstance(value, str) else None
    names = ", ".join(enum.values_by_name)
    hint = f"; the names are {names}" if near is None else f": is it {near}? The names are {names}"
    raise ValueError(f"expected a name, got {show(value)}{hint}")


def _is_whole(text: str) -> bool:
    return _WHOLE_NUMBER.fullmatch(text) is not None


def _read_timestamp(value: Any) -> str | None:  # noqa: ANN401
    """Return a time in the form of RFC 3339; None if it is missing."""
    if _is_taken(Timestamp, value):
        return str(value)
    time = read_time(value)
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def _read_duration(value: Any) -> str:  # noqa: ANN401
    if is_duration(value) and _is_taken(Duration, value):
        return str(value)
    text = f"{value:.20g}" if type(value) in {int, float} else value
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    hint = "" if match is None else f': write "{float(match[1]) * _SECONDS_OF[match[2]]:.12g}s"'
    raise ValueError(f'expected seconds such as "86400s", got {show(value)}{hint}')


def _read_mask(value: Any) -> str:  # noqa: ANN401
    if _is_taken(FieldMask, value):
        return str(value)
    hint = ""
    if isinstance(value, str) and "_" in value:
        camel = re.sub("_+([a-z]?)", lambda found: found[1].upper(), value)
        hint = f': write them in camel case, "{camel:.60}"'
    raise ValueError(f'expected one text of paths such as "rewardWait,halfLife", got {show(value)}{hint}')


def _is_taken(message: type[Any], value: Any) -> bool:  # noqa: ANN401
    """Return whether the library takes a text for a message."""
    try:
        message().FromJsonString(value)
    except _CLIENTS_ERRORS:
        return False
    return isinstance(value, str)


READERS_OF_TEXTS: dict[str, Callable[[Any], str | None]] = {
    "google.protobuf.Timestamp": _read_timestamp,
    "google.protobuf.Duration": _read_duration,
    "google.protobuf.FieldMask": _read_mask,
}
"""Messages that are a text in JSON."""
