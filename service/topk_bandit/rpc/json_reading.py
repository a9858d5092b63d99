"""A JSON body, read beside the description of its message: in the form that `json_format` takes, or refused by field.

What the library refuses, it refuses without the field's name, or without what was expected. So all is refused here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

from google.protobuf import json_format

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.paths import entry_of
from topk_bandit.rpc.json_features import WRITTEN_PLAINLY, typed_value
from topk_bandit.rpc.json_parsing import EMPTY_MEANS, FAST_PATH_ERRORS, LIBRARYS_OWN, is_feature, map_entry_of
from topk_bandit.rpc.json_values import READERS_OF_TEXTS, find_meant, read_double, read_name, read_scalar, show

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

__all__ = ["fill", "message_of", "read_body"]

_DEEPEST = 32
"""Messages are nested four deep at most; JSON may be a little deeper before it is refused."""

_Message = TypeVar("_Message", bound="Message")

_BODY = "request"
_LONGEST_FIELD = 128
"""Names of fields, and keys in them, are the caller's."""

_LONGEST_NAMES = 100


def read_body(content: Any, descriptor: Descriptor) -> dict[str, Any]:  # noqa: ANN401, whatever JSON holds
    """Return what a body says, by the names of the protos, without what is null or missing.

    Raises
    ------
    InvalidArgumentError
        A value is of another kind than its field, or the message does not have such a field.
    """
    return _read_message("", content, descriptor)


def message_of(content: Any, message: _Message) -> _Message:  # noqa: ANN401, whatever JSON holds
    """Return an empty message with what a body says; the errors are those of `read_body`."""
    return fill(message, read_body(content, cast("Descriptor", message.DESCRIPTOR)))


def fill(message: _Message, read: dict[str, Any]) -> _Message:
    """Return a message with what was read of a body; `InvalidArgumentError` if the library refuses it all the same."""
    try:
        return json_format.ParseDict(read, message, max_recursion_depth=_DEEPEST)
    except (json_format.ParseError, *FAST_PATH_ERRORS, AttributeError) as error:
        # The library lets some errors of values that are none of a field's type through as they are.
        raise InvalidArgumentError(_BODY, f"can't be read: {error}") from None


def _error(path: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(path.lstrip(".")[:_LONGEST_FIELD] or _BODY, problem)


def _read_message(path: str, content: Any, descriptor: Descriptor) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(content, dict):
        names = ", ".join(list(descriptor.fields_by_name)[:3])
        raise _error(path, f"expected an object with fields such as {names}, got {show(content)}")
    fields = {field.json_name: field for field in descriptor.fields} | dict(descriptor.fields_by_name)
    seen: dict[str, str] = {}
    found: dict[str, Any] = {}
    for name, value in content.items():
        field = fields.get(name)
        if field is None:
            raise _error(f"{path}.{name}", _unknown_name(name, descriptor))
        at = f"{path}.{field.name}"
        if seen.setdefault(field.name, name) != name:
            raise _error(at, f"is there by both its names, {seen[field.name]} and {name}: leave one of them out")
        read = None if value is None else _read_field(at, value, field)
        if read is not None:
            found[field.name] = read
    for oneof in descriptor.oneofs:
        chosen = [field.name for field in oneof.fields if field.name in found]
        if len(chosen) > 1:
            raise _error(path, f"has {' and '.join(chosen)}: leave one of them out")
    return found


def _unknown_name(name: str, descriptor: Descriptor) -> str:
    wanted = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name[:_LONGEST_FIELD])
    near, names = find_meant(wanted, descriptor.fields_by_name), ", ".join(descriptor.fields_by_name)
    hint = "; it has" if near is None else f": is it {near}? It has"
    shown = names if len(names) <= _LONGEST_NAMES else f"{names[:_LONGEST_NAMES]}..."
    return f"is no field of this message{hint} {shown}"


def _read_field(path: str, value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    """Return the value of a field; None if it is missing."""
    entry = map_entry_of(field)
    if entry is not None:
        return _read_map(path, value, entry.fields_by_name["value"])
    if not field.is_repeated:
        return _read_single(path, value, field)
    if not isinstance(value, list):
        raise _error(path, f"expected a list, got {show(value)}{_as_list(value, field)}")
    if not value and field.full_name in EMPTY_MEANS:
        raise _error(path, f"is an empty list, which would stand for {EMPTY_MEANS[field.full_name]}")
    return [_require(f"{path}[{place}]", one, field) for place, one in enumerate(value)]


def _as_list(value: Any, field: FieldDescriptor) -> str:  # noqa: ANN401
    """Return how to write a value as a list, if it could be an entry."""
    if isinstance(value, str):
        return ': write ["a", "b"]'
    is_entry = isinstance(value, dict) == (field.message_type is not None)
    return f": write [{'{...}' if isinstance(value, dict) else show(value)}]" if is_entry else ""


def _read_map(path: str, value: Any, field: FieldDescriptor) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _error(path, f'expected an object such as {{"name": value}}, got {show(value)}')
    there = {key: one for key, one in value.items() if one is not None or not is_feature(field)}
    return {key: _require(entry_of(path, key), one, field) for key, one in there.items()}


def _require(path: str, value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    """Return an entry of a list or a map, which may not be missing."""
    read = _read_single(path, value, field)
    if read is None:
        raise _error(path, f"is missing, got {show(value)}: leave it out, or write a value")
    return read


def _read_single(path: str, value: Any, field: FieldDescriptor) -> Any:  # noqa: ANN401
    message = field.message_type
    try:
        if message is None:
            return read_scalar(value, field) if field.enum_type is None else read_name(value, field.enum_type)
        if message.full_name in READERS_OF_TEXTS:
            return READERS_OF_TEXTS[message.full_name](value)
    except ValueError as error:
        raise _error(path, str(error)) from None
    if message.file.package == LIBRARYS_OWN:
        return value  # these have forms of their own
    return _read_feature(path, value, message) if is_feature(field) else _read_message(path, value, message)


def _read_feature(path: str, value: Any, descriptor: Descriptor) -> dict[str, Any]:  # noqa: ANN401
    typed = typed_value(value)
    if typed is value:
        _check_typed(path, value, descriptor)
        return _read_message(path, value, descriptor)
    for place, one in enumerate(value if isinstance(value, list) else [value]):
        try:
            if type(one) in {int, float}:
                read_double(one)
        except ValueError as error:
            at = f"{path}[{place}]" if isinstance(value, list) else path
            raise _error(at, f"{error}: leave out a feature that is missing") from None
    return typed  # type: ignore[no-any-return]


def _check_typed(path: str, value: Any, descriptor: Descriptor) -> None:  # noqa: ANN401
    """Refuse what is neither plain nor typed, such as features that are nested."""
    if not isinstance(value, dict):
        raise _error(path, f"expected a list of texts or of numbers, got {show(value)}")
    if value and not any(
        name in descriptor.fields_by_name or find_meant(name, descriptor.fields_by_name) for name in value
    ):
        hint = 'write nested features flat, such as "user.age"'
        raise _error(path, f"expected {WRITTEN_PLAINLY}, got {show(value)}: {hint}")
