"""A store's server that can be away, lose what was not acknowledged yet, and have its clock set.

It carries out the calls that reach it on a `MemoryStore` and a `MemoryStudies`, and keeps a journal of those that
write. A failover begins anew from a journal that is cut short, but never before a call that was acknowledged. All
events that ever were in a log are archived, also those that are trimmed, deleted or lost later. Some calls come twice,
as if their reply had been lost: the second one between what the first one reads and what it commits.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.store.log import DEFAULT_RECORD_RETENTION_MS
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.memory.studies import MemoryStudies

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.studies import LoggedStudyEvent, StudyName
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.log import Store
    from topk_bandit.store.study_log import StudyStore

__all__ = ["Archive", "Server", "Stores", "StudyArchive"]

STUDY_CALL = "study."
"""What the calls of a `StudyStore` begin with here; some of a `Store` have the same names."""

READS = frozenset(
    {
        "check", "find_import", "find_import_part", "find_recommendation", "find_visits", "get_bandit", "list_bandits",
        "list_items", "list_tenants", "load_snapshots", "measure", "measure_bandit", "read_log", "read_texts",
        "slowest_follower",
        "study.find_import", "study.get_study", "study.list_studies", "study.read_study", "study.unfinished_designs",
    }
)  # fmt: skip

_COMES_TWICE_EVERY = 5

NOT_AWAITED = frozenset(
    {
        "record_recommendation", "record_recommendations", "expire_due", "note_follower", "note_loss", "save_snapshot",
        "study.claim_design", "study.report_design",
    }
)  # fmt: skip
"""Writes that are acknowledged before they are durable: a failover may undo them."""


class Stores(NamedTuple):
    """What a server keeps its bandits and its studies in."""

    bandits: Store
    studies: StudyStore


@dataclass
class StudyArchive:
    """The log of one incarnation of the study, what failovers have undone of it, and how often it was deleted."""

    events: list[LoggedStudyEvent] = field(default_factory=list)
    undone: list[LoggedStudyEvent] = field(default_factory=list)
    deletions: int = 0


@dataclass
class Archive:
    """The events of the log as it is, those that failovers have undone, and how often that happened.

    Attributes
    ----------
    studies
        The study's logs, by incarnation, in the order in which they began.
    incarnation
        The study's that is there now; empty without any.
    """

    events: list[LoggedEvent] = field(default_factory=list)
    undone: list[LoggedEvent] = field(default_factory=list)
    failovers: int = 0
    studies: dict[str, StudyArchive] = field(default_factory=dict)
    incarnation: str = ""

    def cut(self, log_position: int) -> None:
        """Move what comes after a position to what is undone."""
        self.undone += self.events[log_position:]
        del self.events[log_position:]

    def enter_study(self, incarnation: str, events: Sequence[LoggedStudyEvent]) -> None:
        """Archive what is new of the study, which may have been deleted or created."""
        if self.incarnation not in {"", incarnation}:
            self.studies[self.incarnation].deletions += 1
        self.incarnation = incarnation
        if incarnation:
            kept = self.studies.setdefault(incarnation, StudyArchive()).events
            kept += events[len(kept) :]

    def begin_studies_anew(self) -> dict[str, StudyArchive]:
        """Forget all of the study, for a failover to enter it again; return what was known."""
        known, self.studies, self.incarnation = self.studies, {}, ""
        return known

    def note_undone(self, before: dict[str, StudyArchive]) -> None:
        """Move what a failover has undone of the study to where that is kept."""
        for incarnation, old in before.items():
            kept = self.studies.setdefault(incarnation, StudyArchive())
            kept.undone = old.undone + old.events[len(kept.events) :]


@dataclass(frozen=True)
class _Call:
    """A call that writes, as it was carried out at a time of the server's clock."""

    at_ms: int
    method: str
    given: tuple[object, ...]
    named: Mapping[str, object]


