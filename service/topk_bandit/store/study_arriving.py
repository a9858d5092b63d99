"""How far an import of a study is, and what a part of its lines brings: values, for every store of studies."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError
from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.archives import End, chain
from topk_bandit.store.arriving import ArchivedImport
from topk_bandit.store.study_archives import ArchivedStudy, StudyRequest, read_study_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.store.study_archives import StudyLine

__all__ = ["StudyArrival", "StudyArriving", "take_lines"]


@dataclass(frozen=True, slots=True)
class StudyArrival:
    """How far an import of a study is.

    Attributes
    ----------
    import_id
        What all parts of the import have in common.
    next_line
        With which line it goes on, counted from 0.
    part
        First line and fingerprint of the newest part, which may be sent again.
    digest
        What the lines chain to.
    position
        Of the newest event that has arrived.
    complete
        Whether its last line has arrived.
    """

    import_id: str
    next_line: int = 0
    part: str = ""
    digest: str = ""
    incarnation: str = ""
    position: int = 0
    complete: bool = False

    def encode(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> StudyArrival:
        """Return what was encoded."""
        return StudyArrival(**json.loads(data))


@dataclass(slots=True)
class StudyArriving:
    """What a part of the lines brings; `arrival` is how far the import is with it."""

    arrival: StudyArrival
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: list[StudyRequest] = field(default_factory=list)
    imports: list[ArchivedImport] = field(default_factory=list)


def take_lines(before: StudyArrival, lines: Sequence[str], *, part: str) -> StudyArriving:
    """Return what the lines that come next bring.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one stands for nothing, or can't follow those before.
    """
    arriving = StudyArriving(replace(before, part=part))
    for place, text in enumerate(lines):
        try:
            _take_line(arriving, read_study_line(text))
        except CorruptDataError as error:
            raise InvalidArgumentError(f"lines[{place}]", str(error)) from None
        now = arriving.arrival
        arriving.arrival = replace(now, next_line=now.next_line + 1, digest=chain(now.digest, text))
    return arriving


def _take_line(arriving: StudyArriving, line: StudyLine) -> None:
    now = arriving.arrival
    if now.complete or (now.next_line == 0) != isinstance(line, ArchivedStudy):
        raise CorruptDataError("can't stand there: a study's line is the first, and a line that ends it the last")
    match line:
        case ArchivedStudy(incarnation=incarnation):
            arriving.arrival = replace(now, incarnation=incarnation)
        case LoggedStudyEvent(position=position):
            if position != now.position + 1:
                raise CorruptDataError(f"has event {position}, and event {now.position + 1} comes next")
            arriving.events.append(line)
            arriving.arrival = replace(now, position=position)
        case StudyRequest():
            arriving.requests.append(line)
        case ArchivedImport():
            arriving.imports.append(line)
        case End():
            if line != End(now.position, now.next_line, now.digest):
                raise CorruptDataError("ends other lines: one of those before was changed or is missing")
            arriving.arrival = replace(now, complete=True)
