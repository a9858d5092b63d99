"""How far an import of a bandit is, and what a part of its lines brings: values, for every store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.bandits import Item, LoggedEvent
    from topk_bandit.store.recorded import Recorded

__all__ = ["ArchivedImport", "Arrival", "Arrived", "Arriving"]


@dataclass(frozen=True, slots=True)
class ArchivedImport:
    """A part of an import of past slates; see `topk_bandit.store.log.ImportPart`."""

    import_id: str
    first_row: int
    fingerprint: str
    next_row: int
    accepted: int
    position: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """How far an import of a bandit is.

    Attributes
    ----------
    import_id
        What all parts of the import have in common.
    next_line
        With which line it goes on, counted from 0.
    part
        First line and fingerprint of the newest part, which may be sent again.
    digest
        What the lines chain to.
    first_position, position
        Where the log begins, and its newest event; one less than `first_position` before the first event.
    as_of
        The log position of the first line's figures.
    settings
        The bandit's, encoded, as of the newest event.
    complete
        Whether its last line has arrived.
    """

    import_id: str
    next_line: int = 0
    part: str = ""
    digest: str = ""
    incarnation: str = ""
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

    def encode(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Arrival:
        """Return what was encoded."""
        told = json.loads(data)
        return Arrival(**{one.name: told[one.name] for one in fields(Arrival)})


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a store has of the slates and parts of imports of past slates that a part of the lines is about."""

    slates: Mapping[str, Recorded]
    imports: Mapping[tuple[str, int], ArchivedImport]


@dataclass(slots=True)
class Arriving:
    """What a part of the lines makes of what a store has: new values; None for what goes.

    Attributes
    ----------
    arrival
        How far the import is with it.
    version
        The data version in whose layout the store is to keep it.
    snapshot
        Bytes that follow those that are there.
    retired
        Digests of ids that are retired; some may be there already.
    """

    arrival: Arrival
    version: int
    events: list[LoggedEvent] = field(default_factory=list)
    slates: dict[str, Recorded | None] = field(default_factory=dict)
    items: dict[str, Item | None] = field(default_factory=dict)
    retired: list[str] = field(default_factory=list)
    snapshot: bytes = b""
    imports: dict[tuple[str, int], ArchivedImport] = field(default_factory=dict)
