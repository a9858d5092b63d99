"""Bandits and studies that are being restored in the stores in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from topk_bandit.store.line_imports import RestoreProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.domain.bandits import Item
    from topk_bandit.domain.studies import LoggedStudyEvent
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.recorded import Recorded
    from topk_bandit.store.restore_state import Restore, RestoreStep
    from topk_bandit.store.study_archives import StudyRequest
    from topk_bandit.store.study_restores import StudyRestore, StudyRestoreStep

__all__ = ["PartialBandit", "PartialStudy", "Restores"]

_Progress = TypeVar("_Progress", bound=RestoreProgress)
_Name = TypeVar("_Name")


class _Restorable(Protocol[_Progress]):
    restore: _Progress

    def take(self, step: Any) -> None:  # noqa: ANN401 - each kind takes its own
        ...


_Partial = TypeVar("_Partial", bound=_Restorable[Any])


class Restores(Generic[_Name, _Progress, _Partial]):
    """All bandits, or all studies, that are being restored.

    Parameters
    ----------
    begin
        What is there of one whose import begins.
    retention_ms
        For how long an import is kept that nobody goes on with.
    """

    def __init__(
        self, begin: Callable[[_Progress], _Partial], *, clock_ms: Callable[[], int], retention_ms: int
    ) -> None:
        self._begin = begin
        self._clock_ms = clock_ms
        self._retention_ms = retention_ms
        self._partial: dict[_Name, tuple[_Partial, int]] = {}

    def find(self, name: _Name) -> _Partial | None:
        """Return what is restored, unless nobody has gone on with it for too long."""
        partial, until_ms = self._partial.get(name, (None, 0))
        if partial is not None and self._clock_ms() >= until_ms:
            del self._partial[name]
            return None
        return partial

    def take(self, name: _Name, step: Any, *, before: _Progress) -> bool:  # noqa: ANN401 - each kind takes its own
        """Take in a part, if the import is as far as `before`; one that begins takes the place of any other.

        A part that was taken, and is sent again since its reply was lost, is not taken twice.
        """
        known = self.find(name)
        if known is not None and known.restore == step.restore:
            return True
        if before.next_line == 0:
            known = self._begin(before)
        if known is None or known.restore != before:
            return False
        known.take(step)
        self._partial[name] = known, self._clock_ms() + self._retention_ms
        return True

    def drop(self, name: _Name) -> None:
        """Forget what is restored: it was made a bandit or a study, or nobody wants it."""
        self._partial.pop(name, None)


@dataclass(slots=True)
class PartialBandit:
    """What is restored of a bandit."""

    restore: Restore
    events: list[LoggedEvent] = field(default_factory=list)
    slates: dict[str, Recorded] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)
    snapshot: bytes = b""

    def take(self, step: RestoreStep) -> None:
        """Take in a part."""
        self.restore = step.restore
        self.events += step.events
        self.retired.update(step.retired)
        self.imports |= step.imports
        self.snapshot += step.snapshot
        for key, slate in step.slates.items():
            self.slates.pop(key, None)
            if slate is not None:
                self.slates[key] = slate
        for item_id, item in step.items.items():
            self.items.pop(item_id, None)
            if item is not None:
                self.items[item_id] = item


@dataclass(slots=True)
class PartialStudy:
    """What is restored of a study."""

    restore: StudyRestore
    events: list[LoggedStudyEvent] = field(default_factory=list)
    requests: list[StudyRequest] = field(default_factory=list)
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)

    def take(self, step: StudyRestoreStep) -> None:
        """Take in a part."""
        self.restore = step.restore
        self.events += step.events
        self.requests += step.requests
        self.imports |= {(one.import_id, one.first_row): one for one in step.imports}
