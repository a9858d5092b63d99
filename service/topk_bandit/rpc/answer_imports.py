"""Answers from elsewhere between the wire and `topk_bandit.studies.imports`; errors name the row and its field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import errors_below
from topk_bandit.domain.studies import GivenPastAnswer
from topk_bandit.rpc import fields
from topk_bandit.rpc.imports import MAX_ROW_NUMBER, MAX_ROWS
from topk_bandit.rpc.study_converters import given_answer
from topk_bandit.store.log import RecordStatus
from topk_bandit.studies.imports import RowsOfAnswers
from topk_bandit.v1 import preference_service_pb2 as pb

if TYPE_CHECKING:
    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.log import ImportOutcome

__all__ = ["import_named", "import_request", "outcome_to_proto"]


def import_named(request: pb.GetAnswerImportRequest | pb.ImportAnswersRequest) -> tuple[StudyName, str]:
    """Return which import of which study a request is about."""
    return fields.study_name("study", request.study), fields.opaque_id("import_id", request.import_id)


def import_request(request: pb.ImportAnswersRequest) -> tuple[StudyName, RowsOfAnswers]:
    """Return whose answers an ImportAnswers brings, and the answers."""
    name, import_id = import_named(request)
    fields.size("rows", len(request.rows), most=MAX_ROWS)
    first_row = fields.integer("first_row", request.first_row, low=0, high=MAX_ROW_NUMBER)
    return name, RowsOfAnswers(import_id, first_row, tuple(_row(*one) for one in enumerate(request.rows)))


def _row(place: int, row: pb.PastAnswer) -> GivenPastAnswer:
    with errors_below(f"rows[{place}]"):
        respondent = fields.respondent("respondent", row.respondent)
        return GivenPastAnswer(row.query_id, tuple(row.item_ids), given_answer(row), respondent)


def outcome_to_proto(outcome: ImportOutcome) -> pb.ImportAnswersResponse:
    """Return what became of rows."""
    recorded = outcome.status is RecordStatus.RECORDED
    return pb.ImportAnswersResponse(
        next_row=outcome.next_row,
        outcome=pb.ANSWER_OUTCOME_ACCEPTED if recorded else pb.ANSWER_OUTCOME_DUPLICATE,
    )
