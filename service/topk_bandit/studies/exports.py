"""A study in pages of lines as `topk_bandit.store.study_archives` has them.

Pages are read one after the other while the study is in use. The first one says where the log ends, and what is newer
than that is left out of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.store.study_archives import ArchivedStudy, write_study_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.study_archives import StudyLine
    from topk_bandit.store.study_log import StudyStore

__all__ = ["STAGES", "StudyPlace", "read_study_page"]

STAGES = ("events", "requests", "imports")
"""What a study's pages have, in this order."""

_EVENTS_PER_PAGE = 256


class StudyPlace(NamedTuple):
    """Where to go on.

    Attributes
    ----------
    incarnation, log_position, asked
        The study's, as the first page has it.
    at
        Where to go on within the stage; 0 at first.
    """

    incarnation: str
    log_position: int
    asked: int
    stage: str
    at: int


async def read_study_page(
    store: StudyStore, name: StudyName, place: StudyPlace | None
) -> tuple[list[str], StudyPlace | None]:
    """Return the lines of a page, and where the next one is; None for the first page, and after the last.

    Raises
    ------
    NotFoundError
        There is no such study.
    NotReadyError
        STUDY_REPLACED: the study was created anew.
    """
    record = await store.get_study(name)
    if place is None:
        head = ArchivedStudy(str(name), record.incarnation, record.log_position)
        return [write_study_line(head)], StudyPlace(record.incarnation, record.log_position, record.asked, STAGES[0], 0)
    if record.incarnation != place.incarnation:
        raise NotReadyError("STUDY_REPLACED", f"{name} was created anew: its log is another one")
    lines, at = await _READERS[place.stage](store, name, place)
    return [write_study_line(line) for line in lines], _following(place, at)


def _following(place: StudyPlace, at: int) -> StudyPlace | None:
    if at:
        return place._replace(at=at)
    later = STAGES[STAGES.index(place.stage) + 1 :]
    return place._replace(stage=later[0], at=0) if later else None


async def _events(store: StudyStore, name: StudyName, place: StudyPlace) -> tuple[Sequence[StudyLine], int]:
    limit = min(_EVENTS_PER_PAGE, place.log_position - place.at)
    events = (await store.read_study(name, start=place.at + 1, limit=limit)).events
    if not events:
        raise NotReadyError("STUDY_REPLACED", f"{name} has lost events meanwhile: its log is another one")
    at = place.at + len(events)
    return events, at if at < place.log_position else 0


async def _requests(store: StudyStore, name: StudyName, place: StudyPlace) -> tuple[Sequence[StudyLine], int]:
    at, requests = await store.scan_requests(name, cursor=place.at)
    return [one for one in requests if one.first + one.count - 1 <= place.asked], at


async def _imports(store: StudyStore, name: StudyName, place: StudyPlace) -> tuple[Sequence[StudyLine], int]:
    at, parts = await store.scan_imports(name, cursor=place.at)
    return [part for part in parts if part.position <= place.log_position], at


_READERS = {"events": _events, "requests": _requests, "imports": _imports}