class Server:
    """One server, with one bandit and one study.

    Parameters
    ----------
    name, study
        Those whose events are archived.
    now
        Virtual seconds.
    wrap
        What stands before the stores, such as a bug that a test has planted.
    """

    def __init__(
        self, name: BanditName, study: StudyName, *, now: Callable[[], float], wrap: Callable[[Stores], Stores]
    ) -> None:
        self.archive = Archive()
        self.is_away = False
        self.ahead_seconds = 0.0
        self.life = 0
        self._name = name
        self._study = study
        self._now = now
        self._wrap = wrap
        self._journal: list[_Call] = []
        self._safe = 0
        self._pinned_ms: int | None = None
        self._count = 0
        self._stores = self._new_stores()

    def clock_ms(self) -> int:
        """Return the server's clock."""
        return 1_700_000_000_000 + round(1e3 * (self._now() + self.ahead_seconds))

    def carry_out(self, method: str, given: tuple[object, ...], named: Mapping[str, object]) -> object:
        """Carry out a call; its errors are raised."""
        if method in READS or (method == "expire_due" and not self._is_overdue()):  # most of all calls
            return self._call(method, given, named)
        self._journal.append(_Call(self.clock_ms(), method, given, named))
        try:
            return self._call(method, given, named)
        finally:
            if method.startswith(STUDY_CALL):
                self.archive.enter_study(*self._study_log())
            else:
                self._archive_news()

    def _call(self, method: str, given: tuple[object, ...], named: Mapping[str, object]) -> object:
        if method.startswith(STUDY_CALL):
            return _drive(getattr(self._stores.studies, method.removeprefix(STUDY_CALL))(*given, **named))
        call = getattr(self._stores.bandits, method)
        self._count += 1
        twice = self._count % _COMES_TWICE_EVERY == 0
        return _drive(call(*given, **named), lambda: _drive(call(*given, **named)) if twice else None)

    @property
    def journal_end(self) -> int:
        """How many calls have written."""
        return len(self._journal)

    def make_safe(self, journal_end: int) -> None:
        """Keep what was written until then from all failovers: it is acknowledged now."""
        self._safe = max(self._safe, journal_end)

    def fail_over(self, kept_share: float) -> int:
        """Go on from a copy that may lack the newest calls; return how many events are undone.

        Parameters
        ----------
        kept_share
            How many of the calls that are not acknowledged the copy has, from 0 to 1.

        Raises
        ------
        RuntimeError
            If the copy's log differs from the log before: then this server is wrong, and not the service.
        """
        self.life += 1
        del self._journal[self._safe + round(kept_share * (len(self._journal) - self._safe)) :]
        self._stores = self._new_stores()
        studies = self.archive.begin_studies_anew()
        for call in self._journal:
            self._pinned_ms = call.at_ms
            self._repeat(call)
        self._pinned_ms = None
        self.archive.note_undone(studies)
        end = self._log_position()
        self._check_copy(end)
        n_undone = len(self.archive.events) - end
        self.archive.cut(end)
        self.archive.failovers += 1
        return n_undone

    def harm_snapshots(self, harm: str) -> None:
        """Lose the newest snapshot, or make it unreadable; the log is only trimmed to the older one."""
        self._journal.append(_Call(self.clock_ms(), harm, (), {}))
        self._safe = max(self._safe, len(self._journal))
        self._harm(harm)

    def _harm(self, harm: str) -> None:
        known = self._memory._bandits.get(self._name)
        if known is None or len(known.snapshots) < 2:
            return
        newest, older = known.snapshots
        if older.position in self._unreadable:  # two at a time are more than the service promises to bear
            return
        if harm == "lost":
            known.snapshots = (older,)
        else:
            self._unreadable.add(newest.position)
            known.snapshots = (type(newest)(newest.position, newest.payload[: len(newest.payload) // 2]), older)

    def _repeat(self, call: _Call) -> None:
        if call.method in {"lost", "unreadable"}:
            self._harm(call.method)
            return
        with suppress(Exception):  # it was refused the first time, too
            self._call(call.method, call.given, call.named)
        if call.method.startswith(STUDY_CALL):
            self.archive.enter_study(*self._study_log())

    def _new_stores(self) -> Stores:
        self._memory = MemoryStore(clock_ms=self._store_ms, before_commit=_Pause)
        self._studies = MemoryStudies(clock_ms=self._store_ms, before_commit=_Pause)
        self._unreadable = set[int]()
        return self._wrap(Stores(self._memory, self._studies))

    def _store_ms(self) -> int:
        return self.clock_ms() if self._pinned_ms is None else self._pinned_ms

    def _log_position(self) -> int:
        known = self._memory._bandits.get(self._name)
        return known.log_position if known else 0

    def _study_log(self) -> tuple[str, Sequence[LoggedStudyEvent]]:
        known = self._studies._studies.get(self._study)
        return (known.state.incarnation, known.events) if known else ("", ())

    def _is_overdue(self) -> bool:
        """Return whether a look at what is due would change anything."""
        known, now_ms = self._memory._bandits.get(self._name), self.clock_ms()
        return known is not None and known.has_overdue(now_ms=now_ms, before_ms=now_ms - DEFAULT_RECORD_RETENTION_MS)

    def _check_copy(self, end: int) -> None:
        known = self._memory._bandits.get(self._name)
        kept = known.events if known else []
        if kept != self.archive.events[end - len(kept) : end]:
            raise RuntimeError("the journal leaves something out: its copy has another log")

    def _archive_news(self) -> None:
        """Archive the events that are new."""
        known = self._memory._bandits.get(self._name)
        if known is not None:
            self.archive.events += known.events[len(self.archive.events) + 1 - known.first_position :]


class _Pause:
    """Has a call wait once, until it is driven on."""

    def __await__(self) -> Generator[None]:
        yield


def _drive(call: Coroutine[Any, Any, object], meanwhile: Callable[[], object] = lambda: None) -> object:
    """Run a call of the store in memory; `meanwhile` comes when it waits for the first time."""
    try:
        call.send(None)
        with suppress(Exception):  # its errors are those of the call itself
            meanwhile()
        while True:
            call.send(None)
    except StopIteration as end:
        return end.value
