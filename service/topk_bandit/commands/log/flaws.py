"""What in a log makes estimates from it wrong, as far as a log shows: each a sentence.

A sentence about chance is said of a sound log with a probability of about one in a thousand.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, pdtr, pdtrc

from topk_bandit.learning.evaluation.slate_log import share_of_each
from topk_bandit.store.events import (
    BanditCreated,
    BanditReset,
    Expired,
    Lapsed,
    Recommended,
    Rewarded,
    SettingsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.learning.evaluation.slate_log import LoggingPolicy
    from topk_bandit.learning.rankings import Rankings
    from topk_bandit.store.events import LoggedEvent

__all__ = ["describe_changes", "find_changes", "find_flaws", "find_odd_draws", "find_odd_rewards"]

_CHANCE = 1e-4
"""A sound log is said to be odd by one comparison with this probability; there are at most ten of them."""

_NORMAL_FROM = 25.0
"""A count with this variance is compared by the normal distribution, one with less by Poisson's, which is wider."""

_FEWEST = 5.0
"""Each cell of a table of two by two is expected to have at least so many."""

_BACK_MS = 1000
"""A store's clock may be set back a little, as when a replica takes over."""

_LONGEST_USUAL = 20
"""So many slates in a row may lack a reward by a cause that is no flaw, such as a visitor who leaves."""


def find_flaws(events: Sequence[LoggedEvent], *, is_whole: bool) -> Iterator[str]:
    """Yield what is wrong with the order and the number of events; a whole log begins with its first event."""
    back = [(one, after) for one, after in pairwise(events) if after.at_ms < one.at_ms - _BACK_MS]
    if back:
        one, after = back[0]
        yield (
            f"times go back {_times(len(back))}, first by {(one.at_ms - after.at_ms) / 1e3:,.0f} s at event "
            f"{after.position}: the order of events is not that of the time"
        )
    yield from _find_duplicates(events)
    if is_whole:
        yield from _find_unknown_ends(events)


def find_changes(events: Sequence[LoggedEvent], settings: BanditSettings | None) -> list[int]:
    """Return the positions where the policy became another one than that of the slates before, ascending.

    Of several changes without a slate between them it is the last one.

    Parameters
    ----------
    settings
        Those before the first event; None for a log that begins with its first event.
    """
    changes, position, resets = list[int](), 0, 0
    now = None if settings is None else (_choosing(settings), resets)
    shown = None
    for logged in events:
        before = now
        match logged.event:
            case BanditCreated(changed) | SettingsChanged(changed):
                now = (_choosing(changed), resets)
            case BanditReset():
                resets += 1
                now = None if now is None else (now[0], resets)
            case Recommended():
                if shown is not None and now != shown:
                    changes.append(position)
                shown = now
        position = position if now == before else logged.position
    return changes if shown in {None, now} else [*changes, position]


def describe_changes(events: Sequence[LoggedEvent], changes: Sequence[int]) -> Iterator[str]:
    """Yield that what was shown is of several policies, if slates were shown after a change."""
    last = max((one.position for one in events if isinstance(one.event, Recommended)), default=0)
    mixed = [one for one in changes if one < last]
    if mixed:
        more = f", and {_times(len(mixed) - 1)} more" if mixed[1:] else ""
        yield (
            f"the policy changed at event {mixed[0]}{more}: what was shown is of several policies, and its mean "
            "reward is of no single one"
        )


def _find_duplicates(events: Sequence[LoggedEvent]) -> Iterator[str]:
    ids, requests, ends = Counter[str](), Counter[str](), Counter[str]()
    for logged in events:
        match logged.event:
            case Recommended(request, given):
                ids[given.recommendation_id] += 1
                requests[request.request_id] += bool(request.request_id)
            case Rewarded(key) | Expired(key) | Lapsed(key):
                ends[key] += 1
    for count, noun, verb in (
        (_repeated(ids), "recommendation", "logged more than once"),
        (_repeated(ends), "recommendation", "ended more than once"),
        (_repeated(requests) if not _repeated(ids) else 0, "request", "answered with more than one recommendation"),
    ):
        if count:
            yield f"{count:,} {noun}{'s are' if count > 1 else ' is'} {verb}: each counts more than it should"


def _repeated(counts: Counter[str]) -> int:
    return sum(count > 1 for count in counts.values())


def _find_unknown_ends(events: Sequence[LoggedEvent]) -> Iterator[str]:
    known, unknown = set[str](), 0
    for logged in events:
        match logged.event:
            case Recommended(recommendation=given):
                known.add(given.recommendation_id)
            case Rewarded(key) | Expired(key) | Lapsed(key):
                unknown += key not in known
    if unknown:
        has = "rewards are" if unknown > 1 else "reward is"
        yield f"{unknown:,} {has} of slates that the log does not have before them: some recommendations are missing"


def _choosing(settings: BanditSettings) -> tuple[object, ...]:
    """Return the settings by which slates are chosen."""
    chosen_by = settings.exploration, settings.rules, settings.stage, settings.control_share, settings.prior_digest
    return (*chosen_by, settings.kernel, settings.half_life_ms, settings.trusts_rewards)


class _Kinds(NamedTuple):
    """Of each request, whether its slate is near the best one or far from it, and how likely each was; shapes (N,)."""

    near: NDArray[np.bool_]
    far: NDArray[np.bool_]
    p_near: NDArray[np.float64]
    p_far: NDArray[np.float64]


