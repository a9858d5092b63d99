"""The progress of a study's restore, and the changes by one part of its lines: values, for every store of studies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import LoggedStudyEvent
from topk_bandit.store.archive_lines import ArchivedImport, End
from topk_bandit.store.line_imports import RestoreProgress, parse, take_lines
from topk_bandit.store.study_archives import ArchivedStudy, StudyRequest, read_study_line

if TYPE_CHECKING:
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.study_archives import StudyLine

__all__ = ["StudyRestore", "StudyRestoreStep", "take_study"]


@dataclass(frozen=True, slots=True)
class StudyRestore(RestoreProgress):
    """The progress of a study's restore; `position` is that of the newest restored event."""

    position: int = 0
    complete: bool = False


@dataclass(slots=True)
class StudyRestoreStep:
    """The changes by one part of the lines; `restore` is the progress with them."""

    restore: StudyRestore
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: list[StudyRequest] = field(default_factory=list)
    imports: list[ArchivedImport] = field(default_factory=list)


def take_study(before: StudyRestore, sent: Lines) -> StudyRestoreStep:
    """Return what the lines that come next bring.

    Raises
    ------
    InvalidArgumentError
        On ``lines[n]``: that one stands for nothing, or can't follow those before.
    """
    step = StudyRestoreStep(replace(before, part=sent.part))
    take_lines(step, sent.lines, parse(sent.lines, read_study_line), lambda line: _take_line(step, line))
    return step


def _take_line(step: StudyRestoreStep, line: StudyLine) -> None:
    now = step.restore
    if now.complete or (now.next_line == 0) != isinstance(line, ArchivedStudy):
        raise CorruptDataError("can't stand there: a study's line is the first, and a line that ends it the last")
    match line:
        case ArchivedStudy(incarnation=incarnation):
            step.restore = replace(now, incarnation=incarnation)
        case LoggedStudyEvent(position=position):
            if position != now.position + 1:
                raise CorruptDataError(f"has event {position}, and event {now.position + 1} comes next")
            step.events.append(line)
            step.restore = replace(now, position=position)
        case StudyRequest():
            step.requests.append(line)
        case ArchivedImport():
            step.imports.append(line)
        case End():
            if line != End(now.position, now.next_line, now.digest):
                raise CorruptDataError("ends other lines: one of those before was changed or is missing")
            step.restore = replace(now, complete=True)
