"""Slates that were shown elsewhere, as messages and in calls of as many rows as the service takes. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp

from topk_bandit.client.arguments import WRONG, item_values, message, number, numbers, refuse, texts
from topk_bandit.client.errors import invalid_argument
from topk_bandit.client.features import feature_values
from topk_bandit.v1 import bandit_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "ROWS_PER_CALL",
    "ImportProgress",
    "ImportReport",
    "PastObservation",
    "RowError",
    "add_reports",
    "report",
    "requests",
    "timestamp_of",
]

ROWS_PER_CALL = 1000
"""So many rows at most go in one call."""


@dataclass(frozen=True, slots=True)
class PastObservation:
    """A slate that was shown elsewhere, and what it earned.

    Attributes
    ----------
    items
        Item ids, best first.
    reward
        What was earned; for several rewards, what they come to.
    context, features
        What was known of the request, as `Client.recommend` takes it.
    time
        When it was shown, with its time zone; None counts as now.
    propensity
        Probability with which it was shown; None where nobody knows.
    item_values
        What single items of the slate did, by their ids; None where nothing is known of any.
    """

    items: tuple[str, ...]
    reward: float
    context: tuple[float, ...] = ()
    features: Any = None
    time: datetime | None = None
    propensity: float | None = None
    item_values: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row was left out; `row` is its number in the import."""

    row: int
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of rows.

    Attributes
    ----------
    next_row
        With which row the import goes on.
    accepted, skipped
        How many of the rows are learned from, and how many were left out.
    errors
        Errors of rows that were left out, up to 100 of each call; none of those that were taken before.
    log_position
        Where the last of them stand in the log.
    """

    next_row: int
    accepted: int
    skipped: int
    errors: tuple[RowError, ...]
    log_position: int


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far an import is: with which row it goes on, and how many of those before are learned from.

    Attributes
    ----------
    data_version
        The one in force: item values need 2. 0 of a service that is too old for them.
    """

    next_row: int
    accepted: int
    data_version: int


def requests(
    name: str,
    rows: Iterable[PastObservation],
    *,
    import_id: str,
    first_row: int,
    next_row: int | None,
    skip_bad_rows: bool,
) -> Iterator[pb.ImportObservationsRequest]:
    """Return the requests that bring rows to the bandit of this name, the first one numbered `first_row`.

    The last one ends before `next_row`.
    """
    left, number = iter(rows), first_row
    part = list(islice(left, ROWS_PER_CALL))
    while part or (next_row or 0) > number:
        following = list(islice(left, ROWS_PER_CALL))
        end = number + len(part) if following or next_row is None else next_row
        yield message(
            pb.ImportObservationsRequest,
            bandit=name,
            import_id=import_id,
            first_row=number,
            next_row=end,
            rows=[_message(f"rows[{place}]", row) for place, row in enumerate(part)],
            skip_bad_rows=skip_bad_rows,
        )
        number, part = end, following


def _message(path: str, row: PastObservation) -> pb.PastObservation:
    if not isinstance(row, PastObservation):
        raise refuse(path, row)
    values = None if row.features is None else feature_values(row.features, field=f"{path}.features")
    return message(
        pb.PastObservation,
        path,
        context=numbers(f"{path}.context", row.context),
        features=values,
        item_ids=texts(f"{path}.item_ids", row.items),
        reward=number(f"{path}.reward", row.reward),
        time=None if row.time is None else timestamp_of(f"{path}.time", row.time),
        propensity=row.propensity,
        item_values=item_values(f"{path}.item_values", row.item_values),
    )


def timestamp_of(path: str, time: datetime) -> Timestamp:
    """Return a time as a message; `InvalidArgument` naming `path` for one without a zone, or that no message holds."""
    if not isinstance(time, datetime):
        raise refuse(path, time)
    if time.tzinfo is None:
        raise invalid_argument(path, "needs a time zone, such as datetime.UTC")
    stamp = Timestamp()
    try:
        stamp.FromDatetime(time)
    except WRONG:  # years that begin before the first or end after the last, in UTC
        raise refuse(path, time) from None
    return stamp


def report(first_row: int, response: pb.ImportObservationsResponse) -> ImportReport:
    """Return what became of the rows of one request."""
    return ImportReport(
        next_row=response.next_row,
        accepted=response.accepted_count,
        skipped=response.skipped_count,
        errors=tuple(RowError(first_row + one.row, one.field, one.message) for one in response.row_errors),
        log_position=response.log_position,
    )


def add_reports(first: ImportReport, second: ImportReport) -> ImportReport:
    """Return what became of the rows of two calls, one after the other."""
    return ImportReport(
        second.next_row,
        first.accepted + second.accepted,
        first.skipped + second.skipped,
        first.errors + second.errors,
        max(first.log_position, second.log_position),
    )
