"""What must hold of a slate's way through the log: its activation, what its rewards come to, and their corrections.

The log does not say which reward was the final one, nor which a correction was about. So all ways are followed on which
it can have come to be what it is, given what callers sent and what was acknowledged to them; there has to be one.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.simulation.item_values import place
from tests.simulation.ledger import Correction

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.store.events import (
    Activated,
    Expired,
    Lapsed,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.ledger import Activation, Ledger, Posted

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ItemValues
    from topk_bandit.store.events import Event, LoggedEvent

__all__ = ["check_activation", "check_corrections", "check_revisions", "check_rewards", "come_to"]


class _Told(NamedTuple):
    """A reward of a slate: None for one that was taken back, and what it says of items, by their positions."""

    reward_id: str
    value: float | None
    items: ItemValues | None = None


Rewards: TypeAlias = tuple[_Told, ...]
"""A slate's rewards in the order in which they came."""


def come_to(kind: Aggregation, rewards: Rewards) -> float | None:
    """Return what rewards come to, None without any that counts: worked out anew, to hold the store to it."""
    return _come_to(kind, [one.value for one in rewards if one.value is not None])


def _items_come_to(settings: BanditSettings, rewards: Rewards) -> ItemValues | None:
    """Return what rewards, or the default reward without one, come to for each item, None for nothing known."""
    counted = [one.items for one in rewards if one.value is not None and one.items is not None]
    values = [
        _come_to(settings.reward_aggregation, [items[n] for items in counted if items[n] is not None])  # type: ignore[misc]
        for n in range(settings.slate_size)
    ]
    filled = tuple(settings.default_item_value if value is None else value for value in values)
    return None if set(filled) == {None} else filled


def _come_to(kind: Aggregation, values: Sequence[float]) -> float | None:
    if not values:
        return None
    match kind:
        case Aggregation.FIRST:
            return values[0]
        case Aggregation.LAST:
            return values[-1]
        case Aggregation.MAX:
            return max(values)
        case Aggregation.SUM:
            return reduce(add, values, 0.0)
        case Aggregation.MEAN:
            return reduce(add, values, 0.0) / len(values)


def check_activation(
    one: str, slate: Sequence[str], story: Sequence[LoggedEvent], ledger: Ledger, settings: BanditSettings
) -> Iterator[str]:
    """Yield what is broken of a slate's activation; `story` has the events about it, `slate` what was recommended."""
    calls = ledger.activated.get(one, [])
    active = [(logged.position, logged.event.shown.slate) for logged in story if isinstance(logged.event, Activated)]
    shown = active[0][1] if active else tuple(slate)
    if len(active) > settings.requires_activation:
        yield f"{one} is activated {len(active)} times"
    if shown not in {tuple(slate), *(call.shown for call in calls)}:
        yield f"{one} is active with a slate that nobody has shown"
    for event in (logged.event for logged in story):
        if isinstance(event, Lapsed) and active:
            yield f"{one} lapsed, though it was activated"
        if (
            isinstance(event, Rewarded | RewardCollected | RewardRevised | Expired)
            and settings.requires_activation
            and not active
        ):
            yield f"{one} is learned from, and was never activated"
        if isinstance(event, Rewarded | RewardRevised | Expired) and event.shown and event.shown.slate != shown:
            yield f"the reward of {one} is learned for another slate"
    lapsed = any(isinstance(logged.event, Lapsed) for logged in story)
    for call in calls:
        yield from _check_activated(call, call.shown or tuple(slate), active, shown, lapsed=lapsed)


def _check_activated(
    call: Activation, wanted: tuple[str, ...], active: list[tuple[int, tuple[str, ...]]], shown: tuple[str, ...], *,
    lapsed: bool,
) -> Iterator[str]:  # fmt: skip
    one = call.recommendation_id
    match call.outcome:
        case "activated" if (call.position, wanted) not in active:
            yield f"the activation of {one} was acknowledged, and is lost"
        case "duplicate" if shown != wanted:
            yield f"the activation of {one} was acknowledged as one that is there, and another is"
        case "late" if active:
            yield f"the activation of {one} was late, and it is active"
        case "ACTIVATION_EXISTS" if shown == wanted and not lapsed:
            yield f"the activation of {one} is called another one, and is the same"


