"""What must hold of a slate's way through the log: its activation, what its rewards come to, and their corrections.

The log does not say which reward was the final one, nor which a correction was about. So all ways are followed on which
it can have come to be what it is, given what callers sent and what was acknowledged to them; there has to be one.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.bandits import (
    Activated,
    Aggregation,
    Expired,
    Lapsed,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topk_bandit.domain.bandits import BanditSettings, Event, LoggedEvent
    from topk_bandit.lab.faults.ledger import Activation, Correction, Ledger, Posted

__all__ = ["check_activation", "check_corrections", "check_revisions", "check_rewards", "come_to"]

Rewards: TypeAlias = tuple[tuple[str, float | None], ...]
"""A slate's rewards by their ids, in the order in which they came; None for one that was taken back."""


def come_to(kind: Aggregation, rewards: Rewards) -> float | None:
    """Return what rewards come to, None without any that counts: worked out anew, to hold the store to it."""
    values = [value for _, value in rewards if value is not None]
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


def check_rewards(one: str, story: Sequence[LoggedEvent], ledger: Ledger, settings: BanditSettings) -> Iterator[str]:
    """Yield what is broken of what a slate's rewards come to."""
    posts, corrections = ledger.posted.get(one, []), ledger.corrected.get(one, [])
    sent = {*((post.reward_id, post.value) for post in posts), *((call.reward_id, call.value) for call in corrections)}
    ways: set[Rewards] = {()}
    for logged in story:
        event = logged.event
        if isinstance(event, RewardCollected) and not {(event.reward_id, event.value), ("", event.value)} & sent:
            yield f"{one} has the reward {event.value}, which nobody posted"
        has_rewards = any(value is not None for way in ways for _, value in way)
        if isinstance(event, Expired) and has_rewards and ("", None) not in sent:
            yield f"{one} expired, though it has rewards"
        ways = set(_ways_after(ways, logged, posts, corrections, settings, is_void=("", None) in sent))
        if not ways:
            yield _name_problem(one, event)
            return


def _ways_after(
    ways: set[Rewards],
    logged: LoggedEvent,
    posts: Sequence[Posted],
    corrections: Sequence[Correction],
    settings: BanditSettings,
    *,
    is_void: bool,
) -> Iterable[Rewards]:
    """Return the ways on which a slate's rewards can have come to be what an event says, as they are after it."""
    event, kind = logged.event, settings.reward_aggregation
    match event:
        case RewardCollected(reward_id=reward_id, value=value):
            return (_put(way, reward_id, value) for way in ways)
        case Rewarded(value=value):
            return (way for way in _ends(ways, posts, logged.position) if come_to(kind, way) == value)
        case RewardAmended(value=value):
            return (way for way in _apply_correction(ways, corrections, logged.position) if come_to(kind, way) == value)
        case RewardRevised(value=None) if is_void:
            return ways
        case RewardRevised(value=value, is_default=is_default):
            return (way for way in ways if come_to(kind, way) == (None if is_default else value))
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


def check_revisions(one: str, story: Sequence[LoggedEvent]) -> Iterator[str]:
    """Yield each break in what is learned of a slate: each revision goes on from the one before."""
    learned, first_ms = None, 0
    for logged in story:
        event = logged.event
        if isinstance(event, Rewarded | Expired) and learned is not None:
            yield f"{one} is learned twice"
        if not isinstance(event, RewardRevised):
            continue
        if (event.before, event.learned_ms) != (learned, first_ms):
            yield f"{one} is revised from {event.before}, and {learned} is learned of it"
        if event.value == learned and event.is_default == event.was_default and not event.is_final:
            yield f"{one} is revised twice to {event.value}"
        learned, first_ms = event.value, first_ms or logged.at_ms
    collected = [logged.event for logged in story if isinstance(logged.event, RewardCollected | RewardRevised)]
    if learned is not None and isinstance(collected[-1], RewardCollected):
        yield f"{one} has a reward that is not learned, though others were"


def _put(way: Rewards, reward_id: str, value: float | None) -> Rewards:
    if any(known == reward_id for known, _ in way):
        return tuple((known, value if known == reward_id else old) for known, old in way)
    return (*way, (reward_id, value))


def _ends(ways: Iterable[Rewards], posts: Sequence[Posted], position: int) -> Iterator[Rewards]:
    """Yield what rewards may have been as the slate ended: those collected, or with a final one that was posted."""
    there = {(post.reward_id, post.value) for post in posts if (post.outcome, post.position) == ("accepted", position)}
    for way in ways:
        known = {reward_id for reward_id, _ in way}
        last = [(post.reward_id, post.value) for post in posts if post.final and post.reward_id not in known]
        yield from (end for end in (way, *((*way, one) for one in last)) if there <= set(end))


def _apply_correction(ways: Iterable[Rewards], corrections: Sequence[Correction], position: int) -> Iterator[Rewards]:
    """Yield what a correction may have made of the rewards: the one that was acknowledged there, if one was."""
    there = [call for call in corrections if (call.outcome, call.position) == ("accepted", position)]
    for way in ways:
        for call in there or corrections:
            chosen = [known for known, _ in way if call.reward_id in {"", known}]
            if len(chosen) == 1 or (chosen and call.value is None):
                yield tuple((known, call.value if known in chosen else old) for known, old in way)


def check_corrections(one: str, story: Sequence[LoggedEvent], ledger: Ledger) -> Iterator[str]:
    """Yield each correction of a slate's rewards that was acknowledged, and is lost."""
    events = {logged.position: logged.event for logged in story}
    for call in ledger.corrected.get(one, []):
        event = events.get(call.position)
        is_kept = isinstance(event, RewardAmended) or (isinstance(event, RewardCollected) and event.value == call.value)
        is_kept = is_kept or (call.value is None and isinstance(event, Expired | Lapsed | RewardRevised))
        if call.outcome == "accepted" and not is_kept:
            yield f"the correction of {one} to {call.value} was acknowledged, and is lost"