def _kinds(policy: LoggingPolicy, slates: Rankings) -> _Kinds:
    is_best, is_near = policy.places(slates)
    each = policy.uniform_share * share_of_each(policy.n_eligible, policy.slate_size)
    p_near = policy.n_near * (policy.share_of_each_near + each)
    return _Kinds(
        is_near, ~(is_best | is_near), p_near, np.maximum(policy.uniform_share - (1 + policy.n_near) * each, 0)
    )


def find_odd_draws(policy: LoggingPolicy, slates: Rankings) -> Iterator[str]:
    """Yield how slates (N, k) differ from draws with their propensities: altogether, and in each half of the log."""
    kinds, half = _kinds(policy, slates), len(slates) // 2
    for span, where in (
        (slice(None), ""),
        (slice(half), " in the first half"),
        (slice(half, None), " in the second half"),
    ):
        odd = [
            f"{count:,} slates {name} the best one{where}, where {likely[span].sum():,.1f} are expected"
            for name, drawn, likely in (("near", kinds.near, kinds.p_near), ("far from", kinds.far, kinds.p_far))
            if _is_odd(count := int(drawn[span].sum()), likely[span])
        ]
        if odd:
            yield f"slates were not drawn with their propensities, or some are missing: there are {' and '.join(odd)}"
            return
    mean, error = _mean_weight(policy, slates, kinds)
    if error and 2.0 * ndtr(-abs(mean - 1.0) / error) < _CHANCE:
        yield (
            "slates were not drawn with their propensities, or some are missing: the weights of uniform slates are "
            f"{mean:.3f} on average, where 1 ± {error:.3f} is expected"
        )


def _is_odd(count: int, likely: NDArray[np.float64]) -> bool:
    """Return whether a count of independent events with these probabilities is one that chance hardly gives."""
    mean, variance = float(likely.sum()), float((likely * (1.0 - likely)).sum())
    if variance >= _NORMAL_FROM:
        tail = ndtr(-(abs(count - mean) - 0.5) / np.sqrt(variance))
    else:
        tail = pdtr(count, mean) if count < mean else (pdtrc(count - 1, mean) if count else 1.0)
    return bool(2.0 * tail < _CHANCE)


def _mean_weight(policy: LoggingPolicy, slates: Rankings, kinds: _Kinds) -> tuple[float, float]:
    """Return the mean of the weights of uniform slates, and its exact standard deviation; 0 where that is unknown.

    With few slates far from the best one the mean is far from normal, and their count says it better.
    """
    if kinds.p_far.sum() < _NORMAL_FROM or not (policy.uniform_share > 0.0).all():
        return 1.0, 0.0
    each = share_of_each(policy.n_eligible, policy.slate_size)
    weights = each / policy.propensities(slates)
    squares = each**2 / policy.propensities(policy.best) + kinds.p_far / policy.uniform_share**2
    squares += np.where(
        policy.n_near > 0, (policy.n_near * each) ** 2 / np.where(policy.n_near > 0, kinds.p_near, 1), 0
    )
    return float(weights.mean()), float(np.sqrt(np.maximum(squares - 1.0, 0.0).sum())) / len(slates)


def find_odd_rewards(
    policy: LoggingPolicy, slates: Rankings, rewards: Sequence[float | None], positions: Sequence[int]
) -> Iterator[str]:
    """Yield how missing rewards have to do with slates or with the time, and rewards that only say that they came.

    Parameters
    ----------
    slates, rewards, positions
        Of each request, in their order: the slate drawn, its reward, and where it is logged. Those after the last one
        with a reward may still get theirs, and are not looked at.
    """
    has = np.array([one is not None for one in rewards])
    end = int(np.flatnonzero(has)[-1]) + 1 if has.any() else 0
    has = has[:end]
    missing = int((~has).sum())
    if not missing:
        return
    kinds = _kinds(policy, slates)
    explored = (kinds.near | kinds.far)[:end]
    if _depends(has, explored):
        there, others = (f"{has[which].mean():.0%}" for which in (explored, ~explored))
        yield (
            f"{there} of the slates that exploration drew have a reward, and {others} of the others: a reward that is "
            "missing has to do with the slate, so that no estimate holds"
        )
    first, last = _longest_gap(has)
    if (
        last - first > _LONGEST_USUAL
        and end * float(has.mean()) * (1.0 - float(has.mean())) ** (last - first) < _CHANCE
    ):
        yield (
            f"none of the {last - first:,} slates from event {positions[first]} to {positions[last - 1]} has a reward: "
            "rewards of a time are missing"
        )
    values = {one for one in rewards if one is not None}
    if len(values) == 1 and 0.0 not in values and min(missing, end - missing) >= _LONGEST_USUAL:
        yield (
            f"each reward is {values.pop():g}, and {missing:,} slates have none: rewards of 0 are missing, which a "
            "default reward of the bandit would add"
        )


def _depends(has: NDArray[np.bool_], explored: NDArray[np.bool_]) -> bool:
    """Return whether two marks of the same slates have to do with each other, by the difference of two shares."""
    sizes, share = np.array([explored.sum(), (~explored).sum()]), float(has.mean())
    if sizes.min() * min(share, 1.0 - share) < _FEWEST:
        return False
    difference = has[explored].mean() - has[~explored].mean()
    error = np.sqrt(share * (1.0 - share) * (1.0 / sizes).sum())
    return bool(2.0 * ndtr(-abs(difference) / error) < _CHANCE)


def _longest_gap(has: NDArray[np.bool_]) -> tuple[int, int]:
    """Return where the longest run without a reward begins, and where it has ended; shape of `has` is (N,)."""
    there = np.concatenate(([-1], np.flatnonzero(has), [len(has)]))
    longest = int(np.diff(there).argmax())
    return int(there[longest]) + 1, int(there[longest + 1])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
