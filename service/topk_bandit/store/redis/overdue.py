"""Looks for bandits that have slates to close, or closed ones to forget, through a whole store.

Of each bandit two things are asked for, of many at once: most bandits that rest have nothing to do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.redis.closed import must_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.tenant_index import TenantIndex
    from topk_bandit.store.redis.tenants import Tenants

__all__ = ["find_overdue"]

_AT_ONCE = 128


async def find_overdue(
    link: Link, keys: KeySpace, tenants: Tenants, index: TenantIndex, *, retention_ms: int, pause_seconds: float
) -> AsyncIterator[BanditName]:
    """Yield each bandit for which `Store.expire_due` has something to do, but for damaged ones.

    Parameters
    ----------
    retention_ms
        How long closed slates are remembered.
    pause_seconds
        How long the store is left alone after each 128 bandits.

    Raises
    ------
    UnavailableError
        The store is away.
    """
    async for names in _parts(tenants, index):
        for name in await _overdue(link, keys, names, retention_ms=retention_ms):
            yield name
        await asyncio.sleep(pause_seconds)


async def _parts(tenants: Tenants, index: TenantIndex) -> AsyncIterator[Sequence[BanditName]]:
    """Yield all bandits, many at once, whosever they are."""
    waiting: list[BanditName] = []
    last = ""
    while page := await tenants.page(after=last):
        for tenant, first in zip(page, await index.first_pages(page, limit=_AT_ONCE), strict=True):
            entries = first
            while entries:
                waiting += [BanditName(tenant, entry) for entry in entries]
                while len(waiting) >= _AT_ONCE:
                    yield waiting[:_AT_ONCE]
                    del waiting[:_AT_ONCE]
                more = len(entries) == _AT_ONCE
                entries = await index.page(tenant, after=entries[-1], limit=_AT_ONCE) if more else ()
        last = page[-1]
    if waiting:
        yield waiting


async def _overdue(link: Link, keys: KeySpace, names: Sequence[BanditName], *, retention_ms: int) -> list[BanditName]:
    now_ms = await link.clock_ms()
    owned = [keys.bandit(name) for name in names]
    due = [("ZCOUNT", one.deadlines, "-inf", now_ms) for one in owned]
    closed = [("HGET", one.meta, "closed") for one in owned]
    replies = await link.call_many([*due, *closed])
    pairs = zip(names, replies[: len(names)], replies[len(names) :], strict=True)
    return [
        name
        for name, count, slices in pairs
        if (isinstance(count, int) and count) or must_turn(slices, now_ms=now_ms, retention_ms=retention_ms)
    ]
