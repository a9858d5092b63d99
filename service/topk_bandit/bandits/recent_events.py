"""What a worker remembers of the end of a log, so that it can tell what is gone when the log comes back shorter.

Of each of the newest positions it knows what was there, if it has read it, and whether that was a reward. Positions
that were told to a caller count though nobody has read them yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import RewardCollected, Rewarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topk_bandit.domain.bandits import LoggedEvent

__all__ = ["MOST", "Gone", "RecentEvents"]

MOST = 1024
"""So many positions are remembered at least, once there are."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The events after position `after`, up to `end`; `rewards` are positions among them."""

    after: int
    end: int
    rewards: tuple[int, ...]


class RecentEvents:
    """The newest positions of one incarnation's log."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int | None, bool]] = {}
        self.end = 0

    @property
    def start(self) -> int:
        """The oldest position that is remembered, 1 if there is none."""
        return min(self._known, default=1)

    def note_written(self, position: int, *, is_reward: bool) -> None:
        """Note what a caller was told of."""
        if position not in self._known:
            self._remember(position, None, is_reward=is_reward)

    def note_read(self, events: Iterable[LoggedEvent]) -> None:
        """Note what was read."""
        for logged in events:
            is_reward = isinstance(logged.event, Rewarded | RewardCollected)
            self._remember(logged.position, _print_of(logged), is_reward=is_reward)

    def forget(self) -> None:
        """Begin anew."""
        self._known, self.end = {}, 0

    def find_gone(self, log: Sequence[LoggedEvent], *, log_position: int) -> Gone:
        """Return what of it a log has not any more.

        Parameters
        ----------
        log
            What the log has now at `start` and after it, without gaps; or after its own first event.
        log_position
            Where the log ends.
        """
        kept = min(self.start - 1, log_position)
        for logged in log:
            print_, _ = self._known.get(logged.position, (None, False))
            if print_ != _print_of(logged):
                break
            kept = logged.position
        rewards = sorted(position for position, (_, is_reward) in self._known.items() if is_reward and position > kept)
        return Gone(after=kept, end=max(self.end, kept), rewards=tuple(rewards))

    def _remember(self, position: int, print_: int | None, *, is_reward: bool) -> None:
        self._known[position] = (print_, is_reward)
        self.end = max(self.end, position)
        if len(self._known) > 2 * MOST:
            self._known = dict(sorted(self._known.items())[-MOST:])


def _print_of(logged: LoggedEvent) -> int:
    """Return what tells an event from another one that another primary wrote at its place."""
    return hash((logged.at_ms, type(logged.event), getattr(logged.event, "recommendation_id", "")))
