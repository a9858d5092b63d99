"""The names of all keys, on one screen.

::

    {prefix}:{t/b}:meta              hash     incarnation, settings, revision, positions, counts, closed, only_follower
    {prefix}:{t/b}:log               stream   <position>-0 -> at_ms, event, checksum, deadline_ms of Recommended
    {prefix}:{t/b}:items             hash     item id -> "available" or "unavailable"
    {prefix}:{t/b}:retired           hash     bucket -> digests of 8 bytes each of the ids of retired items, joined
    {prefix}:{t/b}:recommendations   hash     recommendation id -> "state deadline_ms fingerprint ...", while open
    {prefix}:{t/b}:deadlines_ms      zset     recommendation id by deadline, while pending
    {prefix}:{t/b}:closed0 to 3      hash     bucket -> what is left of closed recommendations, as lua/closed.lua has it
    {prefix}:{t/b}:imports           hash     import id -> "next_row accepted"; with a newline and the first row of a
                                              part: "fingerprint next_row accepted position"
    {prefix}:{t/b}:followers         hash     follower -> "items_position at_ms"
    {prefix}:{t/b}:visitors          zset     visitors of whom it is kept what they saw, by when that ends in ms
    {prefix}:{t/b}:seen:<visitor>    hash     shown: what one visitor saw lately, as JSON; gone once nothing counts it
    {prefix}:{t/b}:snapshot0, 1      string   framed snapshots, the newer one in either
    {prefix}:{t/b}:arriving          string   how far an import of the bandit is; until its end what comes with it is in
                                              arriving_log, arriving_items and so on
    {prefix}:{studies/t/s}:meta      hash     incarnation, settings_digest, shape, design, log position, counts
    {prefix}:{studies/t/s}:log       stream   <position>-0 -> at_ms, event, checksum; never trimmed
    {prefix}:{studies/t/s}:requests  hash     request id -> "wanted first count" of the questions that it was given
    {prefix}:{studies/t/s}:answers   hash     question number -> its answer
    {prefix}:{studies/t/s}:imports   hash     as a bandit's
    {prefix}:{studies/t/s}:lease     hash     owner, until_ms: who works at the design
    {prefix}:{studies/t/s}:arriving  string   as a bandit's; what comes with it is in arriving_log and so on
    {prefix}:{t}:bandits             zset     the tenant's bandit ids, all with score 0
    {prefix}:{t}:reservations        hash     bandit id -> "incarnation at_ms" of the attempt to create it
    {prefix}:{t}:studies             zset     the tenant's study ids, all with score 0
    {prefix}:{t}:study_reservations  hash     study id -> "incarnation at_ms" of the attempt to create it
    {prefix}:tenants                 zset     ids of tenants that have bandits or studies, all with score 0
    {prefix}:programs                hash     data_version; ~store -> the store's id; worker -> what it is
    {prefix}:probe:<random>          hash     what topk-bandit doctor writes and removes in one step
    {prefix}:designs                 zset     t/s of studies whose design may be unfinished, by when it began in ms
    {prefix}:changes                 channel  "t/b writer" of a bandit whose log grew, or that was deleted; without a
                                              writer unless an answer says what was appended

``{t/b}``, ``{studies/t/s}`` and ``{t}`` are hash tags: the keys of one bandit share a slot, and so do those of one
study and of one tenant's index. Tenant, bandit and study are percent-encoded, so that no id can reach into another's
keys. Only the keys of what is being restored, and of what visitors saw, have a time to live.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.studies import StudyName

__all__ = ["SLICES", "BanditKeys", "IndexKeys", "KeySpace", "RestoreKeys", "StudyKeys", "StudyRestoreKeys"]

SLICES = 4
"""In so many slices, by time, closed recommendations are kept; each is forgotten as a whole."""


class BanditKeys(NamedTuple):
    """The keys of one bandit; they share a slot."""

    meta: str
    log: str
    items: str
    retired: str
    recommendations: str
    deadlines: str
    imports: str
    followers: str
    visitors: str
    closed: tuple[str, ...]
    snapshots: tuple[str, str]

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the bandit, `meta` first."""
        return (*self[:-2], *self.closed, *self.snapshots)

    @property
    def of_slates(self) -> tuple[str, ...]:
        """The keys that each script about slates has, in its order."""
        return (self.meta, self.log, self.recommendations, self.deadlines, *self.closed)

    @property
    def of_decisions(self) -> tuple[str, ...]:
        """The keys of all that rules decide from, in the order of their scripts."""
        return (*self.of_slates, self.items, self.retired, self.imports)

    def of_visitor(self, visitor: str) -> tuple[str, ...]:
        """Return the keys of decisions for which it counts what a visitor saw: two more than `of_decisions`."""
        return (*self.of_decisions, self.visitors, self.seen(visitor))

    def seen(self, visitor: str) -> str:
        """Return the key of what a visitor saw."""
        return f"{self.meta.removesuffix(':meta')}:seen:{visitor}"

    @property
    def snapshot(self) -> str:
        """Where the snapshot of a restored bandit is."""
        return self.snapshots[0]


class RestoreKeys(NamedTuple):
    """The keys of one bandit that is being restored; they share a slot with those that they become."""

    progress: str
    log: str
    items: str
    retired: str
    recommendations: str
    deadlines: str
    imports: str
    snapshot: str

    @property
    def all(self) -> tuple[str, ...]:
        """Every key, `progress` first."""
        return tuple(self)


