"""The names of all keys, on one screen.

::

    {prefix}:{t/b}:meta              hash     incarnation, settings, revision, positions, counts
    {prefix}:{t/b}:log               stream   <position>-0 -> at_ms, event, deadline_ms of Recommended
    {prefix}:{t/b}:items             hash     item id -> "index state"
    {prefix}:{t/b}:recommendations   hash     recommendation id -> "state deadline_ms fingerprint value recommendation"
    {prefix}:{t/b}:deadlines_ms      zset     recommendation id by deadline, while pending
    {prefix}:{t/b}:closed_ms         zset     recommendation id by when it was closed, while remembered
    {prefix}:{t/b}:followers         hash     follower -> "items_position at_ms"
    {prefix}:{t/b}:snapshot0, 1      string   framed snapshots, the newer one in either
    {prefix}:{studies/t/s}:meta      hash     incarnation, settings_digest, shape, design, log position, counts
    {prefix}:{studies/t/s}:log       stream   <position>-0 -> at_ms, event; never trimmed
    {prefix}:{studies/t/s}:requests  hash     request id -> "first count" of the questions that it was answered with
    {prefix}:{studies/t/s}:answers   hash     question number -> its answer
    {prefix}:{studies/t/s}:lease     hash     owner, until_ms: who works at the design
    {prefix}:{t}:bandits             zset     the tenant's bandit ids, all with score 0
    {prefix}:{t}:reservations        hash     bandit id -> "incarnation at_ms" of the attempt to create it
    {prefix}:{t}:studies             zset     the tenant's study ids, all with score 0
    {prefix}:{t}:study_reservations  hash     study id -> "incarnation at_ms" of the attempt to create it
    {prefix}:designs                 zset     t/s of studies whose design may be unfinished, by when it began in ms
    {prefix}:changes                 channel  t/b of a bandit whose log grew, or that was deleted

``{t/b}``, ``{studies/t/s}`` and ``{t}`` are hash tags: the keys of one bandit share a slot, and so do those of one
study and of one tenant's index. Tenant, bandit and study are percent-encoded, so that no id can reach into another's
keys. No key ever has a time to live.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.studies import StudyName

__all__ = ["BanditKeys", "IndexKeys", "KeySpace", "StudyKeys", "TenantKeys"]


@lru_cache(maxsize=4096)
def _quoted(name: BanditName) -> str:
    return f"{quote(name.tenant, safe='')}/{quote(name.bandit, safe='')}"


@dataclass(frozen=True, slots=True)
class BanditKeys:
    """The keys of one bandit; they share a slot."""

    stem: str

    @property
    def meta(self) -> str:
        """What the bandit is now."""
        return f"{self.stem}:meta"

    @property
    def log(self) -> str:
        """Its events."""
        return f"{self.stem}:log"

    @property
    def items(self) -> str:
        """Its items, retired ones too."""
        return f"{self.stem}:items"

    @property
    def recommendations(self) -> str:
        """Its recommendations, while they are remembered."""
        return f"{self.stem}:recommendations"

    @property
    def deadlines(self) -> str:
        """The deadlines of its pending recommendations."""
        return f"{self.stem}:deadlines_ms"

    @property
    def closed(self) -> str:
        """When its other recommendations were closed."""
        return f"{self.stem}:closed_ms"

    @property
    def followers(self) -> str:
        """How far each follower knows its items, and when it was heard of."""
        return f"{self.stem}:followers"

    @property
    def snapshots(self) -> tuple[str, str]:
        """Two generations, in no order."""
        return f"{self.stem}:snapshot0", f"{self.stem}:snapshot1"

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the bandit, `meta` first."""
        return (
            self.meta,
            self.log,
            self.items,
            self.recommendations,
            self.deadlines,
            self.closed,
            self.followers,
            *self.snapshots,
        )


@dataclass(frozen=True, slots=True)
class StudyKeys:
    """The keys of one study; they share a slot."""

    stem: str

    @property
    def meta(self) -> str:
        """What the study is now."""
        return f"{self.stem}:meta"

    @property
    def log(self) -> str:
        """Its events."""
        return f"{self.stem}:log"

    @property
    def requests(self) -> str:
        """Which questions each request was answered with."""
        return f"{self.stem}:requests"

    @property
    def answers(self) -> str:
        """The answer to each question that has one."""
        return f"{self.stem}:answers"

    @property
    def lease(self) -> str:
        """Who works at its design, and until when."""
        return f"{self.stem}:lease"

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the study, `meta` first."""
        return (self.meta, self.log, self.requests, self.answers, self.lease)


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The keys of one kind of things in a tenant's index; they share a slot.

    Attributes
    ----------
    entries
        The tenant's ids; one may dangle that is about to be created, or was deleted just now.
    reservations
        Who reserved each of them last, and when.
    """

    entries: str
    reservations: str


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The keys of one tenant's index; they share a slot."""

    stem: str

    @property
    def bandits(self) -> IndexKeys:
        """Where its bandits are."""
        return IndexKeys(f"{self.stem}:bandits", f"{self.stem}:reservations")

    @property
    def studies(self) -> IndexKeys:
        """Where its studies are."""
        return IndexKeys(f"{self.stem}:studies", f"{self.stem}:study_reservations")


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
        return BanditKeys(f"{self.prefix}:{{{_quoted(name)}}}")

    def study(self, name: StudyName) -> StudyKeys:
        """Return the keys of a study."""
        return StudyKeys(f"{self.prefix}:{{studies/{self.listed(name)}}}")

    def tenant(self, tenant: str) -> TenantKeys:
        """Return the keys of a tenant's index."""
        return TenantKeys(f"{self.prefix}:{{{quote(tenant, safe='')}}}")

    @property
    def designs(self) -> str:
        """Where studies are listed whose design may be unfinished."""
        return f"{self.prefix}:designs"

    def listed(self, name: StudyName) -> str:
        """Return what a study is listed as in `designs`."""
        return f"{quote(name.tenant, safe='')}/{quote(name.study, safe='')}"

    def named(self, listed: bytes) -> StudyName:
        """Return the study that is listed so."""
        tenant, _, study = listed.decode().partition("/")
        return StudyName(tenant=unquote(tenant), study=unquote(study))

    @property
    def changes(self) -> str:
        """The channel that changes are announced on."""
        return f"{self.prefix}:changes"

    def announcement(self, name: BanditName) -> str:
        """Return what is announced when a bandit's log grew."""
        return _quoted(name)

    def announced(self, announcement: bytes) -> BanditName:
        """Return the bandit that an announcement is about."""
        tenant, _, bandit = announcement.decode().partition("/")
        return BanditName(tenant=unquote(tenant), bandit=unquote(bandit))
