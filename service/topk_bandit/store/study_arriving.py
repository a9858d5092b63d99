"""How far an import of a study is, and what a part of its lines brings: values, for every store of studies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.archive_lines import ArchivedImport, End
from topk_bandit.store.line_imports import ArrivalProgress, parse, take_lines
from topk_bandit.store.study_archives import ArchivedStudy, StudyRequest, read_study_line

if TYPE_CHECKING:
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.study_archives import StudyLine

__all__ = ["StudyArrival", "StudyArriving", "take_study"]


@dataclass(frozen=True, slots=True)
class StudyArrival(ArrivalProgress):
    """How far an import of a study is; `position` is that of the newest event that has arrived."""

    position: int = 0
    complete: bool = False


@dataclass(slots=True)
class StudyArriving:
    """What a part of the lines brings; `arrival` is how far the import is with it."""

    arrival: StudyArrival
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: list[StudyRequest] = field(default_factory=list)
    imports: list[ArchivedImport] = field(default_factory=list)


def take_study(before: StudyArrival, sent: Lines) -> StudyArriving:
    """Return what the lines that come next bring.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one stands for nothing, or can't follow those before.
    """
    arriving = StudyArriving(replace(before, part=sent.part))
    take_lines(arriving, sent.lines, parse(sent.lines, read_study_line), lambda line: _take_line(arriving, line))
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