class StudyKeys(NamedTuple):
    """The keys of one study; they share a slot."""

    meta: str
    log: str
    requests: str
    answers: str
    imports: str
    lease: str

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the study, `meta` first."""
        return tuple(self)


class StudyRestoreKeys(NamedTuple):
    """The keys of one study that is being restored; they share a slot with those that they become."""

    progress: str
    log: str
    requests: str
    answers: str
    imports: str

    @property
    def all(self) -> tuple[str, ...]:
        """Every key, `progress` first."""
        return tuple(self)


class IndexKeys(NamedTuple):
    """The keys of a tenant's index of bandits, or of studies; they share a slot.

    Attributes
    ----------
    entries
        The tenant's ids; one may stand for nothing that is about to be created, or was deleted just now.
    reservations
        By which incarnation each of them was reserved last, and when.
    """

    entries: str
    reservations: str


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The keys under one prefix.

    Raises
    ------
    ConfigurationError
        The prefix holds a brace, which would move all keys to one slot or tear a bandit's keys apart.
    """

    prefix: str

    def __post_init__(self) -> None:
        if "{" in self.prefix or "}" in self.prefix:
            raise ConfigurationError(f"the key prefix {self.prefix!r} must not contain braces")

    def bandit(self, name: BanditName) -> BanditKeys:
        """Return the keys of a bandit."""
        return _bandit_keys(self.prefix, name)

    def restore(self, name: BanditName) -> RestoreKeys:
        """Return the keys of a bandit that is being restored."""
        stem = f"{self.prefix}:{{{_join_ids(name.tenant, name.bandit)}}}:arriving"
        return RestoreKeys(stem, *(f"{stem}_{key}" for key in RestoreKeys._fields[1:]))

    def study(self, name: StudyName) -> StudyKeys:
        """Return the keys of a study."""
        stem = f"{self.prefix}:{{studies/{self.write_study(name)}}}"
        return StudyKeys(*(f"{stem}:{key}" for key in StudyKeys._fields))

    def study_restore(self, name: StudyName) -> StudyRestoreKeys:
        """Return the keys of a study that is being restored."""
        stem = f"{self.prefix}:{{studies/{self.write_study(name)}}}:arriving"
        return StudyRestoreKeys(stem, *(f"{stem}_{key}" for key in StudyRestoreKeys._fields[1:]))

    def bandits(self, tenant: str) -> IndexKeys:
        """Return the keys of a tenant's index of bandits."""
        stem = f"{self.prefix}:{{{quote(tenant, safe='')}}}"
        return IndexKeys(f"{stem}:bandits", f"{stem}:reservations")

    def studies(self, tenant: str) -> IndexKeys:
        """Return the keys of a tenant's index of studies."""
        stem = f"{self.prefix}:{{{quote(tenant, safe='')}}}"
        return IndexKeys(f"{stem}:studies", f"{stem}:study_reservations")

    @property
    def tenants(self) -> str:
        """Where tenants are listed that have bandits or studies; one may be listed that has none any more."""
        return f"{self.prefix}:tenants"

    @property
    def programs(self) -> str:
        """Where the data version in force is, and which workers run."""
        return f"{self.prefix}:programs"

    def probe(self, name: str) -> str:
        """Return the key of a write that is timed."""
        return f"{self.prefix}:probe:{name}"

    @property
    def designs(self) -> str:
        """Where studies are listed whose design may be unfinished."""
        return f"{self.prefix}:designs"

    def write_study(self, name: StudyName) -> str:
        """Return what a study is listed as in `designs`."""
        return _join_ids(name.tenant, name.study)

    def read_study(self, listed: bytes) -> StudyName:
        """Return the study that is listed so."""
        return StudyName(*_part_ids(listed))

    @property
    def of_every_bandit(self) -> str:
        """A pattern for the records and logs of all bandits, which those of studies match too."""
        prefix = re.sub(r"([\\*?\[\]^])", r"\\\1", self.prefix)
        return f"{prefix}:{{*}}:[ml][eo][tg]*"

    def owner(self, key: bytes) -> BanditName | None:
        """Return the bandit that a key is of; None for any other key, such as a study's."""
        tag = key.decode(errors="replace").removeprefix(f"{self.prefix}:{{").partition("}")[0]
        return None if tag.count("/") != 1 else BanditName(*_part_ids(tag.encode()))

    @property
    def changes(self) -> str:
        """The channel that changes are announced on."""
        return f"{self.prefix}:changes"

    def announcement(self, name: BanditName, *, writer: str = "") -> str:
        """Return what is announced when a bandit's log grew, and by whom if that gets it in its answer."""
        return f"{_join_ids(name.tenant, name.bandit)} {writer}".rstrip()

    def read_announcement(self, announcement: bytes) -> tuple[BanditName, str]:
        """Return the bandit that an announcement is about, and the writer."""
        joined, _, writer = announcement.partition(b" ")
        return BanditName(*_part_ids(joined)), writer.decode()


@lru_cache(maxsize=4096)
def _bandit_keys(prefix: str, name: BanditName) -> BanditKeys:
    stem = f"{prefix}:{{{_join_ids(name.tenant, name.bandit)}}}"
    return BanditKeys(
        meta=f"{stem}:meta",
        log=f"{stem}:log",
        items=f"{stem}:items",
        retired=f"{stem}:retired",
        recommendations=f"{stem}:recommendations",
        deadlines=f"{stem}:deadlines_ms",
        imports=f"{stem}:imports",
        followers=f"{stem}:followers",
        visitors=f"{stem}:visitors",
        closed=tuple(f"{stem}:closed{number}" for number in range(SLICES)),
        snapshots=(f"{stem}:snapshot0", f"{stem}:snapshot1"),
    )


@lru_cache(maxsize=4096)
def _join_ids(tenant: str, entry: str) -> str:
    return f"{quote(tenant, safe='')}/{quote(entry, safe='')}"


def _part_ids(joined: bytes) -> tuple[str, str]:
    tenant, _, entry = joined.decode().partition("/")
    return unquote(tenant), unquote(entry)
