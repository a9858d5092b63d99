"""A study as lines of JSON: which one it is, its log, its requests and imports, and a line that ends them.

The log says all but two things: how many questions a request wanted, and by which fingerprint a part of an import is
known again. The log is never trimmed, so it is there from its first event on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.archive_lines import (
    ArchivedImport,
    End,
    Position,
    SharedFields,
    line_text,
    shared_fields,
    value_of,
)
from topk_bandit.store.event_lines import event_line
from topk_bandit.store.study_codec import decode_study_event, encode_study_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ArchivedStudy", "StudyLine", "StudyRequest", "read_study_line", "write_study_line"]

SCHEMA = 1
"""Number of the layout of an archive."""


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
    log_position: Position


class _Request(Struct, forbid_unknown_fields=True):
    request_id: str
    wanted: Position
    first: Position
    count: Position


class _Line(SharedFields, forbid_unknown_fields=True, omit_defaults=True):
    study: _Study | UnsetType = UNSET
    request: _Request | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Line).decode


def write_study_line(value: StudyLine) -> str:
    """Return the line that stands for a value."""
    match value:
        case LoggedStudyEvent(position, at_ms, event):
            return event_line(position, at_ms, encode_study_event(event).decode())
        case ArchivedStudy(name, incarnation, log_position):
            line: SharedFields = _Line(study=_Study(SCHEMA, name, incarnation, log_position))
        case StudyRequest(request_id, wanted, first, count):
            line = _Line(request=_Request(request_id, wanted, first, count))
        case _:
            line = shared_fields(value)
    return line_text(line)


def read_study_line(text: str) -> StudyLine:
    """Return what a line stands for.

    Raises
    ------
    CorruptDataError
        It stands for nothing that `write_study_line` writes; the message says why.
    """
    return value_of(text, _decode, event=_read_event, others=_READERS)


def _read_event(position: int, at_ms: int, event: bytes) -> StudyLine:
    return LoggedStudyEvent(position, at_ms, decode_study_event(event, wholly=True))


_READERS: Mapping[str, Callable[[Any], StudyLine]] = {
    "study": lambda one: ArchivedStudy(*astuple(one)[1:]),
    "request": lambda one: StudyRequest(*astuple(one)),
}
