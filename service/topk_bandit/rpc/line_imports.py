"""Imports line by line on the wire, as those of bandits and of studies have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.rpc import fields
from topk_bandit.store.line_imports import Lines

if TYPE_CHECKING:
    from topk_bandit.v1.operator_service_pb2 import ImportEventsRequest
    from topk_bandit.v1.preference_service_pb2 import ImportStudyRequest

__all__ = ["MAX_LINES", "lines_sent"]

MAX_LINES = 1000
_MOST_LINES = 10**12


def lines_sent(request: ImportEventsRequest | ImportStudyRequest) -> Lines:
    """Return the lines that a request brings."""
    import_id = fields.opaque_id("import_id", request.import_id)
    first_line = fields.integer("first_line", request.first_line, low=0, high=_MOST_LINES)
    if request.lines:
        fields.size("lines", len(request.lines), most=MAX_LINES)
    return Lines(import_id, first_line, tuple(request.lines))
