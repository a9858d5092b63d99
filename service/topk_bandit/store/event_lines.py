"""Events of a log as lines of JSON: those of a dump, of an archive and of the cold log."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.operators import EventText

if TYPE_CHECKING:
    from topk_bandit.store.log import Snapshot


__all__ = ["event_line", "head_line", "read_event_line"]

_LINE = re.compile(rb'\{"position":(\d{1,16}),"at_ms":(\d{1,16}),"event":(\{.*\})\}', re.DOTALL)


def head_line(bandit: str, incarnation: str, snapshot: Snapshot | None) -> str:
    """Return the first line, without its end: which log the events are of, and what stands for those before them."""
    packed = snapshot and {"position": snapshot.position, "payload": base64.b64encode(snapshot.payload).decode()}
    return json.dumps({"bandit": bandit, "incarnation": incarnation, "snapshot": packed})


def event_line(position: int, at_ms: int, event: str) -> str:
    """Return the line of an event, without its end; the event is as the codec writes it."""
    return f'{{"position":{position},"at_ms":{at_ms},"event":{event}}}'


def read_event_line(line: bytes) -> EventText:
    """Return the event of a line that `event_line` made; or raise `CorruptDataError`."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise CorruptDataError(f"no line of an event: {line!r:.80}")
    return EventText(int(found[1]), int(found[2]), found[3])
