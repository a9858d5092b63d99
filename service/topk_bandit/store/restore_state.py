"""The progress of a bandit's restore, and the changes by one part of its lines: values, for every store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topk_bandit.store.line_imports import RestoreProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import Item
    from topk_bandit.store.archive_lines import ArchivedImport
    from topk_bandit.store.events import LoggedEvent
    from topk_bandit.store.recorded import Recorded

__all__ = ["Restore", "RestoreStep", "Restored"]


@dataclass(frozen=True, slots=True)
class Restore(RestoreProgress):
    """The progress of a bandit's restore.

    Attributes
    ----------
    first_position, position
        Where the log begins, and its newest event; one less than `first_position` before the first event.
    as_of
        The log position of the first line's figures.
    settings
        The bandit's, encoded, as of the newest event.
    """

    created_ms: int = 0
    revision: int = 1
    first_position: int = 0
    position: int = -1
    as_of: int = 0
    settings: str = ""
    items_position: int = 0
    imported_position: int = 0
    late_rewards: int = 0
    clamped_rewards: int = 0
    lost_events: int = 0
    lost_rewards: int = 0
    pending: int = 0
    import_parts: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What a store has of the slates and parts of imports of past slates that a part of the lines is about."""

    slates: Mapping[str, Recorded]
    imports: Mapping[tuple[str, int], ArchivedImport]


@dataclass(slots=True)
class RestoreStep:
    """What a part of the lines makes of what a store has: new values; None for what goes.

    Attributes
    ----------
    restore
        The progress with this part.
    version
        The data version in whose layout the store is to keep it.
    snapshot
        Bytes that follow those that are there.
    retired
        Digests of ids that are retired; some may be there already.
    """

    restore: Restore
    version: int
    events: list[LoggedEvent] = field(default_factory=list)
    slates: dict[str, Recorded | None] = field(default_factory=dict)
    items: dict[str, Item | None] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)
    snapshot: bytes = b""
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)
