"""What stores of bandits and of studies share in Redis: ask a script, find, page, create and delete.

Creating and deleting take two scripts, because a tenant's index is in another slot than what it lists. To create, an
entry of the index is reserved first; to delete, the entry is released last. A caller that dies in between leaves an
entry that stands for nothing: it is never listed, and is released before a tenant is refused for its quota.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from topk_bandit.domain.errors import CorruptDataError, TopkBanditError, UnavailableError
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.tenant_index import TenantIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.errors import NotDurableError
    from topk_bandit.store.redis.keys import BanditKeys, IndexKeys, StudyKeys
    from topk_bandit.store.redis.link import Link
    from topk_bandit.store.redis.replies import Hash
    from topk_bandit.store.redis.scripts import Script

__all__ = ["Aggregates", "Incarnate", "Kind", "OfTenant"]

_log = logging.getLogger(__name__)

_PAGE = 256


class OfTenant(Protocol):
    """A name below a tenant."""

    @property
    def tenant(self) -> str:
        """The tenant's id."""
        ...


class Incarnate(Protocol):
    """A record of one life of what a name stands for."""

    @property
    def incarnation(self) -> str:
        """What distinguishes it from what had the name before."""
        ...


_Name = TypeVar("_Name", bound=OfTenant)
_Record = TypeVar("_Record", bound=Incarnate)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_Name, _Record]):
    """What distinguishes bandits from studies.

    Attributes
    ----------
    noun
        What one of them is called.
    name, entry
        The name of a tenant's entry in its index, and the entry of a name.
    index, keys
        The keys of a tenant's index, and those of what a name stands for.
    read
        The record in a meta hash.
    refusals
        The errors, by the word that a script answers with.
    absent, full
        The words for what does not exist, and for a quota that is used up.
    announcing
        Where it is announced that one of them changed, and as what; empty where nobody listens.
    """

    noun: str
    name: Callable[[str, str], _Name]
    entry: Callable[[_Name], str]
    index: Callable[[str], IndexKeys]
    keys: Callable[[_Name], BanditKeys | StudyKeys]
    read: Callable[[_Name, Hash], _Record]
    refusals: Mapping[str, Callable[[_Name, str], TopkBanditError]]
    absent: str
    full: str
    announcing: Callable[[_Name], tuple[str, str]] = lambda _: ("", "")


