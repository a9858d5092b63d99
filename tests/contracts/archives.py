"""Bandits as lines, and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.contracts.harness import whole_log

from topk_bandit.bandits.contents import read_contents
from topk_bandit.bandits.restores import Restores
from topk_bandit.bandits.tenant_quotas import TenantQuotas
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.learning.limits import Limits
from topk_bandit.store.archive_lines import End, chain
from topk_bandit.store.archives import read_line, write_line
from topk_bandit.store.line_imports import Lines, parse
from topk_bandit.store.restore_state import Restore
from topk_bandit.store.restores import ids_of, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName, BanditSettings
    from topk_bandit.store.line_imports import Receipt
    from topk_bandit.store.log import BanditRecord, Store

__all__ = ["Sender", "archived", "ended", "restore_lines"]


async def archived(store: Store, name: BanditName) -> list[str]:
    """Return a bandit as lines."""
    lines, place = await read_contents(store, name, None)
    while place is not None:
        more, place = await read_contents(store, name, place)
        lines += more
    return ended([*lines, *map(write_line, await whole_log(store, name))])


def ended(lines: Sequence[str]) -> list[str]:
    """Return lines with the one that ends them."""
    digest, position = "", 0
    for line in lines:
        digest = chain(digest, line)
        position += line.startswith('{"position"')
    last = int(lines[-1].partition(":")[2].partition(",")[0]) if position else 1
    return [*lines, write_line(End(last, len(lines), digest))]


class Sender:
    """Brings lines of bandits to a store."""

    def __init__(self, store: Store, *, bandits: int = 9, limits: Limits | None = None) -> None:
        quotas = TenantQuotas(store, Quotas({Quota.BANDITS: bandits}))
        self._restores = Restores(store, ThreadPoolExecutor(1), limits=limits or Limits(), quotas=quotas)

    async def send(
        self, name: BanditName, lines: Sequence[str], *, first: int = 0, at_once: int = 1000, import_id: str = "one"
    ) -> Receipt[BanditRecord]:
        """Send lines in parts; return what became of the last one."""
        receipt = None
        for place in range(0, len(lines), at_once):
            part = tuple(lines[place : place + at_once])
            receipt = await self._restores.take(name, Lines(import_id, first + place, part))
        return receipt or await self._restores.take(name, Lines(import_id, 0, ()))


def _take_anything(_settings: BanditSettings, _restored: object) -> None:
    """Check nothing: stores keep what is restored, and who asks them has checked it."""


async def restore_lines(store: Store, name: BanditName, lines: Sequence[str], *, at_once: int) -> Restore:
    """Bring lines to a store part by part, whatever snapshot they have, and return how far the import is."""
    restore = Restore("one")
    for place in range(0, len(lines), at_once):
        part = lines[place : place + at_once]
        parsed = parse(part, read_line)
        slates, imports = ids_of(parsed)
        restored = await store.read_restored(name, slates=slates, imports=imports)
        step = take(
            restore,
            restored,
            Lines("one", place, tuple(part)),
            parsed,
            version=store.data_version,
            check=_take_anything,
        )
        assert await store.record_restore(name, step, before=restore)
        assert await store.record_restore(name, step, before=restore)
        elsewhere = replace(step, restore=replace(step.restore, next_line=10**6 + 1))
        assert not await store.record_restore(name, elsewhere, before=replace(restore, next_line=10**6))
        restore = step.restore
        assert await store.find_restore(name) == restore
    return restore
