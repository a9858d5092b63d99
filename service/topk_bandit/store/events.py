"""The events of a bandit's log: the bandit is what they fold to.

They are never changed once they are written; the log has them by their position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.stages import Group

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditSettings, Item, Prior
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import ItemValues, Recommendation, RecommendationRequest

__all__ = [
    "Activated",
    "BanditCreated",
    "BanditReset",
    "Event",
    "EventSkipped",
    "Expired",
    "Imported",
    "ItemsChanged",
    "Lapsed",
    "LoggedEvent",
    "PastSlate",
    "Recommended",
    "RewardAmended",
    "RewardCollected",
    "RewardRevised",
    "Rewarded",
    "SettingsChanged",
    "Shown",
    "SlateEvent",
]


@dataclass(frozen=True, slots=True)
class BanditCreated:
    """The first event of every log; `prior` is the one that the settings tell of."""

    settings: BanditSettings
    prior: Prior | None = None


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """New settings; only fields that may change differ from the old ones. `prior` is the new one, if it changed.

    `guarded` is why a guardrail changed them; empty where somebody asked for the change.
    """

    settings: BanditSettings
    prior: Prior | None = None
    guarded: str = ""


@dataclass(frozen=True, slots=True)
class ItemsChanged:
    """Items added, made (un)available or retired, in this order."""

    upserted: tuple[Item, ...] = ()
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommended:
    """A slate was given out. `recommendation.deadline_ms` is set by the store's clock.

    If the bandit's settings at that moment require activation, it is only shown once it is `Activated`. One that is set
    `aside` is not learned from, whatever comes of it: all that tell of it later say so again.
    """

    request: RecommendationRequest
    recommendation: Recommendation
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reward is learned for: the slate, its context, and the store's clock when it was recommended."""

    context: Context
    slate: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Activated:
    """A slate was shown; `instead` of the recommended one if it is another, whose propensity nobody knows."""

    recommendation_id: str
    shown: Shown
    instead: bool
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A deadline passed and the slate was never activated: there is nothing to learn."""

    recommendation_id: str
    aside: bool = False


@dataclass(frozen=True, slots=True)
class RewardCollected:
    """One of several rewards is known, or known anew: None if it was taken back. `Rewarded` has what all come to.

    `item_values` are those that this reward names; None if it names none.
    """

    recommendation_id: str
    reward_id: str
    value: float | None
    aside: bool = False
    item_values: ItemValues | None = None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A slate's reward is known: one that arrived before its deadline, or what several such ones come to.

    `item_values` are what is learned of its items; None where nothing is known of any. `group` is its request's.
    """

    recommendation_id: str
    value: float
    shown: Shown
    aside: bool = False
    item_values: ItemValues | None = None
    group: Group = Group.NONE


@dataclass(frozen=True, slots=True)
class RewardRevised:
    """A slate's provisional reward: what is learned of it from now on, until it is revised again.

    Attributes
    ----------
    value
        What its rewards come to so far, or the default reward; None if it is to count for nothing.
    learned_ms
        When it was learned first; 0 for the first time.
    is_default, was_default
        Whether `value` is the default reward, and whether `before` was.
    is_final
        Whether the slate ended with it.
    before
        What was learned of it before; None for the first time.
    item_values, item_values_before
        What is learned of its items, and what was before; None where nothing is known of any.
    group
        That of the slate's request.
    """

    recommendation_id: str
    value: float | None
    shown: Shown
    learned_ms: int
    is_default: bool
    was_default: bool
    is_final: bool
    before: float | None = None
    item_values: ItemValues | None = None
    item_values_before: ItemValues | None = None
    group: Group = Group.NONE


@dataclass(frozen=True, slots=True)
class RewardAmended:
    """A reward that was learned was another one, or None: the slate ended without one.

    `before` is what it was, of a slate that was set aside: nobody else knows. None of one that was learned.
    `item_values` are what is known of its items from now on; None where that is nothing, and of one that was set aside.
    `group` is that of the slate's request. If it has one, `replaced` is what its reward was, and `given_position` where
    the slate was recommended; 0 where nobody knows.
    """

    recommendation_id: str
    value: float | None
    before: float | None = None
    item_values: ItemValues | None = None
    group: Group = Group.NONE
    replaced: float | None = None
    given_position: int = 0


@dataclass(frozen=True, slots=True)
class PastSlate:
    """A slate that was shown elsewhere, and what it earned.

    Attributes
    ----------
    at_ms
        When it was shown; None for one of which that is not known, which counts as shown when it is imported.
    propensity
        Probability with which it was shown; None where nobody knows. It is kept, and nothing is learned from it.
    item_values
        What its items did; None where nothing is known of any.
    """

    context: Context
    slate: tuple[str, ...]
    reward: float
    at_ms: int | None = None
    propensity: float | None = None
    item_values: ItemValues | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """Slates that were shown elsewhere are learned from: part of an import, from its row `first_row` on."""

    import_id: str
    first_row: int
    slates: tuple[PastSlate, ...]


@dataclass(frozen=True, slots=True)
class BanditReset:
    """All that was learned from rewards before is forgotten; `request_id` is that of the call."""

    request_id: str


@dataclass(frozen=True, slots=True)
class EventSkipped:
    """An operator had the event that stood here passed over, for this reason and at this time: it can't be folded."""

    reason: str
    skipped_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """A deadline passed; `default_reward` is what is learned instead for `shown`, both None when nothing is.

    `item_values` are what is learned of its items with it; None for nothing. `group` is that of the slate's request;
    NONE of a slate that is taken back. If it has a group and nothing is `shown`, `given_position` is where it was
    recommended; 0 where nobody knows.
    """

    recommendation_id: str
    default_reward: float | None
    shown: Shown | None
    aside: bool = False
    item_values: ItemValues | None = None
    group: Group = Group.NONE
    given_position: int = 0


SlateEvent: TypeAlias = Activated | Lapsed | RewardCollected | Rewarded | RewardAmended | RewardRevised | Expired
"""What happens to a slate after it was recommended."""

Event: TypeAlias = (
    BanditCreated | SettingsChanged | BanditReset | ItemsChanged | Recommended | SlateEvent | Imported | EventSkipped
)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event at its place in a bandit's log.

    Attributes
    ----------
    position
        1 for the first event, then without gaps.
    at_ms
        The store's clock when the event was appended.
    """

    position: int
    at_ms: int
    event: Event
