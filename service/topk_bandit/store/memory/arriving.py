"""Bandits and studies on their way into the stores in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from topk_bandit.store.line_imports import ArrivalProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.bandits import Item, LoggedEvent
    from topk_bandit.domain.studies import LoggedStudyEvent
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.arriving import Arrival, Arriving
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_arriving import StudyArrival, StudyArriving

__all__ = ["Arrivals", "ArrivingBandit", "ArrivingStudy"]

_Progress = TypeVar("_Progress", bound=ArrivalProgress)
_Name = TypeVar("_Name")


class _OnItsWay(Protocol[_Progress]):
    arrival: _Progress

    def take(self, arriving: Any) -> None:  # noqa: ANN401 - each kind takes its own
        ...


_Coming = TypeVar("_Coming", bound=_OnItsWay[Any])


class Arrivals(Generic[_Name, _Progress, _Coming]):
    """All bandits, or all studies, that arrive.

    Parameters
    ----------
    begin
        What is there of one whose import begins.
    retention_ms
        For how long an import is kept that nobody goes on with.
    """

    def __init__(
        self, begin: Callable[[_Progress], _Coming], *, clock_ms: Callable[[], int], retention_ms: int
    ) -> None:
        self._begin = begin
        self._clock_ms = clock_ms
        self._retention_ms = retention_ms
        self._coming: dict[_Name, tuple[_Coming, int]] = {}

    def find(self, name: _Name) -> _Coming | None:
        """Return what has arrived, unless nobody has gone on with it for too long."""
        coming, until_ms = self._coming.get(name, (None, 0))
        if coming is not None and self._clock_ms() >= until_ms:
            del self._coming[name]
            return None
        return coming

    def take(self, name: _Name, arriving: Any, *, before: _Progress) -> bool:  # noqa: ANN401 - each kind takes its own
        """Take in what arrives, if the import is as far as `before`; one that begins takes the place of any other.

        What has arrived already, and is sent again since nobody heard of it, is not taken twice.
        """
        known = self.find(name)
        if known is not None and known.arrival == arriving.arrival:
            return True
        if before.next_line == 0:
            known = self._begin(before)
        if known is None or known.arrival != before:
            return False
        known.take(arriving)
        self._coming[name] = known, self._clock_ms() + self._retention_ms
        return True

    def drop(self, name: _Name) -> None:
        """Forget what has arrived: it was made what it is, or nobody wants it."""
        self._coming.pop(name, None)


@dataclass(slots=True)
class ArrivingBandit:
    """What has arrived of a bandit."""

    arrival: Arrival
    events: list[LoggedEvent] = field(default_factory=list)
    slates: dict[str, Recorded] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)
    snapshot: bytes = b""

    def take(self, arriving: Arriving) -> None:
        """Take in what arrives."""
        self.arrival = arriving.arrival
        self.events += arriving.events
        self.retired.update(arriving.retired)
        self.imports |= arriving.imports
        self.snapshot += arriving.snapshot
        for key, slate in arriving.slates.items():
            self.slates.pop(key, None)
            if slate is not None:
                self.slates[key] = slate
        for item_id, item in arriving.items.items():
            self.items.pop(item_id, None)
            if item is not None:
                self.items[item_id] = item


@dataclass(slots=True)
class ArrivingStudy:
    """What has arrived of a study."""

    arrival: StudyArrival
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: list[StudyRequest] = field(default_factory=list)
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)

    def take(self, arriving: StudyArriving) -> None:
        """Take in what arrives."""
        self.arrival = arriving.arrival
        self.events += arriving.events
        self.requests += arriving.requests
        self.imports |= {(one.import_id, one.first_row): one for one in arriving.imports}
