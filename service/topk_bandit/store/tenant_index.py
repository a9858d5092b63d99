"""Which bandits a tenant has, beside the bandits themselves: for lists and quotas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topk_bandit.store import scripts
from topk_bandit.store.refusals import refusal
from topk_bandit.types import BanditName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.store.keys import KeySpace
    from topk_bandit.store.link import Link

__all__ = ["RESERVATION_MS", "TenantIndex"]

RESERVATION_MS = 10_000
"""How long after its entry was reserved a bandit can be created; far longer than two calls take."""


class TenantIndex:
    """The bandit ids of each tenant. An entry whose bandit does not exist dangles, and is nothing to worry about."""

    def __init__(self, link: Link, keys: KeySpace) -> None:
        self._link = link
        self._keys = keys

    async def reserve(self, name: BanditName, *, incarnation: str, quota: int) -> int:
        """Enter a bandit that is about to be created, or raise BANDIT_QUOTA; return when, by the store's clock."""
        at_ms = await self._try_reserve(name, incarnation, quota)
        if at_ms is None and await self._sweep(name.tenant):
            at_ms = await self._try_reserve(name, incarnation, quota)
        if at_ms is None:
            raise refusal("full", name, quota)
        return at_ms

    async def release(self, name: BanditName, *, incarnation: str) -> None:
        """Take out a bandit that was deleted, unless another attempt to create it has reserved the entry since."""
        await self._release(name.tenant, [(name.bandit.encode(), f"{incarnation} ".encode())])

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[str]:
        """Return up to `limit` bandit ids that sort after `after` by bytes, in order."""
        key = self._keys.tenant(tenant).bandits
        members = await self._link.call("ZRANGEBYLEX", key, f"({after}", "+", "LIMIT", 0, limit)
        return [member.decode() for member in members]

    async def _try_reserve(self, name: BanditName, incarnation: str, quota: int) -> int | None:
        keys = self._keys.tenant(name.tenant)
        reply = await self._link.run(
            scripts.RESERVE_BANDIT, (keys.bandits, keys.reservations), (name.bandit, incarnation, quota)
        )
        return int(reply[1]) if reply[0] == b"reserved" else None

    async def _sweep(self, tenant: str) -> bool:
        """Take out entries that dangle and that nobody is about to use; return whether there were any."""
        key = self._keys.tenant(tenant).reservations
        lapsed = await self._link.run(scripts.LAPSED_RESERVATIONS, (key,), (RESERVATION_MS,))
        entries = list(zip(lapsed[::2], lapsed[1::2], strict=True))
        exist = await asyncio.gather(*(self._exists(tenant, bandit.decode()) for bandit, _ in entries))
        dangling = [entry for entry, there in zip(entries, exist, strict=True) if not there]
        await self._release(tenant, dangling)
        return bool(dangling)

    async def _exists(self, tenant: str, bandit: str) -> bool:
        return bool(await self._link.call("EXISTS", self._keys.bandit(BanditName(tenant, bandit)).meta))

    async def _release(self, tenant: str, entries: Sequence[tuple[bytes, bytes]]) -> None:
        keys = self._keys.tenant(tenant)
        arguments = [part for entry in entries for part in entry]
        if arguments:
            await self._link.run(scripts.RELEASE_BANDITS, (keys.bandits, keys.reservations), arguments)
