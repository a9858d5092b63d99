"""A recommendation as a store remembers it, with its rewards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.paths import entry_of
from topk_bandit.store.documents import pack
from topk_bandit.store.events import Imported, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import ItemValues, Recommendation
    from topk_bandit.store.events import Event

__all__ = [
    "NO_ITEMS",
    "OPEN_STATES",
    "UNKNOWN_ITEMS",
    "NamedItems",
    "PostedReward",
    "Provisional",
    "RecordState",
    "Recorded",
    "aggregate",
    "aggregate_items",
    "digest_items",
    "find_item_values",
    "is_pending",
    "place_item_values",
]


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


UNKNOWN_ITEMS = "0" * 16
"""The digest of item values of which only what they come to with default values is known."""


@dataclass(frozen=True, slots=True)
class NamedItems:
    """What a reward says of single items of its slate.

    Attributes
    ----------
    posted
        The `digest_items` of what was posted.
    named
        That of what counts, which is something else once the reward was amended.
    values
        What counts; None for nothing, as of a reward that does not count.
    """

    posted: str = ""
    named: str = ""
    values: ItemValues | None = None

    def has_posted(self, digest: str) -> bool:
        """Return whether item values with this digest were posted, as far as is known."""
        return self.posted in {digest, UNKNOWN_ITEMS}

    def void(self) -> NamedItems:
        """Return the same, which counts for nothing."""
        return NamedItems(self.posted)


NO_ITEMS = NamedItems()


@dataclass(frozen=True, slots=True)
class PostedReward:
    """A reward as it was posted, as it counts (None: it does not), and where it stands in the log, 0 for nowhere."""

    reward_id: str
    posted: float
    value: float | None
    position: int = 0
    items: NamedItems = NO_ITEMS

    def amended(self, value: float | None, items: NamedItems | None = None) -> PostedReward:
        """Return it with another value, or with None taken back; with other items, if there are any."""
        kept = self.items if items is None else items
        return replace(self, value=value, items=kept.void() if value is None else kept)


@dataclass(frozen=True, slots=True)
class Provisional:
    """What is learned of an open slate so far, when it was learned first, and whether it is the default reward.

    The time is 0 until it is committed. The item values are what is learned of its items.
    """

    value: float
    learned_ms: int
    is_default: bool
    item_values: ItemValues | None = None


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


def place_item_values(slate: Sequence[str], item_values: Mapping[str, float]) -> ItemValues | None:
    """Return item values by the positions of their items, None without any.

    Raises
    ------
    InvalidArgumentError
        On ``item_values["id"]``: that item is not on the slate.
    """
    for item_id in item_values:
        if item_id not in slate:
            raise InvalidArgumentError(entry_of("item_values", item_id), "is no item of the slate that was shown")
    return tuple(map(item_values.get, slate)) if item_values else None


def digest_items(item_values: Mapping[str, float]) -> str:
    """Return a digest of item values by id: equal for equal ones, and empty for none."""
    if not item_values:
        return ""
    return blake2b(pack(sorted(item_values.items())), digest_size=len(UNKNOWN_ITEMS) // 2).hexdigest()


def find_item_values(said: Event | Recorded) -> Iterator[ItemValues]:
    """Yield the item values that an event, or a recommendation, has."""
    having: list[object] = [said]
    if isinstance(said, Recorded):
        having = [said.provisional, *(one.items for one in said.rewards)]
    elif isinstance(said, Imported):
        having = [*said.slates]
    for one in having:
        found = (getattr(one, name, None) for name in ("item_values", "item_values_before", "values"))
        yield from (values for values in found if values is not None)


def aggregate(kind: Aggregation, rewards: Sequence[PostedReward]) -> float | None:
    """Return what the rewards that count come to, None without any."""
    return _combine(kind, [reward.value for reward in rewards if reward.value is not None])


def aggregate_items(settings: BanditSettings, rewards: Sequence[PostedReward]) -> ItemValues | None:
    """Return what the rewards that count come to for each item, or the default value; None for nothing."""
    named = [one.items.values for one in rewards if one.items.values is not None]
    default = settings.default_item_value
    if default is None and not named:
        return None
    counted: list[float | None] = []
    for place in range(settings.slate_size):
        value = _combine(settings.reward_aggregation, [one for values in named if (one := values[place]) is not None])
        counted.append(default if value is None else value)
    return tuple(None if value is None else value + 0.0 for value in counted)


def _combine(kind: Aggregation, values: Sequence[float]) -> float | None:
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
