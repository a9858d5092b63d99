"""Restores bandits, line by line as `topk_bandit.store.archives` has them.

A bandit serves once its last line has come, and what the lines say of their own number and digest is true; until then
no other call finds it. What no learner could fold is refused before it is kept. Whoever sends goes on where an import
stands, also at another worker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from topk_bandit.bandits.dry_runs import DryRuns
from topk_bandit.bandits.restored_events import check_restored
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, NewerDataError
from topk_bandit.domain.quotas import Quota
from topk_bandit.store.archives import read_line
from topk_bandit.store.codec import decode_snapshot
from topk_bandit.store.line_imports import LineImports, parse
from topk_bandit.store.log import BanditRecord
from topk_bandit.store.restore_state import Restore, Restored
from topk_bandit.store.restores import ids_of, take

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.line_imports import Lines
    from topk_bandit.store.log import Store
    from topk_bandit.store.restore_state import RestoreStep

__all__ = ["Restores"]


class Restores(LineImports[BanditName, Restore, BanditRecord]):
    """Restores bandits.

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
        super().__init__(store, executor, Restore)
        self._store = store
        self._limits = limits
        self._quotas = quotas
        self._dry_runs = DryRuns(store, executor, limits=limits)

    async def read(self, name: BanditName, before: Restore, sent: Lines) -> RestoreStep:
        """Return what lines make of what is restored; a tenant whose logs are full is refused with LOG_QUOTA."""
        await self._quotas.check(name.tenant, {Quota.LOG_BYTES: 1})
        parsed = await self.compute(partial(parse, sent.lines, read_line))
        restored, begins = Restored({}, {}), before.next_line == 0
        if not begins:
            slates, imports = ids_of(parsed)
            restored = await self._store.read_restored(name, slates=slates, imports=imports)
        version = self._store.data_version
        step = await self.compute(partial(take, before, restored, sent, parsed, version=version, check=check_restored))
        await self._dry_runs.check(name, before, step, parsed)
        if step.restore.complete:
            known = b"" if begins else await self._store.load_restored_snapshot(name)
            await self.compute(partial(self._check_snapshot, step, known, last=len(sent.lines) - 1))
        return step

    async def finish(self, name: BanditName, restore: Restore, sent: Lines) -> BanditRecord:  # noqa: ARG002
        """Make the bandit, unless the tenant has as many as it may have: then that is BANDIT_QUOTA."""
        return await self._store.finish_restore(name, restore, quota=self._quotas.limit(name.tenant, Quota.BANDITS))

    def _check_snapshot(self, step: RestoreStep, known: bytes, *, last: int) -> None:
        """Refuse to end a bandit whose log begins after a snapshot that is not there, or can't be read."""
        restore, frame = step.restore, known + step.snapshot
        position, incarnation = 0, restore.incarnation
        try:
            if frame:
                model = decode_model(decode_snapshot(frame).payload, limits=self._limits)
                position, incarnation = model.version, model.incarnation
        except (CorruptDataError, NewerDataError) as error:
            raise InvalidArgumentError(f"lines[{last}]", str(error)) from None
        if (position, incarnation) != (restore.first_position - 1, restore.incarnation):
            problem = (
                f"the log begins at {restore.first_position}, and the snapshot before it is another one or missing"
            )
            raise InvalidArgumentError(f"lines[{last}]", problem)
