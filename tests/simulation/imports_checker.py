"""What must hold of rows from elsewhere: each that was acknowledged is in the log, and none is there twice.

It is the same for past slates, of which a bandit's log tells, and for past answers, of which the study's logs do: the
study may be deleted and created again, and what was acknowledged is in the log that it had then.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.simulation.ledger import Response

from topk_bandit.store.events import Imported, PastSlate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.simulation.ledger import Deletion, Ledger, SentRows, Sought
    from tests.simulation.server import Archive

    from topk_bandit.domain.studies import PastAnswer

__all__ = ["LoggedRows", "check_imports", "check_past_slates"]

UNDER_WAY_SECONDS = 10.0
"""A call may be carried out so long after its caller has begun to wait, or has given up."""


Row: TypeAlias = "PastSlate | PastAnswer"


class LoggedRows(NamedTuple):
    """Rows that a log has, of one event."""

    position: int
    import_id: str
    first_row: int
    rows: tuple[Row, ...]


def check_past_slates(ledger: Ledger, archive: Archive) -> Iterator[str]:
    """Yield what is broken of the imports of past slates."""
    log = [
        LoggedRows(logged.position, logged.event.import_id, logged.event.first_row, logged.event.slates)
        for logged in archive.events
        if isinstance(logged.event, Imported)
    ]
    yield from check_imports(ledger, [log], kind="rows", may_lack=partial(_may_lack, ledger))


def _may_lack(ledger: Ledger, part: SentRows, row: Row) -> bool:
    """Return whether a row has an item that the bandit need not have had when the row was sent."""
    items = row.slate if isinstance(row, PastSlate) else ()
    return any(
        item in ledger.leaving or item not in ledger.added or ledger.added[item] > part.began_at for item in items
    )


def check_imports(
    ledger: Ledger,
    logs: Sequence[Iterable[LoggedRows]],
    *,
    kind: str,
    deletions: Sequence[Deletion] = (),
    may_lack: Callable[[SentRows, Row], bool] = lambda *_: False,
) -> Iterator[str]:
    """Yield what is broken of the imports of a kind, whose ids begin with it.

    Parameters
    ----------
    deletions
        Of what the rows were sent to.
    may_lack
        Whether a row may be left out, where the caller has bad ones skipped.
    """
    by_import = [_by_import(log) for log in logs]
    sent = {one: parts for one, parts in ledger.imports.items() if one.startswith(kind)}
    for one in dict.fromkeys(one for log in by_import for one in log if one not in sent):
        yield f"{one} is learned, and nobody sent it"
    for one, parts in sent.items():
        there = [log[one] for log in by_import if one in log]
        for logged in there:
            yield from _check_logged(one, logged, parts, may_lack)
        for part in parts:
            yield from _check_kept(part, there, may_lack)
            yield from _check_refusal(part, parts, deletions)
        for sought in ledger.sought:
            if sought.import_id == one:
                yield from _check_sought(sought, parts, deletions)


def _by_import(log: Iterable[LoggedRows]) -> Mapping[str, list[LoggedRows]]:
    found = defaultdict[str, list[LoggedRows]](list)
    for logged in log:
        found[logged.import_id].append(logged)
    return found


def _check_logged(
    one: str, logged: Sequence[LoggedRows], parts: Sequence[SentRows], may_lack: Callable[[SentRows, Row], bool]
) -> Iterator[str]:
    """Yield what is wrong with the rows that one log has of an import."""
    end, has_gaps = 0, any(part.skips for part in parts)
    for rows in logged:
        fitting = [part for part in parts if _fits(part, rows, may_lack)]
        if not fitting:
            yield f"rows from {rows.first_row} on of {one} are learned otherwise than anybody sent them"
            return
        if rows.first_row < end:
            yield f"rows from {rows.first_row} on of {one} are learned twice"
        if rows.first_row > end and not has_gaps:
            yield f"rows from {rows.first_row} on of {one} are learned, and not those before"
        end = max(end, min(part.next_row for part in fitting))


def _fits(part: SentRows, logged: LoggedRows, may_lack: Callable[[SentRows, Row], bool]) -> bool:
    """Return whether a log's rows are what was sent, in its order, but for what may be left out."""
    left = list(logged.rows)
    for row in part.rows:
        if left and left[0] == row:
            del left[0]
        elif not (part.skips and may_lack(part, row)):
            return False
    return part.first_row == logged.first_row and not left


def _check_kept(
    part: SentRows, there: Sequence[Sequence[LoggedRows]], may_lack: Callable[[SentRows, Row], bool]
) -> Iterator[str]:
    """Yield what is wrong with rows that were acknowledged to a caller."""
    if part.outcome != "accepted":
        return
    name, logged = _name(part), [rows for log in there for rows in log if rows.first_row == part.first_row]
    found = [rows for rows in logged if rows.position == part.position and _fits(part, rows, may_lack)]
    if part.accepted and not any(len(rows.rows) == part.accepted for rows in found):
        yield f"{name} were acknowledged, and are lost"
    if not part.accepted and (logged or not all(may_lack(part, row) for row in part.rows)):
        yield f"{name} were all left out, and can be learned"


def _check_refusal(part: SentRows, parts: Sequence[SentRows], deletions: Sequence[Deletion]) -> Iterator[str]:
    """Yield what is wrong with the reason for which rows were refused."""
    others = [other for other in parts if other is not part and _overlap(other, part)]
    is_same = all((other.first_row, other.rows) == (part.first_row, part.rows) for other in others)
    if part.outcome == "IMPORT_REUSED" and is_same:
        yield f"{_name(part)} are called other ones, and nobody sent others"
    if part.outcome == "IMPORT_GAP" and not _was_deleted(deletions, part.ended_at):
        reached = max((one.next_row for one in parts if _was_acknowledged_before(one, part.began_at)), default=0)
        if reached >= part.first_row:
            yield f"{_name(part)} are said to have a gap before them, which was acknowledged"


def _name(part: SentRows) -> str:
    return f"rows {part.first_row} to {part.next_row} of {part.import_id}"


def _overlap(one: SentRows, other: SentRows) -> bool:
    return one.first_row < other.next_row and other.first_row < one.next_row


def _check_sought(sought: Sought, parts: Sequence[SentRows], deletions: Sequence[Deletion]) -> Iterator[str]:
    """Yield what is wrong with how far an import is said to be."""
    acknowledged = [part for part in parts if _was_acknowledged_before(part, sought.began_at)]
    reached = max((part.next_row for part in acknowledged), default=0)
    accepted = sum({part.first_row: part.accepted for part in acknowledged}.values())
    is_behind = sought.next_row < reached or sought.accepted < accepted
    if is_behind and not _was_deleted(deletions, sought.began_at + UNDER_WAY_SECONDS):
        yield f"{sought.import_id} is said to be at row {sought.next_row}, and is known to be at {reached}"
    if sought.next_row > max((part.next_row for part in parts), default=0):
        yield f"{sought.import_id} is said to be at row {sought.next_row}, and nobody sent so many"


def _was_acknowledged_before(part: SentRows, at: float) -> bool:
    return part.response is Response.ANSWER and part.ended_at <= at


def _was_deleted(deletions: Iterable[Deletion], before: float) -> bool:
    """Return whether what was acknowledged until then may have been deleted."""
    return any(deletion.began_at < before for deletion in deletions)
