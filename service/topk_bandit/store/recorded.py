"""A recommendation as a store remembers it, with its rewards."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Aggregation, Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import Recommendation
    from topk_bandit.domain.features import Context

__all__ = ["PostedReward", "RecordState", "Recorded", "aggregate"]


class RecordState(StrEnum):
    """Whether a recommendation is open, which are the first two, and how it ended."""

    INACTIVE = "inactive"
    PENDING = "pending"
    REWARDED = "rewarded"
    EXPIRED = "expired"
    LAPSED = "lapsed"
    VOID = "void"


@dataclass(slots=True)
class PostedReward:
    """A reward as it was posted, as it counts (None: it does not), and where it stands in the log, 0 for nowhere."""

    reward_id: str
    posted: float
    value: float | None
    position: int = 0


@dataclass(slots=True)
class Recorded:
    """A recommendation, when it was recorded and closed, what was posted for it, and where it was learned last.

    What is set `aside` is not learned from. The fingerprint is that of its request. The context may be missing once it
    is closed. Where it was logged is 0 if nobody knows it.
    """

    fingerprint: str
    context: Context
    recommendation: Recommendation
    at_ms: int
    state: RecordState = RecordState.PENDING
    rewards: list[PostedReward] = field(default_factory=list)
    closed_ms: int = 0
    position: int = 0
    instead: tuple[str, ...] = ()
    aside: bool = False
    logged: int = field(default=0, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in {RecordState.INACTIVE, RecordState.PENDING}

    @property
    def slate(self) -> tuple[str, ...]:
        """What was shown, or is to be."""
        return self.instead or self.recommendation.slate

    def find_accepted(self, reward_id: str) -> list[PostedReward]:
        """Return the rewards with an id, or all without one, but for late ones."""
        return [one for one in self.rewards if one.position and reward_id in {"", one.reward_id}]

    def find_reward(self, reward_id: str) -> PostedReward | None:
        """Return the reward with an id, None without one."""
        return next((reward for reward in self.rewards if reward.reward_id == reward_id), None)

    @property
    def shown(self) -> Shown:
        """What was shown."""
        return Shown(self.context, self.slate, self.at_ms)


def aggregate(kind: Aggregation, rewards: Sequence[PostedReward]) -> float | None:
    """Return what the rewards that count come to, None without any."""
    values = [reward.value for reward in rewards if reward.value is not None]
    if not values:
        return None
    match kind:
        case Aggregation.FIRST:
            return values[0]
        case Aggregation.LAST:
            return values[-1]
        case Aggregation.MAX:
            return max(values)
    total = 0.0
    for value in values:  # one after the other: the sum of other stores to the bit
        total += value
    return total if kind is Aggregation.SUM else total / len(values)
