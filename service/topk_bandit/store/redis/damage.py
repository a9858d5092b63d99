"""Looks for bandits whose keys are damaged so that they can't be served, through a whole store.

A record that is gone or can't be read is damage, and so is a key of another kind, a log that is gone or has lost its
end, and a log whose beginning was trimmed without a snapshot to stand for it. What else is inside a log or a snapshot
is not read, but for the events that wait to be learned where a person asks for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import CorruptDataError, NotFoundError
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.keys import SLICES, BanditKeys
from topk_bandit.store.redis.texts import read_contents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from topk_bandit.store.log import BanditRecord, Store
    from topk_bandit.store.redis.keys import KeySpace
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.replies import Hash
    from topk_bandit.store.redis.tenant_index import TenantIndex
    from topk_bandit.store.redis.tenants import Tenants

__all__ = ["Damage", "find_damaged", "find_unreadable"]

_AT_ONCE = 32
_EVENTS_AT_ONCE = 512

_KINDS = BanditKeys(
    meta="hash",
    log="stream",
    items="hash",
    retired="hash",
    recommendations="hash",
    deadlines="zset",
    imports="hash",
    followers="hash",
    visitors="zset",
    closed=("hash",) * SLICES,
    snapshots=("string", "string"),
)


class Damage(NamedTuple):
    """A bandit that can't be served as its keys are, and what is wrong with them, in a sentence without its name."""

    name: BanditName
    problem: str

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}"


async def find_damaged(
    link: Link, keys: KeySpace, tenants: Tenants, index: TenantIndex, *, pause_seconds: float
) -> AsyncIterator[Damage]:
    """Yield each damaged bandit of a store; bandits that come or go meanwhile may be missed.

    Parameters
    ----------
    pause_seconds
        How long the store is left alone after each 32 bandits.

    Raises
    ------
    UnavailableError
        The store is away.
    """
    async for tenant in tenants.each():
        async for entries in index.pages(tenant, limit=_AT_ONCE):
            names = [BanditName(tenant, entry) for entry in entries]
            problems = await asyncio.gather(*(_examine(link, keys, name) for name in names))
            for name, problem in zip(names, problems, strict=True):
                if problem:
                    yield Damage(name, problem)
            await asyncio.sleep(pause_seconds)


async def find_unreadable(store: Store, record: BanditRecord) -> Damage | None:
    """Return what keeps a bandit's learner from the end of its log; None if all events behind its snapshot can be read.

    Raises
    ------
    UnavailableError
        The store is away.
    """
    start = record.snapshot_position + 1
    try:
        while start <= record.log_position:
            part = await store.read_log(record.name, start=start, limit=_EVENTS_AT_ONCE)
            if not part.events:
                return None
            start = part.events[-1].position + 1
    except NotFoundError:
        return None
    except CorruptDataError as error:
        return Damage(record.name, str(error))
    return None


async def _examine(link: Link, keys: KeySpace, name: BanditName) -> str:
    owned = keys.bandit(name).all
    kinds, meta, log_ends = await link.run(scripts.EXAMINE, owned)
    found = {key: kind.decode() for key, kind in zip(owned, kinds, strict=True)}
    return _strangers(found) or _gaps(name, found, keys.bandit(name), meta, log_ends=bool(log_ends))


def _strangers(kinds: Mapping[str, str]) -> str:
    """Return which key is of another kind than it should be, "" if none is."""
    for (key, kind), expected in zip(kinds.items(), _KINDS.all, strict=True):
        if kind not in (expected, "none"):
            return f"{key} is a {kind}, and should be a {expected}"
    return ""


def _gaps(name: BanditName, kinds: Mapping[str, str], keys: BanditKeys, meta: Hash, *, log_ends: bool) -> str:
    """Return what is gone of a bandit, "" for nothing; one of which nothing is there is none.

    Parameters
    ----------
    log_ends
        Whether the log is there, and ends with its newest event.
    """
    if kinds[keys.meta] == "none":
        left = sum(kind != "none" for kind in kinds.values())
        return f"its record is gone, and {left} other keys of it are left" if left else ""
    try:
        contents = read_contents(name, meta, ())
    except CorruptDataError as error:
        return f"its record can't be read: {error}"
    if kinds[keys.log] == "none" and contents.first_position <= contents.record.log_position:
        return "its log is gone"
    if kinds[keys.log] != "none" and not log_ends:
        return f"its log does not end at its newest event, {contents.record.log_position}"
    if contents.first_position > 1 and all(kinds[key] == "none" for key in keys.snapshots):
        return f"its log begins at {contents.first_position}, and its snapshots are gone"
    return ""
