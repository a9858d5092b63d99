"""What a worker remembers of the end of a log, so that it finds what is gone when the log comes back shorter.

Of each of the newest positions it knows what was there, if it has read it, and whether that was a reward. Positions
that were returned to a caller count though nobody has read them yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topk_bandit.store.events import EventSkipped, Recommended, RewardCollected, Rewarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topk_bandit.store.events import LoggedEvent

__all__ = ["MOST", "Gone", "RecentEvents"]

MOST = 1024
"""So many positions are remembered at least, once there are."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The events after position `after`, up to `end`; `rewards` are positions among them."""

    after: int
    end: int
    rewards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """What distinguishes an event from one that another primary wrote at its place; no time if it was not read."""

    at_ms: int | None
    recommendation_id: str
    is_reward: bool


class RecentEvents:
    """The newest positions of one incarnation's log."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self.end = 0

    @property
    def start(self) -> int:
        """The oldest position that is remembered, 1 if there is none."""
        return min(self._known, default=1)

    def note_written(self, position: int, recommendation_id: str, *, is_reward: bool) -> None:
        """Note what a caller was answered with."""
        if position not in self._known:
            self._remember(position, _Known(None, recommendation_id, is_reward))

    def note_read(self, events: Iterable[LoggedEvent]) -> None:
        """Note what was read."""
        for logged in events:
            self._remember(logged.position, _known_of(logged))

    def contradicts(self, log: Iterable[LoggedEvent]) -> bool:
        """Return whether part of a log has something else than what was there."""
        return not all(self._agrees(logged) for logged in log if logged.position in self._known)

    def forget(self) -> None:
        """Begin anew."""
        self._known, self.end = {}, 0

    def find_gone(self, log: Sequence[LoggedEvent], *, first_position: int, log_position: int) -> Gone:
        """Return what of it a log has not any more.

        Parameters
        ----------
        log
            What the log has now at `start` and after it, without gaps; or from `first_position` on.
        first_position
            Where the log begins. What was before it was trimmed, and is not gone.
        log_position
            Where the log ends.
        """
        kept = min(max(self.start, first_position) - 1, log_position)
        for logged in log:
            if logged.position not in self._known:
                continue
            if not self._agrees(logged):
                break
            kept = logged.position
        rewards = sorted(position for position, known in self._known.items() if known.is_reward and position > kept)
        return Gone(after=kept, end=max(self.end, kept), rewards=tuple(rewards))

    def _agrees(self, logged: LoggedEvent) -> bool:
        if isinstance(logged.event, EventSkipped):
            return True
        known, now = self._known[logged.position], _known_of(logged)
        return known in {now, replace(now, at_ms=None)}

    def _remember(self, position: int, known: _Known) -> None:
        self._known[position] = known
        self.end = max(self.end, position)
        if len(self._known) > 2 * MOST:
            self._known = dict(sorted(self._known.items())[-MOST:])


def _known_of(logged: LoggedEvent) -> _Known:
    event = logged.event
    about = event.recommendation if isinstance(event, Recommended) else event
    return _Known(logged.at_ms, getattr(about, "recommendation_id", ""), isinstance(event, Rewarded | RewardCollected))
