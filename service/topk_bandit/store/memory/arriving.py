"""A bandit on its way into the store in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import Item, LoggedEvent
    from topk_bandit.store.arriving import ArchivedImport, Arrival, Arriving
    from topk_bandit.store.recorded import Recorded

__all__ = ["ArrivingBandit"]


@dataclass(slots=True)
class ArrivingBandit:
    """What has arrived of a bandit."""

    arrival: Arrival
    until_ms: int = 0
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
