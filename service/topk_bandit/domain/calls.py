"""The call that is being served: what its log records, its answer and its spans are found by.

Whatever is done for a call finds it in `CURRENT_CALL`, also in another thread. What goes on without the call, such as
following a log, is started in a context of its own, so that it does not bear the ids of the call that began it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CURRENT_CALL", "Call", "SpanIds"]


class SpanIds(NamedTuple):
    """What a span is known by, as W3C's Trace Context has it.

    Attributes
    ----------
    trace_id, span_id
        32 and 16 hexadecimal digits in lower case, not all of them zero.
    sampled
        Whether spans of the trace are kept, as far as is known.
    """

    trace_id: str
    span_id: str
    sampled: bool


@dataclass(slots=True)
class Call:
    """A call that is being served.

    Attributes
    ----------
    request_id
        The caller's, or a fresh one.
    span
        The call itself, in the caller's trace or a fresh one.
    parent
        The caller's span; None when it sent none.
    resource
        What it is about, by name; empty until that is known.
    recommendation_id
        The slate that it gives out; empty until there is one, and where it is not recorded.
    worker
        The name of the answering worker that the caller gets; empty where there is one worker.
    """

    request_id: str
    span: SpanIds
    parent: SpanIds | None = None
    resource: str = ""
    recommendation_id: str = ""
    worker: str = ""


CURRENT_CALL: ContextVar[Call | None] = ContextVar("CURRENT_CALL", default=None)
"""The call that this code runs for; None when it runs for none."""