def check_rewards(
    one: str, slate: Sequence[str], story: Sequence[LoggedEvent], ledger: Ledger, settings: BanditSettings
) -> Iterator[str]:
    """Yield what is broken of what a slate's rewards come to; `slate` is what was recommended."""
    shown = next((logged.event.shown.slate for logged in story if isinstance(logged.event, Activated)), tuple(slate))
    posts = [_Sent.of(post, shown) for post in ledger.posted.get(one, [])]
    corrections = [_Sent.of(call, shown) for call in ledger.corrected.get(one, [])]
    sent, is_void = [*posts, *corrections], any((call.reward_id, call.value) == ("", None) for call in corrections)
    ways: set[Rewards] = {()}
    for logged in story:
        event = logged.event
        if isinstance(event, RewardCollected) and not any(_can_be(call, event, ways) for call in sent):
            yield f"{one} has the reward {event.value}, with {event.item_values}, which nobody posted"
        has_rewards = any(told.value is not None for way in ways for told in way)
        if isinstance(event, Expired) and has_rewards and not is_void:
            yield f"{one} expired, though it has rewards"
        if isinstance(event, Expired) and event.item_values not in {None, _items_come_to(settings, ())}:
            yield f"{one} expired with {event.item_values}, which is not the default"
        ways = set(_ways_after(ways, logged, posts, corrections, settings, is_void=is_void))
        if not ways:
            yield _name_problem(one, event)
            return


class _Sent(NamedTuple):
    """A reward or a correction that was sent, with its item values by the positions of what was shown."""

    reward_id: str
    value: float | None
    items: ItemValues | None
    final: bool
    outcome: str
    position: int

    @classmethod
    def of(cls, call: Posted | Correction, shown: Sequence[str]) -> _Sent:
        final = not isinstance(call, Correction) and call.final
        items = place(call.item_values, shown)
        return cls(call.reward_id, call.value, items, final, call.outcome, call.position)

    @property
    def told(self) -> _Told:
        return _Told(self.reward_id, self.value, self.items)


def _can_be(call: _Sent, event: RewardCollected, ways: set[Rewards]) -> bool:
    """Return whether an event can be about what was sent; a correction without item values leaves those before it."""
    kept = {told.items for way in ways for told in way if told.reward_id == event.reward_id}
    items = {call.items} if call.items is not None or not kept else {call.items, *kept}
    same = call.reward_id in {"", event.reward_id} and call.value == event.value
    return same and (event.value is None or event.item_values in items)


def _ways_after(
    ways: set[Rewards],
    logged: LoggedEvent,
    posts: Sequence[_Sent],
    corrections: Sequence[_Sent],
    settings: BanditSettings,
    *,
    is_void: bool,
) -> Iterable[Rewards]:
    """Return the ways on which a slate's rewards can have come to be what an event says, as they are after it."""
    event = logged.event

    def says(
        way: Rewards, value: float | None, items: ItemValues | None, *, is_default: bool = False, is_aside: bool = False
    ) -> bool:
        is_none, wanted = is_aside or (value is None and not is_default), None if is_default else value
        expected = None if is_none else _items_come_to(settings, () if is_default else way)
        return come_to(settings.reward_aggregation, way) == wanted and items == expected

    match event:
        case RewardCollected(reward_id=reward_id, value=value, item_values=items):
            return (_put(way, _Told(reward_id, value, items)) for way in ways)
        case Rewarded(value=value, item_values=items):
            return (way for way in _ends(ways, posts, logged.position) if says(way, value, items))
        case RewardAmended(value=value, before=before, item_values=items):
            corrected = _apply_correction(ways, corrections, logged.position)
            return (way for way in corrected if says(way, value, items, is_aside=before is not None))
        case RewardRevised(value=None) if is_void:
            return ways
        case RewardRevised(value=value, is_default=is_default, item_values=items):
            return (way for way in ways if says(way, value, items, is_default=is_default))
    return ways