class Aggregates(Generic[_Name, _Record]):
    """All bandits, or all studies, of a store.

    Parameters
    ----------
    link
        Where to send calls; whoever opened it closes it.
    """

    def __init__(self, link: Link, kind: Kind[_Name, _Record]) -> None:
        self._link = link
        self._kind = kind
        self._damaged: set[_Name] = set()
        self.keys = kind.keys
        self.announcing = kind.announcing
        self.index = TenantIndex(
            link, keys=kind.index, owned=lambda tenant, entry: kind.keys(kind.name(tenant, entry)).all
        )

    async def ask(
        self, script: Script, name: _Name, keys: Sequence[str], arguments: Sequence[bytes | str | int] = ()
    ) -> Any:  # noqa: ANN401 - each script has its own answer
        """Run a script and return its answer, or raise what it refuses with."""
        return self._check_reply(name, await self._link.run(script, keys, arguments))

    async def write(
        self, script: Script, name: _Name, keys: Sequence[str], arguments: Sequence[bytes | str | int] = ()
    ) -> tuple[Any, Durability]:
        """Run a script whose writes are acknowledged to somebody; return its answer, and how durable they are."""
        reply, durability = await self._link.run_durably(script, keys, arguments, meta=self._kind.keys(name).meta)
        return self._check_reply(name, reply), durability

    async def write_all(
        self, script: Script, name: _Name, keys: Sequence[str], arguments: Sequence[Sequence[bytes | str | int]]
    ) -> tuple[list[Any], Durability | NotDurableError]:
        """Do what `write` does for each of `arguments`, in order; each one's error stands in place of its answer."""
        meta = self._kind.keys(name).meta
        replies, durability = await self._link.run_all_durably(script, keys, arguments, meta=meta)
        return [self._outcome(name, reply) for reply in replies], durability

    async def write_all_unconfirmed(
        self, script: Script, name: _Name, keys: Sequence[str], arguments: Sequence[Sequence[bytes | str | int]]
    ) -> list[Any]:
        """Do what `write_all` does, without waiting for what is written."""
        return [self._outcome(name, reply) for reply in await self._link.run_all(script, keys, arguments)]

    def _outcome(self, name: _Name, reply: Any) -> Any:  # noqa: ANN401 - each script has its own answer
        if isinstance(reply, Exception):
            return reply
        try:
            return self._check_reply(name, reply)
        except TopkBanditError as error:
            return error

    def _check_reply(self, name: _Name, reply: Any) -> Any:  # noqa: ANN401 - each script has its own answer
        word = reply[0].decode()
        if word in self._kind.refusals:
            raise self._kind.refusals[word](name, b"".join(reply[1:]).decode())
        return reply

    async def find(self, name: _Name) -> _Record | None:
        """Return what has this name, or None."""
        meta = await self._link.call("HGETALL", self._kind.keys(name).meta)
        return self._kind.read(name, meta) if meta else None

    async def get(self, name: _Name) -> _Record:
        """Return what has this name, or raise `NotFoundError`."""
        known = await self.find(name)
        if known is None:
            raise self._kind.refusals[self._kind.absent](name, "")
        return known

    async def page(self, tenant: str, *, after: str, limit: int) -> tuple[_Record, ...]:
        """Return up to `limit` of a tenant's whose id sorts after `after` by bytes, in order, but for damaged ones."""
        records: list[_Record] = []
        while len(records) < limit:
            entries = await self.index.page(tenant, after=after, limit=min(limit - len(records), _PAGE))
            if not entries:
                break
            found = await asyncio.gather(*(self._find_whole(self._kind.name(tenant, entry)) for entry in entries))
            records.extend(record for record in found if record is not None)
            after = entries[-1]
        return tuple(records)

    async def _find_whole(self, name: _Name) -> _Record | None:
        """Return what has this name, or None, also for one that is damaged: it hides no other, and is reported once."""
        try:
            return await self.find(name)
        except CorruptDataError as error:
            if name not in self._damaged:
                self._damaged.add(name)
                noun = self._kind.noun
                _log.error(
                    "a %s is damaged, and left out of lists until it is deleted: %s",
                    noun,
                    error,
                    extra={noun: str(name)},
                )
            return None

    async def reserve(self, name: _Name, *, incarnation: str, quota: int) -> int:
        """Reserve what is about to be created; return when, by the store's clock, or raise `ExhaustedError`."""
        entry = self._kind.entry(name)
        reservation = await self.index.reserve(name.tenant, entry, incarnation=incarnation, quota=quota)
        if reservation.at_ms is None:
            raise self._kind.refusals[self._kind.full](name, f"{reservation.used} {quota}")
        return reservation.at_ms

    async def create(
        self, script: Script, name: _Name, keys: Sequence[str], arguments: Sequence[bytes | str | int]
    ) -> _Record:
        """Run a script that creates under a reservation; `UnavailableError` when that has lapsed."""
        (status, *meta), _ = await self.write(script, name, keys, arguments)
        if status == b"lapsed":
            raise UnavailableError(f"creating the {self._kind.noun} took too long; try again")
        return self._kind.read(name, *meta)

    async def delete(self, name: _Name) -> None:
        """Delete an incarnation; then release the index's entry.

        Of what is damaged all keys are removed, whatever is in them, and of what has lost its record those that are
        left. Where nothing is left, the entry goes. Without either there is a `NotFoundError`.
        """
        keys, record = self._kind.keys(name), None
        try:
            record = await self.find(name)
            incarnation = "" if record is None else record.incarnation
            arguments = (*self._kind.announcing(name), incarnation)
            removed, _ = await self._link.run_durably(scripts.DELETE, keys.all, arguments, meta=keys.meta)
            if record is None and not removed and not await self.index.sweep(name.tenant, entry=self._kind.entry(name)):
                raise self._kind.refusals[self._kind.absent](name, "")
        except CorruptDataError:
            await self._link.call("UNLINK", *keys.all)
            self._damaged.discard(name)
        reserved_by = None if record is None else record.incarnation
        with suppress(UnavailableError):
            await self.index.release(name.tenant, self._kind.entry(name), incarnation=reserved_by)
