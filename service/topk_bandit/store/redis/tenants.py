"""The tenants that have bandits or studies, in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link

__all__ = ["Tenants"]

_PAGE = 256


class Tenants:
    """The tenants that are listed; one may be listed that has nothing any more.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    """

    def __init__(self, link: Link, keys: KeySpace) -> None:
        self._link = link
        self._keys = keys

    async def page(self, *, after: str) -> Sequence[str]:
        """Return tenants whose id sorts after `after` by bytes, in order; none at the end."""
        key = self._keys.tenants
        reply = await self._link.call("ZRANGEBYLEX", key, f"({after}", "+", "LIMIT", 0, _PAGE)
        return [member.decode() for member in reply]

    async def each(self) -> AsyncIterator[str]:
        """Yield all tenants in order; those that come or go meanwhile may be missed."""
        last = ""
        while page := await self.page(after=last):
            for tenant in page:
                yield tenant
            last = page[-1]

    async def find_unlisted(self, tenants: Sequence[str]) -> Sequence[str]:
        """Return those of some tenants that are not listed."""
        scores = await self._link.call("ZMSCORE", self._keys.tenants, *tenants)
        return [tenant for tenant, score in zip(tenants, scores, strict=True) if score is None]

    async def add(self, tenant: str) -> None:
        """List a tenant."""
        await self._link.call("ZADD", self._keys.tenants, 0, tenant)

    async def is_bare(self, tenant: str) -> bool:
        """Return whether a tenant is listed and has neither list: who deletes the last of it takes it out."""
        return not (await self._has_any(tenant) or await self.find_unlisted([tenant]))

    async def _has_any(self, tenant: str) -> bool:
        entries = self._keys.bandits(tenant).entries, self._keys.studies(tenant).entries
        return bool(await self._link.call("EXISTS", *entries))

    async def drop(self, tenant: str) -> None:
        """Take out a tenant that has neither bandits nor studies, and put back one that creates another meanwhile."""
        if await self._has_any(tenant):
            return
        await self._link.call("ZREM", self._keys.tenants, tenant)
        if await self._has_any(tenant):
            await self.add(tenant)
