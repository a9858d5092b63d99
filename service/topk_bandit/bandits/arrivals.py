"""Bandits that arrive from elsewhere, line by line as `topk_bandit.store.archives` has them.

A bandit serves once its last line has come, and what the lines say of their own number and digest is true; until then
no other call finds it. What no learner could fold is refused before it is kept. Whoever sends goes on where an import
stands, also at another worker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.bandits.arriving_events import check_arriving
from topk_bandit.bandits.rehearsals import Rehearsals
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NewerDataError
from topk_bandit.domain.quotas import Quota
from topk_bandit.store.archives import read_line
from topk_bandit.store.arrivals import ids_of, take
from topk_bandit.store.arriving import Arrival, Arrived
from topk_bandit.store.codec import decode_snapshot
from topk_bandit.store.line_imports import LineImports, parse
from topk_bandit.store.log import BanditRecord

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.arriving import Arriving
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.log import Store

__all__ = ["Arrivals"]


class Arrivals(LineImports[BanditName, Arrival, BanditRecord]):
    """Takes in bandits.

    Parameters
    ----------
    executor
        Where lines are read, and events folded.
    limits
        What one bandit's posterior may grow to.
    quotas
        What tenants may have.
    """

    def __init__(self, store: Store, executor: Executor, *, limits: Limits, quotas: TenantQuotas) -> None:
        super().__init__(store, executor, Arrival)
        self._store = store
        self._limits = limits
        self._quotas = quotas
        self._rehearsals = Rehearsals(store, executor, limits=limits)

    async def read(self, name: BanditName, before: Arrival, sent: Lines) -> Arriving:
        """Return what lines make of what has arrived; a tenant whose logs are full is refused with LOG_QUOTA."""
        await self._quotas.check(name.tenant, {Quota.LOG_BYTES: 1})
        parsed = await self.compute(partial(parse, sent.lines, read_line))
        arrived, begins = Arrived({}, {}), before.next_line == 0
        if not begins:
            slates, imports = ids_of(parsed)
            arrived = await self._store.read_arrived(name, slates=slates, imports=imports)
        version = self._store.data_version
        arriving = await self.compute(
            partial(take, before, arrived, sent, parsed, version=version, check=check_arriving)
        )
        await self._rehearsals.check(name, before, arriving, parsed)
        if arriving.arrival.complete:
            known = b"" if begins else await self._store.load_arrived_snapshot(name)
            await self.compute(partial(self._check_snapshot, arriving, known, last=len(sent.lines) - 1))
        return arriving

    async def finish(self, name: BanditName, arrival: Arrival, sent: Lines) -> BanditRecord:  # noqa: ARG002
        """Make the bandit, unless the tenant has as many as it may have: then that is BANDIT_QUOTA."""
        return await self._store.finish_arrival(name, arrival, quota=self._quotas.limit(name.tenant, Quota.BANDITS))

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
