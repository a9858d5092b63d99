"""Which programs use a store, and which data version is in force for what they write.

Each worker notes itself again and again, and gets the version with it. Nobody but an operator puts the next one in
force, in one step, and never while a worker is known to run that could not read it. What a program can't read and
write, it refuses to serve.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, OutdatedError
from topk_bandit.store import data_versions
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.replies import fields_of

if TYPE_CHECKING:
    from topk_bandit.store.redis.link import Link

__all__ = ["Finalization", "Programs"]

HEARD_WITHIN_MS = 15_000
"""A worker that was heard of so lately counts as running: one that hangs for longer is killed by its supervisor."""

RETENTION_MS = 60_000
"""How long a silent worker is kept; nothing but tidiness depends on it."""


class Finalization(NamedTuple):
    """What became of putting a data version in force.

    Attributes
    ----------
    before
        The version that was in force before; None in a store that no worker has used.
    after
        The one that is in force now.
    older
        The workers that could not read it, as an operator knows them: where there are any, nothing was changed.
    """

    before: int | None
    after: int | None
    older: tuple[str, ...] = ()


class Programs:
    """A worker among the programs that use a store.

    Parameters
    ----------
    link
        Where to send calls, and what gets the version to write; whoever opened it closes it.
    key
        Where programs are noted.
    worker
        What distinguishes this worker from all others.
    about
        What an operator knows it by.

    Attributes
    ----------
    store_id
        The store's id, as it was noted last; empty before, or where this program can't write.
    known_id
        What this worker knew before, for operators; empty for nothing.
    is_older
        Whether the store had lost this worker's last note when it was noted again: then it is an older copy of itself.
    """

    def __init__(self, link: Link, key: str, *, worker: str, about: str) -> None:
        self._link = link
        self._key = key
        self._worker = worker
        self._about = about
        self._begins_with = data_versions.NEWEST
        self._new_id = _new_id()
        self.store_id = self.known_id = ""
        self.is_older = False
        self._noted_ms = 0

    async def note(self) -> int:
        """Note that this worker runs, write the data version in force from now on, and return it.

        Raises
        ------
        OutdatedError
            A newer program's version is in force.
        ConfigurationError
            The version in force is so old that only programs before this one write it.
        """
        noted = (self._worker, data_versions.NEWEST, self._begins_with, RETENTION_MS)
        about = f"{self._about} on store {self.known_id}" if self.known_id else self._about
        found, store_id, before, at_ms = await self._link.run(
            scripts.NOTE_PROGRAM, (self._key,), (*noted, about, self._new_id)
        )
        version, self.store_id = int(found), store_id.decode()
        self.is_older = self._misses_note(before, int(at_ms))
        self._noted_ms = int(at_ms)
        # The next store that has no id is another one.
        self._new_id = _new_id() if store_id.decode() == self._new_id else self._new_id
        if version > data_versions.NEWEST:
            raise OutdatedError(
                f"the store's data version is {version}, and this program knows up to {data_versions.NEWEST}: "
                "an upgrade was finalized; start the program that it was finalized for, or a later one"
            )
        if version < data_versions.OLDEST:
            raise ConfigurationError(
                f"the store's data version is {version}, and this program writes {data_versions.OLDEST} and up: start "
                f"the program of data version {data_versions.OLDEST} first, and run topk-bandit finalize-upgrade there"
            )
        self._begins_with = self._link.data_version = version
        return version

    def _misses_note(self, before: bytes, at_ms: int) -> bool:
        """Return whether the store lacks this worker's last note, though it was too new to be forgotten."""
        if before:
            return int(before) < self._noted_ms
        return self._noted_ms > 0 and at_ms - self._noted_ms < RETENTION_MS

    def refuse_all(self, problem: str) -> None:
        """Have all calls but these refused, for a problem; "" for none any more."""
        self._link.refuse(problem, but=self._key)

    async def leave(self) -> None:
        """Note that this worker has ended."""
        await self._link.call("HDEL", self._key, self._worker)

    async def read(self) -> int | None:
        """Return the data version in force, None in a store that no worker has used; nothing is noted."""
        found = await self._link.call("HGET", self._key, "data_version")
        try:
            return None if found is None else int(found)
        except ValueError:
            raise CorruptDataError(f"{self._key} has the unknown data version {found!r}") from None

    async def find_strangers(self) -> list[str]:
        """Return what an operator knows workers by that were on another store before, and refuse to go on."""
        noted = await self._link.call("HGETALL", self._key)
        values = {name: value.decode(errors="replace") for name, value in fields_of(noted).items()}
        store_id = values.pop(b"~store", "").rpartition(" ")[2]
        known = {value: value.rpartition(" on store ")[2] for value in values.values() if " on store " in value}
        return sorted(_about(value.split(" ", 2)[2]) for value, one in known.items() if one != store_id)

    async def finalize(self) -> Finalization:
        """Put this program's data version in force, unless a worker runs that could not read it."""
        arguments = (data_versions.NEWEST, HEARD_WITHIN_MS)
        (word, *values), _ = await self._link.run_durably(scripts.FINALIZE, (self._key,), arguments, meta=self._key)
        if word == b"none":
            return Finalization(None, None)
        if word == b"held":
            before = await self.read()
            return Finalization(before, before, tuple(sorted(_about(one.decode()) for one in values)))
        return Finalization(int(values[0]), max(int(values[0]), data_versions.NEWEST))


def _new_id() -> str:
    """Return the id of a store that has none yet."""
    return uuid.uuid4().hex


def _about(noted: str) -> str:
    """Return what an operator knows a worker by, without the store that it knew."""
    return noted.partition(" on store ")[0]
