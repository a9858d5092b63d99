"""Events and slates that arrive from elsewhere: what no caller of a bandit with such settings could cause is refused.

A learner that met such an event would stop there. Ids of items are not looked at: which of them were known when is what
the learner folds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.bandits.contexts import check_context
from topk_bandit.domain.bandits import (
    MAX_CONTEXT_MAGNITUDE,
    MAX_REWARD_MAGNITUDE,
    Activated,
    Expired,
    Imported,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
)
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import MAX_FEATURE_MAGNITUDE, Features
from topk_bandit.store.log import MOST_REWARDS
from topk_bandit.store.recorded import Recorded, RecordState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.domain.bandits import BanditSettings, Event
    from topk_bandit.domain.features import Context

__all__ = ["check_arriving"]

_OPEN = frozenset({RecordState.INACTIVE, RecordState.PENDING})

_LARGEST_SUM = MOST_REWARDS * MAX_REWARD_MAGNITUDE
"""Several rewards of a slate may be learned as their sum."""


def check_arriving(settings: BanditSettings, arriving: Event | Recorded) -> None:
    """Check that a bandit with these settings, or earlier ones, could have this in its log, or remember it.

    Raises
    ------
    InvalidArgumentError
        On ``context``, ``features``, ``slate`` or ``reward``: it could not, for that.
    """
    for context, slate in _find_slates(arriving):
        _check_shown(settings, context, slate)
    for reward in _rewards(arriving):
        _check_number("reward", reward, _LARGEST_SUM)


def _find_slates(arriving: Event | Recorded) -> Iterator[tuple[Context, Sequence[str]]]:
    match arriving:
        case Recommended(request, recommendation):
            yield request.context, recommendation.slate
        case Activated(_, shown) | Rewarded(_, _, shown):
            yield shown.context, shown.slate
        case Expired(shown=shown) if shown is not None:
            yield shown.context, shown.slate
        case Imported(_, _, slates):
            for past in slates:
                yield past.context, past.slate
        case Recorded() if arriving.state in _OPEN:  # of others the context may be missing
            yield arriving.context, arriving.recommendation.slate


def _rewards(arriving: Event | Recorded) -> Iterator[float]:
    match arriving:
        case Rewarded(value=value):
            yield value
        case RewardCollected(value=value) | RewardAmended(value=value) | Expired(default_reward=value):
            if value is not None:
                yield value
        case Imported(_, _, slates):
            yield from (past.reward for past in slates)
        case Recorded():
            yield from (posted.posted for posted in arriving.rewards)
            yield from (posted.value for posted in arriving.rewards if posted.value is not None)


def _check_shown(settings: BanditSettings, context: Context, slate: Sequence[str]) -> None:
    check_context(settings, context)
    if isinstance(context, Features):
        for name, value in context.values:
            for number in _numbers(value):
                _check_number(f"features[{name}]", number, MAX_FEATURE_MAGNITUDE)
    else:
        for number in context:
            _check_number("context", number, MAX_CONTEXT_MAGNITUDE)
    if len(slate) != settings.slate_size or len(set(slate)) != len(slate):
        raise InvalidArgumentError("slate", f"expected {settings.slate_size} different items, got {len(slate)}")


def _numbers(value: object) -> Iterator[float]:
    """Return the numbers of a feature's value."""
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, float):
            yield one


def _check_number(field: str, value: float, most: float) -> None:
    if not -most <= value <= most:
        raise InvalidArgumentError(field, f"must be a finite number from {-most:g} to {most:g}, not {value!r}")
