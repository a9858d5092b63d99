"""Read the answers of the scripts about studies as values of `topk_bandit.store.study_log`.

An answer that stands for no value raises `CorruptDataError`, and a slice of a log never has gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.studies import DesignFailed, DesignState, LoggedStudyEvent
from topk_bandit.store.redis.replies import check_entry, fields_of, verify_reading, without_gaps
from topk_bandit.store.study_archives import StudyRequest
from topk_bandit.store.study_codec import decode_progress, decode_shape, decode_study_event
from topk_bandit.store.study_log import StudyRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.studies import StudyName
    from topk_bandit.store.redis.replies import Hash

__all__ = ["read_entries", "read_requests", "read_study"]


@verify_reading
def read_study(name: StudyName, meta: Hash) -> StudyRecord:
    """Return the study in a meta hash."""
    fields = fields_of(meta)
    return StudyRecord(
        name=name,
        incarnation=fields[b"incarnation"].decode(),
        settings_digest=fields[b"settings_digest"].decode(),
        shape=decode_shape(fields[b"shape"]),
        created_ms=int(fields[b"created_ms"]),
        attempt=int(fields[b"attempt"]),
        state=DesignState(fields[b"state"].decode()),
        progress=decode_progress(fields[b"progress"]) if fields[b"progress"] else None,
        failure=_failure(fields[b"failure"]),
        asked=int(fields[b"asked"]),
        answered=int(fields[b"answered"]),
        imported=int(fields[b"imported"]),
        log_position=int(fields[b"log_position"]),
        link_events=int(fields.get(b"link_events", 0)),  # which no study has before its first link
    )


def _failure(packed: bytes) -> DesignFailed | None:
    event = decode_study_event(packed) if packed else None
    if event is not None and not isinstance(event, DesignFailed):
        raise CorruptDataError(f"a study can't have failed with {event!r}")
    return event


@verify_reading
def read_entries(entries: Sequence[bytes], *, start: int) -> tuple[LoggedStudyEvent, ...]:
    """Return events that stand at `start` and after it without gaps."""
    return without_gaps([_read_logged(entry) for entry in entries], start=start)


@verify_reading
def read_requests(requests: Hash) -> tuple[StudyRequest, ...]:
    """Return the requests among entries of a requests hash."""
    return tuple(StudyRequest(one.decode(), *map(int, text.split())) for one, text in fields_of(requests).items())


def _read_logged(entry: bytes) -> LoggedStudyEvent:
    entry_id, at_ms, _, data = check_entry(entry)
    return LoggedStudyEvent(int(entry_id.partition(b"-")[0]), int(at_ms), decode_study_event(data))
