"""Bandits that arrive from elsewhere, line by line as `topk_bandit.store.archives` has them.

A bandit serves once its last line has come, and what the lines say of their own number and digest is true; until then
no other call finds it. Whoever sends goes on where an import stands, also at another worker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.bandits.arriving_events import check_arriving
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.errors import (
    ConflictError,
    CorruptDataError,
    InvalidArgumentError,
    NewerDataError,
    NotFoundError,
    NotReadyError,
)
from topk_bandit.domain.quotas import Quota
from topk_bandit.store.arrivals import ids_of, parse, part_of, take
from topk_bandit.store.arriving import Arrival, Arrived
from topk_bandit.store.codec import decode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.learning.policy import Limits
    from topk_bandit.store.arriving import Arriving
    from topk_bandit.store.log import Store

__all__ = ["ArrivalReceipt", "Arrivals", "LinesOfBandit"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LinesOfBandit:
    """Lines that are sent together, in order, from line `first_line` on; none ask how far an import is."""

    import_id: str
    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrivalReceipt:
    """With which line an import goes on, and the newest position of the bandit that it made; 0 before that."""

    next_line: int
    log_position: int = 0


class Arrivals:
    """Takes in bandits.

    Parameters
    ----------
    executor
        Where lines are read.
    limits
        What one bandit's posterior may grow to.
    quotas
        What tenants may have.
    """

    def __init__(self, store: Store, executor: Executor, *, limits: Limits, quotas: TenantQuotas) -> None:
        self._store = store
        self._executor = executor
        self._limits = limits
        self._quotas = quotas

    async def take(self, name: BanditName, sent: LinesOfBandit) -> ArrivalReceipt:
        """Take in the lines that come next; the last one makes the bandit. A part that was taken is taken once.

        Raises
        ------
        InvalidArgumentError
            On ``lines[n]``: that one stands for nothing, or can't follow those before; nothing of the part is taken.
        ConflictError
            BANDIT_ARRIVED: there is a bandit of this name, and this import did not make it. ARRIVAL_REPLACED: another
            import has begun, or this one went on meanwhile.
        NotReadyError
            IMPORT_GAP: the import goes on with another line; ``next_row`` says which.
        ExhaustedError
            BANDIT_QUOTA, LOG_QUOTA.
        """
        if (position := await self._find_made(name, sent.import_id)) is not None:
            return ArrivalReceipt(sent.first_line + len(sent.lines), position)
        arrival = await self._store.find_arrival(name)
        if not sent.lines:
            return ArrivalReceipt(arrival.next_line if arrival and arrival.import_id == sent.import_id else 0)
        if arrival is None or arrival.part != part_of(sent.first_line, sent.lines):
            arrival = await self._record(name, _expected(arrival, sent), sent)
        if not arrival.complete:
            return ArrivalReceipt(arrival.next_line)
        quota = self._quotas.limit(name.tenant, Quota.BANDITS)
        made = await self._store.finish_arrival(name, arrival, quota=quota)
        return ArrivalReceipt(arrival.next_line, made.log_position)

    async def _find_made(self, name: BanditName, import_id: str) -> int | None:
        """Return the log position of the bandit that the import made; None if there is no bandit of this name."""
        try:
            await self._store.get_bandit(name)
        except NotFoundError:
            return None
        return (await self._store.finish_arrival(name, Arrival(import_id), quota=0)).log_position

    async def _record(self, name: BanditName, before: Arrival, sent: LinesOfBandit) -> Arrival:
        await self._quotas.check(name.tenant, {Quota.LOG_BYTES: 1})
        parsed = await self._compute(lambda: parse(sent.lines))
        arrived, begins = Arrived({}, {}), before.next_line == 0
        if not begins:
            slates, imports = ids_of(parsed)
            arrived = await self._store.read_arrived(name, slates=slates, imports=imports)
        version = self._store.data_version
        arriving = await self._compute(
            lambda: take(before, arrived, sent.lines, parsed, version=version, check=check_arriving)
        )
        if arriving.arrival.complete:
            known = b"" if begins else await self._store.load_arrived_snapshot(name)
            await self._compute(lambda: self._check_snapshot(arriving, known, last=len(sent.lines) - 1))
        if not await self._store.record_arrival(name, arriving, before=before):
            raise ConflictError("ARRIVAL_REPLACED", f"another import into {name} has begun, or this one went on")
        return arriving.arrival

    def _check_snapshot(self, arriving: Arriving, known: bytes, *, last: int) -> None:
        """Refuse to end a bandit whose log begins after a snapshot that is not there, or can't be read."""
        arrival, frame = arriving.arrival, known + arriving.snapshot
        position, incarnation = 0, arrival.incarnation
        try:
            if frame:
                model = decode_model(decode_snapshot(frame).payload, limits=self._limits)
                position, incarnation = model.version, model.incarnation
        except (CorruptDataError, NewerDataError) as error:
            raise InvalidArgumentError(f"lines[{last}]", str(error)) from None
        if (position, incarnation) != (arrival.first_position - 1, arrival.incarnation):
            problem = (
                f"the log begins at {arrival.first_position}, and the snapshot before it is another one or missing"
            )
            raise InvalidArgumentError(f"lines[{last}]", problem)

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _expected(arrival: Arrival | None, sent: LinesOfBandit) -> Arrival:
    """Return what the lines follow, or refuse them."""
    if arrival is None or (arrival.import_id != sent.import_id and sent.first_line == 0):
        arrival = Arrival(sent.import_id)
    if arrival.import_id != sent.import_id:
        raise ConflictError("ARRIVAL_REPLACED", "another import of the bandit has begun")
    if sent.first_line != arrival.next_line:
        problem = f"the import goes on with line {arrival.next_line}"
        raise NotReadyError("IMPORT_GAP", problem, next_row=arrival.next_line)
    return arrival
