"""Looks for bandits that lists have lost: in the index of their tenant, or with their tenant in the list of tenants.

Each of these lists may be on another server than the bandit, whose failover undoes the last writes. Such a bandit is
served by its name, and is missing in all that goes through lists: those of callers, quotas, backups, what is closed
while it rests. Creating enters it first and deleting last, so that no other bandit is ever in this state.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import BanditName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.tenant_index import TenantIndex
    from topk_bandit.store.redis.tenants import Tenants

__all__ = ["find_gone", "find_unlisted"]

_AT_ONCE = 1000


async def find_unlisted(
    link: Link, keys: KeySpace, tenants: Tenants, index: TenantIndex, *, pause_seconds: float
) -> AsyncIterator[BanditName]:
    """Yield each bandit of which there are keys, and that can't be found by its tenant.

    Parameters
    ----------
    pause_seconds
        How long the store is left alone after each 1,000 keys.

    Raises
    ------
    UnavailableError
        The store is away.
    """
    found: set[BanditName] = set()
    async for page in link.scan(keys.of_every_bandit, at_once=_AT_ONCE):
        names = {name for key in page if (name := keys.owner(key)) is not None}
        for name in await _find_lost(names - found, tenants, index):
            if await link.call("EXISTS", *keys.bandit(name).all):  # it was not deleted a moment ago
                found.add(name)
                yield name
        await asyncio.sleep(pause_seconds)


async def find_gone(tenants: Tenants, index: TenantIndex) -> AsyncIterator[str]:
    """Yield each bandit that is listed and of which no key is left, and each tenant that lost even its lists.

    One that is deleted at this moment may be among them.

    Raises
    ------
    UnavailableError
        The store is away.
    """
    async for tenant in tenants.each():
        if await tenants.is_bare(tenant):
            yield f"tenants/{tenant}"
        async for entries in index.pages(tenant, limit=_AT_ONCE):
            for entry in sorted(await index.find_dangling(tenant, entries)):
                yield str(BanditName(tenant, entry))


async def _find_lost(names: Iterable[BanditName], tenants: Tenants, index: TenantIndex) -> list[BanditName]:
    entries: defaultdict[str, list[BanditName]] = defaultdict(list)
    for name in names:
        entries[name.tenant].append(name)
    hidden = set(await tenants.find_unlisted(tuple(entries))) if entries else set()
    lost: list[BanditName] = []
    for tenant, own in entries.items():
        missing = set(await index.find_unlisted(tenant, [name.bandit for name in own]))
        lost += [name for name in own if tenant in hidden or name.bandit in missing]
    return sorted(lost)
