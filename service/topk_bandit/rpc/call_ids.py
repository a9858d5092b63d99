"""The ids of a call on the wire: taken from what its caller sends, or made, and sent back with the answer.

What is not as it should be is replaced and never refused: these ids are for finding a call again, and no reason not to
answer it. With them goes who answered, for callers that choose among workers.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from topk_bandit.domain.calls import Call, SpanIds

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ID_HEADERS", "WORKER_HEADER", "call_of", "ids_of", "metadata_of"]

_REQUEST_ID, _TRACEPARENT = "x-request-id", "traceparent"
ID_HEADERS = (_REQUEST_ID, _TRACEPARENT)
"""Names of the headers, or keys of the metadata, that have ids: of a request as of an answer."""

WORKER_HEADER = "topk-bandit-worker"
"""Which worker answered, of how many, and which one owns the bandit; see `topk_bandit.rpc.peers`."""

# No secret of a key, which is 43 characters behind a dot: ids are logged, traced and sent back.
_ACCEPTED_ID = re.compile(r"(?!.*\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-]))[A-Za-z0-9._:/=+@-]{1,128}")
_ACCEPTED_PARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_LONGEST_PARENT = 256
_SAMPLED = 1


def call_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> Call:
    """Return the call that has this metadata, with a span of its own; an id that is sent twice is none."""
    shown: dict[str, str | bytes] = {}
    for name, value in metadata or ():
        if name in ID_HEADERS:
            shown[name] = "" if name in shown else value
    fresh = os.urandom(40).hex()
    request_id, parent = shown.get(_REQUEST_ID), _parent_of(shown.get(_TRACEPARENT))
    if not isinstance(request_id, str) or not _ACCEPTED_ID.fullmatch(request_id):
        request_id = fresh[:32]
    if parent is None:
        return Call(request_id, SpanIds(fresh[32:64], fresh[64:], sampled=False))
    return Call(request_id, SpanIds(parent.trace_id, fresh[64:], sampled=parent.sampled), parent)


def ids_of(call: Call) -> tuple[str, str]:
    """Return a call's request id, and its span as a traceparent."""
    span = call.span
    return call.request_id, f"00-{span.trace_id}-{span.span_id}-{span.sampled:02x}"


def metadata_of(call: Call) -> tuple[tuple[str, str], ...]:
    """Return the metadata with which a call is answered."""
    request_id, traceparent = ids_of(call)
    ids = ((_REQUEST_ID, request_id), (_TRACEPARENT, traceparent))
    return (*ids, (WORKER_HEADER, call.worker)) if call.worker else ids


def _parent_of(text: str | bytes | None) -> SpanIds | None:
    """Return the span that a traceparent names; a version after the first may go on behind what the first has."""
    if not isinstance(text, str) or len(text) > _LONGEST_PARENT:
        return None
    match = _ACCEPTED_PARENT.fullmatch(text)
    if match is None or (match[1] == "00" and match[5] is not None):
        return None
    return SpanIds(match[2], match[3], sampled=bool(int(match[4], 16) & _SAMPLED))