def _name_problem(one: str, event: Event) -> str:
    match event:
        case RewardAmended(value=value):
            return f"{one} is amended to {value}, which no correction makes of it"
        case RewardRevised(value=value):
            return f"{one} is revised to {value}, which what was posted does not come to"
        case Rewarded(value=value):
            return f"{one} has the reward {value}, which what was posted does not come to"
    return f"{one} has rewards that nobody posted"


def check_revisions(one: str, story: Sequence[LoggedEvent], settings: BanditSettings) -> Iterator[str]:
    """Yield each break in what is learned of a slate: each revision goes on from the one before."""
    learned, first_ms, items = None, 0, None
    way: Rewards = ()
    for logged in story:
        event = logged.event
        if isinstance(event, RewardCollected):
            way = _put(way, _Told(event.reward_id, event.value, event.item_values))
        if isinstance(event, Rewarded | Expired) and learned is not None:
            yield f"{one} is learned twice"
        if not isinstance(event, RewardRevised):
            continue
        if (event.before, event.learned_ms, event.item_values_before) != (learned, first_ms, items):
            yield f"{one} is revised from {event.before}, and {learned} is learned of it"
        is_same = (event.value, event.item_values, event.is_default) == (learned, items, event.was_default)
        if is_same and not event.is_final:
            yield f"{one} is revised twice to {event.value}"
        learned, first_ms, items = event.value, first_ms or logged.at_ms, event.item_values
    collected = [logged.event for logged in story if isinstance(logged.event, RewardCollected | RewardRevised)]
    is_other = (come_to(settings.reward_aggregation, way), _items_come_to(settings, way)) != (learned, items)
    if learned is not None and isinstance(collected[-1], RewardCollected) and is_other:
        yield f"{one} has a reward that is not learned, though others were"


def _put(way: Rewards, told: _Told) -> Rewards:
    if any(known.reward_id == told.reward_id for known in way):
        return tuple(told if known.reward_id == told.reward_id else known for known in way)
    return (*way, told)


def _ends(ways: Iterable[Rewards], posts: Sequence[_Sent], position: int) -> Iterator[Rewards]:
    """Yield what rewards may have been as the slate ended: those collected, or with a final one that was posted."""
    there = {post.told for post in posts if (post.outcome, post.position) == ("accepted", position)}
    for way in ways:
        known = {told.reward_id for told in way}
        last = [post.told for post in posts if post.final and post.reward_id not in known]
        yield from (end for end in (way, *((*way, one) for one in last)) if there <= set(end))


def _apply_correction(ways: Iterable[Rewards], corrections: Sequence[_Sent], position: int) -> Iterator[Rewards]:
    """Yield what a correction may have made of the rewards: the one that was acknowledged there, if one was."""
    there = [call for call in corrections if (call.outcome, call.position) == ("accepted", position)]
    for way in ways:
        for call in there or corrections:
            chosen = [told for told in way if call.reward_id in {"", told.reward_id}]
            if len(chosen) == 1 or (chosen and call.value is None):
                yield tuple(_corrected(told, call) if told in chosen else told for told in way)


def _corrected(told: _Told, call: _Sent) -> _Told:
    if call.value is None:
        return _Told(told.reward_id, None)
    return _Told(told.reward_id, call.value, told.items if call.items is None else call.items)


def check_corrections(one: str, story: Sequence[LoggedEvent], ledger: Ledger) -> Iterator[str]:
    """Yield each correction of a slate's rewards that was acknowledged, and is lost."""
    events = {logged.position: logged.event for logged in story}
    for call in ledger.corrected.get(one, []):
        event = events.get(call.position)
        is_kept = isinstance(event, RewardAmended) or (isinstance(event, RewardCollected) and event.value == call.value)
        is_kept = is_kept or (call.value is None and isinstance(event, Expired | Lapsed | RewardRevised))
        if call.outcome == "accepted" and not is_kept:
            yield f"the correction of {one} to {call.value} was acknowledged, and is lost"
