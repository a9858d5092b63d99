"""Take in slates that were shown elsewhere: each row is checked before anything is written.

A part of an import is recorded once, however often it is sent. It is judged by a model that knows the log to its end,
so whoever sends faster than the learner learns waits. Nothing here checks the form of rows: `rpc` has done so.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.bandits.contexts import check_context, complete_context
from topk_bandit.domain.errors import InvalidArgumentError, UnavailableError
from topk_bandit.domain.quotas import Quota
from topk_bandit.domain.replacing import replace
from topk_bandit.store.codec import encode_past_slate
from topk_bandit.store.events import Imported, PastSlate
from topk_bandit.store.log import ImportPart, RecordStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName, BanditSettings
    from topk_bandit.store.log import ImportOutcome, Store

__all__ = ["MOST_BYTES", "ImportReceipt", "RowError", "RowsOfImport", "check_row", "import_rows"]

MOST_BYTES = 4 * 2**20
"""So long at most is what rows that are sent together make of the log."""

ATTEMPTS_PER_CALL = 8
"""How often a call checks its rows again because items were changed meanwhile, before it gives up."""


@dataclass(frozen=True, slots=True)
class RowsOfImport:
    """Rows that are sent together, in order.

    Attributes
    ----------
    rows
        Slates, or what is wrong with a row whose form is not that of one.
    first_row, next_row
        Where the rows stand where they come from; there may be fewer rows than that, where the sender left some out.
    skips
        Whether rows that can't be taken are left out, instead of refusing all.
    """

    import_id: str
    first_row: int
    next_row: int
    rows: tuple[PastSlate | InvalidArgumentError, ...]
    skips: bool = False


class RowError(NamedTuple):
    """What is wrong with a row that was left out; `row` is its place among those that were sent."""

    row: int
    field: str
    problem: str


@dataclass(frozen=True, slots=True)
class ImportReceipt:
    """What became of rows.

    Attributes
    ----------
    next_row
        With which row the import goes on after these.
    accepted, skipped
        How many are learned from, and how many were left out.
    log_position
        Where they stand in the log; 0 if none is there.
    errors
        Of rows that were left out just now; none where all was recorded before.
    """

    next_row: int
    accepted: int
    skipped: int
    log_position: int
    errors: tuple[RowError, ...] = ()


async def import_rows(
    store: Store, models: ModelCache, name: BanditName, sent: RowsOfImport, *, quotas: TenantQuotas
) -> ImportReceipt:
    """Record rows, unless they were before.

    Raises
    ------
    InvalidArgumentError
        On ``rows``: they are too long. On ``rows[n]...``: that one can't be taken, and `sent` does not skip it.
    ConflictError, NotReadyError, ExhaustedError
        As `Store.record_import` has them, and LOG_QUOTA for rows that were not recorded before.
    """
    encoded = [_encode(row) for row in sent.rows]
    if (n_bytes := sum(map(len, encoded))) > MOST_BYTES:
        raise InvalidArgumentError("rows", f"take {n_bytes} bytes; at most {MOST_BYTES} are allowed: send fewer")
    part = ImportPart(sent.import_id, sent.first_row, sent.next_row, _fingerprint(sent, encoded), accepted=0)
    known = await store.find_import_part(name, part)
    if known is not None:
        return _receipt(sent, known)
    await quotas.check(name.tenant, {Quota.LOG_BYTES: 1})
    for _ in range(ATTEMPTS_PER_CALL):
        model = await models.follow(name)
        checked = _check(model, sent)
        part = replace(part, accepted=len(checked.slates), clamped=checked.clamped)
        event = Imported(sent.import_id, sent.first_row, checked.slates) if checked.slates else None
        outcome = await store.record_import(
            name, part, event, incarnation=model.incarnation, items_position=model.items_position
        )
        if outcome.status is not RecordStatus.STALE:
            errors = checked.errors if outcome.status is RecordStatus.RECORDED else ()
            return _receipt(sent, outcome, errors)
    raise UnavailableError(f"the items of {name} change faster than rows can be checked")


def _encode(row: PastSlate | InvalidArgumentError) -> bytes:
    return str(row).encode() if isinstance(row, InvalidArgumentError) else encode_past_slate(row)


def _fingerprint(sent: RowsOfImport, encoded: Sequence[bytes]) -> str:
    return blake2b(b"\n".join([str(sent.next_row).encode(), *encoded]), digest_size=16).hexdigest()


def _receipt(sent: RowsOfImport, outcome: ImportOutcome, errors: tuple[RowError, ...] = ()) -> ImportReceipt:
    skipped = len(sent.rows) - outcome.accepted
    return ImportReceipt(outcome.next_row, outcome.accepted, skipped, outcome.position, errors)


class _Checked(NamedTuple):
    """The rows that are taken, how many rewards of them are clamped, and what is wrong with the others."""

    slates: tuple[PastSlate, ...]
    clamped: int
    errors: tuple[RowError, ...]


def _check(model: Model, sent: RowsOfImport) -> _Checked:
    """Return which rows are taken, or raise what is wrong with the first that can't be."""
    slates, clamped, errors = [], 0, []
    named = {item_id for row in sent.rows if isinstance(row, PastSlate) for item_id in row.slate}
    unknown = frozenset(model.items.find_unknown(tuple(named)))
    for place, row in enumerate(sent.rows):
        try:
            taken = check_row(model.settings, row, knows=lambda item_id: item_id not in unknown)
        except InvalidArgumentError as error:
            if not sent.skips:
                raise error.below(f"rows[{place}]") from None
            errors.append(RowError(place, error.field, error.problem))
            continue
        slates.append(taken)
        clamped += taken.reward != getattr(row, "reward", taken.reward)
    return _Checked(tuple(slates), clamped, tuple(errors))


def check_row(
    settings: BanditSettings, row: PastSlate | InvalidArgumentError, *, knows: Callable[[str], bool]
) -> PastSlate:
    """Return a row as it is learned; an error names the field of the row.

    Parameters
    ----------
    knows
        Returns whether the bandit has an item that is not retired.
    """
    if isinstance(row, InvalidArgumentError):
        raise row
    row = replace(row, context=complete_context(settings, row.context))
    check_context(settings, row.context)
    if len(row.slate) != settings.slate_size:
        raise InvalidArgumentError("item_ids", f"expected {settings.slate_size} items, got {len(row.slate)}")
    for place, item_id in enumerate(row.slate):
        if not knows(item_id):
            raise InvalidArgumentError(f"item_ids[{place}]", f"is no item of the bandit, or retired: {item_id[:128]!r}")
    taken = settings.reward_range
    if taken is None or taken.low <= row.reward <= taken.high:
        return row
    if not taken.clamp:
        raise InvalidArgumentError("reward", f"must be from {taken.low} to {taken.high}, the bandit's reward_range")
    return replace(row, reward=min(max(row.reward, taken.low), taken.high) + 0.0)
