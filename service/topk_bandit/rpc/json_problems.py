"""What is wrong with a JSON body, and in which field: read from what `json_format` says when it refuses one.

The library words some of its errors by the exceptions of Python that it met, which tell a caller nothing.
"""

from __future__ import annotations

import re
from json import JSONDecodeError

from google.protobuf.json_format import ParseError

from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["json_problem"]

_BODY = "request"
_LONGEST_FIELD = 128
"""Names of fields, and keys in them, are the caller's."""

_UNLOADED = "Failed to load JSON: "
_FAILED = "Failed to parse JSON: "
_FIELDS = re.compile(r"Failed to parse (\w+) field: ")
_PLACE = re.compile(r' at "?[A-Z]\w*(?:\.([^\s"]+?))?"?\.*$')
_UNKNOWN = re.compile(r'has no field named "(.*?)" at "\w+\.?(.*?)"')
_CONVERSION = re.compile(r"(?: : )?invalid literal for int\(\).*")
_BRACKETS_OR_CAPITAL = re.compile(r"\[[^]]*\]|[A-Z]")


def json_problem(error: Exception) -> InvalidArgumentError:
    """Return the refusal of a body that could not be read as its message."""
    field, problem = _field_and_problem(error)
    return InvalidArgumentError(field[:_LONGEST_FIELD], problem)


def _field_and_problem(error: Exception) -> tuple[str, str]:
    root, text = _root_of(error), str(error)
    if isinstance(root, UnicodeDecodeError):
        return _BODY, "is not UTF-8"
    if isinstance(root, RecursionError):
        return _BODY, "is nested too deeply"
    if text.startswith(_UNLOADED):
        return _BODY, f"is no JSON: {_load_problem(root)}"
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        name, within = unknown.groups()
        return f"{_wire_path(within)}.{name}".lstrip("."), "is no field of this message"
    return _told_by_field(root, text)


def _root_of(error: BaseException) -> BaseException:
    """Return what an error was raised from in the end."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _load_problem(root: BaseException) -> str:
    if isinstance(root, JSONDecodeError | ParseError):
        return str(root).removeprefix(_UNLOADED).rstrip(".")
    return "a number has too many digits"


def _told_by_field(root: BaseException, text: str) -> tuple[str, str]:
    names, place = _FIELDS.findall(text), _PLACE.search(text)
    field = _wire_path(place[1]) if place and place[1] else ".".join(map(_wire_path, names))
    if text.startswith(_FAILED) or not field:
        return _BODY, "is not the JSON of this message"
    if not isinstance(root, ParseError | ValueError):
        return field, "is not of its kind"
    said = _CONVERSION.sub("", _PLACE.sub("", _FIELDS.sub("", text)))
    return field, said.rstrip(".") or "is no whole number"


def _wire_path(name: str) -> str:
    """Return a field's path as the protos have it; what is in brackets, such as the key of a map, stays as it is."""
    return _BRACKETS_OR_CAPITAL.sub(lambda found: found[0] if found[0][0] == "[" else f"_{found[0].lower()}", name)
