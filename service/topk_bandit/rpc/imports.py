"""Rows of a bandit's history between the wire and `topk_bandit.bandits.imports`; errors name the row and its field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.bandits.imports import RowsOfImport
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import context_from_proto
from topk_bandit.store.events import PastSlate
from topk_bandit.store.recorded import place_item_values
from topk_bandit.v1 import bandit_service_pb2 as pb

if TYPE_CHECKING:
    from topk_bandit.bandits.imports import ImportReceipt
    from topk_bandit.domain.bandits import BanditName

__all__ = ["MAX_ROWS", "MAX_ROW_NUMBER", "import_named", "import_request", "receipt_to_proto"]

MAX_ROWS = 1000
MAX_ROW_NUMBER = 10**15
_MAX_ERRORS = 100
_NOT_KNOWN = ": leave out a time that is not known"


def import_named(request: pb.GetImportRequest | pb.ImportObservationsRequest) -> tuple[BanditName, str]:
    """Return which import of which bandit a request is about."""
    return fields.bandit_name("bandit", request.bandit), fields.opaque_id("import_id", request.import_id)


def import_request(request: pb.ImportObservationsRequest) -> tuple[BanditName, RowsOfImport]:
    """Return whose rows an ImportObservations brings, and the rows, or what is wrong with the form of each."""
    name, import_id = import_named(request)
    if request.rows or not request.next_row:
        fields.size("rows", len(request.rows), most=MAX_ROWS)
    first_row = fields.integer("first_row", request.first_row, low=0, high=MAX_ROW_NUMBER)
    least = first_row + (len(request.rows) or 1)
    next_row = fields.integer("next_row", request.next_row or least, low=least, high=MAX_ROW_NUMBER)
    rows = tuple(map(_row, request.rows))
    return name, RowsOfImport(import_id, first_row, next_row, rows, skips=request.skip_bad_rows)


def _row(row: pb.PastObservation) -> PastSlate | InvalidArgumentError:
    try:
        slate = fields.item_ids("item_ids", row.item_ids)
        return PastSlate(
            context=context_from_proto("", row),
            slate=slate,
            reward=fields.reward_value("reward", row.reward if row.HasField("reward") else None) + 0.0,
            at_ms=fields.time_ms("time", row.time, hint=_NOT_KNOWN) if row.HasField("time") else None,
            propensity=_propensity(row.propensity) if row.HasField("propensity") else None,
            item_values=place_item_values(slate, fields.item_values("item_values", row.item_values)),
        )
    except InvalidArgumentError as error:
        return error


def _propensity(value: float) -> float:
    if not 0.0 < value <= 1.0:
        raise InvalidArgumentError("propensity", f"must be above 0 and at most 1, not {value!r}")
    return value


def receipt_to_proto(receipt: ImportReceipt) -> pb.ImportObservationsResponse:
    """Return what became of rows."""
    return pb.ImportObservationsResponse(
        next_row=receipt.next_row,
        accepted_count=receipt.accepted,
        skipped_count=receipt.skipped,
        log_position=receipt.log_position,
        row_errors=[
            pb.RowError(row=error.row, field=error.field, message=error.problem)
            for error in receipt.errors[:_MAX_ERRORS]
        ],
    )
