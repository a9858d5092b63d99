"""A recommendation as a store remembers it, with its rewards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Aggregation, Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import Recommendation
    from topk_bandit.domain.features import Context

__all__ = ["OPEN_STATES", "PostedReward", "Provisional", "RecordState", "Recorded", "aggregate", "is_pending"]


class RecordState(StrEnum):
    """Whether a recommendation is open, which are the first three, and how it ended."""

    INACTIVE = "inactive"
    PENDING = "pending"
    PROVISIONAL = "provisional"
    REWARDED = "rewarded"
    EXPIRED = "expired"
    LAPSED = "lapsed"
    VOID = "void"


OPEN_STATES = frozenset({RecordState.INACTIVE, RecordState.PENDING, RecordState.PROVISIONAL})


@dataclass(frozen=True, slots=True)
class PostedReward:
    """A reward as it was posted, as it counts (None: it does not), and where it stands in the log, 0 for nowhere."""

    reward_id: str
    posted: float
    value: float | None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Provisional:
    """What is learned of an open slate so far, when it was learned first, and whether it is the default reward.

    The time is 0 until it is committed.
    """

    value: float
    learned_ms: int
    is_default: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recommendation, when it was recorded and closed, what was posted for it, and where it was learned last.

    What is set `aside` is not learned from. The fingerprint is that of its request. Once it is closed the context may
    be missing, and the slate empty where nobody knows it any more. Where it was logged is 0 if nobody knows it.
    """

    fingerprint: str
    context: Context
    recommendation: Recommendation
    at_ms: int
    state: RecordState = RecordState.PENDING
    rewards: tuple[PostedReward, ...] = ()
    closed_ms: int = 0
    position: int = 0
    instead: tuple[str, ...] = ()
    aside: bool = False
    provisional: Provisional | None = None
    logged: int = field(default=0, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN_STATES

    @property
    def slate(self) -> tuple[str, ...]:
        """What was shown, or is to be."""
        return self.instead or self.recommendation.slate

    def has_fingerprint(self, other: str) -> bool:
        """Return whether it was given out for a request with this fingerprint."""
        return self.fingerprint == other

    def has_shown(self, slate: Sequence[str]) -> bool:
        """Return whether a slate was shown; an empty one stands for the one that was recommended."""
        return (tuple(slate) or self.recommendation.slate) == self.slate

    def reward_key(self, reward_id: str) -> str:
        """Return the id that a reward has here."""
        return reward_id

    def find_accepted(self, reward_id: str) -> tuple[PostedReward, ...]:
        """Return the rewards with an id, or all without one, but for late ones."""
        key = self.reward_key(reward_id)
        return tuple(one for one in self.rewards if one.position and key in {"", one.reward_id})

    def find_reward(self, reward_id: str) -> PostedReward | None:
        """Return the reward with an id, None without one."""
        key = self.reward_key(reward_id)
        return next((reward for reward in self.rewards if reward.reward_id == key), None)

    def with_reward(self, reward: PostedReward) -> Recorded:
        """Return it with a reward in the place of the one that has its id, or behind all others."""
        others = tuple(reward if one.reward_id == reward.reward_id else one for one in self.rewards)
        is_new = all(one.reward_id != reward.reward_id for one in self.rewards)
        return replace(self, rewards=(*others, reward) if is_new else others)

    @property
    def shown(self) -> Shown:
        """What was shown."""
        return Shown(self.context, self.slate, self.at_ms)


def is_pending(recorded: Recorded | None) -> bool:
    """Return whether a recommendation is active and waits for a reward; one that is not recorded does not."""
    return recorded is not None and recorded.state is RecordState.PENDING


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
    return (total if kind is Aggregation.SUM else total / len(values)) + 0.0
