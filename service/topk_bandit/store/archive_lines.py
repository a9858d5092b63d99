"""What lines of bandits and of studies have in common: events, parts of imports, and the line that ends them.

A line is a JSON object that stands for one thing, and an event is in it as the store's codec writes it. The last line
has what all others chain to, so that one that was changed or is missing is found. Nothing here reads an event.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "LATEST_MS",
    "ArchivedImport",
    "Count",
    "End",
    "Millis",
    "Position",
    "SharedFields",
    "chain",
    "line_text",
    "shared_fields",
    "value_of",
]

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no answer of the service can have a later time."""

_MOST = 10**14
"""What is counted has space to grow to the 15 digits that stores count in."""

Count = Annotated[int, Meta(ge=0, le=_MOST)]
Position = Annotated[int, Meta(ge=1, le=_MOST)]
Millis = Annotated[int, Meta(ge=0, le=LATEST_MS)]

_DIGEST_BYTES = 16
_EVENT_FIELDS = ["position", "at_ms", "event"]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ArchivedImport:
    """A part of an import of past slates, or of answers; see `topk_bandit.store.log.ImportPart`."""

    import_id: str
    first_row: int
    fingerprint: str
    next_row: int
    accepted: int
    position: int


@dataclass(frozen=True, slots=True)
class End:
    """The last line: the position of the last event, how many lines come before, and what these chain to."""

    position: int
    lines: int
    digest: str


class _ImportLayout(Struct, forbid_unknown_fields=True):
    import_id: str
    first_row: Count
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]+$")]
    next_row: Count
    accepted: Count
    position: Count


class _EndLayout(Struct, forbid_unknown_fields=True):
    position: Position
    lines: Position
    digest: str


class SharedFields(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The fields that lines of every kind may have."""

    position: Position | UnsetType = UNSET
    at_ms: Millis | UnsetType = UNSET
    event: Raw | UnsetType = UNSET
    imported: _ImportLayout | UnsetType = UNSET
    end: _EndLayout | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode


def chain(digest: str, line: str) -> str:
    """Return the digest of lines whose last one is `line` and whose others have `digest`; empty for none."""
    return blake2b(f"{digest}\n{line}".encode(), digest_size=_DIGEST_BYTES).hexdigest()


def line_text(line: SharedFields) -> str:
    """Return the text of a line that is no event."""
    return _encode(line).decode()


def shared_fields(value: ArchivedImport | End) -> SharedFields:
    """Return the line that stands for what is in lines of every kind."""
    values = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, End):
        return SharedFields(end=_EndLayout(*values))
    return SharedFields(imported=_ImportLayout(*values))


def value_of(
    text: str,
    decode: Callable[[str], SharedFields],
    *,
    event: Callable[[int, int, bytes], _Value],
    others: Mapping[str, Callable[[Any], _Value]],
) -> _Value | ArchivedImport | End:
    """Return what a line stands for.

    Parameters
    ----------
    decode
        Reads the line's fields.
    event
        Makes an event of its position, its time and its bytes.
    others
        What makes a value of each other field, but for those that lines of every kind have.

    Raises
    ------
    CorruptDataError
        It stands for nothing; the message says why.
    """
    try:
        line = decode(text)
        names = [name for name in line.__struct_fields__ if getattr(line, name) is not UNSET]
        if names == _EVENT_FIELDS:
            return event(line.position, line.at_ms, bytes(line.event))  # type: ignore[arg-type]
        if len(names) != 1 or names[0] in _EVENT_FIELDS:
            raise CorruptDataError(f"has the fields {', '.join(names) or 'of nothing'}")
        return _value(names[0], getattr(line, names[0]), others)
    except (ValueError, RecursionError, binascii.Error) as error:
        raise CorruptDataError(f"is no line of an archive: {error}") from None


def _value(field: str, value: Any, others: Mapping[str, Callable[[Any], _Value]]) -> _Value | ArchivedImport | End:  # noqa: ANN401
    if field == "imported":
        return ArchivedImport(*astuple(value))
    return End(*astuple(value)) if field == "end" else others[field](value)
