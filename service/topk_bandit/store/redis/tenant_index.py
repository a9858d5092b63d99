"""The index of a tenant's bandits, or of its studies: for lists and quotas.

An entry is reserved before what it stands for is created, so that a quota is never exceeded. An entry whose bandit or
study was never created, or is deleted, is released before a tenant is refused for its quota.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.store.redis import scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from topk_bandit.store.redis.keys import IndexKeys
    from topk_bandit.store.redis.link import Link

__all__ = ["RESERVATION_MS", "Reservation", "TenantIndex"]

RESERVATION_MS = 10_000
"""How long after its entry was reserved something can be created; far longer than two calls take."""


class Reservation(NamedTuple):
    """When something was reserved, by the store's clock; None where a tenant has `used` its quota."""

    at_ms: int | None = None
    used: int = 0


class TenantIndex:
    """The ids of one kind of things of each tenant. An entry that nothing exists for dangles: nothing to worry about.

    Parameters
    ----------
    keys
        Returns where a tenant's entries are.
    owned
        Returns the keys of which one exists as long as what a tenant's id stands for, or anything that is left of it.
    """

    def __init__(
        self, link: Link, *, keys: Callable[[str], IndexKeys], owned: Callable[[str, str], Sequence[str]]
    ) -> None:
        self._link = link
        self._keys = keys
        self._owned = owned

    async def reserve(self, tenant: str, entry: str, *, incarnation: str, quota: int) -> Reservation:
        """Enter what is about to be created, unless the quota is used up."""
        reservation = await self._try_reserve(tenant, entry, incarnation, quota)
        if reservation.at_ms is None and await self.sweep(tenant):
            reservation = await self._try_reserve(tenant, entry, incarnation, quota)
        return reservation

    async def release(self, tenant: str, entry: str, *, incarnation: str | None) -> None:
        """Take out what was deleted, unless another attempt to create it has reserved the entry since.

        None stands for any incarnation: nobody knows that of what was damaged.
        """
        reserved = "" if incarnation is None else f"{incarnation} "
        await self._release(tenant, [(entry.encode(), reserved.encode())])

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids that sort after `after` by bytes, in order."""
        key = self._keys(tenant).entries
        members = await self._link.call("ZRANGEBYLEX", key, f"({after}", "+", "LIMIT", 0, limit)
        return [member.decode() for member in members]

    async def pages(self, tenant: str, *, limit: int) -> AsyncIterator[Sequence[str]]:
        """Yield all ids of a tenant in order, up to `limit` at once; those that come or go meanwhile may be missed."""
        last = ""
        while page := await self.page(tenant, after=last, limit=limit):
            yield page
            last = page[-1]

    async def first_pages(self, tenants: Sequence[str], *, limit: int) -> Sequence[Sequence[str]]:
        """Return up to `limit` ids of each of some tenants, in order; none of one whose index is damaged."""
        keys = [self._keys(tenant).entries for tenant in tenants]
        pages = await self._link.call_many([("ZRANGEBYLEX", key, "(", "+", "LIMIT", 0, limit) for key in keys])
        return [() if isinstance(page, Exception) else [member.decode() for member in page] for page in pages]

    async def find_unlisted(self, tenant: str, entries: Sequence[str]) -> Sequence[str]:
        """Return those of a tenant's ids that have no entry."""
        scores = await self._link.call("ZMSCORE", self._keys(tenant).entries, *entries)
        return [entry for entry, score in zip(entries, scores, strict=True) if score is None]

    async def find_dangling(self, tenant: str, entries: Sequence[str]) -> Collection[str]:
        """Return those of a tenant's entries that nothing exists for."""
        exist = await asyncio.gather(*(self._exists(tenant, entry) for entry in entries))
        return {entry for entry, there in zip(entries, exist, strict=True) if not there}

    async def enter_again(self, tenant: str, entry: str, *, incarnation: str) -> None:
        """Enter what exists and has lost its entry, whatever the quota is."""
        keys = self._keys(tenant)
        await self._link.run(scripts.ENTER_AGAIN, (keys.entries, keys.reservations), (entry, incarnation))

    async def _try_reserve(self, tenant: str, entry: str, incarnation: str, quota: int) -> Reservation:
        keys = self._keys(tenant)
        word, number = await self._link.run(
            scripts.RESERVE_ENTRY, (keys.entries, keys.reservations), (entry, incarnation, quota)
        )
        return Reservation(at_ms=int(number)) if word == b"reserved" else Reservation(used=int(number))

    async def sweep(self, tenant: str, *, entry: str | None = None) -> bool:
        """Take out all entries, or one, that dangle and that nobody is about to use; return whether there were any."""
        key = self._keys(tenant).reservations
        lapsed = await self._link.run(scripts.LAPSED_RESERVATIONS, (key,), (RESERVATION_MS,))
        pairs = zip(lapsed[::2], lapsed[1::2], strict=True)
        reserved = {one.decode(): by for one, by in pairs if entry in {None, one.decode()}}
        dangling = await self.find_dangling(tenant, list(reserved))
        await self._release(tenant, [(one.encode(), reserved[one]) for one in dangling])
        return bool(dangling)

    async def _exists(self, tenant: str, entry: str) -> bool:
        return bool(await self._link.call("EXISTS", *self._owned(tenant, entry)))

    async def _release(self, tenant: str, entries: Sequence[tuple[bytes, bytes]]) -> None:
        keys = self._keys(tenant)
        arguments = [part for entry in entries for part in entry]
        if arguments:
            await self._link.run(scripts.RELEASE_ENTRIES, (keys.entries, keys.reservations), arguments)
