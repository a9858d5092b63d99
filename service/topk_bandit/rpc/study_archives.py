"""Studies as lines on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.rpc import fields
from topk_bandit.rpc.line_imports import lines_sent
from topk_bandit.studies.exports import STAGES, StudyPlace
from topk_bandit.v1 import preference_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.line_imports import Lines

__all__ = ["lines_request", "page_to_proto", "study_place"]

_DIGITS = 18


def study_place(request: pb.ExportStudyRequest) -> tuple[StudyName, StudyPlace | None]:
    """Return which study an ExportStudy asks for, and from where on."""
    name, token = fields.study_name("study", request.study), fields.page_token("cursor", request.cursor)
    if not token:
        return name, None
    *parts, incarnation = token.split("/", 4)
    stage, numbers = parts[0], [one for one in parts[1:] if one.isascii() and one.isdigit() and len(one) <= _DIGITS]
    if stage not in STAGES or len(numbers) != 3 or not incarnation:
        raise fields.unknown_token("cursor", request.cursor)
    log_position, asked, at = map(int, numbers)
    return name, StudyPlace(incarnation, log_position, asked, stage, at)


def page_to_proto(lines: Sequence[str], place: StudyPlace | None) -> pb.ExportStudyResponse:
    """Return a page of a study."""
    cursor = "" if place is None else f"{place.stage}/{place.log_position}/{place.asked}/{place.at}/{place.incarnation}"
    return pb.ExportStudyResponse(lines=lines, next_cursor=fields.to_page_token(cursor) if cursor else "")


def lines_request(request: pb.ImportStudyRequest) -> tuple[StudyName, Lines]:
    """Return whose lines an ImportStudy brings, and the lines."""
    return fields.study_name("study", request.study), lines_sent(request)
