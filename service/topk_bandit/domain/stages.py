"""How much of a shop a bandit decides: its stage, and the two groups that its worth is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_CONTROL_SHARE",
    "ConservativeStats",
    "Group",
    "GroupStats",
    "Interval",
    "LiftDay",
    "LiftStats",
    "LiftVerdict",
    "Shadow",
    "ShadowStats",
    "Stage",
    "check_baseline_size",
]

MAX_CONTROL_SHARE: Final = 0.9
"""At least a tenth of the requests is left to the bandit: with fewer it would be in shadow."""


class Stage(StrEnum):
    """Whose slates are shown, and whether anything is learned.

    LIVE shows the bandit's slates and learns from them. SHADOW shows baseline slates, learns from them, and records the
    bandit's own slate beside each. FROZEN shows the bandit's slates and learns nothing. OFF shows baseline slates,
    computes nothing and learns nothing.
    """

    LIVE = "live"
    SHADOW = "shadow"
    FROZEN = "frozen"
    OFF = "off"

    @property
    def shows_own(self) -> bool:
        """Whether the bandit's own slates are shown, but for those of a control group."""
        return self in {Stage.LIVE, Stage.FROZEN}

    @property
    def phrase(self) -> str:
        """What a bandit in it is."""
        return "in shadow" if self is Stage.SHADOW else self.value

    @property
    def learns(self) -> bool:
        """Whether rewards are learned."""
        return self in {Stage.LIVE, Stage.SHADOW}


def check_baseline_size(field: str, item_ids: Sequence[str], *, slate_size: int) -> None:
    """Raise `InvalidArgumentError` on a field unless its baseline slate has the size of slates, or there is none."""
    if len(item_ids) not in {0, slate_size}:
        raise InvalidArgumentError(field, f"has {len(item_ids)} items, a slate shows {slate_size}")


class Group(StrEnum):
    """Whom a request was drawn to: the bandit, or the control group, which gets baseline slates.

    CONSERVATIVE is of the bandit's group, too: it gets the baseline slate, because the bandit has no more to lose.
    """

    NONE = ""
    BANDIT = "bandit"
    CONTROL = "control"
    CONSERVATIVE = "conservative"

    @property
    def gets_baseline(self) -> bool:
        """Whether the baseline slate is shown, whatever the bandit would choose."""
        return self in {Group.CONTROL, Group.CONSERVATIVE}


@dataclass(frozen=True, slots=True)
class Shadow:
    """The slate that a bandit in shadow would have shown.

    Attributes
    ----------
    slate
        Item ids, best first.
    gain, gain_deviation
        Posterior mean and standard deviation of its expected reward less that of the slate that was shown, in reward
        units. Both are 0 where the slates are the same.
    """

    slate: tuple[str, ...]
    gain: float
    gain_deviation: float


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ShadowStats:
    """What a bandit in shadow would have shown.

    Attributes
    ----------
    slates, agreements
        How many of its slates were recorded beside what was shown, and how many of them were the same.
    shared_items
        How many items of a slate were shown as well, in the mean.
    gain
        What its slates are expected to earn more than those shown, in the mean; None before the first.
    """

    slates: int
    agreements: int
    shared_items: float
    gain: Interval | None


@dataclass(frozen=True, slots=True)
class GroupStats:
    """How many requests were drawn to a group, how many of their slates count by now, and what these earned."""

    drawn: int
    counted: int
    mean_reward: float


@dataclass(frozen=True, slots=True)
class ConservativeStats:
    """How a conservative share was kept.

    Attributes
    ----------
    since_ms
        When the share was set, or the bandit was reset since, by the store's clock.
    own, baseline
        Requests that got the bandit's own slates, and those that got the baseline slate because it had no more to lose.
    reserve
        What was earned for sure above what the share promises, with the next slate an own one: a sum of rewards. None
        while it is too early to say.
    shows_own
        Whether the next slate is an own one.
    """

    since_ms: int
    own: GroupStats
    baseline: GroupStats
    reserve: float | None
    shows_own: bool


class LiftVerdict(StrEnum):
    """What is known of the bandit's group; decided are BETTER and WORSE."""

    TOO_EARLY = "too early"
    UNDECIDED = "undecided"
    BETTER = "better"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class LiftDay:
    """What came to the groups on a day that began at `start_ms`, by the store's clock, in UTC.

    Where more slates were taken back than came, the count is below zero. `difference` is of the rewards that came on
    this day alone, with an interval as of a lift; None where it can't be said.
    """

    start_ms: int
    bandit: GroupStats
    control: GroupStats
    difference: Interval | None


@dataclass(frozen=True, slots=True)
class LiftStats:
    """What a bandit's group earns beside its control group.

    Attributes
    ----------
    since_ms
        When the control share was set, or the bandit was reset since, by the store's clock.
    verdict
        What is known of the bandit's group.
    difference, ratio
        Reward per request of the bandit's group less that of the control group, and over it; None where they can't be
        said yet.
    further_requests
        How many more decide it; None where that can't be said.
    has_odd_groups
        Whether the groups are not as large as was asked.
    confidence
        Of the intervals, at all times at once.
    guarded_position, guarded_reason
        Where the guardrail took the bandit off last, and why; 0 and empty if it never did.
    days
        The last sixty days on which something came, oldest first.
    """

    since_ms: int
    bandit: GroupStats
    control: GroupStats
    verdict: LiftVerdict
    difference: Interval | None
    ratio: Interval | None
    further_requests: int | None
    has_odd_groups: bool
    confidence: float
    guarded_position: int
    guarded_reason: str
    days: tuple[LiftDay, ...] = ()
