"""A study as lines of JSON: which one it is, its log, its requests and imports, and a line that ends them.

The log tells all but two things: how many questions a request wanted, and by which fingerprint a part of an import is
known again. The log is never trimmed, so it is there from its first event on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.archives import LATEST_MS, End, EndLayout, ImportLayout, event_line
from topk_bandit.store.arriving import ArchivedImport
from topk_bandit.store.study_codec import decode_study_event, encode_study_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ArchivedStudy", "StudyLine", "StudyRequest", "read_study_line", "write_study_line"]

SCHEMA = 1
"""Number of the layout of an archive."""

_Position = Annotated[int, Meta(ge=1, le=2**53)]


@dataclass(frozen=True, slots=True)
class ArchivedStudy:
    """The first line: a study as it was when its log had `log_position` events."""

    name: str
    incarnation: str
    log_position: int


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """A request that wanted so many questions, and was given `count` from number `first` on."""

    request_id: str
    wanted: int
    first: int
    count: int


StudyLine: TypeAlias = ArchivedStudy | LoggedStudyEvent | StudyRequest | ArchivedImport | End
"""What a line can be."""


class _Study(Struct, forbid_unknown_fields=True):
    v: Annotated[int, Meta(ge=SCHEMA, le=SCHEMA)]
    name: str
    incarnation: Annotated[str, Meta(pattern="^[0-9A-Za-z._-]{1,128}$")]
    log_position: _Position


class _Request(Struct, forbid_unknown_fields=True):
    request_id: str
    wanted: _Position
    first: _Position
    count: _Position


class _Line(Struct, forbid_unknown_fields=True, omit_defaults=True):
    position: _Position | UnsetType = UNSET
    at_ms: Annotated[int, Meta(ge=0, le=LATEST_MS)] | UnsetType = UNSET
    event: Raw | UnsetType = UNSET
    study: _Study | UnsetType = UNSET
    request: _Request | UnsetType = UNSET
    imported: ImportLayout | UnsetType = UNSET
    end: EndLayout | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


def write_study_line(value: StudyLine) -> str:
    """Return the line that stands for a value."""
    match value:
        case LoggedStudyEvent(position, at_ms, event):
            return event_line(position, at_ms, encode_study_event(event).decode())
        case ArchivedStudy(name, incarnation, log_position):
            line = _Line(study=_Study(SCHEMA, name, incarnation, log_position))
        case StudyRequest(request_id, wanted, first, count):
            line = _Line(request=_Request(request_id, wanted, first, count))
        case ArchivedImport():
            line = _Line(imported=ImportLayout(*(getattr(value, name) for name in value.__dataclass_fields__)))
        case End(position, lines, digest):
            line = _Line(end=EndLayout(position, lines, digest))
    return _encode(line).decode()


def read_study_line(text: str) -> StudyLine:
    """Return what a line stands for.

    Raises
    ------
    CorruptDataError
        It stands for nothing that `write_study_line` writes; the message says why.
    """
    try:
        line = _decode(text)
        told = [name for name in line.__struct_fields__ if getattr(line, name) is not UNSET]
        if told == ["position", "at_ms", "event"]:
            event = decode_study_event(bytes(line.event))  # type: ignore[arg-type]
            return LoggedStudyEvent(line.position, line.at_ms, event)  # type: ignore[arg-type]
        if len(told) != 1 or told[0] not in _READERS:
            raise CorruptDataError(f"has the fields {', '.join(told) or 'of nothing'}")
        return _READERS[told[0]](getattr(line, told[0]))
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"is no line of an archive: {error}") from None


_READERS: Mapping[str, Callable[[Any], StudyLine]] = {
    "study": lambda one: ArchivedStudy(*astuple(one)[1:]),
    "request": lambda one: StudyRequest(*astuple(one)),
    "imported": lambda one: ArchivedImport(*astuple(one)),
    "end": lambda one: End(*astuple(one)),
}
