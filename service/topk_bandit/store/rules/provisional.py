"""What is learned of a slate whose reward may still change: its rewards so far, or the default reward without one.

It is first learned some time after the slate was given out, `BanditSettings.provisional_after_ms`. From then until the
wait ends each reward, amendment and void is learned at once, as a change of what was learned before. See decision 76.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topk_bandit.store.events import RewardRevised
from topk_bandit.store.recorded import Provisional, RecordState, aggregate, aggregate_items
from topk_bandit.store.rules.decisions import appended

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.store.events import Event
    from topk_bandit.store.recorded import Recorded

__all__ = ["close", "due_of", "is_provisional", "revise", "void"]


def revise(
    settings: BanditSettings, recorded: Recorded, *, place: int, ends: bool = False
) -> tuple[Recorded, tuple[Event, ...]]:
    """Learn what the rewards of a slate come to so far, or the default reward; it is void if there is neither now.

    Parameters
    ----------
    place
        Of the event in its commit.
    ends
        Whether the slate ends with that.
    """
    learned, value = recorded.provisional, aggregate(settings.reward_aggregation, recorded.rewards)
    is_default = value is None
    value = settings.default_reward if value is None else value
    if value is None:
        return (recorded, ()) if learned is None else void(recorded, place=place)
    item_values = aggregate_items(settings, recorded.rewards)
    now = Provisional(value + 0.0, 0 if learned is None else learned.learned_ms, is_default, item_values)
    if now == learned and not ends:
        return recorded, ()
    revised = replace(recorded, state=RecordState.PROVISIONAL, provisional=now, position=appended(place))
    event = _revision(recorded, now, is_final=ends)
    return close(revised) if ends else revised, (event,)


def void(recorded: Recorded, *, place: int) -> tuple[Recorded, tuple[Event, ...]]:
    """Take back what was learned of a slate, and end it."""
    ended = replace(recorded, state=RecordState.VOID, provisional=None, position=appended(place))
    return ended, (_revision(recorded, None, is_final=True),)


def _revision(recorded: Recorded, now: Provisional | None, *, is_final: bool) -> RewardRevised:
    learned = recorded.provisional
    return RewardRevised(
        recorded.recommendation.recommendation_id,
        None if now is None else now.value,
        recorded.shown,
        0 if learned is None else learned.learned_ms,
        is_default=now is not None and now.is_default,
        was_default=learned is not None and learned.is_default,
        is_final=is_final,
        before=None if learned is None else learned.value,
        item_values=None if now is None else now.item_values,
        item_values_before=None if learned is None else learned.item_values,
        group=recorded.recommendation.group,
    )


def close(recorded: Recorded) -> Recorded:
    """End a slate with what is learned of it."""
    learned = recorded.provisional
    is_default = learned is not None and learned.is_default
    return replace(recorded, state=RecordState.EXPIRED if is_default else RecordState.REWARDED, provisional=None)


def is_provisional(settings: BanditSettings, recorded: Recorded) -> bool:
    """Return whether what a slate earned so far is learned before its wait ends."""
    is_kept = settings.provisional_after_ms is not None and not recorded.aside
    return is_kept or recorded.state is RecordState.PROVISIONAL


def due_of(settings: BanditSettings, recorded: Recorded) -> int:
    """Return when an open slate is looked at next: when its reward is first learned, or when its wait ends."""
    deadline_ms, after_ms = recorded.recommendation.deadline_ms, settings.provisional_after_ms
    if after_ms is None or recorded.aside or recorded.state is not RecordState.PENDING:
        return deadline_ms
    return min(recorded.at_ms + after_ms, deadline_ms)
