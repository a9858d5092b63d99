"""Events and slates of an archive: those that no caller of a bandit with such settings could cause are refused.

A learner that met such an event would stop there, or no answer could show it. Ids of items are not looked at: which
of them were known when is what `topk_bandit.bandits.dry_runs` finds out.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from typing import TYPE_CHECKING

from topk_bandit.bandits.contexts import check_context, check_item_schema, check_own_rules
from topk_bandit.domain.bandits import (
    MAX_BETA,
    MAX_CONTEXT_MAGNITUDE,
    MAX_HALF_LIFE_MS,
    MAX_REWARD_MAGNITUDE,
    MAX_REWARD_WAIT_MS,
    MOST_LEARNED_PER_SECOND,
    MOST_SHARES_FALL_AFTER,
    ConstantBeta,
)
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import MAX_FEATURE_MAGNITUDE, Features
from topk_bandit.domain.joint_settings import check_together
from topk_bandit.domain.paths import entry_of
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.stages import MAX_CONTROL_SHARE
from topk_bandit.store.archives import ArchivedBandit
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    Imported,
    ItemsChanged,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)
from topk_bandit.store.log import MOST_REWARDS
from topk_bandit.store.recorded import OPEN_STATES, Recorded, find_item_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import ItemValues, Recommendation
    from topk_bandit.store.events import Event

__all__ = ["LARGEST_SUM", "check_restored"]


*_, LARGEST_SUM = accumulate(repeat(MAX_REWARD_MAGNITUDE, MOST_REWARDS))
"""Several rewards of a slate may be learned as their sum: rounded at each addition, it exceeds the product."""

_LARGEST_FIGURE = 1e120
"""No answer has a larger one, and sums of any number of them are finite."""

_MOST_COUNTED = 2**31 - 1

_MOST_ITEM_BYTES = 1 << 30
"""What the features of items may take in memory, whatever a worker here allows."""


def check_restored(settings: BanditSettings, restored: Event | Recorded | ArchivedBandit) -> None:
    """Check that a bandit with these settings, or earlier ones, could have this in its log, or remember it.

    Raises
    ------
    InvalidArgumentError
        On ``context``, ``features``, ``slate``, ``reward``, ``item_values``, or a field of ``settings`` or
        ``recommendation``: it could not, for that.
    """
    if isinstance(restored, ArchivedBandit | BanditCreated | SettingsChanged):
        _check_settings(settings)
        return
    if isinstance(restored, Recommended):
        check_own_rules(replace(settings, rules=restored.request.rules), field="request.rules")
    if isinstance(restored, Recommended | Recorded):
        _check_recommendation(restored.recommendation)
    if isinstance(restored, ItemsChanged):
        for item in restored.upserted:
            _check_features(item.features)
    for context, slate in _find_slates(restored):
        _check_shown(settings, context, slate)
    for reward in _rewards(restored):
        _check_number("reward", reward, LARGEST_SUM)
    for values in find_item_values(restored):
        _check_item_values(settings, values)


def _find_slates(restored: Event | Recorded) -> Iterator[tuple[Context, Sequence[str]]]:
    match restored:
        case Recommended(request, recommendation):
            yield request.context, recommendation.slate
        case Activated(_, shown) | Rewarded(_, _, shown) | RewardRevised(shown=shown):
            yield shown.context, shown.slate
        case Expired(shown=shown) if shown is not None:
            yield shown.context, shown.slate
        case Imported(_, _, slates):
            for past in slates:
                yield past.context, past.slate
        case Recorded() if restored.state in OPEN_STATES:  # of others the context may be missing
            yield restored.context, restored.recommendation.slate


def _rewards(restored: Event | Recorded) -> Iterator[float]:
    match restored:
        case Rewarded(value=value):
            yield value
        case RewardRevised(value=value, before=before):
            yield from (one for one in (value, before) if one is not None)
        case RewardAmended(value=value, before=before, replaced=replaced):
            yield from (one for one in (value, before, replaced) if one is not None)
        case RewardCollected(value=value) | Expired(default_reward=value):
            if value is not None:
                yield value
        case Imported(_, _, slates):
            yield from (past.reward for past in slates)
        case Recorded():
            yield from (posted.posted for posted in restored.rewards)
            yield from (posted.value for posted in restored.rewards if posted.value is not None)


def _check_item_values(settings: BanditSettings, values: ItemValues) -> None:
    if len(values) != settings.slate_size:
        raise InvalidArgumentError("item_values", f"expected {settings.slate_size} entries, got {len(values)}")
    for value in values:
        if value is not None:
            _check_number("item_values", value, LARGEST_SUM)


def _check_shown(settings: BanditSettings, context: Context, slate: Sequence[str]) -> None:
    check_context(settings, context)
    if isinstance(context, Features):
        _check_features(context)
    else:
        for number in context:
            _check_number("context", number, MAX_CONTEXT_MAGNITUDE)
    if len(slate) != settings.slate_size or len(set(slate)) != len(slate):
        raise InvalidArgumentError("slate", f"expected {settings.slate_size} different items, got {len(slate)}")


def _check_features(features: Features) -> None:
    for name, value in features.values:
        for number in _numbers(value):
            _check_number(entry_of("features", name), number, MAX_FEATURE_MAGNITUDE)


def _check_settings(settings: BanditSettings) -> None:
    """Check that a bandit could have been given such settings by a call."""
    explored, taken = settings.exploration, settings.reward_range
    beta = explored.beta.value if isinstance(explored.beta, ConstantBeta) else explored.beta.scale
    for name, value, most in (
        ("reward_wait_ms", settings.reward_wait_ms, MAX_REWARD_WAIT_MS),
        ("half_life_ms", settings.half_life_ms, MAX_HALF_LIFE_MS),
        ("beta", beta, MAX_BETA),
        ("uniform_share", explored.uniform_share, 1.0),
        ("near_share", explored.near_share, 1.0),
        ("shares_fall_after", explored.shares_fall_after, MOST_SHARES_FALL_AFTER),
        ("learned_per_second", settings.learned_per_second, MOST_LEARNED_PER_SECOND),
        ("provisional_after_ms", settings.provisional_after_ms or 0, MAX_REWARD_WAIT_MS),
        ("control_share", settings.control_share, MAX_CONTROL_SHARE),
        ("guardrail_margin", settings.guardrail_margin or 0.0, 1.0),
        ("conservative_share", settings.conservative_share, 1.0),
    ):
        _check_number(f"settings.{name}", value, most, least=0)
    rewards = (
        settings.default_reward,
        settings.default_item_value,
        *(() if taken is None else (taken.low, taken.high)),
    )
    for reward in rewards:
        if reward is not None:
            _check_number("settings.reward", reward, MAX_REWARD_MAGNITUDE)
    check_together(settings, path="settings")
    _check_item_schema(settings)
    check_own_rules(settings, field="settings.rules")


def _check_item_schema(settings: BanditSettings) -> None:
    try:
        check_item_schema(settings, most_bytes=_MOST_ITEM_BYTES)
    except InvalidArgumentError as error:
        raise InvalidArgumentError("settings.item_schema", error.problem) from None


def _check_recommendation(given: Recommendation) -> None:
    for name in ("passed_over", "observations", "model_version"):
        _check_number(f"recommendation.{name}", getattr(given, name), _MOST_COUNTED, least=0)
    for name in ("propensity", "mean", "standard_deviation", "regret_bound", "estimated_regret"):
        _check_number(f"recommendation.{name}", getattr(given, name), _LARGEST_FIGURE)
    if given.shadow is not None:
        for name in ("gain", "gain_deviation"):
            _check_number(f"recommendation.shadow.{name}", getattr(given.shadow, name), _LARGEST_FIGURE)
    for propensity in given.position_propensities:
        _check_number("recommendation.position_propensities", propensity, _LARGEST_FIGURE)


def _numbers(value: object) -> Iterator[float]:
    """Return the numbers of a feature's value."""
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, float):
            yield one


def _check_number(field: str, value: float, most: float, *, least: float | None = None) -> None:
    low = -most if least is None else least
    if not low <= value <= most:
        raise InvalidArgumentError(field, f"must be a finite number from {low:g} to {most:g}, not {value!r}")
